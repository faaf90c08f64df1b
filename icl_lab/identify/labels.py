"""Which algorithm is a learner of labels? Seven families with at most two numbers, fitted, named or refused.

Everything is measured as mean total variation (TV) between distributions over labels: how far a learner is from its
symmetries, from a family, and two families from each other. All families have three symmetries exactly. Where prompts
have them too (those of a sampler need not), a learner within ``BAR`` of a family changes by at most twice ``BAR`` under
each, by the triangle inequality.

It is ``identify`` for labels, without what needs a linear learner: no filter, no symmetrising, no stability.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from icl_lab import notebook
from icl_lab.identify.asking import Floats, LearnerError
from icl_lab.identify.label_families import LABEL_FAMILIES, NEAR, PROPERTIES, LabelPrompts
from icl_lab.identify.others import softmax
from icl_lab.identify.picture import draw_distances
from icl_lab.identify.probes import haar
from icl_lab.prompts.naming import shortened
from icl_lab.prompts.prompt import Sample, Sampler
from icl_lab.prompts.tracing import check_seed, whole

BAR = 0.05
"""Largest distance (mean TV on held-out prompts) of a learner from the family whose name it gets."""

SAME, EXACT = 0.01, 1e-5
"""Distances from a learner that count as equal (fits up to twice that apart, too), and change that counts as none."""

WIDE = 1.5
"""Without a sampler, inputs of half of the prompts have standard deviations e^-WIDE to e^WIDE, in a random basis."""

COUNT = 400
"""Prompts of each of the three kinds of queries."""


@dataclasses.dataclass(frozen=True)
class LabelFit:
    """A family fitted: its numbers, its distance, and of each number an interval, the other one fixed.

    An interval holds the fits that are worse by at most ``SAME``.
    """

    family: str
    parameters: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    distance: float
    answers: Floats = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, repr=False)
class IdentifiedLabels:
    """What a learner of labels computes.

    Attributes:
      verdict: ``identified`` or ``none of these``.
      family: the name, or None.
      equals: names of families whose fits are at most twice ``SAME`` apart from the named one, which is the first.
      fits: all fits, the nearest first; ``distance`` is the mean TV on held-out prompts.
      structure: by property, the change (mean TV) where there should be none.
      reason: why there is no name, else empty.
    """

    verdict: str
    family: str | None
    equals: tuple[str, ...]
    fits: tuple[LabelFit, ...]
    structure: dict[str, float]
    reason: str

    @property
    def fit(self) -> LabelFit | None:
        """Of the named family."""
        return next((one for one in self.fits if one.family == self.family), None)

    def __repr__(self) -> str:
        return f"IdentifiedLabels({shortened(self._headline(), 200)}; print it for the summary)"

    def _repr_html_(self) -> str:
        return notebook.text(str(self)) + notebook.picture(self.plot())

    def __str__(self) -> str:
        nearest = ", ".join(f"{one.family} {one.distance:.3f}" for one in self.fits)
        parts = ", ".join(f"{name} {grade_of(value)} ({value:.1e})" for name, value in self.structure.items())
        return f"{self._headline()}\n  distances: {nearest}\n  structure: {parts}"

    def _headline(self) -> str:
        fit = self.fit
        if fit is None:
            return f"{self.verdict}: {self.reason}"
        numbers = "".join(f", {name} {value:.3g}" for name, value in fit.parameters.items())
        others = f" (the same as {', '.join(self.equals[1:])})" if self.equals[1:] else ""
        return f"identified: {fit.family}{numbers}, {fit.distance:.3f} away{others}"

    def plot(self) -> Any:
        """A matplotlib ``Figure``: the distance of every family, and of what the learner answers to changed prompts."""
        return draw_distances(
            self._headline(),
            {"distance of every family": ({one.family: one.distance for one in self.fits}, BAR),
             "answers change with": ({PROPERTIES[name]: value for name, value in self.structure.items()}, 2 * BAR)},
        )  # fmt: skip


def grade_of(change: float) -> str:
    """``exact`` below 1e-5, ``approximate`` up to twice ``BAR``, else ``no``: no family with the property is near."""
    return "exact" if change < EXACT else "approximate" if change <= 2 * BAR else "no"


def identify_classifier(
    learner: Callable[..., Any], *, context_length: int, input_size: int, labels: int,
    sampler: Sampler | None = None, seed: int = 0,
) -> IdentifiedLabels:  # fmt: skip
    """Names the algorithm by which a learner classifies from examples, or refuses.

    A third of the queries equal an example, a third lie near one, and a third are inputs of another prompt. Families
    are fitted on every second prompt and judged on the others.

    Args:
      learner: ``(x (B, N, D), labels (B, N) whole numbers below C, x_query (B, D)) -> (B, C)`` logits or
        log-probabilities, numpy arrays. Log-probabilities may be minus infinity.
      context_length: N, at least 2.
      input_size: D.
      labels: C, at least 2.
      sampler: training prompts, whose ``latent["labels"]`` (B, N) are the labels; None: normal inputs, of half of the
        prompts with a wide spectrum, and independent, uniform labels. Queries are as above in either case.
      seed: of the prompts.

    Raises:
      ValueError: for a size below what is allowed, a seed outside [0, 2^32 - 1], or a sampler of something else.
      LearnerError: for a learner that is no function, raises, returns another shape, NaN, plus infinity or no label,
        or answers the same prompts differently.
    """
    seed = check_seed(seed)
    n, d = whole("context_length", context_length, 2), whole("input_size", input_size)
    on, rng = label_battery(sampler, n, d, whole("labels", labels, 2), seed)
    if not callable(learner):
        raise LearnerError(
            f"learner is a {type(learner).__name__}, not a function (x, labels, x_query) -> (B, {labels})"
        )
    answers = _asked(learner, on)
    if total_variation(answers[::-1], _asked(learner, on.take(slice(None, None, -1)))) > EXACT:
        raise LearnerError("learner answers the same prompts differently when they are asked in another order")
    return decided(answers, on, _structure(learner, answers, on, rng))


def label_battery(
    sampler: Sampler | None, n: int, d: int, labels: int, seed: int
) -> tuple[LabelPrompts, np.random.Generator]:
    """3 ``COUNT`` prompts whose queries in turn equal an example, lie near one, and are far; ValueError as above."""
    rng, count = np.random.default_rng([seed, 50]), 3 * COUNT
    x, c = rng.normal(size=(count, n, d)), rng.integers(labels, size=(count, n))
    wide = np.exp(rng.uniform(-WIDE, WIDE, (count, 1, d))) / np.sqrt(np.sinh(2 * WIDE) / (2 * WIDE))
    x = np.where((np.arange(count) // 2 % 2)[:, None, None], (x * wide) @ haar(rng, count, d), x)
    if sampler is not None:
        sample = sampler(jax.random.key(seed), count) if callable(sampler) else sampler
        if not isinstance(sample, Sample) or "labels" not in sample.latent:
            wrong = type(sample).__name__
            raise ValueError(f"sampler must be a function (key, batch) -> Sample with latent labels, got {wrong}")
        x, c = np.asarray(sample.prompt.x, float), np.asarray(sample.latent["labels"])
        if x.shape != (count, n, d) or c.shape != (count, n) or not 0 <= c.min() <= c.max() < labels:
            shapes = f"x {x.shape}, labels {c.shape} up to {c.max()}"
            raise ValueError(f"sampler must draw x {count, n, d} and labels {count, n} below {labels}, got {shapes}")
    example = x[np.arange(count), rng.integers(n, size=count)]
    step = rng.normal(size=example.shape)
    step *= np.exp(rng.uniform(np.log(NEAR[0]), np.log(NEAR[1]), (count, 1))) / np.linalg.norm(
        step, axis=1, keepdims=True
    )
    kind = np.arange(count)[:, None] // 4 % 3  # alike in both halves, and for both distributions
    near = example + np.sqrt((x**2).sum(2).mean()) * step
    return LabelPrompts(x, c, np.choose(kind, (example, near, np.roll(x[:, 0], 1, 0))), labels), rng


def total_variation(p: Floats, q: Floats) -> float:
    """Mean over prompts of half the sum of |p - q| over labels."""
    return float(np.abs(p - q).sum(-1).mean() / 2)


def decided(said: Floats, on: LabelPrompts, structure: dict[str, float]) -> IdentifiedLabels:
    """The decision on answers (B, C) to prompts: every family is fitted, one is named or none."""
    half, other = slice(0, None, 2), slice(1, None, 2)
    fits = [_fitted(name, said[half], said[other], on.take(half), on.take(other)) for name in LABEL_FAMILIES]
    fits.sort(key=lambda fit: fit.distance)
    lost = [name for name, change in structure.items() if grade_of(change) == "no"]
    left = [one for one in fits if one.distance <= BAR and not set(lost) & set(LABEL_FAMILIES[one.family].has)]
    if not left:
        best = fits[0]
        broken = [name for name in lost if name in LABEL_FAMILIES[best.family].has]
        reason = f"the nearest, {best.family}, is {best.distance:.3f} away" + f", further than {BAR}" * (
            best.distance > BAR
        )
        reason += "".join(f"; answers change by {structure[name]:.2f} with {PROPERTIES[name]}" for name in broken)
        return IdentifiedLabels("none of these", None, (), tuple(fits), structure, reason)
    close = [one for one in left if one.distance <= left[0].distance + SAME]
    named = min(close, key=lambda one: (len(one.parameters), one.distance))
    same = [one.family for one in fits if total_variation(one.answers, named.answers) <= 2 * SAME and one is not named]
    return IdentifiedLabels("identified", named.family, (named.family, *same), tuple(fits), structure, "")


def _fitted(name: str, target: Floats, judged: Floats, on: LabelPrompts, other: LabelPrompts) -> LabelFit:
    """The best numbers on the grids, one at a time where there are two, then thrice on finer ones around the best."""
    family = LABEL_FAMILIES[name]
    grids = list(family.grids(on))
    best = [float(grid[len(grid) // 2]) for grid in grids]
    intervals: dict[str, tuple[float, float]] = {}
    for turn in range(len(grids) + 3):
        for k, (parameter, grid) in enumerate(zip(family.parameters, grids)):
            tried = (family.predict(on, *best[:k], value, *best[k + 1 :]) for value in grid)
            losses = np.array([total_variation(target, one) for one in tried])
            at = int(losses.argmin())
            best[k] = float(grid[at])
            if turn < len(grids):
                good = grid[losses <= losses[at] + SAME]
                intervals[parameter] = float(good[0]), float(good[-1])
            if turn >= len(grids) - 1:
                grids[k] = np.linspace(grid[max(at - 1, 0)], grid[min(at + 1, len(grid) - 1)], 9)
    answers = family.predict(other, *best)
    return LabelFit(name, dict(zip(family.parameters, best)), intervals, total_variation(judged, answers), answers)


def _structure(
    learner: Callable[..., Any], unchanged: Floats, on: LabelPrompts, rng: np.random.Generator
) -> dict[str, float]:
    """By property, the change of the answers under a random renaming, order, rotation, and with another query."""
    count, n, d = on.x.shape
    names = rng.permuted(np.tile(np.arange(on.count), (count, 1)), axis=1)
    order = rng.permuted(np.tile(np.arange(n), (count, 1)), axis=1)
    turn = haar(rng, count, d)
    ask = lambda **changes: _asked(learner, dataclasses.replace(on, **changes))  # noqa: E731
    changed = {
        "label_permutation": np.take_along_axis(ask(labels=np.take_along_axis(names, on.labels, 1)), names, 1),
        "order": ask(x=np.take_along_axis(on.x, order[..., None], 1), labels=np.take_along_axis(on.labels, order, 1)),
        "rotation": ask(x=on.x @ turn, q=(on.q[:, None] @ turn)[:, 0]),
        "query_independence": ask(q=np.roll(on.q, 1, 0)),
    }
    return {name: total_variation(unchanged, answers) for name, answers in changed.items()}


def _asked(learner: Callable[..., Any], on: LabelPrompts) -> Floats:
    """(B, C) probabilities that a learner answers."""
    try:
        logits = np.asarray(learner(on.x, on.labels, on.q))
    except Exception as error:  # whatever a foreign function raises
        raise LearnerError(f"learner raised {type(error).__name__}: {error}") from error
    wanted = (len(on.x), on.count)
    if logits.shape != wanted or logits.dtype.kind != "f":
        raise LearnerError(
            f"learner answered {len(on.x)} prompts with {logits.dtype} {logits.shape}, not floats {wanted}"
        )
    if np.isnan(logits).any() or np.isposinf(logits).any() or np.isneginf(logits).all(1).any():
        raise LearnerError("learner answers with NaN, with plus infinity, or with minus infinity for all labels")
    return softmax(logits.astype(np.float64))
