"""Figures of clamping, from its record."""

import numpy as np

from experiments.panels import ABOVE
from experiments.reddy.clamping_claims import NAMES, PARTS, least_delay
from icl_lab.lab import Record
from icl_lab.lab.style import Axes, Figure, band
from icl_lab.lab.style import panels as axes_grid

LOOKS: dict[str, dict] = {
    "control": {"color": "#000000", "linestyle": "-", "marker": "o"},
    "ila1_held": {"color": "#0072B2", "linestyle": "--", "marker": "s"},
    "tila2_held": {"color": "#009E73", "linestyle": "-.", "marker": "^"},
    "tla2_held": {"color": "#CC79A7", "linestyle": (0, (4, 1, 1, 1, 1, 1)), "marker": "D"},
    "cla_held": {"color": "#D55E00", "linestyle": (0, (1, 1)), "marker": "v"},
    "ila1_given": {"color": "#56B4E9", "linestyle": (0, (6, 2)), "marker": "P"},
    "attention_lost": {"color": "#E69F00", "linestyle": (0, (3, 1)), "marker": "X"},
    "answer_lost": {"color": "#777777", "linestyle": (0, (5, 1, 1, 1)), "marker": "*"},
}
MEASURES = {
    "ic": "accuracy on novel classes",
    "cla": "CLA, label of the context",
    "ila1": "ILA1, label to item",
    "tila2": "TILA2, target to its label",
}


def conditions(record: Record) -> list[str]:
    """Those that the record holds."""
    return [name for name in LOOKS if f"{name}/ic" in record.arrays]


def figures(record: Record) -> dict[str, Figure]:
    """The measures over training, a row for each part; the delays, member by member."""
    return {"clamping": _curves(record), "delays": _delays(record)}


def _curves(record: Record) -> Figure:
    parts = [part for part, names in PARTS.items() if names[0] in conditions(record)]
    figure, rows = axes_grid(len(MEASURES), len(parts))
    steps = record.arrays["steps"]
    for part, row in zip(parts, rows):
        shown = ("control", *PARTS[part])
        for axes, (name, label) in zip(row, MEASURES.items()):
            for i, condition in enumerate(shown):
                every = max(len(shown), len(steps) // 6)
                look = LOOKS[condition] | {"markersize": 3, "markevery": (i * every // len(shown), every)}
                band(axes, steps, record.arrays[f"{condition}/{name}"], label=NAMES[condition], **look)
            axes.axvspan(0, record.config["hold"], color="0.92", zorder=0)
            axes.set_xlabel("training step (grey: the hold)")
            axes.set_ylabel(label)
            axes.set_ylim(-0.02, 1.02)
        row[0].legend(ncols=2, fontsize="x-small", **ABOVE)
    return figure


def _delays(record: Record) -> Figure:
    """Each member as a small marker, the median as a large one; one without an onset as if it came at the last step."""
    figure, ((axes,),) = axes_grid(1, 1, width=5.4, height=3.0)
    shown = [name for name in conditions(record) if name != "control"]
    for at, condition in enumerate(shown):
        _points(axes, at, least_delay(record, condition), LOOKS[condition])
    for value in (0, 1):
        axes.axhline(value, color="0.6", linewidth=0.8)
    axes.set_xticks(range(len(shown)), [NAMES[name].replace(", c", ",\nc") for name in shown], rotation=30)
    axes.set_ylabel("delay of the onset / steps of the hold")
    return figure


def _points(axes: Axes, at: float, values: np.ndarray, look: dict) -> None:
    marks = {"linestyle": "", "color": look["color"], "marker": look["marker"]}
    values = np.sort(values[np.isfinite(values)])  # none where a control has no onset
    axes.plot(at + 0.25 * np.linspace(-1, 1, len(values)), values, markersize=3, alpha=0.5, **marks)
    if values.size:
        axes.plot([at], [np.median(values)], markersize=7, **marks)
