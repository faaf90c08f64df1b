"""Stage D: what one member is, from the fits of all models."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from icl_lab.identify.asking import Floats
from icl_lab.identify.fitting import Fit

NAMED, ROUGHLY, ASYMMETRY, ZERO = 0.05, 0.10, 0.15, 1e-3
LADDER = (0.10, 0.05, 0.02, 0.01)
SHARE, LEAST = 0.10, 0.002
"""A larger model replaces a smaller one if it takes more than this share off its residual, and more than this."""

EQUAL = 0.01
"""Fits whose predictions differ by less, relative, in 95 % of contexts, belong together."""

LEFT, CHANCE = 0.06, 0.01
"""Training leaves at most ``LEFT`` of asymmetry in a symmetric algorithm (4 to 5 % were seen). Below ``LEFT`` a
preconditioner is named only if random couplings look this symmetric with probability ``CHANCE`` or less."""

FLEXIBLE = 4
NEAR, NEAR_IF_FLEXIBLE, TENTH = 0.005, 0.01, 0.1
"""A larger model replaces one whose residual is above ``NEAR``; one of ``FLEXIBLE`` numbers or more (it approximates
almost anything) above ``NEAR_IF_FLEXIBLE``; or, with fewer, above ``ROUNDING`` where it leaves less than a tenth."""
ROUNDING = 3e-4

BEYOND, FAR_BEYOND, FOLLOWS = 1.5, 2.0, 0.5
"""Inputs times the first factor are beyond training: a model of two numbers or more must hold there, and leave less
than this share of what a smaller one leaves, or nearly nothing. One of ``FLEXIBLE`` numbers must hold at the second."""

GAINED = 0.005
"""A gain that is further from 1 is part of the explanation."""

DEVIATIONS = (0.005, 0.01, 0.02, 0.03)
STABLE, KEPT = 0.01, 0.9
"""A name is one that nine in ten deviations of a hundredth, and all smaller ones, leave as it is."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Member:
    """What one member was found to be.

    Attributes:
      verdict: ``identified``, ``not separable`` or ``none of these``; of several outputs also ``mixed``.
      family: the first of the equal ones that is stable, None unless identified.
      equals: names of all families of the class, then of those that contain one of them; of all that it wavers between
        where they are not separable.
      steps: K of ``fit``, None where it has none; all that deviations leave as they are where that is several.
      parameters: of ``fit``, in the units of the caller; those of several steps are numbered. Empty unless identified.
        One that nothing determines is not among them.
      intervals: of every parameter of ``fit``, the smallest and largest value of fits that are as good, or that
        deviations of .01 lead to.
      gain: by which the algorithm's predictions are multiplied; None where it contains a scale itself.
      stability: the largest deviation (of 0, .005, .01, .02, .03) up to which the name stays.
      residual: median |f - g| / |f| of the named model; of the nearest of all families where none is named.
      asymmetry: median |f - symmetrised f| / |f|.
      range: largest factor on the inputs up to which the named model stays within bounds; None if 1 fails.
      label_range: the same for labels alone.
      noise: of the symmetrised f, by halves.
      free: residual of the free filter, plain or centred.
      rivals: of every family the best of the models that were fitted, and its residual, ascending.
      unfitted: families whose larger models were not fitted, since a smaller algorithm left nothing for them to
        explain: their best may be closer than ``rivals`` says.
      ladder: by bound (10, 5, 2 and 1 %) the smallest model within it; None where there is none.
      doubled: by family, the residual of its best model with the same parameters on inputs twice as large.
      reason: why it is none of these, or where two fits differ most and what the learner shows there.
      nearest: the nearest model where none is named, of all families, also of those that the structure excludes.
      evidence: what speaks for the name where the structure alone forces it; then residual and range say nothing.
      trials: by family, its best model, what became of it, and by deviation the share of decisions that keep its name.
      excluded: families that it cannot be, and why.
      closest: the fit of ``nearest``.
      fits: all fits, for figures.
    """

    verdict: str
    family: str | None = None
    equals: tuple[str, ...] = ()
    steps: int | tuple[int, ...] | None = None
    parameters: dict[str, float] = dataclasses.field(default_factory=dict)
    residual: float
    asymmetry: float
    range: float | None = None
    label_range: float | None = None
    noise: float
    free: float = float("nan")
    rivals: dict[str, float] = dataclasses.field(default_factory=dict)
    unfitted: tuple[str, ...] = ()
    ladder: dict[float, str | None] = dataclasses.field(default_factory=dict)
    doubled: dict[str, float] = dataclasses.field(default_factory=dict)
    reason: str = ""
    intervals: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    gain: float | None = None
    stability: float = 0.0
    nearest: str | None = None
    evidence: str = ""
    trials: dict[str, str] = dataclasses.field(default_factory=dict)
    excluded: dict[str, str] = dataclasses.field(default_factory=dict)
    closest: Fit | None = dataclasses.field(repr=False, compare=False, default=None)
    fits: tuple[Fit, ...] = dataclasses.field(repr=False, compare=False, default=())

    @property
    def fit(self) -> Fit | None:
        """The fit that is named; None also where the learner is zero, which needs none.

        Its family (``fit.model.family``) is another of ``equals`` where the first of them was not fitted at that size:
        two steps of GD++ can be four of GD with rates of their own.
        """
        return self.fits[0] if self.verdict == "identified" and self.fits else None


