"""Figures of ``transition``: curves of accuracy, loss and progress measures; attention before and after."""

from typing import Any

import numpy as np

from experiments.panels import ABOVE
from experiments.reddy.transition_claims import PARTS, copies_of, matched_item, wait
from icl_lab.lab import Record
from icl_lab.lab.style import THEORY, Axes, Figure, band, panels

ACCURACIES: dict[str, dict[str, Any]] = {
    "ic": {"color": "#0072B2", "linestyle": "-", "label": "novel classes"},
    "ic2": {"color": "#D55E00", "linestyle": "--", "label": "swapped labels"},
    "iwl": {"color": "#777777", "linestyle": "-.", "label": "in weights"},
}
MEASURES: dict[str, dict[str, Any]] = {
    "cla": {"color": "#009E73", "linestyle": "-.", "label": "CLA"},
    "tla2": {"color": "#CC79A7", "linestyle": (0, (4, 1, 1, 1, 1, 1)), "label": "TLA2"},
    "ila1": {"color": "#0072B2", "linestyle": "-", "label": "ILA1"},
    "tila2": {"color": "#D55E00", "linestyle": "--", "label": "TILA2"},
}
TITLES = {"novel": "mostly novel classes", "trained": "trained classes alone"}


def figures(record: Record) -> dict[str, Figure]:
    """Curves and attention maps of every part that was run."""
    parts = [part for part in PARTS if f"{part}/ic" in record.arrays]
    figure, rows = panels(4, len(parts), width=3.0)
    for part, row in zip(parts, rows):
        _accuracy(row[0], record, part)
        _loss(row[1], record, part)
        _progress(row[2], record, part)
        _aligned(row[3], record, part)
    return {"curves": figure, "attention": _maps(record, parts)}


def _accuracy(axes: Axes, record: Record, part: str) -> None:
    for name, look in ACCURACIES.items():
        band(axes, record.arrays["steps"], record.arrays[f"{part}/{name}"], **look)
    guess = copies_of(part, record.config) / record.config["context_length"]
    axes.axhline(guess, **THEORY, label="guess, B/N")
    _label(axes, "accuracy", TITLES[part])


def _loss(axes: Axes, record: Record, part: str) -> None:
    band(axes, record.arrays["steps"], record.arrays[f"{part}/loss"], color="#0072B2", label="training distribution")
    config = record.config
    labels = config["context_length"] / copies_of(part, config)
    axes.axhline(np.log(config["labels"]), color="black", linestyle="-.", linewidth=0.9, label="log L")
    axes.axhline(np.log(labels), **THEORY, label="log(N/B)")
    axes.set_ylim(bottom=0)
    _label(axes, "loss (nats)", None)


def _progress(axes: Axes, record: Record, part: str) -> None:
    for name, look in MEASURES.items():
        band(axes, record.arrays["steps"], record.arrays[f"{part}/{name}"], **look)
    _label(axes, "progress measure", None)


def _aligned(axes: Axes, record: Record, part: str) -> None:
    """Progress of the members that learn, in units of their own wait."""
    steps, waits, grid = record.arrays["steps"], wait(record, part), np.linspace(0, 2, 81)
    for name, look in MEASURES.items():
        curves = [
            np.interp(grid * t, steps, curve, right=np.nan)
            for t, curve in zip(waits, record.arrays[f"{part}/{name}"])
            if np.isfinite(t)
        ]
        if curves:
            band(axes, grid, np.stack(curves), **look)
    axes.axvline(1, color="0.6", linewidth=0.8)
    axes.set_xlabel("training step / wait of the member")
    axes.set_ylabel("progress measure")
    axes.set_ylim(0, 1.02)
    if axes.lines[:-1]:
        axes.legend(ncols=4, **ABOVE)


def _label(axes: Axes, what: str, title: str | None) -> None:
    axes.set_xlabel("training step")
    axes.set_ylabel(what)
    if what != "loss (nats)":
        axes.set_ylim(0, 1.02)
    if title:
        axes.annotate(title, (-0.32, 0.5), xycoords="axes fraction", rotation=90, va="center", weight="bold")
    axes.legend(ncols=2 if what == "accuracy" else 4, **ABOVE)


def _maps(record: Record, parts: list[str]) -> Figure:
    """Attention of both layers half-way through the wait and at the end, of prompts whose target matches one item."""
    figure, axes = panels(2 * len(parts), 2, width=2.8, height=2.7)
    for i, part in enumerate(parts):
        for j, (name, when) in enumerate({"half": "half of the wait", "end": "end"}.items()):
            mean = record.arrays[f"{part}/map/{name}"].mean(axis=0)  # (2, T, T)
            for layer, column in enumerate(axes[:, 2 * i + j]):
                image = column.imshow(mean[layer], cmap="Greys", vmin=0, vmax=1, interpolation="nearest")
                column.set_title(f"{TITLES[part]}\nlayer {layer + 1}, {when}" if layer == 0 else f"layer 2, {when}")
                _name_tokens(column, mean.shape[-1])
    where = f"target of the class of x{matched_item(record.config['context_length']) + 1}"
    figure.colorbar(image, ax=axes, shrink=0.7, label=f"attention (mean over prompts and members;\n{where})")
    return figure


def _name_tokens(axes: Axes, count: int) -> None:
    tokens = [f"{kind}{i // 2 + 1}" for i, kind in enumerate("xl" * (count // 2))] + ["t"]
    axes.grid(False)
    axes.set_xticks(range(count), tokens, fontsize=6)
    axes.set_yticks(range(count), tokens, fontsize=6)
    axes.set_xlabel("attended token")
    axes.set_ylabel("query token")
