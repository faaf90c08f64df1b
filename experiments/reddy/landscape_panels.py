"""Panels of ``landscape``: maps of the loss, the waits, and the saddle at L = N."""

from collections.abc import Sequence

import numpy as np

from experiments import panels
from experiments.reddy.landscape import (
    ALPHA,
    BETA_1,
    EQUAL_PATHS,
    ESCAPE,
    LOSS,
    PATH,
    PLANE,
    PLANE_MAP,
    RANDOM,
    RANDOM_PREDICTED,
    RATE,
    TIMES,
    WAIT,
    WAIT_LABELS,
    WAIT_LIMIT,
)
from icl_lab.lab import Record
from icl_lab.lab.quantities import Quantity
from icl_lab.lab.style import THEORY, Axes, Figure
from icl_lab.lab.style import panels as axes_grid

LOOKS = {"simplified": ("#0072B2", "-", "o"), "mean_field": ("#D55E00", "--", "s")}
NAMES = {"simplified": "simplified", "mean_field": "mean field"}
_SHOWN = (1.0, 2000.0)
"""Flow times."""
BETA_LABEL, ALPHA_LABEL, XI_LABEL = (
    r"$\beta_1$, to the previous token",
    r"$\alpha$, to the item",
    r"$\xi$, of the read-out",
)


def maps(record: Record, quantity: Quantity, labels: int) -> Figure:
    """Loss over (beta_1, alpha), a row for each form, a column for each xi; the path at L > N, marked at that xi."""
    read_outs, n = record.config["read_outs"], record.config["context_length"]
    figure, rows = axes_grid(len(read_outs), len(NAMES))
    top = max(quantity(record, form=form).max() for form in NAMES)
    top = min(top, 1.3 * np.log(labels))
    levels = np.linspace(0, top, 14)
    for row, form in zip(rows, NAMES):
        for i, (axes, xi) in enumerate(zip(row, read_outs)):
            filled = axes.contourf(
                BETA_1(record), ALPHA(record), np.minimum(quantity(record, form=form)[i], top), levels=levels
            )
            axes.set(title=rf"{NAMES[form]}, $\xi$ = {xi:g}", xlabel=BETA_LABEL, ylabel=ALPHA_LABEL)
            axes.grid(False)
            if labels > n:
                path = PATH(record, form=form)
                axes.plot(path[:, 0], path[:, 1], color="white", linewidth=3.0)  # around the line, on dark ground
                axes.plot(path[:, 0], path[:, 1], color="black", linewidth=1.0)
                at = int(np.argmax(path[:, 2] >= xi)) if path[-1, 2] >= xi else len(path) - 1
                axes.plot(*path[at, :2], color="white", marker="o", markeredgecolor="black", linestyle="")
            axes.set(xlim=(BETA_1(record)[0], BETA_1(record)[-1]), ylim=(ALPHA(record)[0], ALPHA(record)[-1]))
    figure.colorbar(filled, ax=rows, label="loss (nats)", shrink=0.7, ticks=np.arange(0, top, 0.5))
    return figure


def course_panel(axes: Axes, record: Record) -> None:
    """The loss along the flow from the origin."""
    for form, (color, dash, _) in LOOKS.items():
        axes.plot(TIMES(record, form=form), LOSS(record, form=form), color=color, linestyle=dash, label=NAMES[form])
    axes.axhline(np.log(record.config["context_length"]), **THEORY, label="log N")
    axes.set(xscale="log", xlim=_SHOWN, ylim=(-0.1, None), xlabel="flow time, from the origin", ylabel="loss (nats)")
    panels.described(axes, title="loss along the flow")


def logits_panel(axes: Axes, record: Record) -> None:
    """The three logits along the flow of the simplified loss."""
    names = ((2, r"$\xi$", "-."), (1, r"$\alpha$", ":"), (0, r"$\beta_1$", (0, (8, 2))))
    for (logit, name, dash), color in zip(names, ("0.4", "#009E73", "#CC79A7")):
        path = PATH(record, form="simplified")[:, logit]
        axes.plot(TIMES(record, form="simplified"), path, color=color, linestyle=dash, label=name)
    axes.set(xscale="log", xlim=_SHOWN, xlabel="flow time, from the origin", ylabel="logit")
    panels.described(axes, title="logits along the flow, simplified")


def lengths_panel(axes: Axes, record: Record) -> None:
    """The waits over the number of pairs, with the closed form."""
    n = record.config["lengths"]
    factors = record.config["factors"]
    at = min(range(len(factors)), key=lambda i: abs(factors[i] - 4))
    for form, (color, dash, marker) in LOOKS.items():
        axes.plot(n, WAIT(record, form=form)[1, :, at], color=color, linestyle=dash, marker=marker, label=NAMES[form])
    axes.plot(n, WAIT_LIMIT(record)[:, at], **THEORY, label=r"$(2\pi)^{1/4}\,(2N+1)^{3/2}/\sqrt{1-N/L}$")
    axes.set_title("time to the cliff by pairs")
    _logarithmic(axes, n, f"pairs N, at L = {factors[at]:g} N")


