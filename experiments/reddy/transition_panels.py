"""Panels of ``transition``, and what they share with its claims."""

from typing import Any

import numpy as np

from experiments.panels import ABOVE, described
from experiments.reddy.statistics import guess, onset_times, present
from experiments.reddy.transition import CURVE, MAP, STEPS, in_part, matched_item
from icl_lab.lab import Record
from icl_lab.lab.style import THEORY, Axes, Figure, band, panels

TITLES = {"novel": "mostly novel classes", "trained": "trained classes alone"}
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
STEP = "training step"


def wait(record: Record, part: str) -> np.ndarray:
    """(M,) the wait of every member that ends it; no value for the others."""
    return present(onset_times(CURVE(record, part=part, metric="ic"), STEPS(record), in_part(part, record.config)))


def accuracy_panel(axes: Axes, record: Record, part: str) -> None:
    """Accuracies of the three tests over training."""
    _bands(axes, record, part, ACCURACIES)
    axes.axhline(guess(in_part(part, record.config)), **THEORY, label="guess, B/N")
    described(axes, 2, xlabel=STEP, ylabel="accuracy", ylim=(0, 1.02), title=f"{TITLES[part]}: accuracy")


def loss_panel(axes: Axes, record: Record, part: str) -> None:
    """The loss on the training distribution, between those of a random label and of one of the context."""
    _bands(axes, record, part, {"loss": {"color": "#0072B2", "label": "training distribution"}})
    axes.axhline(np.log(record.config["labels"]), color="black", linestyle="-.", linewidth=0.9, label="log L")
    axes.axhline(-np.log(guess(in_part(part, record.config))), **THEORY, label="log(N/B)")
    described(axes, 4, xlabel=STEP, ylabel="loss (nats)", ylim=(0, None), title=f"{TITLES[part]}: loss")


def progress_panel(axes: Axes, record: Record, part: str) -> None:
    """The progress measures over training."""
    _bands(axes, record, part, MEASURES)
    described(axes, 4, xlabel=STEP, ylabel="progress measure", ylim=(0, 1.02), title=f"{TITLES[part]}: progress")


def _bands(axes: Axes, record: Record, part: str, looks: dict[str, dict[str, Any]]) -> None:
    for name, look in looks.items():
        band(axes, STEPS(record), CURVE(record, part=part, metric=name), **look)


def aligned_panel(axes: Axes, record: Record, part: str) -> None:
    """Progress of the members that learn, in units of their own wait."""
    steps, waits, grid = STEPS(record), wait(record, part), np.linspace(0, 2, 81)
    for name, look in MEASURES.items():
        curves = [
            np.interp(grid * t, steps, curve, right=np.nan)
            for t, curve in zip(waits, CURVE(record, part=part, metric=name))
            if np.isfinite(t)
        ]
        if curves:
            band(axes, grid, np.stack(curves), **look)
    axes.axvline(1, color="0.6", linewidth=0.8)
    axes.set(xlabel=f"{STEP} / wait of the member", ylabel="progress measure", ylim=(0, 1.02))
    axes.set_title(f"{TITLES[part]}: by own wait")
    if axes.lines[:-1]:
        axes.legend(ncols=4, **ABOVE)


def attention_maps(record: Record, parts: list[str]) -> Figure:
    """Attention of both layers half-way through the wait and at the end, of prompts whose target matches one item."""
    n = record.config["context_length"]
    every = 1 if n <= 4 else 2  # of pairs the items: all labels would run into one another
    tokens = [*(f"{kind}{i + 1}" for i in range(n) for kind in "xl"), "t"][::every]
    columns = [(part, *when) for part in parts for when in (("half", "half of the wait"), ("end", "end"))]
    figure, grid = panels(len(columns), 2, shape=0.77)
    for (part, when, about), column in zip(columns, grid.T):
        titles = f"{TITLES[part]}\nlayer 1, {about}", f"layer 2, {about}"
        for axes, attention, title in zip(column, MAP(record, part=part, when=when).mean(axis=0), titles):
            image = axes.imshow(attention, cmap="Greys", vmin=0, vmax=1, interpolation="nearest")
            axes.set(xlabel="attended token", ylabel="query token", title=title)
            axes.set_xticks(range(0, 2 * n + 1, every), tokens)
            axes.set_yticks(range(0, 2 * n + 1, every), tokens)
            axes.grid(False)
    where = f"target of the class of x{matched_item(n) + 1}"
    figure.colorbar(image, ax=grid, shrink=0.7, label=f"attention (mean over prompts and members;\n{where})")
    return figure
