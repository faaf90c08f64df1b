"""What ``planted`` claims and shows: how often names are right, and wrong."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from experiments.identification.judging import CONTAINS, EQUAL, OUTCOMES, OWN, REFUSED, WRONG
from experiments.identification.planted import COLUMN, FAMILY, at_most
from experiments.identification.suite import NAMES
from experiments.statistics import of_record
from icl_lab.claims import FAILS, NOT_RESOLVED, Beside
from icl_lab.lab import Claim, Record, claims_of, style
from icl_lab.lab.style import Figure


def figures(record: Record) -> dict[str, Figure]:
    """Outcomes by family, one panel a change, suites together."""
    changes = record.config["changes"]
    figure, axes = style.panels(len(changes), 1, shape=1.37)
    outcome, family = COLUMN(record, column="outcome"), FAMILY(record)
    labels, colours = (*NAMES, "outsiders"), ("C2", "#5fae5f", "#a8d8a8", "0.9", "C1", "black")
    hatches = ("", "\\\\\\", "...", "///", "xxx", "")  # what is alike in grey
    for c, (axis, change) in enumerate(zip(axes[0], changes)):
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


@of_record
def _of(record: Record, suite: int, change: float, statistic: Statistic, way: str = "outcome") -> np.ndarray:
    """A statistic of one suite at one change; nothing where the record has not got it."""
    suites, changes = record.config["suites"], record.config["changes"]
    if suite not in suites or change not in changes:
        return np.array([])
    outcome = COLUMN(record, column=way)[suites.index(suite), changes.index(change)]
    if np.isnan(outcome).any():
        return np.array([])
    return np.atleast_1d(statistic(outcome, FAMILY(record) >= 0)).astype(float)


@of_record
def _of_others(record: Record, suite: int, change: float, statistic: Statistic) -> np.ndarray:
    """The same where every planted learner is held to be of the family of another: of the next one in the list."""
    suites, changes = record.config["suites"], record.config["changes"]
    if suite not in suites or change not in changes:
        return np.array([])
    family, named = FAMILY(record), COLUMN(record, column="named")[suites.index(suite), changes.index(change)]
    kinds = np.unique(family[family >= 0])
    others = np.where(family >= 0, np.roll(kinds, -1)[np.searchsorted(kinds, family)], -1)
    outcome = np.where(named < 0, REFUSED, np.where(named == others, OWN, WRONG))
    return np.atleast_1d(statistic(outcome, family >= 0)).astype(float)


def _named_inside(outcome: np.ndarray, inside: np.ndarray) -> int:
    return int((outcome[inside] != REFUSED).sum())


def _wrong(outcome: np.ndarray, inside: np.ndarray) -> float:
    return float((outcome[inside] == WRONG).mean())


def _wrong_below(outcome: np.ndarray, inside: np.ndarray) -> float:
    return at_most(int((outcome[inside] == WRONG).sum()), int(inside.sum()))


def _named(outcome: np.ndarray, inside: np.ndarray) -> int:
    return int((outcome[~inside] == WRONG).sum())


_AT_LAB = {"own_5_01": NOT_RESOLVED} | dict.fromkeys(
    ("wrong_5_01", "wrong_bound_5_01", "wrong_5_03", "wrong_bound_5_03", "outsiders_6_01", "outsiders_6_03"), FAILS
)
claim = claims_of("identification.planted", "This lab, planted suite", _AT_LAB, presets=("lab",), interval="exact")
FIRST = {"own_5_03": 1, "outsiders_5_03": 2}
"""Headlines. Quick runs suite 0, of which nothing is claimed."""


def _claims() -> Iterator[Claim]:
    for suite in (5, 6):
        for change, own_bar, equal_bar in ((0.01, 0.75, 0.85), (0.03, 0.60, 0.75)):
            at, tag = f"Suite {suite}, predictions changed by {change:g}", f"{suite}_{round(100 * change):02d}"
            share = {"interval": "wilson", "unit": "learner"}
            bars: tuple[tuple[str, str, Statistic, dict[str, Any]], ...] = (
                ("own", "the own name is given, or one that contains it, and is stable",
                 lambda outcome, inside: outcome[inside] <= CONTAINS, {"at_least": own_bar} | share),
                ("equal", "the name is that, or equal within the disturbance",
                 lambda outcome, inside: outcome[inside] <= EQUAL, {"at_least": equal_bar} | share),
                ("wrong", "share of planted learners that get a wrong name", _wrong, {"at_most": 0.01}),
                ("wrong_bound", "95 % upper bound of the rate of wrong names", _wrong_below, {"at_most": 0.02}),
                ("outsiders", "outsiders that get a name", _named, {"at_most": 0}),
            )  # fmt: skip
            for name, text, statistic, bar in bars:
                said = "planted learners" if name == "outsiders" else "names of the next family"
                yield claim(
                    f"{name}_{tag}", f"{at}: {text} (control: {said}).", _of(suite, change, statistic), **bar,
                    control=_of_others(suite, change, _named_inside if name == "outsiders" else statistic),
                    reason="the bar set before the suite was run", headline=FIRST.get(f"{name}_{tag}", 0),
                )  # fmt: skip
    for way, text in (("former", "the decision before names had to be stable"), ("published", "the published way")):
        yield claim(
            f"{way}_wrong", f"Suite 5, predictions changed by 0.03, {text}: share of wrong names.",
            _of(5, 0.03, _wrong, way), at_least=0.01,
            beside=Beside(_of(5, 0.03, _wrong), "that of names that have to be stable is above .01 here, too, by less"),
            reason="the bar of names that have to be stable, for comparison",
        )  # fmt: skip


CLAIMS = tuple(_claims())
