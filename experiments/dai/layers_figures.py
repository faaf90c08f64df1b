"""Figures of ``layers``: box plots by layer, a column for each task, each metric beside its controls."""

import numpy as np

from experiments.dai.common import encodings
from icl_lab.lab import Record
from icl_lab.lab.style import Axes, Figure, panels

PANELS = {
    "SimAOU": {"sim_aou": "fine-tuning", "floor": "floor", "noise/sim_aou": "noise of equal norm"},
    "SimAM": {
        "sim_am_after": "fine-tuning",
        "sim_am_before": "before fine-tuning",
        "noise/sim_am_after": "noise of equal norm",
    },
    "Kendall": {"kendall": "fine-tuning", "kendall_random": "random weights", "noise/kendall": "noise of equal norm"},
}
BEHIND = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
LOOKS = ("#0072B2", "#BBBBBB", "#D55E00")


def figures(record: Record) -> dict[str, Figure]:
    """One for each position encoding; a box holds the questions of all its networks."""
    return {f"layers_{positions}": _boxes(record, positions) for positions in encodings(record)}


def _boxes(record: Record, positions: str) -> Figure:
    tasks = record.metrics["tasks"]
    figure, axes = panels(len(tasks), len(PANELS), width=2.4, height=2.0)
    for r, (row, (metric, series)) in enumerate(zip(axes, PANELS.items())):
        for t, (at, task) in enumerate(zip(row, tasks)):
            for i, (name, label) in enumerate(series.items()):
                values = np.moveaxis(record[f"{positions}/{name}"][:, t], -1, 0)  # (L, M, I)
                _box(
                    at, values.reshape(len(values), -1), 0.27 * (i - 1), LOOKS[i], label if t == len(tasks) - 1 else ""
                )
            at.set_xticks(range(len(values)), [str(layer + 1) for layer in range(len(values))])
            at.axhline(0, color="0.7", linewidth=0.6)
            if r == 0:
                at.set_title(f"for {task}")
            if r == len(PANELS) - 1:
                at.set_xlabel("layer")
        row[0].set_ylabel(f"{metric} ({positions})")
        row[-1].legend(**BEHIND)
    return figure


def _box(axes: Axes, by_layer: np.ndarray, shift: float, color: str, label: str) -> None:
    """Boxes of the values that are defined, whiskers at the 5th and 95th percentile."""
    drawn = axes.boxplot(
        [values[~np.isnan(values)] for values in by_layer],
        positions=np.arange(len(by_layer)) + shift, widths=0.22, whis=(5, 95), showfliers=False, patch_artist=True,
        manage_ticks=False, medianprops={"color": "black"},
    )  # fmt: skip
    for box in drawn["boxes"]:
        box.set_facecolor(color)
    if label:
        drawn["boxes"][0].set_label(label)
