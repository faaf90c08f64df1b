"""How a learner of the planted suite is identified and the name judged; one part of a suite after the other.

What a name counts as:

- own: the family's, or that of an equal one, and stable to .01;
- containing: that of a family that contains the planted one, and stable;
- equal: another's, but the named algorithm, fitted to the undisturbed learner, is closer to it than the disturbed one
  is (both symmetrised), and it has no more numbers, or is the same to .001;
- refused, not separable;
- wrong: any other name, and every name of an outsider.

Families that merely contain the one that is named are not counted as named.
"""

import dataclasses
from collections.abc import Collection, Sequence
from functools import lru_cache

import jax
import numpy as np

from experiments.identification import before, disturbances, suite
from experiments.identification.disturbances import disturbed
from experiments.identification.outsiders import outsiders
from experiments.identification.suite import Law, Planted, planted, sampler
from icl_lab.identify import (
    CONTEXTS,
    FAMILIES,
    FIT,
    JUDGE,
    QUERIES,
    Answers,
    Ask,
    Battery,
    Fit,
    Floats,
    Member,
    Setting,
    answers,
    asked,
    battery,
    containers,
    in_units,
    one_member,
    predicted,
    refitted,
    relative,
    rotations,
    structure,
    training_prompts,
)
from icl_lab.prompts import linear_regression

OUTCOMES = ("own name", "a name that contains it", "equal within the disturbance", "refused", "not separable", "wrong")
OWN, CONTAINS, EQUAL, REFUSED, INSEPARABLE, WRONG = range(6)
COLUMNS = ("outcome", "named", "stability", "gain", "residual", "asymmetry", "difference", "moved", "former",
           "published")  # fmt: skip
NAMES = tuple(FAMILIES)
HOLDING = containers(FAMILIES)
STABLE = 0.01
SAME = 1e-3
"""Relative difference below which two algorithms are one on these prompts, whatever their numbers of parameters."""


@dataclasses.dataclass(frozen=True)
class Task:
    """Some learners of a suite: their places in it, and what is asked of them."""

    suite: int
    places: tuple[int, ...]
    draws: int
    kinds: tuple[str, ...]
    share: float
    changes: tuple[float, ...]
    compared: tuple[bool, ...]  # by change: also the former decision and the published way


@lru_cache(4)
def learners(seed: int, draws: int, kinds: Collection[str], share: float) -> list[Planted]:
    """The whole suite: planted ones, then outsiders (without any kind: none, which takes less time)."""
    return planted(seed, draws) + (outsiders(seed, kinds, share) if kinds else [])


def rows(task: Task) -> Floats:
    """(learners, changes, columns) of a task."""
    inside = max(task.places) < len(suite.NAMES) * task.draws
    every = learners(task.suite, task.draws, () if inside else task.kinds, task.share)
    return np.stack([judged(every[k], k, task.suite, task.changes, task.compared) for k in task.places])


def forgetting(task: Task) -> tuple[Task, Floats]:
    """The task and its rows; its process then forgets compiled programs, of which a suite has hundreds."""
    task_rows = rows(task)
    disturbances.program.cache_clear()
    jax.clear_caches()
    return task, task_rows


@lru_cache(4)
def asking(law: Law, seed: int) -> tuple[Setting, Setting]:
    """What learners of these prompts are asked: in the way of identify, and on Gaussian prompts."""
    units, on, rng = battery(sampler(law), law.n, law.d, seed)
    ours = Setting(units, on, rotations(rng, law.d), FAMILIES)
    return ours, dataclasses.replace(ours, battery=gaussian_prompts(seed, on))


