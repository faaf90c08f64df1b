"""Panels that figures of this paper share."""

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.panels import ABOVE
from icl_lab.lab.style import THEORY, Axes, Figure, panels

SOLUTIONS = {
    "ic": {"label": "in context: novel classes", "color": "#0072B2", "linestyle": "-", "marker": "o"},
    "ic2": {"label": "in context: swapped labels", "color": "#56B4E9", "linestyle": "--", "marker": "s"},
    "iwl": {"label": "in weights", "color": "#D55E00", "linestyle": "-.", "marker": "^"},
}
"""How the three test accuracies are drawn."""


CONDITIONS = {
    "control": "nothing frozen",
    "ila1_held": "ILA1 frozen",
    "tila2_held": "TILA2 frozen",
    "tla2_held": "TLA2 frozen",
    "cla_held": "CLA frozen",
    "ila1_given": "ILA1 given",
    "attention_lost": "Q, K lost",
    "answer_lost": "V, classifier lost",
}
"""What figures and claims call the conditions of interventions."""


def label_course(axes: Axes, what: str, title: str | None) -> None:
    """Names a panel of curves over training; the first of a part has its title."""
    axes.set(xlabel="training step", ylabel=what)
    if what != "loss (nats)":
        axes.set_ylim(0, 1.02)
    if title:
        axes.set_title(title)
    axes.legend(ncols=2 if what == "accuracy" else 4, **ABOVE)


def guess_line(axes: Axes, levels: np.ndarray | float, x: Sequence[float] | np.ndarray) -> None:
    """The in-context accuracy of guessing one of the context's labels, at every x."""
    axes.plot(x, np.broadcast_to(levels, len(x)), **THEORY, linewidth=1.0, label="guess of a context label")


def attention_maps(maps: Mapping[tuple[str, str], np.ndarray], label: str) -> Figure:
    """A column for each map (2, T, T), by its title and time, with the first layer above the second."""
    figure, axes = panels(len(maps), 2, shape=0.77)
    for i, ((title, when), layers) in enumerate(maps.items()):
        for layer, column in enumerate(axes[:, i]):
            image = column.imshow(layers[layer], cmap="Greys", vmin=0, vmax=1, interpolation="nearest")
            column.set_title(f"{title}\nlayer {layer + 1}, {when}" if layer == 0 else f"layer 2, {when}")
            _name_tokens(column, layers.shape[-1])
    figure.colorbar(image, ax=axes, shrink=0.7, label=label)
    return figure


def _name_tokens(axes: Axes, count: int) -> None:
    tokens = [f"{kind}{i // 2 + 1}" for i, kind in enumerate("xl" * (count // 2))] + ["t"]
    axes.grid(False)
    kept = slice(None, None, 1 if count <= 9 else 2)  # of pairs the items: all labels would run into one another
    axes.set_xticks(range(count)[kept], tokens[kept])
    axes.set_yticks(range(count)[kept], tokens[kept])
    axes.set(xlabel="attended token", ylabel="query token")
