"""Figures of ``landscape``."""

import numpy as np

from experiments import panels
from icl_lab.lab import Record
from icl_lab.lab.style import THEORY, Axes, Figure
from icl_lab.lab.style import panels as axes_grid

NAMES = {"simplified": "simplified", "mean_field": "mean field"}
LOOKS = {"simplified": ("#0072B2", "-", "o"), "mean_field": ("#D55E00", "--", "s")}
BETA, ALPHA, XI = r"$\beta_1$, to the previous token", r"$\alpha$, to the item", r"$\xi$, of the read-out"


def figures(record: Record) -> dict[str, Figure]:
    """Maps at L > N and L = N with the flow on them; the course of the loss, and the waits; the saddle."""
    waits, ((course, lengths, factors),) = axes_grid(3, 1, height=3.0)
    _course(course, record)
    _lengths(lengths, record)
    _factors(factors, record)
    saddle, ((plane, escape, random),) = axes_grid(3, 1, height=3.0)
    _plane(plane, record)
    _escape(escape, record)
    _random(random, record)
    return {
        "landscape": _maps(record, "map", record.config["labels"]),
        "landscape_equal": _maps(record, "equal_map", record.config["context_length"]),
        "waits": waits,
        "saddle": saddle,
    }


def _maps(record: Record, name: str, labels: int) -> Figure:
    """Loss over (beta_1, alpha), a row for each form, a column for each xi; the path at L > N, marked at that xi."""
    a, read_outs, n = record.arrays, record.config["read_outs"], record.config["context_length"]
    figure, rows = axes_grid(len(read_outs), len(NAMES), width=2.7, height=2.4)
    top = max(a[f"{form}/{name}"].max() for form in NAMES)
    top = min(top, 1.3 * np.log(labels))
    levels = np.linspace(0, top, 14)
    for row, form in zip(rows, NAMES):
        for i, (axes, xi) in enumerate(zip(row, read_outs)):
            filled = axes.contourf(a["beta_1"], a["alpha"], np.minimum(a[f"{form}/{name}"][i], top), levels=levels)
            axes.set_title(rf"{NAMES[form]}, L = {labels}, N = {n}, $\xi$ = {xi:g}", fontsize=8)
            axes.set_xlabel(BETA)
            axes.set_ylabel(ALPHA)
            axes.grid(False)
            if labels > n:
                path = a[f"{form}/path"]
                axes.plot(path[:, 0], path[:, 1], color="white", linewidth=1.2)
                at = int(np.argmax(path[:, 2] >= xi)) if path[-1, 2] >= xi else len(path) - 1
                axes.plot(*path[at, :2], color="white", marker="o", markeredgecolor="black", linestyle="")
            axes.set_xlim(a["beta_1"][0], a["beta_1"][-1])
            axes.set_ylim(a["alpha"][0], a["alpha"][-1])
    figure.colorbar(filled, ax=rows, label="loss (nats)", shrink=0.7, ticks=np.arange(0, top, 0.5))
    return figure


def _course(axes: Axes, record: Record) -> None:
    a, config = record.arrays, record.config
    for form, (color, dash, _) in LOOKS.items():
        axes.plot(a[f"{form}/times"], a[f"{form}/loss"], color=color, linestyle=dash, label=f"loss, {NAMES[form]}")
    axes.plot(a["simplified/times"], a["simplified/path"][:, 2] / 4, color="0.4", linestyle="-.", label=r"$\xi/4$")
    axes.plot(
        a["simplified/times"], a["simplified/path"][:, 1] / 4, color="#009E73", linestyle=":", label=r"$\alpha/4$"
    )
    axes.plot(
        a["simplified/times"], a["simplified/path"][:, 0] / 4, color="#CC79A7", dashes=(8, 2), label=r"$\beta_1/4$"
    )
    axes.axhline(np.log(config["context_length"]), **THEORY, linewidth=0.9, label="log N")
    axes.set_xscale("log")
    axes.set_xlim(1.0, 2000.0)
    axes.set_ylim(-0.1, np.log(config["labels"]) + 0.2)
    axes.set_xlabel("flow time, from the origin")
    axes.set_ylabel("loss (nats); logits / 4 (simplified)")
    axes.legend(ncols=2, **panels.ABOVE)