def judged(one: Planted, place: int, seed: int, changes: Sequence[float], compared: Sequence[bool]) -> Floats:
    """(changes, columns) of one learner of the suite of a seed; ``place`` seeds its disturbance."""
    ours, gaussian = asking(one.law, seed)
    on, trial = ours.battery, training_prompts(ours.battery, ours.units)
    at = disturbed(one, np.random.default_rng([seed, 11, place]))
    ask_at = lambda change: in_units(asked(at(change), one.family, trial), ours.units)  # noqa: E731
    plain = answers(ask_at(0.0), on, ours.turns)
    table = []
    for change, both in zip(changes, compared, strict=True):
        ask = ask_at(change)
        about, seen = structure(ask, on, seed), answers(ask, on, ours.turns)
        member = one_member(ask, about, ours, ranges=False, found=seen)
        difference, moved = differences(member.fit, plain, seen, on)
        stability, gain = member.stability, member.gain
        stable = stability >= STABLE or member.family == "zero"
        row = [
            outcome(one, member.verdict, claimed(member), member.fit, difference, moved, stable),
            NAMES.index(member.family) if member.family else -1,
            stability,
            np.nan if gain is None else gain,
            member.residual,
            member.asymmetry,
            difference,
            moved,
        ]
        if both:
            former = before.former(ask, seen, about, ours)
            for names, fit in (former, before.published(raw(ask, gaussian.battery), gaussian)):
                off = differences(fit, plain, seen, on)
                row.append(outcome(one, "identified" if names else "none of these", names, fit, *off, True))
        table.append(row + [np.nan] * (len(COLUMNS) - len(row)))
    return np.array(table, float)


def differences(fit: Fit | None, plain: Answers, seen: Answers, on: Battery) -> tuple[float, float]:
    """Median relative differences from the undisturbed learner on the judged contexts.

    Of the named algorithm, fitted anew to the undisturbed learner (NaN where none is named), and of the disturbed
    learner; both symmetrised, but not where the family is fitted to f itself. As it was fitted to the disturbed one it
    would have the disturbance too: the best possible fit is as far away as that learner, and chance decides.
    """
    of = "raw" if fit is not None and fit.raw else "mean"
    f, g = (getattr(part, of) for part in (plain, seen))
    moved = float(np.median(relative(g[JUDGE], f[JUDGE])))
    if fit is None:
        return np.nan, moved
    theta, gain = refitted(fit, on.take(FIT), f[None, FIT], turns=20)
    return float(np.median(relative(gain[0] * predicted(fit.model, theta[0], on.take(JUDGE)), f[JUDGE]))), moved


def claimed(member: Member) -> set[str]:
    """Names that the verdict gives to the learner: of its class, without families that only contain the one named."""
    if member.family is None:
        return set()
    fitted = {member.fit.model.family} if member.fit else set()
    return {member.family} | fitted | set(member.equals) - HOLDING.get(member.family, set())


def outcome(
    one: Planted, verdict: str, names: Collection[str], fit: Fit | None, difference: float, moved: float, stable: bool
) -> int:
    """What a name counts as."""
    if verdict != "identified":
        return INSEPARABLE if verdict == "not separable" else REFUSED
    if not one.inside:
        return WRONG
    if stable and one.family in names:
        return OWN
    if stable and HOLDING[one.family] & set(names):
        return CONTAINS
    few = fit is not None and fit.model.size <= one.numbers
    return EQUAL if (few and difference < moved) or difference < SAME else WRONG


def raw(ask: Ask, on: Battery) -> Floats:
    """(C, Q) what the learner says itself."""
    x, y = (np.repeat(part, QUERIES, 0) for part in (on.x, on.y))
    return ask(x, y, on.q.reshape(len(x), -1)).reshape(on.q.shape[:2])


def gaussian_prompts(seed: int, like: Battery) -> Battery:
    """As many contexts of normal inputs of training size and linear labels, in units."""
    _, n, d = like.x.shape
    prompt_sampler = linear_regression(context_length=n, input_size=d, input_law="normal", task_scale=d**-0.5)
    prompts = prompt_sampler(jax.random.key(seed), 2 * CONTEXTS * QUERIES).prompt
    x, y, q = (np.asarray(part, np.float64) for part in (prompts.x, prompts.y, prompts.x_query))
    count = 2 * CONTEXTS
    return Battery(x[:count], y[:count, :, 0], q.reshape(count, QUERIES, d), None, like.covariance)
