"""Figures of ``momentum_icl``: accuracy over training, times of acquisition, accuracy on harder sequences."""

import numpy as np

from experiments.dai.mixers import label, looks, of
from experiments.dai.momentum_icl_claims import ACQUIRED, TASKS, times
from experiments.panels import ABOVE
from icl_lab.lab import Record
from icl_lab.lab.style import Axes, Figure, band, panels

TITLES = {"strings": "repeated strings", "pairs": "pairs of word and label"}


def figures(record: Record) -> dict[str, Figure]:
    """A row for every task."""
    figure, rows = panels(3, len(TASKS), width=3.6, height=3.2)
    for task, row in zip(TASKS, rows):
        for name, look in looks(tuple(record.config["mixers"])).items():
            band(row[0], record["steps"], of(record, f"{task}/accuracy", name), None, **look | {"marker": ""})
        row[0].axhline(ACQUIRED, color="0.6", linewidth=0.8)
        row[0].set_xlabel("training step")
        row[0].set_ylabel(f"{TITLES[task]}: accuracy")
        row[0].set_ylim(0, 1.02)
        row[0].legend(ncols=2, **ABOVE)
        _members(row[1], record, times(record, task) * record["steps"][-1], f"steps to accuracy {ACQUIRED:g}")
        harder = "longer strings" if task == "strings" else "twice the words"
        _members(row[2], record, record[f"{task}/harder"][..., -1], f"last accuracy, {harder}")
    return {"icl": figure}


def _members(axes: Axes, record: Record, values: np.ndarray, what: str) -> None:
    """(V, M) values by mixer: every member, lines join members of one number, and their median."""
    names = list(record.config["mixers"])
    axes.plot(range(len(names)), values, color="0.75", linewidth=0.6, zorder=1)
    for i, found in enumerate(values):
        axes.plot(np.full(found.size, i), found, linestyle="", marker="o", color="#0072B2", alpha=0.5, markersize=3)
    axes.plot(range(len(names)), np.median(values, axis=1), linestyle="", marker="_", markersize=14, color="black")
    axes.set_xticks(range(len(names)), [label(name) for name in names], rotation=30, ha="right")
    axes.set_ylabel(what)
    axes.set_ylim(bottom=0)
