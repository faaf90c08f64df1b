"""Figures of ``layers``: box plots over the questions of one network, and below them a line for every network."""

import numpy as np

from experiments.dai.by_encoding import learned
from experiments.dai.common import encodings
from experiments.dai.implicit_finetuning_figures import gate_of
from experiments.dai.layers_claims import layer_means
from experiments.panels import ABOVE
from icl_lab.lab import Record
from icl_lab.lab.style import Axes, Figure, panels

PANELS = {
    "SimAOU": {"sim_aou": "fine-tuning", "floor": "floor", "noise/sim_aou": "noise of equal size"},
    "SimAM": {
        "sim_am_after": "fine-tuning",
        "sim_am_before": "before fine-tuning",
        "noise/sim_am_after": "noise of equal size",
    },
    "Kendall": {"kendall": "fine-tuning", "kendall_random": "random weights", "noise/kendall": "noise of equal size"},
}
LOOKS = (("#0072B2", "-", "o"), ("#888888", ":", "v"), ("#D55E00", "--", "s"))


def figures(record: Record) -> dict[str, Figure]:
    """One for each position encoding."""
    return {f"layers_{positions}": _layers(record, positions) for positions in encodings(record)}


def _layers(record: Record, positions: str) -> Figure:
    passed = learned(record, positions)
    one = int(np.argmax(passed))  # the first that learns in context
    figure, axes = panels(len(PANELS), 2, width=3.6, height=2.6)
    for column, (metric, series) in zip(axes.T, PANELS.items()):
        for i, (name, label) in enumerate(series.items()):
            values = record[f"{positions}/{name}"]
            color, dash, marker = LOOKS[i]
            questions = np.moveaxis(values[one], -1, 0)  # (L, 6, I)
            _box(column[0], questions.reshape(len(questions), -1), 0.27 * (i - 1), color, label)
            if passed.any():
                lines, x = layer_means(values[passed]), np.arange(len(questions))
                column[1].plot(x, lines.T, color=color, linestyle=dash, linewidth=0.4, alpha=0.6)
                column[1].plot(x, lines.mean(0), color=color, linestyle=dash, marker=marker, label=label)
        for at in column:
            at.set_xticks(range(values.shape[-1]), [str(layer + 1) for layer in range(values.shape[-1])])
            at.axhline(0, color="0.7", linewidth=0.6)
            at.set_xlabel("layer")
        column[0].set_title(f"{metric}: questions of network {one}", fontsize=8, pad=20)
        column[1].set_title("a line for each network, and their mean", fontsize=8)
        column[0].set_ylabel(f"{metric} ({positions})")
        column[0].legend(fontsize=7, ncols=3, **ABOVE)
    figure.suptitle(gate_of(record, positions), fontsize=9)
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
        box.set_alpha(0.6)
    drawn["boxes"][0].set_label(label)
