"""Figure and claims of the curricula, from their record."""

from collections.abc import Callable

import numpy as np
from matplotlib.figure import Figure

from experiments.panels import ABOVE
from experiments.reddy.statistics import learned, onsets, or_last, present, solved
from icl_lab.lab.claims import Claim
from icl_lab.lab.records import Record
from icl_lab.lab.style import band
from icl_lab.lab.style import panels as axes_grid

CURRICULA = ("control", "length", "labels", "novel")

LOOKS: dict[str, dict] = {
    "control": {"color": "#000000", "linestyle": "-", "marker": "o", "label": "no curriculum"},
    "length": {"color": "#D55E00", "linestyle": "--", "marker": "s", "label": "context length N"},
    "labels": {"color": "#0072B2", "linestyle": "-.", "marker": "^", "label": "labels in use"},
    "novel": {"color": "#009E73", "linestyle": (0, (1, 1)), "marker": "v", "label": "novel share"},
}


def figures(record: Record) -> dict[str, Figure]:
    """Accuracy and level over training, and each member's onset against its control's."""
    figure, (row,) = axes_grid(3, 1)
    a, steps = record.arrays, record.arrays["steps"]
    for name in CURRICULA:
        look = LOOKS[name] | {"markevery": max(1, len(steps) // 6), "markersize": 3}
        band(row[0], steps, a[f"{name}_ic"], **look)
        if name != "control":
            band(row[1], steps, a[f"{name}_level"] + 1, **look)
            spot = {key: LOOKS[name][key] for key in ("color", "marker", "label")}
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


def _change(name: str) -> Callable[[Record], np.ndarray]:
    """(M,) paired difference of onset, with a curriculum minus without, as a share of that without.

    Infinite, against the claim, where it never comes with the curriculum; no value where it never comes without.
    """
    return lambda record: onsets(record, name) / present(onsets(record, "control")) - 1


def _learned(name: str) -> Callable[[Record], np.ndarray]:
    return lambda record: learned(record.arrays[f"{name}_ic"], 0.9)


_LAB = {"lab": "holds"}
_SENTENCES = {
    "length": "Starting from short contexts brings the onset earlier at equal samples",
    "labels": "Starting from few labels brings the onset earlier at equal samples",
    "novel": "Starting from novel classes alone brings the onset earlier at equal samples",
}

_AT_LAB = {"labels": {"lab": "not resolved"}, "novel": {"lab": "fails"}}
"""What the lab record says of the claims that do not hold."""

CLAIMS = (
    *(
        Claim(
            f"reddy.curriculum.{name}", "Reddy 2023, discussion",
            f"{sentence} (paired difference of onset over the control's; negative is earlier; median, as a "
            "member may never get there).",
            _change(name), expected=0.0, tolerance=0.0, relation="<=", interval="median",
            reason="the outlook says only that it is earlier; the size is what the interval shows",
            expected_verdict=_LAB | _AT_LAB.get(name, {}), minimum_members=6,
        )
        for name, sentence in _SENTENCES.items()
    ),
    *(
        Claim(
            f"reddy.curriculum.{name}_learned", "Reddy 2023, discussion",
            f"Curriculum: {LOOKS[name]['label']}. The whole task is solved in the end (share of members with accuracy "
            ".9 on novel classes).",
            _learned(name), expected=0.5, tolerance=0.0, relation=">=", interval="wilson",
            reason="most members must do it", expected_verdict=_LAB, minimum_members=6,
        )
        for name in CURRICULA
    ),
)  # fmt: skip