def described(fit: Fit, steps: int | tuple[int, ...] | None = None) -> str:
    """``GD++, 2 steps``, or several that may stand in the place of those of the fit."""
    model = fit.model
    many = steps if isinstance(steps, tuple) else (model.steps,)
    numbers = " or ".join(filter(None, (", ".join(map(str, many[:-1])), str(many[-1]))))
    counted = f", {numbers} {model.unit}{'s' * (many[-1] > 1)}" if many[-1] else ""
    return f"{model.family}{counted}{' of their own' if model.own else ''}"


def improves(larger: Fit, smaller: Fit, noise: float, deviation: float = 0.0) -> bool:
    """Whether the larger model's residual is so much better that it replaces the smaller one.

    It must be closer beyond the training prompts, too: a flexible model takes up what training leaves of a simple
    algorithm, but does not follow the learner where nothing was fitted. Where a deviation of known size was laid over
    the learner, what it explains is no reason to replace a model.

    Where one of them is fitted to f itself both are judged there. The smaller one must then miss f by more than
    training leaves in a network that breaks no symmetry on purpose, and the larger one by less than half of that; or
    the larger one is any symmetric matrix, leaves less than ``by_chance``, and the two are apart.
    """
    if larger.raw != smaller.raw:
        left = larger.on_raw / max(smaller.on_raw, 1e-300)
        symmetric = larger.raw and larger.model.own and smaller.on_raw > EQUAL and left < by_chance(larger.model.size)
        return symmetric or (smaller.on_raw > LEFT and left < 0.5)
    if larger.beyond > max(FOLLOWS * smaller.beyond, NEAR):
        return False
    flexible, gained = larger.model.size >= FLEXIBLE, smaller.residual - larger.residual
    if smaller.residual > max(deviation, max(NEAR_IF_FLEXIBLE, 3 * noise) if flexible else NEAR):
        return gained > max(SHARE * smaller.residual, LEAST)
    return not flexible and smaller.residual > max(ROUNDING, deviation) and larger.residual < TENTH * smaller.residual


def by_chance(size: int) -> float:
    """Share of a miss that a symmetric D x D matrix of so many numbers rarely gets below where the cause is chance.

    Gradient descent's preconditioner is symmetric. Of normal couplings, whose mean trace is in the rate, D (D - 1) / 2
    degrees of freedom are antisymmetric and D (D + 1) / 2 - 1 are not: the squared share of the first, which no
    symmetric matrix fits, has a beta distribution. Returns the root of its ``CHANCE`` quantile, .37 at D = 5.
    """
    from scipy.special import betaincinv

    d = round(((8 * size + 1) ** 0.5 - 1) / 2)
    return float(betaincinv(d * (d - 1) / 4, (size - 1) / 2, CHANCE)) ** 0.5 if d > 1 else 0.0


def asymmetry_by_chance(size: int, share: float = 0.01) -> float:
    """The asymmetry below which so large a share of random one-layer networks is, inputs being of a size D.

    One layer of linear attention is sum_i y_i x_i^T A x_q, and its mean over rotations has trace(A) / D times the
    identity in the place of A: what the mean leaves out of A, relative, is sqrt(1 - trace(A)^2 / (D |A|^2)). For a
    normal A the square that is subtracted is that of the cosine to the identity, in D^2 dimensions: it has a beta
    distribution.
    """
    from scipy.special import betaincinv

    return float(np.sqrt(1 - betaincinv(0.5, (size**2 - 1) / 2, 1 - share))) if size > 1 else 0.0


