"""The numbers of a name: steps and parameters in the units of the caller, and what determines them."""

import dataclasses
from collections.abc import Mapping, Sequence

from icl_lab.identify import decision
from icl_lab.identify.fitting import Fit
from icl_lab.identify.setting import Setting
from icl_lab.identify.stability import Decided

DETERMINED = 10.0
"""A parameter is not reported where fits that are as good differ by more than this factor, or a quarter of its line."""


def fit_of(name: str, decided: Decided, noise: float) -> Fit | None:
    """The fit of a family that a decision leaves, or would, if it was the only family."""
    fits = [fit for fit in decided.fits if fit.model.family == name]
    fits = fits or [fit for fit in decided.fits if name in decision.names_of(fit)]
    fits = fits or decision.remaining([fit for fit in decided.every if fit.model.family == name], noise)
    return fits[0] if fits else None


def scatter(
    named: Fit, name: str, made: Mapping[float, Sequence[Decided]], inside: Mapping[str, set[str]], noise: float,
    setting: Setting,
) -> tuple[int | tuple[int, ...] | None, dict[str, tuple[float, float]], set[str]]:  # fmt: skip
    """Steps and intervals of parameters that deviations of .01 leave; and parameters that nothing determines."""
    steps, thetas = {named.model.steps}, [named.theta, *([] if named.alike is None else named.alike)]
    for one in made.get(decision.STABLE, ()):
        if one.keeps(name, inside):
            fit = fit_of(name, one, noise)
            steps |= {fit.model.steps} if fit else set()
            thetas += [fit.theta for fit in one.every if fit.model.key == named.model.key]
    reports = [reported(dataclasses.replace(named, theta=theta), setting) for theta in thetas]
    intervals = {key: (min(one[key] for one in reports), max(one[key] for one in reports)) for key in reports[0]}
    loose = set()
    for key, p in zip(intervals, named.model.parameters, strict=True):
        low, high = intervals[key]
        wide = high > DETERMINED * low if p.logarithmic else high - low > (p.high - p.low) / 4
        loose |= {key} if wide else set()
    steps -= {0}
    return (tuple(sorted(steps)) if len(steps) > 1 else next(iter(steps), None)), intervals, loose


def reported(fit: Fit, setting: Setting) -> dict[str, float]:
    """Parameters in the units of the caller; those of a step are numbered from 1."""
    units, n = setting.units, setting.battery.x.shape[1]
    names = [p.name for p in fit.model.parameters]
    values: dict[str, float] = {}
    for i, (p, value) in enumerate(zip(fit.model.parameters, fit.theta, strict=True), 1):
        many, k = names.count(p.name) > 1, names[:i].count(p.name)
        factor = units.eigenvalue**p.eigenvalue * float(n) ** p.examples * units.label**p.labels
        values[f"{p.name} {k}" if many else p.name] = float(value) * factor
    if "power" in values:  # of the covariance, whose unit the rate then takes on too
        values["learning_rate"] *= units.eigenvalue ** -values["power"]
    return values
