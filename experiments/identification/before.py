"""Two other ways to name a learner, for comparison: the decision before names had to be stable, and the published one.

The former decision: without a gain, the smallest model whose larger competitors do not improve the residual by more
than 10 % of itself and .002. The published way: Gaussian prompts, the learner itself (no symmetrising), of all families
the nearest, and of those within 10 % of it the smallest; it never refuses.
"""

from collections.abc import Mapping, Sequence

from icl_lab.identify import (
    FAMILIES,
    Answers,
    Ask,
    Fit,
    Floats,
    Setting,
    all_fits,
    by_chance,
    classes,
    grade,
    named,
    with_mixed_examples,
)

CENTRED = ("GD", "GD++", "ridge", "least squares", "gradient flow")
NAMES = (
    *CENTRED, "heavy ball", "Nesterov", "Chebyshev", "Newton", "Newton from covariance", "normalised Newton",
    *(f"centred {name}" for name in CENTRED), *(f"centred {name} + mean" for name in CENTRED), "softmax regression",
    "kernel smoothing", "conjugate gradients", "noise-adaptive ridge", "LMS", "normalised LMS", "RLS with forgetting",
    "preconditioned GD", "dMMSE", "mean of labels", "last label", "zero", "dMMSE or ridge",
)  # fmt: skip
"""The families that there were."""

NAMED, ASYMMETRY, SHARE, LEAST, EQUAL, LEFT, FLEXIBLE, CLOSE = 0.05, 0.15, 0.1, 0.002, 0.01, 0.06, 4, 0.01

Named = tuple[set[str], Fit | None]
"""Names of the class, none where it is refused, and the fit that is named."""


def former(ask: Ask, found: Answers, about: Mapping[str, float], setting: Setting) -> Named:
    """The decision of the method's first version, on the same prompts and by today's fits."""
    finite = setting.battery.tasks is not None
    found = with_mixed_examples(ask, found, setting)
    allowed = [
        name
        for name in NAMES
        if all(grade(about[part]) != "no" for part in FAMILIES[name].needs)
        and (not FAMILIES[name].of_set or finite)
        and (found.asymmetry <= ASYMMETRY or FAMILIES[name].raw)
    ]
    left = remaining(all_fits(found, allowed, setting, gain=False)[0], found.noise)
    if not left or len(groups := classes(left)) > 1:
        return set(), None
    (equals,) = named(groups)
    first = next(name for name in NAMES if name in equals)
    return equals, next((fit for fit in left if fit.model.family == first), left[0])


def published(f: Floats, gaussian: Setting) -> Named:
    """The smallest of the nearest models to f (C, Q) on Gaussian prompts."""
    tried = [name for name in NAMES if not FAMILIES[name].of_set]
    fits = all_fits(Answers(f, f, noise=0.0, asymmetry=0.0), tried, gaussian, gain=False)[0]
    near = 1.1 * min(fit.residual for fit in fits)
    fit = min((fit for fit in fits if fit.residual <= near), key=lambda fit: (fit.model.size, fit.residual))
    return {fit.model.family}, fit


def improves(larger: Fit, smaller: Fit, noise: float) -> bool:
    """Whether the larger model's residual is so much better that it replaces the smaller one."""
    if larger.raw != smaller.raw:
        left = larger.on_raw / max(smaller.on_raw, 1e-300)
        symmetric = larger.raw and larger.model.own and smaller.on_raw > EQUAL and left < by_chance(larger.model.size)
        return symmetric or (smaller.on_raw > LEFT and left < 0.5)
    if larger.model.size >= FLEXIBLE and smaller.residual < max(CLOSE, 3 * noise):
        return False
    return smaller.residual - larger.residual > max(SHARE * smaller.residual, LEAST)


def remaining(fits: Sequence[Fit], noise: float) -> list[Fit]:
    """Models of the smallest size that no larger one replaces, best first, without those that the best replaces."""
    good = sorted((fit for fit in fits if fit.residual <= NAMED), key=lambda fit: fit.residual)
    symmetric = [fit for fit in good if not fit.raw]
    good = [fit for fit in good if fit.raw and (not symmetric or improves(fit, symmetric[0], noise))] or symmetric
    for size in sorted({fit.model.size for fit in good}):
        group = [fit for fit in good if fit.model.size == size]
        if not any(improves(fit, group[0], noise) for fit in good if fit.model.size > size):
            return [fit for fit in group if not improves(group[0], fit, noise)]
    return []
