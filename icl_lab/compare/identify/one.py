"""One member, through all stages."""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from icl_lab.compare.identify import decision
from icl_lab.compare.identify.asking import Ask, Floats
from icl_lab.compare.identify.decision import Member
from icl_lab.compare.identify.family import Family, Key, Model
from icl_lab.compare.identify.fitting import Fit, fitted, free_filter, judged, predicted, relative
from icl_lab.compare.identify.others import general_preconditioner
from icl_lab.compare.identify.probes import FIT, JUDGE, Answers, Battery, Units, answers, over_examples
from icl_lab.compare.identify.structure import grade

FACTORS = (1.0, 1.25, 1.5, 2.0, 4.0)


@dataclasses.dataclass(frozen=True)
class Setting:
    """What all members are asked: units, the battery, rotations, the families to try and N, for reported numbers."""

    units: Units
    battery: Battery
    turns: Floats
    families: Mapping[str, Family]


def one_member(ask: Ask, about: Mapping[str, float], setting: Setting, ranges: bool = True) -> Member:
    """Names one learner (in units) of this structure, or refuses; without ``ranges`` its range stays unknown."""
    found = answers(ask, setting.battery, setting.turns)
    asymmetry = float(np.median(found.asymmetry))
    member = partial(Member, asymmetry=asymmetry, noise=found.noise)
    if float(np.sqrt((found.raw**2).mean())) < decision.ZERO:
        reason = "predictions are below .001 labels"
        return member(verdict="identified", family="zero", equals=("zero",), residual=0.0, reason=reason)
    if asymmetry > decision.EQUAL or setting.battery.tasks is not None:
        mixed = over_examples(ask, setting.battery, np.random.default_rng(0))
        if float(np.median(relative(mixed, found.raw))) <= asymmetry:  # a centred learner is another one after it
            found = dataclasses.replace(found, raw=mixed)
    fits, free, unfitted = all_fits(found, asymmetry, about, setting)
    best: dict[str, Fit] = {}
    for fit in sorted(fits, key=lambda fit: fit.residual):
        best.setdefault(fit.model.family, fit)
    ranked = list(best.values())
    rivals = {decision.described(fit): fit.residual for fit in ranked}
    member = partial(member, free=free, fits=tuple(fits), rivals=rivals, ladder=decision.ladder(fits))
    member = partial(member, unfitted=unfitted)
    left = decision.remaining(fits, found.noise)
    names = lambda fits: tuple(  # noqa: E731
        name
        for name in setting.families
        if any(name in (fit.model.family, *decision.same_family_as(fit)) for fit in fits)
    )
    if not left:
        least = ranked[0].residual if ranked else float("nan")
        return member(verdict="none of these", residual=least, reason=_refusal(ranked, asymmetry, about, free))
    groups, on = decision.classes(left), setting.battery.take(JUDGE)
    if len(groups) > 1:
        a, b = groups[0][0], groups[1][0]
        said = decision.differ_most(a, b, found.mean[JUDGE], on.plain.eigenvalues)
        return member(verdict="not separable", equals=names(left), residual=a.residual, reason=said)
    equals = names(groups[0])  # the parameters are those of the family that is named, where it was fitted itself
    named = next((fit for fit in left if fit.model.family == equals[0]), left[0])
    limits, doubled = _range(ask, named, ranked, setting) if ranges else ((None, None), {})
    return member(
        verdict="identified", family=equals[0], equals=equals, steps=named.model.steps or None,
        parameters=reported(named, setting.units, on.x.shape[1]), residual=named.residual, range=limits[0],
        label_range=limits[1], doubled=doubled, fits=(named, *(fit for fit in fits if fit is not named)),
    )  # fmt: skip


def all_fits(
    found: Answers, asymmetry: float, about: Mapping[str, float], setting: Setting
) -> tuple[list[Fit], float, tuple[str, ...]]:
    """All fits that could be named, small models first, the best free filter's residual, and families cut short.

    A larger model is left out where nothing it could reach would replace what is left of the smaller ones: the smaller
    ones are within ``decision.LEAST``, or as close as a filter of any form.
    """
    allowed = [
        family
        for family in setting.families.values()
        if all(grade(about[part]) != "no" for part in family.needs)
        and (not family.of_set or setting.battery.tasks is not None)
        and (asymmetry <= decision.ASYMMETRY or family.raw)
    ]
    fit, judge = setting.battery.take(FIT), setting.battery.take(JUDGE)
    kinds = {family.filters for family in allowed} - {""}
    free = min((_free(found, setting.battery, kind) for kind in sorted(kinds)), default=float("nan"))
    models = [(model, family) for family in allowed for model in _models(family, setting, asymmetry)]
    fits: list[Fit] = []
    unfitted: dict[str, None] = {}
    known: dict[Key, Floats] = {}
    size, enough, filtered = 0, False, False
    for model, family in sorted(models, key=lambda pair: pair[0].size):
        if model.size > size:
            size, left = model.size, decision.remaining(fits, found.noise)
            gain = left[0].residual - 0.8 * free if left and not left[0].raw else np.inf
            filtered = gain <= max(decision.SHARE * left[0].residual, decision.LEAST) if left else False
            enough = bool(left) and left[0].residual <= decision.LEAST and left[0].on_raw <= decision.EQUAL
        if enough or (filtered and family.filters):
            unfitted[family.name] = None
            continue
        target = found.raw if family.raw else found.mean
        known[model.key] = fitted(model, fit, target[FIT], known)
        fits.append(judged(model, known[model.key], judge, found.mean[JUDGE], found.raw[JUDGE], family.raw))
    return fits, free, tuple(unfitted)


