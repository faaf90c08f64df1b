"""Figures of ``momentum_tasks``: accuracy on each task, behind more demonstrations, and steps of the curriculum."""

import numpy as np

from experiments.dai.mixers import label, looks
from experiments.dai.momentum_tasks_claims import through
from experiments.panels import ABOVE
from icl_lab.lab import Record
from icl_lab.lab.style import Axes, Figure, band, panels

SHADES = ("0.1", "0.4", "0.62", "0.8")
"""Of the stages, dark to light."""


def figures(record: Record) -> dict[str, Figure]:
    """Table 7 as a figure: by task, by number of demonstrations, and the way there."""
    figure, (row,) = panels(3, 1, width=4.2, height=3.6)
    _tasks(row[0], record)
    _demonstrations(row[1], record)
    _steps(row[2], record)
    return {"tasks": figure}


def _tasks(axes: Axes, record: Record) -> None:
    """Accuracy behind all demonstrations; a network is a marker, open where it did not come through."""
    tasks, came = record.metrics["tasks"], through(record)
    styles = looks(tuple(record.config["mixers"]))
    for i, look in enumerate(styles.values()):
        at = np.arange(len(tasks)) + 0.13 * (i - (len(styles) - 1) / 2)
        ends = record["final_accuracy"][i, :, :, -1]
        for member, values in enumerate(ends):
            fill = look["color"] if came[i, member] else "white"
            marker = {"linestyle": "", "markersize": 4, "markerfacecolor": fill}
            axes.plot(at, values, **look | marker | {"label": look["label"] if member == 0 else None})
    chance = 1 / np.array(record.metrics["classes"])
    for t in range(len(tasks)):
        ends = (t - 0.4, t + 0.4)
        axes.hlines(chance[t], *ends, color="0.5", linewidth=0.8, label="" if t else "chance")
        axes.hlines(record["ceiling"][:, t].mean(), *ends, color="black", linestyle=":", label="" if t else "Bayes")
    axes.set_xticks(range(len(tasks)), tasks, rotation=30, ha="right")
    axes.set_ylabel("accuracy behind all demonstrations")
    axes.set_ylim(-0.02, 1.02)
    axes.legend(ncols=2, **ABOVE)


def _demonstrations(axes: Axes, record: Record) -> None:
    """Mean of the six tasks against the number of demonstrations, networks that came through; of each arm how many."""
    came = through(record)
    for i, look in enumerate(looks(tuple(record.config["mixers"])).values()):
        curves = record["final_accuracy"][i].mean(1)
        own = curves[came[i]] if came[i].any() else curves
        text = f"{look['label']}: {came[i].sum()} of {len(curves)}"
        band(axes, np.arange(own.shape[1]), own, **look | {"marker": "", "label": text})
    axes.set_xlabel("demonstrations")
    axes.set_ylabel("accuracy, mean of the six tasks")
    axes.legend(ncols=2, title="networks that came through", **ABOVE)


def _steps(axes: Axes, record: Record) -> None:
    """Steps of every stage but the last, a bar for each network."""
    names, stages = list(record.config["mixers"]), record.metrics["stages"][:-1]
    members = record["end/steps"].shape[1]
    for i in range(len(names)):
        for m in range(members):
            below, at = 0.0, i + 0.8 * ((m + 0.5) / members - 0.5)
            for s, steps in enumerate(record["end/steps"][i, m, :-1].astype(float)):
                text = stages[s] if i == m == 0 else None
                axes.bar(at, steps, 0.7 / members, below, color=SHADES[s % len(SHADES)], label=text, zorder=2)
                below += steps
    axes.set_xticks(range(len(names)), [label(name) for name in names], rotation=30, ha="right")
    axes.set_ylabel("steps until the mixture")
    axes.legend(ncols=len(stages), **ABOVE)
