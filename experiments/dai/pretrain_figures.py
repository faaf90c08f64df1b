"""Figures of ``pretrain``: the loss over the stages, and accuracy against the number of demonstrations."""

import numpy as np

from experiments.dai.common import ENCODINGS, encodings
from experiments.panels import SERIES
from icl_lab.lab import Record
from icl_lab.lab.style import THEORY, Figure, band, panels
from icl_lab.prompts.text_tasks import HELD_OUT

LOOK = dict(zip(ENCODINGS, SERIES))


def figures(record: Record) -> dict[str, Figure]:
    """``curriculum`` and ``demonstrations``."""
    there = encodings(record)
    return {"curriculum": _curriculum(record, there), "demonstrations": _demonstrations(record, there)}


def _curriculum(record: Record, there: list[str]) -> Figure:
    """Loss of late labels and the entropy of the label set over the stages, a line for each member."""
    figure, axes = panels(len(there), width=4.6)
    steps = record["steps"]
    for at, positions in zip(axes[0], there):
        curves = [record[f"{positions}/{name}"] for name in ("late_loss", "label_entropy", "stage")]
        for m, (loss, entropy, stage) in enumerate(zip(*curves)):
            look = SERIES[m % len(SERIES)]
            label = f"network {m + 1}" if len(loss) else None
            at.plot(steps, loss, color=look["color"], linestyle=look["linestyle"], linewidth=1, label=label)
            at.plot(steps, np.where(stage > 0, entropy, np.nan), color=look["color"], linewidth=0.7, alpha=0.5)
            for change in steps[1:][np.diff(stage) > 0]:
                at.plot([change], [-0.12], color=look["color"], marker=look["marker"], markersize=4, clip_on=False)
        at.plot([], [], color="0.5", linewidth=0.7, label="entropy of the label set")
        at.plot([], [], color="0.5", linestyle="", marker="o", label="a stage ends")
        at.set_title(f"{positions} positions")
        at.set_xlabel("training step")
        at.set_ylabel("loss of predictable tokens (nats)")
        at.set_ylim(-0.2, 5)
        at.legend()
    return figure


def _demonstrations(record: Record, there: list[str]) -> Figure:
    """Accuracy on the six held-out tasks against the number of demonstrations."""
    figure, axes = panels(3, 2, width=2.9, height=2.3)
    for i, (at, task) in enumerate(zip(axes.ravel(), HELD_OUT)):
        for positions in there:
            accuracy = record[f"{positions}/final_accuracy"][:, i]
            band(at, np.arange(accuracy.shape[1]), accuracy, label=positions, **LOOK[positions] | {"markevery": 2})
        at.axhline(1 / task.classes, color="0.6", linewidth=0.8, label="chance")
        at.axhline(np.median(record["ceiling"][:, i]), **THEORY, label="who knows the task (Bayes)")
        at.set_title(f"{task.family}, {task.classes} classes (for {task.stands_for})")
        at.set_xlabel("demonstrations")
        at.set_ylabel("accuracy")
        at.set_ylim(0, 1.03)
    axes[0, 0].legend()
    return figure
