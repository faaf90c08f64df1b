"""Figure of the curricula, from their record."""

from experiments.panels import ABOVE
from experiments.reddy.curriculum_claims import CURRICULA
from experiments.reddy.statistics import onsets, or_last, solved
from icl_lab.lab import Record
from icl_lab.lab.style import Figure, band
from icl_lab.lab.style import panels as axes_grid

LOOKS: dict[str, dict] = {
    "control": {"color": "#000000", "linestyle": "-", "marker": "o"},
    "length": {"color": "#D55E00", "linestyle": "--", "marker": "s"},
    "labels": {"color": "#0072B2", "linestyle": "-.", "marker": "^"},
    "novel": {"color": "#009E73", "linestyle": (0, (1, 1)), "marker": "v"},
}


def figures(record: Record) -> dict[str, Figure]:
    """Accuracy and level over training, and each member's onset against its control's."""
    figure, (row,) = axes_grid(3, 1)
    a, steps = record.arrays, record.arrays["steps"]
    for name, label in CURRICULA.items():
        look = LOOKS[name] | {"label": label, "markevery": max(1, len(steps) // 6), "markersize": 3}
        band(row[0], steps, a[f"{name}/ic"], **look)
        if name != "control":
            band(row[1], steps, a[f"{name}/level"] + 1, **look)
            spot = {key: look[key] for key in ("color", "marker", "label")}
            times = (or_last(onsets(record, which), record) for which in ("control", name))
            row[2].plot(*times, linestyle="", markersize=4, **spot)
    row[0].axhline(solved(record.config), color="0.6", linewidth=0.8)
    row[0].set_ylabel("accuracy, novel classes")
    row[1].set_ylabel("level of the curriculum")
    row[1].set_yticks(range(1, len(record.config["lengths"]) + 1))
    for axes in row[:2]:
        axes.set_xlabel("training step")
        axes.legend(ncols=2, **ABOVE)
    ends = [0, steps[-1]]
    row[2].plot(ends, ends, color="0.6", linewidth=0.8)
    row[2].set_xlabel("onset without a curriculum (step)")
    row[2].set_ylabel("onset with it (step)")
    row[2].legend(ncols=2, **ABOVE)
    return {"curriculum": figure}
