"""What ``label_count`` claims and shows: with more labels than pairs all learn in context, else late or never."""

import numpy as np

from experiments.onsets import onset
from experiments.panels import SERIES, described, family, intervals
from experiments.reddy.label_count import CURVE, STEPS, chosen
from experiments.reddy.statistics import guess, learned, or_last, present, solved
from experiments.statistics import of_record
from icl_lab.claims import Beside, Quick
from icl_lab.lab import NotRun, Record, claims_of
from icl_lab.lab.intervals import wilson_interval
from icl_lab.lab.style import Axes, Figure, panels
from icl_lab.prompts import NOVEL_CLASSES

ACCURACY = CURVE.at(metric="ic")
"""(M, R) in context, over training."""


def labels_of(record: Record, n: int) -> list[int]:
    """The L at which an N was trained, in rising order."""
    return sorted(labels for length, labels in chosen(record.config) if length == n)


def level(record: Record, n: int) -> float:
    """In-context accuracy of who has learned."""
    return solved(record.config, context_length=n)


def onsets(record: Record, n: int, labels: int) -> np.ndarray:
    """(M,) first measured step at which a member has learned; infinite if never."""
    return onset(ACCURACY(record, n=n, labels=labels), STEPS(record, n=n, labels=labels), level(record, n))


@of_record
def _learned(record: Record, n: int, first: int, last: int = NOVEL_CLASSES) -> np.ndarray:
    """(M,) 1 where a member has learned at the end at every L from ``first`` to ``last``."""
    labels = [value for value in labels_of(record, n) if first <= value <= last]
    if not labels:
        raise NotRun(f"N = {n} with L from {first} to {last}")
    return np.min([learned(ACCURACY(record, n=n, labels=value), level(record, n)) for value in labels], axis=0)


@of_record
def _untrained(record: Record, n: int) -> np.ndarray:
    """(M,) the same with more labels than pairs, of the first measurement: before training."""
    labels = [value for value in labels_of(record, n) if value > n]
    if not labels:
        raise NotRun(f"N = {n} with L > N")
    return np.min([learned(ACCURACY(record, n=n, labels=one)[:, :1], level(record, n)) for one in labels], axis=0)


@of_record
def _as_many(record: Record, n: int) -> np.ndarray:
    """(M,) 1 where a member has learned at L = N; none where it has not at every L >= 2N: it may need more steps."""
    return np.where(_learned(n, 2 * n)(record) == 1, _learned(n, n, n)(record), np.nan)


@of_record
def _delay(record: Record, n: int, few: int, more: int | None = None) -> np.ndarray:
    """(M,) log2 of the onset with ``few`` labels over that with ``more``, the next L that was trained if None.

    With few labels a member that never learns counts as at the end, a lower bound; with more it has no value.
    """
    others = [labels for labels in labels_of(record, n) if labels > few and labels == (more or labels)]
    if not others or few not in labels_of(record, n):
        raise NotRun(f"N = {n} with L = {few} and L = {more or 'more'}")
    late, soon = onsets(record, n, few), onsets(record, n, others[0])
    return np.log2(or_last(late, STEPS(record, n=n, labels=few)) / present(soon))


def _as_many_labels(n: int) -> Beside:
    """The same fraction at L = N."""
    return Beside(_learned(n, n, n), "at this N some networks, or all, learn with L = N too, only later")


claim = claims_of("reddy.label_count", "Reddy 2023, Fig. A.5", minimum_members=6)

_MORE = {
    "headline": 1,
    "quick": Quick(0.0, "at a rate of .2 all six learn in about 700 of the 1,200 steps; all are needed"),
}
_DELAY = {"headline": 2, "quick": Quick(0.0, "an ordering has no slack at lab either")}