def _lengths(axes: Axes, record: Record) -> None:
    a, n = record.arrays, record.config["lengths"]
    factors = record.config["factors"]
    at = min(range(len(factors)), key=lambda i: abs(factors[i] - 4))
    for form, (color, dash, marker) in LOOKS.items():
        axes.plot(n, a[f"{form}/wait"][1, :, at], color=color, linestyle=dash, marker=marker, label=NAMES[form])
    axes.plot(n, a["wait_limit"][:, at], **THEORY, label=r"$(2\pi)^{1/4}\,(2N+1)^{3/2}/\sqrt{1-N/L}$")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(n, [str(value) for value in n])
    axes.minorticks_off()
    axes.set_xlabel(f"pairs N, at L = {factors[at]:g} N")
    axes.set_ylabel("flow time to the cliff")
    axes.legend(**panels.ABOVE)


def _factors(axes: Axes, record: Record) -> None:
    a, config = record.arrays, record.config
    row = min(range(len(config["lengths"])), key=lambda i: abs(config["lengths"][i] - config["context_length"]))
    x = np.array(a["wait_labels"][row]) / config["lengths"][row] - 1
    for form, (color, dash, marker) in LOOKS.items():
        axes.plot(x, a[f"{form}/wait"][1, row], color=color, linestyle=dash, marker=marker, label=NAMES[form])
    axes.plot(x, a["wait_limit"][row], **THEORY, label="closed form, many pairs")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(x, [f"{value:.3g}" for value in x])
    axes.minorticks_off()
    axes.set_xlabel(f"L/N - 1, at N = {config['lengths'][row]}")
    axes.set_ylabel("flow time to the cliff")
    axes.legend(**panels.ABOVE)


def _plane(axes: Axes, record: Record) -> None:
    """The saddle at L = N: loss over (alpha, xi) at beta_1 = 0, and flows from around it."""
    a, n = record.arrays, record.config["context_length"]
    plane, spread = a["plane"], np.abs(a["mean_field/plane_map"] - np.log(n)).max()
    levels = np.linspace(-spread, spread, 15)
    filled = axes.contourf(plane, plane, a["mean_field/plane_map"] - np.log(n), levels=levels, cmap="RdBu_r")
    below = axes.contour(filled, levels=levels[levels < 0], colors="black", linestyles="dashed", linewidths=0.5)
    below.set(alpha=0.6)
    for path in a["mean_field/equal_paths"]:
        axes.plot(path[:, 1], path[:, 2], color="black", linewidth=0.9)
        axes.plot(*path[0, 1:], color="black", marker="o", linestyle="")
    axes.set_xlim(plane[0], plane[-1])
    axes.set_ylim(plane[0], plane[-1])
    axes.grid(False)
    axes.set_xlabel(ALPHA)
    axes.set_ylabel(XI)
    axes.set_title(rf"mean field, L = N = {n}, $\beta_1$ = 0", fontsize=8)
    axes.figure.colorbar(filled, ax=axes, label="loss - log N (nats); dashed: below zero", format="%.2f")


def _escape(axes: Axes, record: Record) -> None:
    a, config = record.arrays, record.config
    scales = np.array(config["scales"])
    at = list(config["saddle_lengths"]).index(config["context_length"])
    for form, (color, _, marker) in LOOKS.items():
        for side, (filled, way) in enumerate((("full", "right label"), ("none", "away"))):
            times = a[f"{form}/escape"][at, side]
            label = f"{NAMES[form]}, {way}"
            axes.plot(scales, times, color=color, linestyle="", marker=marker, fillstyle=filled, label=label)
            line = times[-1] + np.log(scales[-1] / scales) / a[f"{form}/rate"][at]
            name = "log(1/s) / rate" if (form, side) == ("mean_field", 1) else None
            axes.plot(scales, line, **THEORY, linewidth=0.9, label=name)
    axes.set_xscale("log")
    axes.set_xlabel(f"size s of the start, at L = N = {config['context_length']}")
    axes.set_ylabel("flow time to the cliff")
    axes.legend(ncols=2, **panels.ABOVE)


def _random(axes: Axes, record: Record) -> None:
    a = record.arrays
    for form, (color, _, marker) in LOOKS.items():
        x, y = a[f"{form}/random_predicted"], a[f"{form}/random"]
        axes.plot(x, y, color=color, linestyle="", marker=marker, markersize=2.5, alpha=0.6, label=NAMES[form])
    every = np.concatenate([a[f"{form}/random_predicted"] for form in NAMES])
    span = [every.min(), every.max()]
    axes.plot(span, span, **THEORY, label="equal")
    axes.set_xlabel("time to the cliff, predicted")
    axes.set_ylabel("flow time to the cliff")
    axes.legend(title="random starts at L = N", ncols=2, **panels.ABOVE)
