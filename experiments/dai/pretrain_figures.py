"""Figures of ``pretrain``: the loss over the stages, and accuracy against the number of demonstrations."""

import numpy as np

from experiments.dai.common import ENCODINGS, encodings, gated
from experiments.panels import SERIES
from icl_lab.lab import Record
from icl_lab.lab.style import THEORY, Figure, band, panels
from icl_lab.prompts.text_sequences import STAGES
from icl_lab.prompts.text_tasks import HELD_OUT

LOOK = dict(zip(ENCODINGS, SERIES[1:]))
NAMES = ("repeated strings", "words and labels", "clear classes", "mixture")


def figures(record: Record) -> dict[str, Figure]:
    """``curriculum`` and ``demonstrations``."""
    return {"curriculum": _curriculum(record), "demonstrations": _demonstrations(record)}


def _curriculum(record: Record) -> Figure:
    """Loss of predictable tokens in each stage, a thin line for each network; dots where networks end a stage."""
    there = encodings(record)
    figure, axes = panels(len(STAGES), len(there), width=2.7, height=2.2)
    for row, positions in zip(axes, there):
        passes, reached = gated(record[f"{positions}/final_accuracy"]), record[f"{positions}/reached"]
        for i, (at, stage) in enumerate(zip(row, STAGES)):
            curves = record[f"{positions}/{stage}/late_loss"]
            if not (entered := int(np.isfinite(curves).any(1).sum())):
                at.set_title(f"{NAMES[i]}: no network", fontsize=8)
                at.set_axis_off()
                continue
            steps = record.config["measure_every"] * np.arange(curves.shape[1])
            ends = record[f"{positions}/end/steps"][:, i], record[f"{positions}/end/late_loss"][:, i]
            for curve, end, loss, passed in zip(curves, *ends, passes):
                look = LOOK[positions] if passed else {"color": "0.6", "linestyle": "-"}
                at.plot(steps, curve, color=look["color"], linestyle=look["linestyle"], linewidth=0.7, alpha=0.7)
                at.plot([end], [loss], color=look["color"], marker="o", markersize=2.5)
            if stage == STAGES[-1]:
                guessing = record[f"{positions}/end/label_entropy"][:, -1]
                for entropy in guessing[np.isfinite(guessing)][:1]:
                    at.axhline(entropy, **THEORY, label="guessing among the labels")
                    at.legend()
            else:
                at.axhline(record.config["stage_loss"][i], color="0.3", linewidth=0.7, linestyle="--")
            at.set_title(f"{NAMES[i]}: {int((reached > i).sum())} of {entered} came to its end", fontsize=8)
            at.set_xlabel("step of the stage")
            at.set_ylim(bottom=0)
        row[0].set_ylabel(f"{positions} positions\nloss of predictable tokens (nats)")
        row[0].plot([], [], color="0.6", linewidth=0.7, label=_failed(passes))
        row[0].legend()
    return figure


def _failed(passes: np.ndarray) -> str:
    return f"failed the gate: {int((~passes).sum())} of {passes.size}"


def _demonstrations(record: Record) -> Figure:
    """Accuracy on the six held-out tasks against the number of demonstrations, of the networks that pass the gate."""
    figure, axes = panels(3, 2, width=3.0, height=2.4)
    for i, (at, task) in enumerate(zip(axes.ravel(), HELD_OUT)):
        for positions in encodings(record):
            accuracy = record[f"{positions}/final_accuracy"]
            passes = gated(accuracy)
            x, look = np.arange(accuracy.shape[-1]), LOOK[positions]
            if passes.any():
                label = f"{positions}: {int(passes.sum())} that pass the gate"
                band(at, x, accuracy[passes, i], label=label, **look | {"markevery": 2})
            for curve in accuracy[~passes, i]:
                at.plot(x, curve, color=look["color"], linestyle=look["linestyle"], linewidth=0.5, alpha=0.4)
            if (~passes).any():
                at.plot([], [], color=look["color"], linewidth=0.5, alpha=0.6, label=f"{positions}: {_failed(passes)}")
        at.axhline(1 / task.classes, color="0.6", linewidth=0.8, label="chance")
        at.axhline(np.median(record["ceiling"][:, i]), **THEORY, label="who knows the task (Bayes)")
        alone = float(np.median(record["meaning_only"][:, i]))
        at.axhline(alone, color="0.3", linewidth=0.8, linestyle="-.", label="meanings of the labels alone")
        at.set_title(f"{task.family}, {task.classes} classes (for {task.stands_for})")
        at.set_xlabel("demonstrations")
        at.set_ylabel("accuracy")
        at.set_ylim(0, 1.03)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4)
    return figure
