"""Figures of ``landscape``: what share of dense starts ends where, beside the race's prediction."""

from typing import Any

import numpy as np

from experiments import panels
from icl_lab.lab import Record
from icl_lab.lab.intervals import wilson_interval
from icl_lab.lab.style import Axes, Figure, viridis
from icl_lab.lab.style import panels as axes_grid

OPTIMUM, SPURIOUS, MIXED, UNRESOLVED = range(4)
MARKERS, DASHES = ("o", "s", "^", "D", "v"), ("-", "--", "-.", ":", (0, (5, 1)))


def figures(record: Record) -> dict[str, Figure]:
    """Shares that reach the optimum over D; which spurious points are minima, and where the others lead."""
    config = record.config
    scales, lengths = config["scales"], config["lengths"]
    figure, axes = axes_grid(len(scales), len(lengths), width=3.0, height=2.5)
    for row, n in enumerate(lengths):
        for column, s in enumerate(scales):
            _shares(axes[row, column], record, column, row)
            axes[row, column].set_title(f"scale {s:g}, N = {n}")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=len(labels), loc="outside upper center")
    minima, ((longest, mixed, told, pair),) = axes_grid(4, 1, width=2.9)
    _longest(longest, record)
    _mixed(mixed, record)
    _told(told, record)
    _pair(pair, record)
    return {"landscape": figure, "minima": minima}


def _look(i: int, count: int) -> dict[str, Any]:
    return {"color": viridis(count)[i], "marker": MARKERS[i % len(MARKERS)]}


def _shares(axes: Axes, record: Record, scale: int, length: int) -> None:
    """Share of starts that reach the optimum, with Wilson intervals, over D; the race's prediction dotted."""
    config = record.config
    d, exponents = np.array(config["dimensions"]), config["exponents"]
    for i, p in enumerate(exponents):
        shares = [wilson_interval(record[f"dimension_{n}/ended"][i, scale, length] == OPTIMUM) for n in d]
        middle, ends = np.array([m for m, _ in shares]), np.array([e for _, e in shares])
        look = _look(i, len(exponents))
        errors = np.abs(ends.T - middle[None])
        axes.errorbar(d + 0.06 * (i - 1.5), middle, errors, linestyle="", capsize=2, label=f"p = {p:g}", **look)
        predicted = [record[f"dimension_{n}/predicted"][i, scale, length] for n in d]
        axes.plot(d, predicted, linestyle=(0, (1, 1)), color=look["color"], label="race" if i == 0 else None)
    axes.set_xticks(d)
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel("dimension D")
    axes.set_ylabel("share at the optimum")


def _longest(axes: Axes, record: Record) -> None:
    """The longest prompts for which the spurious point is a minimum, over D."""
    config = record.config
    d, exponents = config["dimensions"], config["exponents"]
    for i, p in enumerate(exponents):
        longest = [longest_minimum(record[f"dimension_{n}/curvature"][i]) for n in d]
        axes.plot(d, longest, linestyle=DASHES[i % len(DASHES)], label=f"p = {p:g}", **_look(i, len(exponents)))
    axes.set_xticks(d)
    axes.set_xlabel("dimension D")
    axes.set_ylabel("largest N with\nthe minimum")
    axes.legend(ncols=2, **panels.ABOVE)


def _mixed(axes: Axes, record: Record) -> None:
    """Share of starts that end at mixed minima, all scales together, at the longest prompts, over D."""
    config = record.config
    d, length = config["dimensions"], int(np.argmax(config["lengths"]))
    for i, p in enumerate(config["exponents"]):
        share = [(record[f"dimension_{n}/ended"][i, :, length] == MIXED).mean() for n in d]
        axes.plot(d, share, linestyle=DASHES[i % len(DASHES)], label=f"p = {p:g}", **_look(i, len(config["exponents"])))
    axes.set_xticks(d)
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel("dimension D")
    axes.set_ylabel(f"share at mixed\nminima, N = {config['lengths'][length]}")
    axes.legend(ncols=2, **panels.ABOVE)


def longest_minimum(curvature: np.ndarray) -> int:
    """The largest N, from 1, up to which the curvature (lengths,) at the spurious point is positive; 0 for none."""
    positive = curvature > 0
    return len(positive) if positive.all() else int(np.argmin(positive))


def _told(axes: Axes, record: Record) -> None:
    """Share of starts whose end the race predicts; at the optimum under the flat and the steepest spectrum."""
    scales, names = record.config["scales"], [f"dimension_{d}" for d in record.config["dimensions"]]
    ended = np.stack([record[f"{name}/ended"] == OPTIMUM for name in names])
    told = np.stack([record[f"{name}/told"] for name in names]) == ended
    axes.plot(scales, told.mean(axis=(0, 1, 3, 4)), color="black", marker="o", label="end predicted by the race")
    exponents, shortest = record.config["exponents"], int(np.argmin(record.config["lengths"]))
    for i in (0, len(exponents) - 1):
        share = ended[:, i, :, shortest].mean(axis=(0, 2))
        look = _look(i, len(exponents)) | {"linestyle": DASHES[1 + i % 2]}
        axes.plot(scales, share, label=f"end at the optimum, p = {exponents[i]:g}", **look)
    axes.set(xscale="log", ylim=(-0.03, 1.03), xlabel="scale of the start")
    axes.set_ylabel("share of starts, all D")
    axes.legend(title=f"optimum: at N = {record.config['lengths'][shortest]}", ncols=1, **panels.ABOVE)


def _pair(axes: Axes, record: Record) -> None:
    """Where the starts with the two eigenvalues ``pair`` end, over their scale."""
    scales = record.config["scales"]
    places = (("optimum", "#0072B2", ""), ("spurious minimum", "#D55E00", "//"), ("elsewhere", "#777777", ".."))
    left = np.zeros(len(scales))
    for where, (label, color, hatch) in enumerate(places):
        share = (np.minimum(record["pair/ended"], MIXED) == where).mean(axis=1)
        axes.barh(range(len(scales)), share, left=left, color=color, hatch=hatch, label=label, alpha=0.8, height=0.6)
        left += share
    axes.set_yticks(range(len(scales)), [f"{s:g}" for s in scales])
    axes.set_ylabel("scale of the start")
    axes.set_xlabel("share of starts")
    axes.grid(False)
    eigenvalues = ", ".join(f"{value:g}" for value in record.config["pair"])
    title = (
        rf"$\Lambda$ = diag({eigenvalues}), N = {record.config['pair_length']}, {record['pair/ended'].shape[1]} starts"
    )
    axes.legend(title=title, ncols=2, **panels.ABOVE)
