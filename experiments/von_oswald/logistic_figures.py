"""The figure of ``logistic``."""

from typing import Any

import numpy as np

from icl_lab.lab import Record
from icl_lab.lab.style import Axes, Figure, band
from icl_lab.lab.style import panels as axes_grid

NETWORKS = {"linear_1": "1 linear layer", "linear_2": "2 linear layers", "softmax_1": "1 softmax layer"}
ALGORITHMS = {
    "logistic_1": "1 logistic step",
    "logistic_2": "2 logistic steps",
    "logistic_5": "5 logistic steps",
    "squared_2": "2 GD steps",
    "gd++_2": "2 GD++ steps",
    "map": "most probable w",
}
LOOKS = {"linear_1": ("#0072B2", "-"), "linear_2": ("#D55E00", "--"), "softmax_1": ("#009E73", "-.")}
REACHED: dict[str, Any] = {"logistic_2": "--", "logistic_5": "-.", "squared_2": ":", "gd++_2": (0, (5, 1))}
"""Algorithms whose loss is shown as a line, and its dash."""
PAIRS = (("linear_1", "logistic_1", "-"), ("linear_2", "gd++_2", "-"), ("linear_2", "logistic_2", "--"),
         ("softmax_1", "logistic_1", "-"))  # fmt: skip
"""Network, algorithm and dash where the agreement over training is shown."""


def figures(record: Record) -> dict[str, Figure]:
    """Loss and agreement over training, the rate read off, and the final cosines."""
    figure, ((loss, agreement), (rate, table)) = axes_grid(2, 2, width=4.2, height=3.0)
    _losses(loss, record)
    for name, algorithm, dash in PAIRS:
        if name not in _shown(record):
            continue
        found, label = record[name], f"{NETWORKS[name]}, {ALGORITHMS[algorithm]}"
        cosines = found[f"{algorithm}_sensitivity_cosine"][:, 1:]
        band(agreement, found["steps"][1:], cosines, color=LOOKS[name][0], linestyle=dash, label=label)
    agreement.set_ylabel("sensitivity cosine")
    agreement.set_ylim(0.7, 1.01)
    agreement.legend(loc="lower right")

    layer, best = record["linear_1"], record.metrics["parameters"]["logistic_1"][0]
    band(rate, layer["steps"], layer["rate"], color=LOOKS["linear_1"][0], label="read off the weights")
    rate.axhline(best, color="black", linestyle=":", label="best logistic step")
    rate.set_ylabel(r"learning rate $\eta$ of 1 linear layer")
    rate.legend()
    for axes in (loss, agreement, rate):
        axes.set_xlabel("training step")
    _cosine_table(table, record)
    return {"logistic": figure}


def _shown(record: Record) -> list[str]:
    """The networks that were trained."""
    return [name for name in NETWORKS if f"cosines/{name}" in record.arrays]


def _losses(axes: Axes, record: Record) -> None:
    """Losses over training, and those that algorithms reach, relative to one logistic step on the same tasks."""
    for name in _shown(record):
        (color, dash), found = LOOKS[name], record[name]
        band(axes, found["steps"], found["loss"] / found["logistic_1_loss"], color=color, linestyle=dash,
             label=NETWORKS[name])  # fmt: skip
    one, bayes = record.metrics["final_logistic_1"], record.metrics["bayes"]
    lines = [
        (record.metrics[f"final_{name}"], dash, ALGORITHMS[name])
        for name, dash in REACHED.items()
        if f"final_{name}" in record.metrics
    ]
    lines.append((bayes, "-", "Bayes"))
    for shade, (reached, dash, label) in zip(np.linspace(0, 0.6, len(lines)), lines):
        axes.axhline(reached / one, color=str(shade), linestyle=dash, linewidth=1.0, label=label)
    axes.set_ylim(0.95 * np.fmin(bayes / one, 1.0), 1.5)  # NaN where draws were too few
    axes.set_ylabel("loss / loss of one logistic step")
    axes.legend(ncols=2, fontsize=7, loc="upper right")


def _cosine_table(axes: Axes, record: Record) -> None:
    """Median over members of the final cosines, networks by algorithms."""
    shown = _shown(record)
    values = np.stack([np.median(record[f"cosines/{name}"], axis=0) for name in shown], axis=1)
    labels = [ALGORITHMS[name] for name in record.metrics["cosines_with"]]
    axes.imshow(values, cmap="Greys", vmin=0.8, vmax=1.4, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        axes.text(column, row, f"{value:.4f}", ha="center", va="center", fontsize=8,
                  fontweight="bold" if value == values[:, column].max() else "normal")  # fmt: skip
    axes.set_xticks(range(len(shown)), [NETWORKS[name] for name in shown])
    axes.set_yticks(range(len(labels)), labels)
    axes.grid(False)
    axes.set_title("final sensitivity cosine (median member)")
