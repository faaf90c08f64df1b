"""The figure of ``label_count``: accuracy by number of labels, who has learned, and how late."""

import numpy as np

from experiments.onsets import onset
from experiments.panels import ABOVE, SERIES
from experiments.reddy.label_count_claims import accuracy, labels_of, level, steps_of
from experiments.reddy.statistics import guess, learned
from icl_lab.lab import Record
from icl_lab.lab.intervals import wilson_interval
from icl_lab.lab.style import Axes, Figure, viridis
from icl_lab.lab.style import panels as axes_grid

DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))


def figures(record: Record) -> dict[str, Figure]:
    """In-context accuracy of every member over training, one panel an N; the fraction that has learned; how late."""
    lengths = sorted({n for n in record.config["lengths"] if labels_of(record, n)})
    figure, (courses, (fractions, waits, *rest)) = axes_grid(max(len(lengths), 2), 2, height=3.0)
    for axes in (*courses[len(lengths) :], *rest):
        axes.set_axis_off()
    for axes, n in zip(courses, lengths):
        shades = viridis(len(labels_of(record, n)))
        for i, labels in enumerate(labels_of(record, n)):
            look = {"color": shades[i], "linestyle": DASHES[i % len(DASHES)]}
            axes.plot(steps_of(record, n, labels), accuracy(record, n, labels).T, linewidth=0.9, **look)
            axes.plot([], [], label=f"L = {labels}", **look)
        axes.axhline(guess(record.config, context_length=n), color="0.6", linewidth=0.8, label="B/N")
        axes.set_xlabel("training step")
        axes.set_ylabel("in-context accuracy")
        axes.set_ylim(-0.03, 1.03)
        axes.legend(title=f"N = {n}, every member", ncols=3, **ABOVE)
    _fractions(fractions, record, lengths)
    _waits(waits, record, lengths)
    return {"label_count": figure}


def _fractions(axes: Axes, record: Record, lengths: list[int]) -> None:
    """The fraction of members that has learned, with its 95 % Wilson interval, against L/N."""
    for i, n in enumerate(lengths):
        ratios = np.array(labels_of(record, n)) / n
        curves = [accuracy(record, n, labels) for labels in labels_of(record, n)]
        found = [wilson_interval(learned(c, level(record, n))) for c in curves]
        share = np.array([estimate for estimate, _ in found])
        ends = np.array([[estimate - low, high - estimate] for estimate, (low, high) in found])
        axes.errorbar(
            ratios * _apart(i, lengths),
            share,
            np.maximum(ends, 0).T,
            label=f"N = {n}",
            capsize=2,
            **SERIES[i % len(SERIES)],
        )
    _against_labels(axes, record, lengths)
    axes.set_ylabel("fraction that has learned")
    axes.set_ylim(-0.03, 1.03)
    axes.legend(title="95 % interval", ncols=len(lengths), **ABOVE)


def _waits(axes: Axes, record: Record, lengths: list[int]) -> None:
    """The onset of every member against L/N; an open triangle at the last step where some have not learned by then."""
    for i, n in enumerate(lengths):
        look = SERIES[i % len(SERIES)]
        medians = []
        for labels in labels_of(record, n):
            steps, at = steps_of(record, n, labels), labels / n * _apart(i, lengths)
            times = onset(accuracy(record, n, labels), steps, level(record, n))
            there = np.isfinite(times)
            axes.plot(np.full(there.sum(), at), times[there], look["marker"], color=look["color"], markersize=3)
            if not there.all():
                axes.plot(at, steps[-1], "^", color=look["color"], markerfacecolor="none", markersize=7)
            medians.append((at, np.median(times)))
        at, median = np.array(medians).T
        axes.plot(at[np.isfinite(median)], median[np.isfinite(median)], label=f"N = {n}, median", **look)
    axes.plot([], [], "^", color="0.3", markerfacecolor="none", label="not by the last step")
    _against_labels(axes, record, lengths)
    axes.set_yscale("log")
    axes.set_ylabel("training step of the onset")
    axes.legend(title="every member", ncols=2, **ABOVE)


def _apart(i: int, lengths: list[int]) -> float:
    """Factor by which the marks of an N are moved, so that they do not cover each other."""
    return 2 ** (0.08 * (i - (len(lengths) - 1) / 2))


def _against_labels(axes: Axes, record: Record, lengths: list[int]) -> None:
    axes.set_xscale("log", base=2)
    ratios = [labels / n for n in lengths for labels in labels_of(record, n)]
    ticks = [2.0**k for k in range(int(np.ceil(np.log2(max(ratios)))) + 1)]
    axes.set_xticks(ticks, [f"{ratio:g}" for ratio in ticks])
    axes.set_xlabel("labels over context pairs, L/N")
