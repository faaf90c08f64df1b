"""Figures of ``staircase``."""

from typing import Any

import numpy as np

from experiments import panels
from icl_lab.lab import Record
from icl_lab.lab.style import THEORY, Axes, Figure, band
from icl_lab.lab.style import panels as axes_grid


def figures(record: Record) -> dict[str, Figure]:
    """Loss of separate and merged attention with the levels; predicted times; ranks."""
    figure, ((separate, merged),) = axes_grid(2, 1, width=3.6)
    _separate(separate, record)
    _merged(merged, record)
    times, ((halves, escape),) = axes_grid(2, 1, width=3.4)
    _halves(halves, record)
    _escape(escape, record)
    ranks, axes = axes_grid(len(record.config["ranks"]), 1, width=2.8)
    for one, rank in zip(axes[0], record.config["ranks"]):
        _rank(one, record, rank)
    return {"staircase": figure, "times": times, "ranks": ranks}


def _levels(axes: Axes, levels: np.ndarray) -> None:
    for m, level in enumerate(levels):
        axes.axhline(level, **THEORY, linewidth=0.9, label=None if m else "closed-form levels")


def _separate(axes: Axes, record: Record) -> None:
    a = record.arrays
    for m, loss in enumerate(a["loss"][:8]):
        label = None if m else f"{min(8, len(a['loss']))} of {len(a['loss'])} initialisations"
        axes.plot(a["times"], loss, color="#0072B2", alpha=0.35, linewidth=0.9, label=label)
    axes.plot(a["times"], a["loss"][0], color="#D55E00", linestyle="--", label="one of them")
    _levels(axes, a["levels"])
    axes.set_xscale("log")
    axes.set_xlabel("flow time")
    axes.set_ylabel("loss")
    axes.legend(title="separate keys and queries, rank one", ncols=3, **panels.ABOVE)


def _merged(axes: Axes, record: Record) -> None:
    a, scales = record.arrays, record.config["merged_scales"]
    dashes, shades = ("-", "--", "-.", ":"), ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
    for i, w in enumerate(scales):
        look = {"color": shades[i % 4], "linestyle": dashes[i % 4], "label": f"w = {w:g}"}
        band(axes, a["merged/times"], a["merged/loss"][:, i], **look)
    axes.axhline(a["levels"][-1], **THEORY, linewidth=0.9, label="optimum")
    axes.set_xlim(0, 2.5 * np.nanmax(a["merged/halves"]))
    axes.set_xlabel("flow time")
    axes.set_ylabel("loss")
    axes.legend(title="merged keys and queries", ncols=3, **panels.ABOVE)


def _halves(axes: Axes, record: Record) -> None:
    """Times at which half of each component is learned, predicted from the start against measured."""
    a = record.arrays
    markers, shades = ("o", "s", "^", "D", "v"), ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#555555")
    for stage in range(a["halves"].shape[1]):
        look: dict[str, Any] = {"marker": markers[stage % 5], "color": shades[stage % 5], "label": f"{stage + 1}."}
        axes.plot(a["predicted_halves"][:, stage], a["halves"][:, stage], linestyle="", alpha=0.7, **look)
    ends = np.array([np.nanmin(a["halves"]), np.nanmax(a["halves"])])
    axes.plot(ends, ends, **THEORY, label="equal")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("predicted from the initial weights")
    axes.set_ylabel("time of half a component")
    axes.legend(title="component in order of learning", ncols=5, **(panels.ABOVE | {"handlelength": 0.8}))


def _escape(axes: Axes, record: Record) -> None:
    a, scales = record.arrays, np.array(record.config["merged_scales"])
    x = np.log(1 / scales)
    middle = np.median(a["merged/halves"], axis=0)
    axes.plot(x, a["merged/halves"].T, "o", color="#0072B2", markersize=2, alpha=0.4)
    axes.plot(x, middle, "o", color="#0072B2", label="merged, median")
    line = middle.mean() + (x - x.mean()) / squares_norm(record)
    axes.plot(x, line, **THEORY, label=r"slope $1/\|\Lambda^2\|_F$")
    axes.set_xlabel("ln(1 / w)")
    axes.set_ylabel("time of half the gain")
    axes.legend()


def _rank(axes: Axes, record: Record, rank: int) -> None:
    a = record.arrays
    for loss in a[f"ranks/loss/{rank}"]:
        axes.plot(a["ranks/times"], loss, color="#0072B2", alpha=0.7, linewidth=1.0)
    levels = a["ranks/levels"]
    for m, level in enumerate(levels):
        divides = m % rank == 0 or m == len(levels) - 1
        axes.axhline(
            level, color="black" if divides else "0.7", linestyle=(0, (1, 1)), linewidth=1.0 if divides else 0.6
        )
    axes.set_xscale("log")
    axes.set_title(f"R = {rank}, {len(a[f'ranks/loss/{rank}'])} starts")
    axes.set_xlabel("flow time")
    axes.set_ylabel("loss (black: every R-th level)")


def squares_norm(record: Record) -> float:
    """|Lam^2|_F."""
    return float(np.linalg.norm(np.array(record.config["spectrum"]) ** 2))
