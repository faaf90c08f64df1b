"""Panels of ``landscape``: maps of the loss, the waits, and the saddle at L = N."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.panels import described
from experiments.reddy import landscape as binary
from icl_lab.lab import Record
from icl_lab.lab.quantities import Quantity
from icl_lab.lab.style import THEORY, Axes, Figure, panels

LOOKS: dict[str, dict[str, Any]] = {
    "simplified": {"color": "#0072B2", "linestyle": "-", "marker": "o"},
    "mean_field": {"color": "#D55E00", "linestyle": "--", "marker": "s"},
}
NAMES = {"simplified": "simplified", "mean_field": "mean field"}
_SHOWN = (1.0, 2000.0)
"""Flow times."""
BETA_LABEL, ALPHA_LABEL = r"$\beta_1$, to the previous token", r"$\alpha$, to the item"


def maps(record: Record, quantity: Quantity, labels: int) -> Figure:
    """Loss over (beta_1, alpha), a row for each form, a column for each xi; the path at L > N, marked at that xi."""
    read_outs, n = record.config["read_outs"], record.config["context_length"]
    figure, rows = panels(len(read_outs), len(NAMES))
    beta_1, alpha = binary.BETA_1(record), binary.ALPHA(record)
    top = min(max(quantity(record, form=form).max() for form in NAMES), 1.3 * np.log(labels))
    levels = np.linspace(0, top, 14)
    for row, form in zip(rows, NAMES):
        for i, (axes, xi) in enumerate(zip(row, read_outs)):
            loss = np.minimum(quantity(record, form=form)[i], top)
            filled = axes.contourf(beta_1, alpha, loss, levels=levels)
            axes.set(title=rf"{NAMES[form]}, $\xi$ = {xi:g}", xlabel=BETA_LABEL, ylabel=ALPHA_LABEL)
            axes.grid(False)
            if labels > n:
                path = binary.PATH(record, form=form)
                axes.plot(path[:, 0], path[:, 1], color="white", linewidth=3.0)  # around the line, on dark ground
                axes.plot(path[:, 0], path[:, 1], color="black", linewidth=1.0)
                at = int(np.argmax(path[:, 2] >= xi)) if path[-1, 2] >= xi else len(path) - 1
                axes.plot(*path[at, :2], color="white", marker="o", markeredgecolor="black", linestyle="")
            axes.set(xlim=(beta_1[0], beta_1[-1]), ylim=(alpha[0], alpha[-1]))
    figure.colorbar(filled, ax=rows, label="loss (nats)", shrink=0.7, ticks=np.arange(0, top, 0.5))
    return figure


def course_panel(axes: Axes, record: Record) -> None:
    """The loss along the flow from the origin."""
    for form, look in LOOKS.items():
        times, loss = binary.TIMES(record, form=form), binary.LOSS(record, form=form)
        axes.plot(times, loss, **look | {"marker": ""}, label=NAMES[form])
    axes.axhline(np.log(record.config["context_length"]), **THEORY, label="log N")
    axes.set(xscale="log", xlim=_SHOWN, ylim=(-0.1, None), xlabel="flow time, from the origin", ylabel="loss (nats)")
    described(axes, title="loss along the flow")


def logits_panel(axes: Axes, record: Record) -> None:
    """The three logits along the flow of the simplified loss."""
    names = ((2, r"$\xi$", "-."), (1, r"$\alpha$", ":"), (0, r"$\beta_1$", (0, (8, 2))))
    for (logit, name, dash), color in zip(names, ("0.4", "#009E73", "#CC79A7")):
        path = binary.PATH(record, form="simplified")[:, logit]
        axes.plot(binary.TIMES(record, form="simplified"), path, color=color, linestyle=dash, label=name)
    axes.set(xscale="log", xlim=_SHOWN, xlabel="flow time, from the origin", ylabel="logit")
    described(axes, title="logits along the flow, simplified")


def lengths_panel(axes: Axes, record: Record) -> None:
    """The waits over the number of pairs, with the closed form."""
    n, factors = record.config["lengths"], record.config["factors"]
    at = np.abs(np.subtract(factors, 4)).argmin()
    _waits(axes, record, n, np.s_[:, at], r"$(2\pi)^{1/4}\,(2N+1)^{3/2}/\sqrt{1-N/L}$")
    axes.set(xlabel=f"pairs N, at L = {factors[at]:g} N", title="time to the cliff by pairs")


def factors_panel(axes: Axes, record: Record) -> None:
    """The waits over the number of labels, with the closed form."""
    n = record.config["lengths"]
    at = np.abs(np.subtract(n, record.config["context_length"])).argmin()
    _waits(axes, record, binary.WAIT_LABELS(record)[at] / n[at] - 1, np.s_[at], "closed form, many pairs")
    axes.set(xlabel=f"L/N - 1, at N = {n[at]}", title="time to the cliff by labels")


def _waits(axes: Axes, record: Record, x: Sequence[float] | np.ndarray, cells: Any, closed_form: str) -> None:
    """The waits of some cells (length, factor) over x, and their closed form."""
    for form, look in LOOKS.items():
        axes.plot(x, binary.WAIT(record, form=form)[1][cells], **look, label=NAMES[form])
    axes.plot(x, binary.WAIT_LIMIT(record)[cells], **THEORY, label=closed_form)
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(x, [f"{value:.3g}" for value in x])
    low, high = axes.get_ylim()
    axes.set_yticks(ticks := [t for t in (20, 50, 100, 200, 500, 1000) if low < t < high], [str(t) for t in ticks])
    axes.minorticks_off()
    described(axes, ylabel="flow time to the cliff")


def plane_panel(axes: Axes, record: Record) -> None:
    """The saddle at L = N: loss over (alpha, xi) at beta_1 = 0, and flows from around it."""
    n = record.config["context_length"]
    plane, loss = binary.PLANE(record), binary.PLANE_MAP(record, form="mean_field") - np.log(n)
    levels = np.linspace(-np.abs(loss).max(), np.abs(loss).max(), 15)
    filled = axes.contourf(plane, plane, loss, levels=levels, cmap="RdBu_r")
    below = axes.contour(filled, levels=levels[levels < 0], colors="black", linestyles="dashed", linewidths=0.5)
    below.set(alpha=0.6)
    for path in binary.EQUAL_PATHS(record, form="mean_field"):
        axes.plot(path[:, 1], path[:, 2], color="black", linewidth=0.9)
        axes.plot(*path[0, 1:], color="black", marker="o", linestyle="")
    axes.set(xlim=(plane[0], plane[-1]), ylim=(plane[0], plane[-1]))
    axes.grid(False)
    axes.set(xlabel=ALPHA_LABEL, ylabel=r"$\xi$, of the read-out", title=rf"mean field at $L = N = {n}$, $\beta_1 = 0$")
    axes.figure.colorbar(filled, ax=axes, label="loss less log N", format="%.2g", ticks=levels[::7])


def escape_panel(axes: Axes, record: Record) -> None:
    """Times to leave the saddle at L = N from starts of several sizes, with the closed form."""
    config = record.config
    scales = np.array(config["scales"])
    at = list(config["saddle_lengths"]).index(config["context_length"])
    for form, look in LOOKS.items():
        for side, (filled, way) in enumerate((("full", "to the label"), ("none", "away from it"))):
            times = binary.ESCAPE(record, form=form)[at, side]
            label = f"{NAMES[form]}, {way}"
            axes.plot(scales, times, **look | {"linestyle": ""}, fillstyle=filled, label=label)
            line = times[-1] + np.log(scales[-1] / scales) / binary.RATE(record, form=form)[at]
            name = "log(1/s) / rate" if (form, side) == ("mean_field", 1) else None
            axes.plot(scales, line, **THEORY, linewidth=0.9, label=name)
    axes.set(xscale="log", xlabel=f"size s of the start, $L = N = {config['context_length']}$")
    described(axes, 2, "leaving the saddle", ylabel="flow time to the cliff")


def random_panel(axes: Axes, record: Record) -> None:
    """Times from random starts at L = N over those predicted."""
    for form, look in LOOKS.items():
        x, y = binary.RANDOM_PREDICTED(record, form=form), binary.RANDOM(record, form=form)
        axes.plot(x, y, **look | {"linestyle": ""}, markersize=2.5, alpha=0.6, label=NAMES[form])
    every = np.concatenate([binary.RANDOM_PREDICTED(record, form=form) for form in NAMES])
    span = [every.min(), every.max()]
    axes.plot(span, span, **THEORY, label="equal")
    axes.set(xlabel="time to the cliff, predicted", ylabel="flow time to the cliff")
    described(axes, 2, "random starts, L = N")