def remaining(fits: Sequence[Fit], noise: float, deviation: float = 0.0) -> list[Fit]:
    """Models of the smallest size that no larger one replaces, best first, without those that the best replaces.

    Families that are fitted to f itself count where one of them replaces the best of the others, and then alone.
    """
    good = sorted((fit for fit in fits if max(fit.residual, fit.training) <= NAMED), key=lambda fit: fit.residual)
    symmetric = [fit for fit in good if not fit.raw]
    good = [
        fit for fit in good if fit.raw and (not symmetric or improves(fit, symmetric[0], noise, deviation))
    ] or symmetric
    for size in sorted({fit.model.size for fit in good}):
        group = [fit for fit in good if fit.model.size == size]
        if not any(improves(fit, group[0], noise, deviation) for fit in good if fit.model.size > size):
            return [fit for fit in group if not better(group[0], fit)]
    return []


def better(best: Fit, other: Fit) -> bool:
    """Whether the best of two models of one size leaves so much less that the other is none."""
    gained = other.residual - best.residual
    return gained > max(SHARE * other.residual, LEAST) or (
        other.residual > ROUNDING and best.residual < TENTH * other.residual
    )


def named(groups: Sequence[Sequence[Fit]]) -> list[set[str]]:
    """The names of every class, with those of families that hold one of its models."""
    return [{name for fit in one for name in names_of(fit)} for one in groups]


def names_of(fit: Fit) -> tuple[str, ...]:
    """Its family, and others that hold this very model."""
    return (fit.model.family, *fit.model.also(fit.theta))


def together(a: Fit, b: Fit) -> bool:
    """Whether two fits are one algorithm: of one family, or equal on the judged contexts."""
    return a.model.family == b.model.family or equal(a, b)


def equal(a: Fit, b: Fit) -> bool:
    """Whether two fits predict the same on 95 % of the judged contexts."""
    scale = np.maximum(np.linalg.norm(a.predictions, axis=1), np.linalg.norm(b.predictions, axis=1))
    return float(np.quantile(_apart(a, b) / np.maximum(scale, 1e-300), 0.95)) < EQUAL


def classes(fits: Sequence[Fit]) -> list[list[Fit]]:
    """Fits that are together, directly or through others, best class first."""
    left, groups = list(fits), []
    while left:
        one = [left.pop(0)]
        for member in one:
            joined = [fit for fit in left if together(member, fit)]
            one.extend(joined)
            left = [fit for fit in left if all(fit is not other for other in joined)]
        groups.append(one)
    return groups


def ladder(fits: Sequence[Fit]) -> dict[float, str | None]:
    """The smallest model within each bound, of equally small ones the best."""
    rungs: dict[float, str | None] = {}
    for bound in LADDER:
        within = [fit for fit in fits if fit.residual <= bound]
        rungs[bound] = described(min(within, key=lambda fit: (fit.model.size, fit.residual))) if within else None
    return rungs


def best_of(fits: Iterable[Fit]) -> dict[str, Fit]:
    """The nearest fit of every family, ascending."""
    best: dict[str, Fit] = {}
    for fit in sorted(fits, key=lambda fit: fit.residual):
        best.setdefault(fit.model.family, fit)
    return best


def differ_most(a: Fit, b: Fit, target: Floats, spectra: Floats) -> str:
    """On which judged context two fits differ most, and whom the learner follows there."""
    errors = [np.where(fit.errors < 1, fit.errors, 1) for fit in (a, b)]
    c = int(np.argmax(_apart(a, b) / np.maximum(np.linalg.norm(target, axis=1), 1e-300)))
    values = ", ".join(f"{value:.2g}" for value in np.sort(spectra[c]))
    return (
        f"{described(a)} and {described(b)} differ most on a context with eigenvalues {values} (mean of training 1): "
        f"there the learner is {errors[0][c]:.3f} from the first and {errors[1][c]:.3f} from the second"
    )


def _apart(a: Fit, b: Fit) -> Floats:
    return np.asarray(np.linalg.norm(a.predictions - b.predictions, axis=1))