CLAIMS = (
    *(
        claim(
            f"more_labels_{n}", f"N = {n}: with L > N every network learns in context (fraction of members that "
            f"do at every L; control: {'L = N' if n == 8 else 'before training'}).",
            _learned(n, n + 1), at_least=0.6, interval="wilson",
            published=("all seeds learn", "Fig. A.5"),
            reason="six of six leave the interval [.61, 1]",
            **({"control": _learned(n, n, n)} if n == 8 else {"control": _untrained(n), "beside": _as_many_labels(n)}),
            **(_MORE if n == 4 else {}),
        )
        for n in (2, 4, 8)
    ),
    claim(
        "as_many_labels_8",
        "With L = N = 8 no network learns in context (fraction of those that do at every L from 16 on; control: from "
        "16 on).",
        _as_many(8), at_most=0.4,
        published=("L = N = 8: 0 of 6 seeds", "author's reply"),
        interval="wilson", reason="none of six leaves the interval [0, .39]", headline=3,
        control=_learned(8, 16),
    ),
    *(
        claim(
            f"delay_{n}",
            f"N = {n}: with L = N the transition comes later than with the next L, if it comes (log2 of "
            "the steps, never counted as the last one).", _delay(n, n), at_least=0.0,
            published=("L = N of 2 and 4: only some seeds", "author's reply"),
            reason="an ordering, paired by member", **(_DELAY if n == 4 else {}),
        )
        for n in (2, 4)
    ),
    *(
        claim(
            f"one_more_label_{n}",
            f"N = {n}: with one label more than pairs the transition comes later than with twice as many (log2 of the "
            "steps, never counted as the last one).", _delay(n, n + 1, 2 * n), at_least=0.0,
            reason="an ordering, paired by member: an answer at random from the context gains log(L/N) only",
        )
        for n in (4, 8)
    ),
)  # fmt: skip


def figures(record: Record) -> dict[str, Figure]:
    """In-context accuracy of every member over training, one panel an N; the fraction that has learned; how late."""
    lengths = sorted({n for n, _ in chosen(record.config)})
    figure, (courses, (fractions, waits, *rest)) = panels(max(len(lengths), 2), 2)
    for axes in (*courses[len(lengths) :], *rest):
        axes.set_axis_off()
    for axes, n in zip(courses, lengths):
        for labels, look in zip(labels_of(record, n), family(len(labels_of(record, n)))):
            axes.plot(STEPS(record, n=n, labels=labels), ACCURACY(record, n=n, labels=labels).T, linewidth=0.9, **look)
            axes.plot([], [], label=f"L = {labels}", **look)
        axes.axhline(guess(record.config, context_length=n), color="0.6", linewidth=0.7, label="B/N")
        axes.set(xlabel="training step", ylabel="in-context accuracy", ylim=(-0.03, 1.03))
        described(axes, 3, f"N = {n}, every member")
    _fractions(fractions, record, lengths)
    _waits(waits, record, lengths)
    return {"label_count": figure}


def _fractions(axes: Axes, record: Record, lengths: list[int]) -> None:
    """The fraction of members that has learned, with its 95 % Wilson interval, against L/N."""
    for i, n in enumerate(lengths):
        ratios = np.array(labels_of(record, n)) / n
        members = [_learned(n, labels, labels)(record) for labels in labels_of(record, n)]
        look = SERIES[i % len(SERIES)] | {"label": f"N = {n}"}
        intervals(axes, ratios * _apart(i, lengths), members, wilson_interval, **look)
    _against_labels(axes, record, lengths)
    described(axes, len(lengths), "members that learn", ylabel="fraction that has learned", ylim=(-0.03, 1.03))


def _waits(axes: Axes, record: Record, lengths: list[int]) -> None:
    """The onset of every member against L/N; an open triangle at the last step where some have not learned by then."""
    for i, n in enumerate(lengths):
        look = SERIES[i % len(SERIES)]
        medians = []
        for labels in labels_of(record, n):
            times, at = onsets(record, n, labels), labels / n * _apart(i, lengths)
            reached = np.isfinite(times)
            axes.plot(np.full(reached.sum(), at), times[reached], look["marker"], color=look["color"], markersize=3)
            if not reached.all():
                last = STEPS(record, n=n, labels=labels)[-1]
                axes.plot(at, last, "^", color=look["color"], markerfacecolor="none", markersize=7)
            medians.append((at, np.median(times)))
        at, median = np.array(medians).T
        axes.plot(at[np.isfinite(median)], median[np.isfinite(median)], label=f"N = {n}, median", **look)
    axes.plot([], [], "^", color="0.3", markerfacecolor="none", label="not by the last step")
    _against_labels(axes, record, lengths)
    described(axes, 2, "onset of every member", yscale="log", ylabel="training step of the onset")


def _apart(i: int, lengths: list[int]) -> float:
    """Factor by which the marks of an N are moved, so that they do not cover each other."""
    return 2 ** (0.08 * (i - (len(lengths) - 1) / 2))


def _against_labels(axes: Axes, record: Record, lengths: list[int]) -> None:
    axes.set_xscale("log", base=2)
    ratios = [labels / n for n in lengths for labels in labels_of(record, n)]
    ticks = [2.0**k for k in range(int(np.ceil(np.log2(max(ratios)))) + 1)]
    axes.set_xticks(ticks, [f"{ratio:g}" for ratio in ticks])
    axes.set_xlabel("labels over context pairs, L/N")
