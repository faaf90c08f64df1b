"""Figures of ``sine``: a task, the loss, the agreement of network and control, their kernels."""

from typing import Any

import numpy as np

from experiments import panels
from experiments.von_oswald.panels import network_label
from icl_lab.lab import Record, style
from icl_lab.lab.style import Axes, Figure

LOOKS = {
    "trained": dict(style.LEARNERS["trained"], marker=""),
    "control": dict(style.LEARNERS["gd"], marker="", label="features + GD"),
}


def figures(record: Record) -> dict[str, Figure]:
    """One row for each distribution and depth: a task, losses, agreement, the kernel."""
    pairs, steps = list(zip(record.config["laws"], record.config["layers"])), record["steps"]
    figure, axes = style.panels(4, len(pairs), width=3.2)
    for row, (law, layers) in zip(axes, pairs):
        part = record[f"{law}_{layers}"]
        task, grid = part["task"], part["task"]["grid"][:, 0]
        row[0].plot(grid, task["curve"][:, 0], color="0.6", label="task")
        row[0].plot(task["x"][:, 0], task["y"][:, 0], "k.", label="context")
        for which, look in LOOKS.items():
            row[0].plot(grid, task[which]["after"][:, 0], **look)
            thin = look | {"label": None, "linewidth": 0.7, "alpha": 0.7}
            row[0].plot(grid, task[which]["before"][:, 0], **thin)
            style.band(row[1], steps, part[f"{which}_loss"], **{k: v for k, v in look.items() if k != "marker"})
        row[0].set_title(f"amplitude and phase {law}\n{network_label(f'looped_{layers}')} (thin: before)")
        row[0].set_xlabel("input")
        row[0].set_ylabel("prediction")
        row[0].set_ylim(-0.85, 1.2)
        row[1].set_yscale("log")
        row[1].set_xlabel("training step")
        row[1].set_ylabel("loss")
        panels.alignment_panel(row[2], steps, part, "control", title="trained against features + GD")
        if layers == 1:
            _kernel_panel(row[3], task)
        else:
            row[3].set_visible(False)
        row[0].legend(ncols=2, loc="upper center")
        row[1].legend()
    return {"sine": figure}


def _kernel_panel(axes: Axes, task: dict[str, Any]) -> None:
    """Kernels at three queries, each scaled to a largest size of 1, with the sign that makes k(q, q) positive."""
    grid = task["grid"][:, 0]
    for i, (query, colour) in enumerate(zip(task["queries"][:, 0], ("#000000", "#E69F00", "#009E73"))):
        at = np.abs(grid - query).argmin()
        for which, look in LOOKS.items():
            kernel = task[which]["kernel"][i]
            scaled = kernel / np.abs(kernel).max() * np.sign(kernel[at])
            label = f"query {query:g}" if which == "trained" else None
            axes.plot(grid, scaled, color=colour, linestyle=look["linestyle"], label=label)
            axes.plot(grid[at], scaled[at], "o", color=colour)
    axes.set_xlabel("input of the context token")
    axes.set_ylabel("kernel (scaled)")
    axes.legend(ncols=3, title="kernel at the query (dot); dashed: features + GD", **panels.ABOVE)
