"""How often is identify wrong? Hundreds of learners whose algorithm is known, and 150 that are none.

27 families with twelve draws of their parameters, each on prompts of its own size, law and noise
(experiments/identification/suite.py), and ten kinds of outsiders (outsiders.py), each with one disturbance
(disturbances.py) that changes its predictions by .01 or .03. Thresholds were calibrated on suite 0; suites 5 and 6 are
judged. What a name counts as: judging.py. A refusal is never right.

Beside it, on the first suite at the largest change, by the same count: the decision before names had to be stable, and
the published way (before.py).
"""

import dataclasses
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from experiments.identification import judging, outsiders
from experiments.identification.findings import FINDINGS
from experiments.identification.judging import COLUMNS, CONTAINS, EQUAL, OUTCOMES, WRONG, Task
from experiments.identification.outsiders import KINDS
from experiments.identification.suite import NAMES
from experiments.settings import Members
from icl_lab.lab import Claim, Experiment, FlagError, Record, Session, claims_of, from_json, main, setting, style
from icl_lab.lab.style import Figure

TOGETHER = 4
"""Learners of a task: they share what their family compiles."""

WORKERS, FEW = 2, 10
"""So many processes share the tasks, where they are more than a few."""


@dataclasses.dataclass(frozen=True)
class Config(Members):
    """How large the suite is."""

    seed: int = setting(0, "not used: suites are the seeds here", at_least=0, at_most=2**32 - 1)
    members: int = setting(12, "draws of each family's parameters", at_least=1)
    suites: tuple[int, ...] = setting((5, 6), "seeds of the suites; 0 is for calibration", at_least=0)
    changes: tuple[float, ...] = setting(
        (0.01, 0.03), "shares by which a disturbance changes predictions", at_least=0, at_most=0.05
    )
    families: tuple[str, ...] = setting(NAMES, "planted families", choices=NAMES)
    kinds: tuple[str, ...] = setting(tuple(KINDS), "kinds of outsiders", choices=tuple(KINDS))
    outsiders: float = setting(1.0, "share of the 150 outsiders", above=0, at_most=1)
    compare: bool = setting(True, "also other ways to name, on the first suite at the largest change")


PRESETS = {
    "smoke": Config(
        members=1, suites=(0,), changes=(0.03,), families=("ridge",), kinds=("nearest neighbour",), outsiders=0.01
    ),
    "quick": Config(
        members=1,
        suites=(0,),
        changes=(0.03,),
        families=("ridge", "centred ridge + mean", "softmax regression", "RLS with forgetting", "median regression"),
        kinds=("nearest neighbour", "mean of two"),
        outsiders=0.01,
        compare=False,
    ),
    "lab": Config(),
    "paper": Config(),
}


def check(config: Config) -> None:
    """Raises FlagError for a suite or a change that is given twice."""
    for name in ("suites", "changes"):
        if len(set(getattr(config, name))) != len(getattr(config, name)):
            raise FlagError(f"--{name}: allowed is each value once")


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
    """Identifies every learner of every suite at every change; what is done is saved as it comes."""
    checkpoint, places = session.checkpoint("planted"), _places(config)
    table = np.full((len(config.suites), len(places), len(config.changes), len(COLUMNS)), np.nan)
    table = (checkpoint.load(lambda: {"state": table, "metrics": {}}) or {"state": table})["state"].copy()
    with session.bar("learners", table[..., 0, 0].size) as advance:
        for done in _done(list(_tasks(config, places, np.isnan(table[..., 0, 0])))):
            if done is not None:
                task, found = done
                table[config.suites.index(task.suite), np.searchsorted(places, task.places)] = found
            checkpoint.save(lambda: {"state": table, "metrics": {}}, finished=False)
            advance(int((~np.isnan(table[..., 0, 0])).sum()), table[..., 0, 0].size)
    kinds = [kind for kind, _ in outsiders.names(config.kinds, config.outsiders)]
    every = [*np.repeat(NAMES, config.members), *kinds]
    names = [str(every[k]) for k in places]
    arrays = {name: table[..., k].swapaxes(1, 2) for k, name in enumerate(COLUMNS)}
    families = np.array([NAMES.index(name) if name in NAMES else -1 for name in names])
    return _metrics(config, arrays, np.array(names), families >= 0), arrays | {"family": families}


