"""How often is identify wrong? Hundreds of learners whose algorithm is known, and 150 that are none.

27 families with twelve draws of their parameters, each on prompts of its own size, distribution and noise
(experiments/identification/suite.py), and ten kinds of outsiders (outsiders.py), each with one disturbance
(disturbances.py) that changes its predictions by .01 or .03. Thresholds were calibrated on suite 0; suites 5 and 6 are
judged. What a name counts as: judging.py. A refusal is never right.

Beside it, on the first suite at the largest change, by the same count: the decision before names had to be stable, and
the published way (before.py).
"""

import dataclasses
import itertools
import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from experiments.identification import judging, outsiders
from experiments.identification.judging import COLUMNS, CONTAINS, EQUAL, OUTCOMES, WRONG, Task
from experiments.identification.outsiders import KINDS
from experiments.identification.suite import NAMES
from experiments.settings import Members
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import once
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Yield

TOGETHER = 4
"""Learners of a task: they share what their family compiles."""

WORKERS, FEW = 2, 10
"""So many processes share the tasks, where they are more than a few."""


@dataclasses.dataclass(frozen=True)
class Config(Members):
    """How large the suite is."""

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
        members=1, suites=(0,), changes=(0.03,), families=("ridge", "softmax regression"),
        kinds=("nearest neighbour",), outsiders=0.01, compare=False,
    ),
    "lab": Config(),
    "paper": Config(),
}  # fmt: skip


COLUMN = quantity("{column}", "suite", "change", "learner", column=COLUMNS)
FAMILY = quantity("family", "learner")


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Identifies every learner of every suite at every change; what is done is saved as it comes."""
    checkpoint, places = fits.checkpoint("planted"), _places(config)
    table = np.full((len(config.suites), len(places), len(config.changes), len(COLUMNS)), np.nan)
    table = (checkpoint.load(lambda: {"state": table, "metrics": {}}) or {"state": table})["state"].copy()
    with fits.bar("learners", table[..., 0, 0].size) as advance:
        for done in _done(list(_tasks(config, places, np.isnan(table[..., 0, 0])))):
            if done is not None:
                task, rows = done
                table[config.suites.index(task.suite), np.searchsorted(places, task.places)] = rows
            checkpoint.save(lambda: {"state": table, "metrics": {}}, finished=False)
            advance(int((~np.isnan(table[..., 0, 0])).sum()), table[..., 0, 0].size)
    kinds = [kind for kind, _ in outsiders.names(config.kinds, config.outsiders)]
    every = [*np.repeat(NAMES, config.members), *kinds]
    names = np.array([str(every[k]) for k in places])
    families = np.array([NAMES.index(name) if name in NAMES else -1 for name in names])
    columns = {name: table[..., k].swapaxes(1, 2) for k, name in enumerate(COLUMNS)}
    yield COLUMN, columns
    yield FAMILY, families
    yield "facts", counts(config, columns, names, families >= 0)


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
                answer = answers.next(1)
            except multiprocessing.TimeoutError:
                yield None
            else:
                done += 1
                yield answer


def counts(config: Config, arrays: dict[str, np.ndarray], names: np.ndarray, inside: np.ndarray) -> dict[str, Any]:
    """Counts of outcomes by suite, change and family, and one-sided exact 95 % bounds."""
    summary: dict[str, Any] = {}
    for (s, suite), (c, change) in itertools.product(enumerate(config.suites), enumerate(config.changes)):
        for way in ("outcome", "former", "published"):
            outcome = arrays[way][s, c]
            if np.isnan(outcome).all():
                continue
            at = f"suite {suite}, change {change:g}" + (f", {way}" if way != "outcome" else "")
            counts = {
                str(n): [int((outcome[names == n] == k).sum()) for k in range(len(OUTCOMES))] for n in np.unique(names)
            }
            wrong, named = int((outcome[inside] == WRONG).sum()), int((outcome[~inside] == WRONG).sum())
            summary[at] = {
                "counts": counts,
                "own or containing": float((outcome[inside] <= CONTAINS).mean()),
                "with equals": float((outcome[inside] <= EQUAL).mean()),
                "wrong": wrong,
                "wrong rate below": at_most(wrong, int(inside.sum())),
                "outsiders named": named,
                "outsiders named rate below": at_most(named, int((~inside).sum())),
            }
    return summary


def at_most(count: int, total: int) -> float:
    """One-sided exact 95 % upper bound of a rate."""
    from scipy.special import betaincinv

    return float(betaincinv(count + 1, total - count, 0.95)) if count < total else 1.0


EXPERIMENT = Experiment(
    "identification.planted", __doc__, PRESETS, measured, (COLUMN, FAMILY), given=True, unused=("seed",),
    constraints=(once("suites", "changes"),),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
