"""Figures of the dependence on data, from its record."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.panels import ABOVE, SERIES
from experiments.reddy.data_dependence_claims import accuracy, guesses, in_context, in_weights
from icl_lab.lab import Record
from icl_lab.lab.style import Axes, Figure, band
from icl_lab.lab.style import panels as axes_grid

TITLES = {"network": "network", "reduced": "reduced model"}
SOLUTIONS = {
    "ic": {"label": "in context: novel classes", "color": "#0072B2", "linestyle": "-", "marker": "o"},
    "ic2": {"label": "in context: swapped labels", "color": "#56B4E9", "linestyle": "--", "marker": "s"},
    "iwl": {"label": "in weights", "color": "#D55E00", "linestyle": "-.", "marker": "^"},
}
"""How the three test accuracies are drawn."""


def figures(record: Record) -> dict[str, Figure]:
    """Every sweep that was run: one row a model."""
    found = {}
    for name, draw, columns in (
        ("classes", _classes, 3),
        ("spread", _accuracies, 1),
        ("exponent", _accuracies, 1),
    ):
        models = [model for model in TITLES if f"{model}/{name}/ic" in record.arrays]
        if models:
            across = columns if columns > 1 else len(models)
            figure, axes = axes_grid(across, len(models) if columns > 1 else 1, height=2.6 if columns > 1 else 3.3)
            for i, model in enumerate(models):
                draw(axes[i] if columns > 1 else axes[0, i : i + 1], record, model, name)
            found[name] = figure
    return found


def _classes(row: np.ndarray, record: Record, model: str, sweep: str) -> None:
    """In-context score, the accuracy that it is made of, and in-weights accuracy against K, one curve a B."""
    x = record.config["class_grid"]
    shown = (("in-context score", in_context), ("in-context accuracy", accuracy), ("in-weights accuracy", in_weights))
    for axes, (label, measure) in zip(row, shown):
        values = measure(record, model, sweep)
        for i, copies in enumerate(record.config["burstiness_grid"]):
            band(axes, x, values[:, :, i], label=f"B = {copies}", **SERIES[i % len(SERIES)])
        axes.set_xscale("log", base=2)
        axes.set_xticks(x, [str(k) for k in x])
        axes.set_xlabel("classes K")
        axes.set_ylabel(label)
        axes.set_ylim(-0.03, 1.03)
        axes.legend(title=TITLES[model], ncols=len(record.config["burstiness_grid"]), **ABOVE)


def _accuracies(row: np.ndarray, record: Record, model: str, sweep: str) -> None:
    """The three test accuracies against the spread or the exponent."""
    (axes,) = row
    x = record.config[f"{sweep}_grid"]
    for name, look in SOLUTIONS.items():
        band(axes, x, record.arrays[f"{model}/{sweep}/{name}"][..., -1], **look)
    k = record.config["exponent_classes"]
    if sweep == "spread":
        k = record.config["spread_classes"]
        axes.set_xlabel(r"within-class spread $\epsilon$")
    else:
        axes.set_xlabel(r"rank-frequency exponent $\alpha$")
    guess_line(axes, guesses(record, sweep), x)
    axes.set_ylabel("accuracy")
    axes.set_ylim(-0.03, 1.03)
    axes.legend(title=f"{TITLES[model]}, K = {k}", ncols=1, **ABOVE)


def guess_line(axes: Axes, levels: np.ndarray | float, x: Sequence[float] | np.ndarray) -> None:
    """The in-context accuracy of guessing one of the context's labels, at every x."""
    drawn: dict[str, Any] = {
        "color": "black",
        "linestyle": (0, (1, 1)),
        "linewidth": 1.0,
        "label": "guess of a context label",
    }
    axes.plot(x, np.broadcast_to(levels, len(x)), **drawn)