def _places(config: Config) -> np.ndarray:
    """Where in the whole suite the learners are that are asked for: the seeds of their disturbances."""
    planted = len(NAMES) * config.members
    inside = [k for k in range(planted) if NAMES[k // config.members] in config.families]
    others = len(outsiders.names(config.kinds, config.outsiders))
    return np.array([*inside, *range(planted, planted + others)])


def _tasks(config: Config, places: np.ndarray, open_: np.ndarray) -> Iterator[Task]:
    """What is left to do, a few learners at a time."""
    for s, suite in enumerate(config.suites):
        left = [int(k) for k in places[open_[s]]]
        compared = tuple(config.compare and s == 0 and change == max(config.changes) for change in config.changes)
        for begin in range(0, len(left), TOGETHER):
            some = tuple(left[begin : begin + TOGETHER])
            yield Task(suite, some, config.members, config.kinds, config.outsiders, config.changes, compared)


def _done(tasks: Sequence[Task]) -> Iterator[tuple[Task, np.ndarray] | None]:
    """Tasks with their rows as they are done, here or, where there are many, in two processes; None once a second."""
    if len(tasks) <= FEW:
        yield from ((task, judging.rows(task)) for task in tasks)
        return
    with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:  # they end with it
        answers = pool.imap_unordered(judging.forgetting, tasks)
        done = 0
        while done < len(tasks):
            try:
                found = answers.next(1)
            except multiprocessing.TimeoutError:
                yield None
            else:
                done += 1
                yield found


def _metrics(config: Config, arrays: dict[str, np.ndarray], names: np.ndarray, inside: np.ndarray) -> dict[str, Any]:
    """Counts of outcomes by suite, change and family, and one-sided exact 95 % bounds."""
    found: dict[str, Any] = {}
    for (s, suite), (c, change) in ((a, b) for a in enumerate(config.suites) for b in enumerate(config.changes)):
        for way in ("outcome", "former", "published"):
            outcome = arrays[way][s, c]
            if np.isnan(outcome).all():
                continue
            at = f"suite {suite}, change {change:g}" + (f", {way}" if way != "outcome" else "")
            counts = {
                str(n): [int((outcome[names == n] == k).sum()) for k in range(len(OUTCOMES))] for n in np.unique(names)
            }
            wrong, named = int((outcome[inside] == WRONG).sum()), int((outcome[~inside] == WRONG).sum())
            found[at] = {
                "counts": counts,
                "own or containing": float((outcome[inside] <= CONTAINS).mean()),
                "with equals": float((outcome[inside] <= EQUAL).mean()),
                "wrong": wrong,
                "wrong rate below": at_most(wrong, int(inside.sum())),
                "outsiders named": named,
                "outsiders named rate below": at_most(named, int((~inside).sum())),
            }
    return found


def at_most(count: int, total: int) -> float:
    """One-sided exact 95 % upper bound of a rate."""
    from scipy.special import betaincinv

    return float(betaincinv(count + 1, total - count, 0.95)) if count < total else 1.0


def figures(record: Record) -> dict[str, Figure]:
    """Outcomes by family, one panel a change, suites together."""
    config = from_json(Config, record.config)
    figure, axes = style.panels(len(config.changes), 1, width=4.2, height=7.2)
    outcome, family = record["outcome"], record["family"]
    labels, colours = (*NAMES, "outsiders"), ("C2", "#5fae5f", "#a8d8a8", "0.9", "C1", "black")
    hatches = ("", "\\\\\\", "...", "///", "xxx", "")  # what is alike in grey
    for c, (axis, change) in enumerate(zip(axes[0], config.changes)):
        left = np.zeros(len(labels))
        for k, (name, colour, hatch) in enumerate(zip(OUTCOMES, colours, hatches)):
            seen = [outcome[:, c, family == g].ravel() for g in (*range(len(NAMES)), -1)]
            share = np.array([(one == k).sum() / max(one.size, 1) for one in seen])
            axis.barh(np.arange(len(labels)), share, left=left, color=colour, hatch=hatch, label=name)
            left += share
        axis.set(yticks=np.arange(len(labels)), yticklabels=labels if c == 0 else [], xlim=(0, 1))
        axis.set(title=f"predictions changed by {change:g}", xlabel="share of learners")
        axis.invert_yaxis()
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return {"planted": figure}


Statistic = Callable[[np.ndarray, np.ndarray], Any]
"""Of outcomes (learners,) and whether each learner was planted."""


def _of(suite: int, change: float, statistic: Statistic, way: str = "outcome") -> Callable[[Record], np.ndarray]:
    """A statistic of one suite at one change; nothing where the record has not got it."""

    def value(record: Record) -> np.ndarray:
        config = from_json(Config, record.config)
        if suite not in config.suites or change not in config.changes:
            return np.array([])
        outcome = record[way][config.suites.index(suite), config.changes.index(change)]
        if np.isnan(outcome).any():
            return np.array([])
        return np.atleast_1d(statistic(outcome, record["family"] >= 0)).astype(float)

    return value


claim = claims_of("identification.planted", "This lab, planted suite", presets=("lab",), interval="exact")
SHARE = {"interval": "wilson", "unit": "learner"}
BAR = {"reason": "the bar set before the suite was run"}


def _own(outcome: np.ndarray, inside: np.ndarray) -> np.ndarray:
    return outcome[inside] <= CONTAINS


def _with_equals(outcome: np.ndarray, inside: np.ndarray) -> np.ndarray:
    return outcome[inside] <= EQUAL


def _wrong(outcome: np.ndarray, inside: np.ndarray) -> float:
    return float((outcome[inside] == WRONG).mean())


def _wrong_below(outcome: np.ndarray, inside: np.ndarray) -> float:
    return at_most(int((outcome[inside] == WRONG).sum()), int(inside.sum()))


def _named(outcome: np.ndarray, inside: np.ndarray) -> int:
    return int((outcome[~inside] == WRONG).sum())


def _claims() -> Iterator[Claim]:
    for suite in (5, 6):
        for change, own, equal in ((0.01, 0.75, 0.85), (0.03, 0.60, 0.75)):
            at, tag = f"Suite {suite}, predictions changed by {change:g}", f"{suite}_{round(100 * change):02d}"
            shares: tuple[tuple[str, str, Statistic, float], ...] = (
                ("own", "the own name is given, or one that contains it, and is stable", _own, own),
                ("equal", "the name is that, or equal within the disturbance", _with_equals, equal),
            )
            counts: tuple[tuple[str, str, Statistic, float], ...] = (
                ("wrong", "share of planted learners that get a wrong name", _wrong, 0.01),
                ("wrong_bound", "95 % upper bound of the rate of wrong names", _wrong_below, 0.02),
                ("outsiders", "outsiders that get a name", _named, 0),
            )
            for name, said, statistic, bar in shares:
                value = _of(suite, change, statistic)
                yield claim(f"{name}_{tag}", "", f"{at}: {said}.", value, bar, relation=">=", **BAR, **SHARE)
            for name, said, statistic, bar in counts:
                value = _of(suite, change, statistic)
                yield claim(f"{name}_{tag}", "", f"{at}: {said}.", value, bar, relation="<=", **BAR)
    for way, said in (("former", "the decision before names had to be stable"), ("published", "the published way")):
        yield claim(f"{way}_wrong", "", f"Suite 5, predictions changed by 0.03, {said}: share of wrong names.",
                    _of(5, 0.03, _wrong, way), 0.01, relation=">=",
                    reason="the bar of names that have to be stable, for comparison")  # fmt: skip


CLAIMS = tuple(_claims())

AXES = {"family": ("learner",), "*": ("suite", "change", "learner")}

QUICK = {"own_5_03": None, "outsiders_5_03": None}
"""Quick runs suite 0, of which nothing is claimed."""

EXPERIMENT = Experiment(
    "identification.planted", __doc__, PRESETS, run, figures, CLAIMS, check, axes=AXES, quick=QUICK,
    finding=FINDINGS["planted"], given=True,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
