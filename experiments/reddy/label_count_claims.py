"""What ``label_count`` claims: with more labels than pairs all learn in context, with as many late or never."""

import numpy as np

from experiments.onsets import onset
from experiments.reddy.statistics import learned, present, solved
from experiments.statistics import Statistic
from icl_lab.lab import NotRun, Record, claims_of
from icl_lab.prompts import NOVEL_CLASSES


def part(n: int, labels: int) -> str:
    """Where the record holds what was measured at an N and an L."""
    return f"N_{n}/L_{labels}"


def accuracy(record: Record, n: int, labels: int) -> np.ndarray:
    """(M, R) in-context accuracy over training."""
    return record.arrays[f"{part(n, labels)}/ic"]


def steps_of(record: Record, n: int, labels: int) -> np.ndarray:
    """(R,) steps at which the accuracy was measured."""
    return record.arrays[f"{part(n, labels)}/steps"]


def labels_of(record: Record, n: int) -> list[int]:
    """The L at which an N was trained, in rising order."""
    pairs = zip(record.config["lengths"], record.config["label_counts"])
    return sorted(labels for length, labels in pairs if length == n and f"{part(n, labels)}/ic" in record.arrays)


def level(record: Record, n: int) -> float:
    """In-context accuracy of who has learned."""
    return solved(record.config, context_length=n)


def _learned(n: int, first: int, last: int = NOVEL_CLASSES) -> Statistic:
    """(M,) 1 where a member has learned at the end at every L from ``first`` to ``last``."""

    def statistic(record: Record) -> np.ndarray:
        labels = [value for value in labels_of(record, n) if first <= value <= last]
        if not labels:
            raise NotRun(f"N = {n} with L from {first} to {last}")
        return np.min([learned(accuracy(record, n, value), level(record, n)) for value in labels], axis=0)

    return statistic


def _as_many(n: int) -> Statistic:
    """(M,) 1 where a member has learned at L = N; none where it has not at every L >= 2N: it may need more steps."""

    def statistic(record: Record) -> np.ndarray:
        return np.where(_learned(n, 2 * n)(record) == 1, _learned(n, n, n)(record), np.nan)

    return statistic


def _delay(n: int, few: int, more: int | None = None) -> Statistic:
    """(M,) log2 of the onset with ``few`` labels over that with ``more``, the next L that was trained if None.

    With few labels a member that never learns counts as at the end, a lower bound; with more it has no value.
    """

    def statistic(record: Record) -> np.ndarray:
        others = [labels for labels in labels_of(record, n) if labels > few and labels == (more or labels)]
        if not others or few not in labels_of(record, n):
            raise NotRun(f"N = {n} with L = {few} and L = {more or 'more'}")
        late, soon = (
            onset(accuracy(record, n, labels), steps_of(record, n, labels), level(record, n))
            for labels in (few, others[0])
        )
        return np.log2(np.minimum(late, steps_of(record, n, few)[-1]) / present(soon))

    return statistic


_claim = claims_of("reddy.label_count", "Reddy 2023, Fig. A.5", minimum_members=6)

CLAIMS = (
    *(
        _claim(
            f"more_labels_{n}", "", f"N = {n}: with L > N every network learns in context (fraction of members that "
            "do at every L).",
            _learned(n, n + 1), expected=0.6, relation=">=", interval="wilson",
            reason="six of six leave the interval [.61, 1]", control=_learned(n, n, n),
        )
        for n in (2, 4, 8)
    ),
    _claim(
        "as_many_labels_8", "",
        "With L = N = 8 no network learns in context (fraction of those that do at every L from 16 on).",
        _as_many(8), expected=0.4,
        relation="<=", interval="wilson", reason="none of six leaves the interval [0, .39]",
        control=_learned(8, 16),
    ),
    *(
        _claim(
            f"delay_{n}", "",
            f"N = {n}: with L = N the transition comes later than with the next L, if it comes (log2 of "
            "the steps, never counted as the last one).", _delay(n, n), expected=0.0, relation=">=",
            reason="an ordering, paired by member",
        )
        for n in (2, 4)
    ),
    *(
        _claim(
            f"one_more_label_{n}", "",
            f"N = {n}: with one label more than pairs the transition comes later than with twice as many (log2 of the "
            "steps, never counted as the last one).", _delay(n, n + 1, 2 * n), expected=0.0, relation=">=",
            reason="an ordering, paired by member: an answer at random from the context gains log(L/N) only",
        )
        for n in (4, 8)
    ),
)  # fmt: skip
