"""One member, through all stages."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial

import numpy as np

from icl_lab.identify import decision, numbers, refusal, stability
from icl_lab.identify.asking import Ask, Floats
from icl_lab.identify.decision import Member
from icl_lab.identify.family import Family, Key, containers
from icl_lab.identify.fitting import GAIN, Fit, fitted, free_filter, judged, predicted, relative
from icl_lab.identify.probes import FIT, JUDGE, Answers, Battery, answers, over_examples
from icl_lab.identify.setting import Setting
from icl_lab.identify.stability import Decided
from icl_lab.identify.structure import EXACT

FACTORS = (1.0, 1.25, 1.5, 2.0, 4.0)
At = Callable[[float, float], tuple[Battery, Answers]]
"""Training prompts with inputs and labels times factors, and what a learner answers there."""


def one_member(
    ask: Ask, about: Mapping[str, float], setting: Setting, ranges: bool = True, exact: float = EXACT,
    found: Answers | None = None, at: At | None = None,
) -> Member:  # fmt: skip
    """Names one learner (in units) of this structure, or refuses; without ``ranges`` its range stays unknown.

    ``exact`` is the deviation below which a symmetry counts as exact (``structure.grade``). ``found`` are the learner's
    answers on the battery, where they are known already, and ``at`` is ``at_factors`` of it.
    """
    at = at or at_factors(ask, setting)
    responses = found or answers(ask, setting.battery, setting.turns)
    asymmetry = responses.asymmetry
    make_member = partial(Member, asymmetry=asymmetry, noise=responses.noise)
    if float(np.sqrt((responses.raw**2).mean())) < decision.ZERO:
        reason, most = "predictions are below .001 labels", decision.DEVIATIONS[-1]
        return make_member(
            verdict="identified", family="zero", equals=("zero",), residual=0.0, reason=reason, stability=most
        )
    responses = with_mixed_examples(ask, responses, setting)
    out = refusal.excluded(about, setting.families, asymmetry, exact, setting.battery.tasks is not None)
    fits, free, unfitted = all_fits(responses, [name for name in setting.families if name not in out], setting)
    on, far_responses = at(decision.BEYOND, decision.BEYOND)
    fits = [dataclasses.replace(fit, beyond=_miss(fit, far_responses, on)) for fit in fits]
    fits, collapsed = _without_collapsed(fits, out, responses, setting)
    out |= collapsed
    best = decision.best_of(fits)
    rivals, ladder = {decision.described(fit): fit.residual for fit in best.values()}, decision.ladder(fits)
    make_member = partial(make_member, free=free, rivals=rivals, ladder=ladder, unfitted=unfitted, excluded=out)
    decided = stability.decide(fits, responses.noise)
    refused = partial(_refused, make_member, fits, out, responses, about, free, setting)
    if not decided.names:
        return refused()
    forced = refusal.evidence(about, asymmetry, setting.battery.q.shape[2], exact)
    bare = any(fit.model.scaled and not fit.model.parameters for fit in decided.fits)  # zero, mean, last label
    decisions = {} if forced or bare else stability.decisions(fits, responses, setting.battery)
    holders = containers(setting.families)
    inside = {name: {one for one, held in holders.items() if name in held} for name in setting.families}
    kept = {
        name: stability.shares(decisions, name, inside)
        for name in _candidates(decided, setting.families, holders, set(out))
        if decided.keeps(name, inside)
    }
    lasting = {name: stability.stability(kept[name]) if decisions else decision.DEVIATIONS[-1] for name in kept}
    stable = tuple(name for name, most in lasting.items() if most >= decision.STABLE)
    trials = refusal.trials(best, out, decided, stable, kept)
    if not stable:
        wavering = _wavering(decided, decisions, setting.families)
        rival = next((fit for one in decisions[decision.STABLE] for fit in one.fits[:1]
                      if not decision.together(fit, decided.fits[0])), decided.fits[-1])  # fmt: skip
        rival = best.get(rival.model.family, rival)
        spectra, first = setting.battery.take(JUDGE).plain.eigenvalues, decided.fits[0]
        cause = decision.differ_most(first, rival, responses.mean[JUDGE], spectra) if rival is not first else (
            f"{decision.described(first)} is {first.residual:.3f} away, and deviations of .01 leave no name"
        )  # fmt: skip
        return make_member(
            verdict="not separable", equals=wavering, residual=decided.fits[0].residual, reason=cause, trials=trials,
            stability=max(lasting.values(), default=0.0), fits=tuple(fits),
        )  # fmt: skip
    named = numbers.fit_of(stable[0], decided, responses.noise) or decided.fits[0]
    if named.model.size > 1 and not named.raw:
        away, factor = named.beyond, decision.BEYOND
        if named.model.size >= decision.FLEXIBLE and away <= decision.NAMED:
            factor = decision.FAR_BEYOND
            on, far_responses = at(factor, factor)
            away = _miss(named, far_responses, on)
        if away > decision.NAMED:
            return refused(f"a filter that {decision.described(named)} approximates: it is {named.residual:.3f} away "
                           f"in training, {away:.3f} on inputs times {factor:g}")  # fmt: skip
    limits, doubled = _range(at, named, tuple(best.values())) if ranges else ((None, None), {})
    steps, intervals, loose = numbers.scatter(named, stable[0], decisions, inside, responses.noise, setting)
    return make_member(
        verdict="identified", family=stable[0], equals=stable, steps=steps, residual=named.residual,
        parameters={k: v for k, v in numbers.reported(named, setting).items() if k not in loose}, intervals=intervals,
        gain=None if named.model.scaled else named.gain, stability=lasting[stable[0]], range=limits[0],
        label_range=limits[1], doubled=doubled, evidence=forced, trials=trials,
        fits=(named, *(fit for fit in fits if fit is not named)),
    )  # fmt: skip


def _candidates(
    decided: Decided, families: Mapping[str, Family], holders: Mapping[str, set[str]], out: set[str]
) -> list[str]:
    """Names of the classes, then of families that contain one and could be this learner, in the order of families."""
    left = [name for name in families if any(name in one for one in decided.names)]
    without = {name for fit in decided.fits if abs(fit.gain - 1) <= decision.GAINED
               for name in decision.names_of(fit)}  # fmt: skip
    left = [name for name in left if name in without] or left  # an explanation that needs no gain is the better one
    return left + [
        name for name in families if name not in left and name not in out and any(name in holders[one] for one in left)
    ]


def _wavering(
    decided: Decided, decisions: Mapping[float, Sequence[Decided]], families: Mapping[str, Family]
) -> tuple[str, ...]:
    """The names between which deviations of a hundredth make the decision waver: each in a tenth of them at least."""
    some = decisions[decision.STABLE]
    often = lambda name: sum(any(name in one for one in d.names) for d in some) >= 0.1 * len(some)  # noqa: E731
    return tuple(name for name in families if any(name in one for one in decided.names) or often(name))


def with_mixed_examples(ask: Ask, found: Answers, setting: Setting) -> Answers:
    """The answers with f as its mean over rotations of the examples, where that changes less than asymmetry does.

    Families of the inputs' basis allow it, and it takes noise away; a centred learner is another one after it.
    """
    if found.asymmetry <= decision.EQUAL and setting.battery.tasks is None:
        return found
    mixed = over_examples(ask, setting.battery, np.random.default_rng(0))
    close = float(np.median(relative(mixed, found.raw))) <= found.asymmetry
    return dataclasses.replace(found, raw=mixed) if close else found


def all_fits(
    found: Answers, names: Collection[str], setting: Setting, gain: bool = True, roughly: bool = False
) -> tuple[list[Fit], float, tuple[str, ...]]:
    """Fits of families of these names, small models first, the best free filter's residual, and families cut short.

    A model of many numbers is left out where the smaller ones are so close that it could not replace them, and always
    where fits are made ``roughly``. ``gain`` says that predictions may have one.
    """
    chosen, input_size = [setting.families[name] for name in names], setting.battery.q.shape[2]
    fit_on, judge_on = setting.battery.take(FIT), setting.battery.take(JUDGE)
    kinds = {family.filters for family in chosen} - {""}
    free = min((_free(found, setting.battery, kind) for kind in sorted(kinds)), default=float("nan"))
    fits: list[Fit] = []
    unfitted: dict[str, None] = {}
    known: dict[Key, Floats] = {}
    asymmetric = found.asymmetry >= decision.EQUAL
    models = [
        (model, family)
        for family in chosen
        for model in (*family.models, *(family.for_size(input_size) if asymmetric else ()))
    ]
    size, left = 0, []
    for model, family in sorted(models, key=lambda pair: pair[0].size):
        if model.size > size:
            size, left = model.size, decision.remaining(fits, found.noise)
        enough = roughly or (bool(left) and _enough(left[0], family.raw, free, found.noise))
        if size >= decision.FLEXIBLE and enough:
            unfitted[family.name] = None
            continue
        target = found.raw if family.raw else found.mean
        best = fitted(model, fit_on, target[FIT], known, GAIN if gain else (1.0, 1.0), roughly)
        known[model.key] = best.theta
        fits.append(judged(best, judge_on, found.mean[JUDGE], found.raw[JUDGE], family.raw))
    return fits, free, tuple(unfitted)


def _enough(best: Fit, raw: bool, free: float, noise: float) -> bool:
    """Whether no model of many numbers could replace the best of the smaller ones."""
    if raw:
        return best.on_raw <= decision.EQUAL
    close = best.residual <= max(decision.NEAR_IF_FLEXIBLE, 3 * noise)
    return close or best.residual - 0.8 * free <= max(decision.SHARE * best.residual, decision.LEAST)


def _without_collapsed(
    fits: Sequence[Fit], out: Mapping[str, str], responses: Answers, setting: Setting
) -> tuple[list[Fit], dict[str, str]]:
    """Fits without those that are, at their parameters, a family that they contain and the structure excludes."""
    holders = containers(setting.families)
    close = {fit.model.family for fit in fits if fit.residual <= decision.NAMED}
    inner = [name for name in out if holders[name] & close and not setting.families[name].of_set]
    if not inner:
        return list(fits), {}
    others, _, _ = all_fits(responses, inner, setting, roughly=True)
    gone: dict[str, str] = {}
    left = []
    for fit in fits:
        same = [o for o in others if fit.model.family in holders[o.model.family] and o.model.size < fit.model.size
                and decision.equal(o, fit)]  # fmt: skip
        if same and fit.residual <= decision.NAMED:
            gone[fit.model.family] = (
                f"it is then {same[0].model.family}, which is excluded: {out[same[0].model.family]}"
            )
        else:
            left.append(fit)
    return left, {name: why for name, why in gone.items() if all(fit.model.family != name for fit in left)}


def _refused(
    make_member: partial, fits: list[Fit], out: Mapping[str, str], responses: Answers, about: Mapping[str, float],
    free: float, setting: Setting, description: str = "",
) -> Member:  # fmt: skip
    """None of these, with the nearest of all families, also of those that are excluded."""
    asymmetry = responses.asymmetry
    names = [name for name in out if not setting.families[name].of_set or setting.battery.tasks is not None]
    others, _, _ = all_fits(responses, names, setting, roughly=True)
    nearest = refusal.nearest([*fits, *others], asymmetry)
    far = [fit for fit in fits if fit.residual > decision.NAMED and fit.model.size < 2 and not fit.model.scaled]
    fit_on, judge_on, wide = setting.battery.take(FIT), setting.battery.take(JUDGE), (-20.0, 20.0)
    again = [(fitted(fit.model, fit_on, responses.mean[FIT], {}, wide, roughly=True), fit.raw) for fit in far]
    multiples = [judged(one, judge_on, responses.mean[JUDGE], responses.raw[JUDGE], raw) for one, raw in again]
    multiple = refusal.nearest(multiples, asymmetry)
    reason = refusal.reason(nearest, multiple, out, asymmetry, about, free, description)
    best = {fit.model.family: fit for fit in sorted([*others, *fits], key=lambda fit: -fit.residual)}
    return make_member(
        verdict="none of these", residual=refusal.distance(nearest, asymmetry), reason=reason, fits=tuple(fits),
        nearest=decision.described(nearest) if nearest else None, closest=nearest,
        trials=refusal.trials(best, out, stability.decide(fits, responses.noise), (), {}),
    )  # fmt: skip


def _free(responses: Answers, on: Battery, kind: str) -> float:
    """Residual of the best filter of any form; of centred prompts without the mean of labels, where that is closer."""
    seen, mean = getattr(on, kind), responses.mean
    errors = free_filter(seen, mean, FIT, JUDGE)
    if kind == "centred":
        less = mean - on.y.mean(1)[:, None]
        others = free_filter(seen, less, FIT, JUDGE)
        shrunk = np.linalg.norm(less[JUDGE], axis=1) / np.maximum(np.linalg.norm(mean[JUDGE], axis=1), 1e-300)
        errors = others if np.median(others * shrunk) < np.median(errors) else errors
    return float(np.median(errors))


def at_factors(ask: Ask, setting: Setting) -> At:
    """Asks a learner (in units) on the judged training prompts times factors, once at each."""

    def at(inputs: float, labels: float) -> tuple[Battery, Answers]:
        on = setting.battery.take(JUDGE[::2]).scaled(inputs, labels)
        return on, answers(ask, on, setting.turns[0].reshape(2, -1, *setting.turns.shape[2:]))

    return cache(at)


def _miss(fit: Fit, responses: Answers, on: Battery) -> float:
    """Median distance of a model, parameters and gain fixed, from what a learner answers there."""
    g = fit.gain * predicted(fit.model, fit.theta, on)
    return float(np.median(relative(g, responses.raw if fit.raw else responses.mean)))


def _range(at: At, named: Fit, ranked: Sequence[Fit]) -> tuple[tuple[float | None, float | None], dict[str, float]]:
    """Largest factors on inputs and on labels up to which the named model passes, with its parameters fixed."""
    doubled: dict[str, float] = {}
    limits: list[float | None] = []
    for inputs in (True, False):
        limit, failed = None, False
        for factor in FACTORS:
            if failed and (factor > 2 or not inputs):
                break
            on, responses = at(factor if inputs else 1.0, factor)  # y = X w follows the inputs
            asymmetric = not named.raw and responses.asymmetry > decision.ASYMMETRY
            failed = failed or asymmetric or _miss(named, responses, on) > decision.NAMED
            limit = limit if failed else factor
            if inputs and factor == 2:
                doubled = {fit.model.family: _miss(fit, responses, on) for fit in ranked}
        limits.append(limit)
    return (limits[0], limits[1]), doubled