def factors_panel(axes: Axes, record: Record) -> None:
    """The waits over the number of labels, with the closed form."""
    config = record.config
    row = min(range(len(config["lengths"])), key=lambda i: abs(config["lengths"][i] - config["context_length"]))
    x = np.array(WAIT_LABELS(record)[row]) / config["lengths"][row] - 1
    for form, (color, dash, marker) in LOOKS.items():
        axes.plot(x, WAIT(record, form=form)[1, row], color=color, linestyle=dash, marker=marker, label=NAMES[form])
    axes.plot(x, WAIT_LIMIT(record)[row], **THEORY, label="closed form, many pairs")
    axes.set_title("time to the cliff by labels")
    _logarithmic(axes, x, f"L/N - 1, at N = {config['lengths'][row]}")


def _logarithmic(axes: Axes, x: Sequence[float], label: str) -> None:
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(x, [f"{value:.3g}" for value in x])
    low, high = axes.get_ylim()
    axes.set_yticks(ticks := [t for t in (20, 50, 100, 200, 500, 1000) if low < t < high], [str(t) for t in ticks])
    axes.minorticks_off()
    panels.described(axes, xlabel=label, ylabel="flow time to the cliff")


def plane_panel(axes: Axes, record: Record) -> None:
    """The saddle at L = N: loss over (alpha, xi) at beta_1 = 0, and flows from around it."""
    n = record.config["context_length"]
    plane, spread = PLANE(record), np.abs(PLANE_MAP(record, form="mean_field") - np.log(n)).max()
    levels = np.linspace(-spread, spread, 15)
    filled = axes.contourf(plane, plane, PLANE_MAP(record, form="mean_field") - np.log(n), levels=levels, cmap="RdBu_r")
    below = axes.contour(filled, levels=levels[levels < 0], colors="black", linestyles="dashed", linewidths=0.5)
    below.set(alpha=0.6)
    for path in EQUAL_PATHS(record, form="mean_field"):
        axes.plot(path[:, 1], path[:, 2], color="black", linewidth=0.9)
        axes.plot(*path[0, 1:], color="black", marker="o", linestyle="")
    axes.set(xlim=(plane[0], plane[-1]), ylim=(plane[0], plane[-1]))
    axes.grid(False)
    axes.set(xlabel=ALPHA_LABEL, ylabel=XI_LABEL, title=rf"mean field at $L = N = {n}$, $\beta_1 = 0$")
    axes.figure.colorbar(filled, ax=axes, label="loss less log N", format="%.2g", ticks=levels[::7])


def escape_panel(axes: Axes, record: Record) -> None:
    """Times to leave the saddle at L = N from starts of several sizes, with the closed form."""
    config = record.config
    scales = np.array(config["scales"])
    at = list(config["saddle_lengths"]).index(config["context_length"])
    for form, (color, _, marker) in LOOKS.items():
        for side, (filled, way) in enumerate((("full", "to the label"), ("none", "away from it"))):
            times = ESCAPE(record, form=form)[at, side]
            label = f"{NAMES[form]}, {way}"
            axes.plot(scales, times, color=color, linestyle="", marker=marker, fillstyle=filled, label=label)
            line = times[-1] + np.log(scales[-1] / scales) / RATE(record, form=form)[at]
            name = "log(1/s) / rate" if (form, side) == ("mean_field", 1) else None
            axes.plot(scales, line, **THEORY, linewidth=0.9, label=name)
    axes.set_xscale("log")
    axes.set_xlabel(f"size s of the start, $L = N = {config['context_length']}$")
    axes.set_ylabel("flow time to the cliff")
    axes.legend(title="leaving the saddle", ncols=2, **panels.ABOVE)


def random_panel(axes: Axes, record: Record) -> None:
    """Times from random starts at L = N over those predicted."""
    for form, (color, _, marker) in LOOKS.items():
        x, y = RANDOM_PREDICTED(record, form=form), RANDOM(record, form=form)
        axes.plot(x, y, color=color, linestyle="", marker=marker, markersize=2.5, alpha=0.6, label=NAMES[form])
    every = np.concatenate([RANDOM_PREDICTED(record, form=form) for form in NAMES])
    span = [every.min(), every.max()]
    axes.plot(span, span, **THEORY, label="equal")
    axes.set(xlabel="time to the cliff, predicted", ylabel="flow time to the cliff")
    axes.legend(title="random starts, L = N", ncols=2, **panels.ABOVE)