def _models(family: Family, setting: Setting, asymmetry: float) -> Sequence[Model]:
    """The models of a family; of preconditioned GD also those with any matrix, where GD could be replaced by it."""
    d = setting.battery.q.shape[2]
    if family.name != "preconditioned GD" or d > 10 or asymmetry < decision.EQUAL:
        return family.models
    return (*family.models, *general_preconditioner(d))


def _free(found: Answers, on: Battery, kind: str) -> float:
    """Residual of the best filter of any form; of centred prompts without the mean of labels, where that is closer."""
    seen, mean = getattr(on, kind), found.mean
    errors = free_filter(seen, mean, FIT, JUDGE)
    if kind == "centred":
        less = mean - on.y.mean(1)[:, None]
        others = free_filter(seen, less, FIT, JUDGE)
        shrunk = np.linalg.norm(less[JUDGE], axis=1) / np.linalg.norm(mean[JUDGE], axis=1)
        errors = others if np.median(others * shrunk) < np.median(errors) else errors
    return float(np.median(errors))


def _refusal(ranked: Sequence[Fit], asymmetry: float, about: Mapping[str, float], free: float) -> str:
    broken = [part for part, value in about.items() if grade(value) == "no" and part not in ("rotation", "locality")]
    said = f"not {', not '.join(broken)}; " if broken else ""
    of_raw = ""
    if asymmetry > decision.ASYMMETRY:
        said, of_raw = (
            f"asymmetry {asymmetry:.2f} is above {decision.ASYMMETRY}; {said}",
            " fitted to the learner itself",
        )
    if not ranked:
        return f"{said}no family{of_raw} has this structure"
    roughly = f"; roughly {decision.described(ranked[0])}" if ranked[0].residual <= decision.ROUGHLY else ""
    filter_ = f"; a filter of any form: {free:.3f}" if np.isfinite(free) else ""
    best = f"the best{of_raw}, {decision.described(ranked[0])}, is {ranked[0].residual:.3f} away"
    return f"{said}{best}{roughly}{filter_}"


def reported(fit: Fit, units: Units, n: int) -> dict[str, float]:
    """Parameters in the units of the caller; those of a step are numbered from 1."""
    names = [p.name for p in fit.model.parameters]
    found: dict[str, float] = {}
    for i, (p, value) in enumerate(zip(fit.model.parameters, fit.theta, strict=True), 1):
        many, k = names.count(p.name) > 1, names[:i].count(p.name)
        factor = units.eigenvalue**p.eigenvalue * float(n) ** p.examples * units.label**p.labels
        found[f"{p.name} {k}" if many else p.name] = float(value) * factor
    if "power" in found:  # of the covariance, whose unit the rate then takes on too
        found["learning_rate"] *= units.eigenvalue ** -found["power"]
    return found


def _range(
    ask: Ask, named: Fit, ranked: Sequence[Fit], setting: Setting
) -> tuple[tuple[float | None, float | None], dict[str, float]]:
    """Largest factors on inputs and on labels up to which the named model passes, with its parameters fixed."""
    prompts, doubled = setting.battery.take(JUDGE[::2]), {}  # training prompts
    turns = setting.turns[0].reshape(2, -1, *setting.turns.shape[2:])
    limits: list[float | None] = []
    for inputs in (True, False):
        limit, failed = None, False
        for factor in FACTORS:
            if failed and (factor > 2 or not inputs):
                break
            on = prompts.scaled(factor if inputs else 1.0, factor)  # y = X w follows the inputs
            found = answers(ask, on, turns)
            distance = lambda fit: float(  # noqa: E731
                np.median(relative(predicted(fit.model, fit.theta, on), found.raw if fit.raw else found.mean))  # noqa: B023
            )
            asymmetric = not named.raw and float(np.median(found.asymmetry)) > decision.ASYMMETRY
            failed = failed or asymmetric or distance(named) > decision.NAMED
            limit = limit if failed else factor
            if inputs and factor == 2:
                doubled = {fit.model.family: distance(fit) for fit in ranked}
        limits.append(limit)
    return (limits[0], limits[1]), doubled
