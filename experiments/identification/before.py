"""Two other ways to name a learner, for comparison: the decision before names had to be stable, and the published one.

The former decision: without a gain, the smallest model whose larger competitors do not improve the residual by more
than 10 % of itself and .002. The published way: Gaussian prompts, the learner itself (no symmetrising), of all families
the nearest, and of those within 10 % of it the smallest; it never refuses.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from icl_lab.compare.identify.asking import Ask, Floats
from icl_lab.compare.identify.families import FAMILIES
from icl_lab.compare.identify.family import Family
from icl_lab.compare.identify.fitting import Fit, relative
from icl_lab.compare.identify.one import Setting, all_fits
from icl_lab.compare.identify.probes import Answers, over_examples
from icl_lab.compare.identify.structure import grade

CENTRED = ("GD", "GD++", "ridge", "least squares", "gradient flow")
NAMES = (
    *CENTRED, "heavy ball", "Nesterov", "Chebyshev", "Newton", "Newton from covariance", "normalised Newton",
    *(f"centred {name}" for name in CENTRED), *(f"centred {name} + mean" for name in CENTRED), "softmax regression",
    "kernel smoothing", "conjugate gradients", "noise-adaptive ridge", "LMS", "normalised LMS", "RLS with forgetting",
    "preconditioned GD", "dMMSE", "mean of labels", "last label", "zero", "dMMSE or ridge",
)  # fmt: skip
"""The families that there were."""

NAMED, ASYMMETRY, SHARE, LEAST, EQUAL, LEFT, CHANCE, FLEXIBLE, CLOSE = 0.05, 0.15, 0.1, 0.002, 0.01, 0.06, 0.01, 4, 0.01

Named = tuple[set[str], Fit | None]
"""Names of the class, none where it is refused, and the fit that is named."""


def former(ask: Ask, found: Answers, about: Mapping[str, float], setting: Setting) -> Named:
    """The decision of the method's first version, on the same prompts."""
    asymmetry = float(np.median(found.asymmetry))
    if asymmetry > EQUAL or setting.battery.tasks is not None:
        mixed = over_examples(ask, setting.battery, np.random.default_rng(0))
        if float(np.median(relative(mixed, found.raw))) <= asymmetry:
            found = dataclasses.replace(found, raw=mixed)

    def allowed(family: Family) -> bool:
        return (
            all(grade(about[part]) != "no" for part in family.needs)
            and (not family.of_set or setting.battery.tasks is not None)
            and (asymmetry <= ASYMMETRY or family.raw)
        )

    families = {name: FAMILIES[name] for name in NAMES if allowed(FAMILIES[name])}
    fits = all_fits(found, asymmetry, about, dataclasses.replace(setting, families=families), gain=False)[0]
    left = remaining(fits, found.noise)
    if not left or len(groups := classes(left)) > 1:
        return set(), None
    equals = {name for fit in groups[0] for name in (fit.model.family, *also(fit))}
    first = next(name for name in NAMES if name in equals)
    return equals, next((fit for fit in left if fit.model.family == first), left[0])


def published(f: Floats, parts: Sequence[str], gaussian: Setting) -> Named:
    """The smallest of the nearest models to f (C, Q) on Gaussian prompts."""
    families = {name: FAMILIES[name] for name in NAMES}
    setting = dataclasses.replace(gaussian, families=families)
    nothing = dict.fromkeys(parts, 0.0)
    fits = all_fits(Answers(f, f, 0.0, np.zeros(len(f))), 0.0, nothing, setting, gain=False)[0]
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


def by_chance(size: int) -> float:
    """Share of a miss that a symmetric D x D matrix of so many numbers rarely gets below by chance."""
    from scipy.special import betaincinv

    d = round(((8 * size + 1) ** 0.5 - 1) / 2)
    return float(betaincinv(d * (d - 1) / 4, (size - 1) / 2, CHANCE)) ** 0.5 if d > 1 else 0.0


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


def classes(fits: Sequence[Fit]) -> list[list[Fit]]:
    """Fits of one family, or equal on the judged contexts, directly or through others; best class first."""
    left, found = list(fits), []
    while left:
        one = [left.pop(0)]
        for member in one:
            joined = [fit for fit in left if together(member, fit)]
            one.extend(joined)
            left = [fit for fit in left if all(fit is not other for other in joined)]
        found.append(one)
    return found


def together(a: Fit, b: Fit) -> bool:
    """Whether two fits are of one family, or equal on the judged contexts."""
    if a.model.family == b.model.family:
        return True
    apart, *sizes = (np.linalg.norm(p, axis=1) for p in (a.predictions - b.predictions, a.predictions, b.predictions))
    return float(np.quantile(apart / np.maximum(np.maximum(*sizes), 1e-300), 0.95)) < EQUAL


def also(fit: Fit) -> tuple[str, ...]:
    """Two shared steps of GD++ with e >= 27 g / 4 are GD."""
    model = fit.model
    two = model.family == "GD++" and model.steps == 2 and not model.own
    return ("GD",) if two and fit.theta[0] >= 27 / 4 * fit.theta[1] else ()
