"""Figures of ``dual_form``: relaxed attention against the softmax heads, layer by layer."""

import numpy as np

from experiments.dai.common import encodings
from experiments.panels import SERIES
from icl_lab.lab import Record
from icl_lab.lab.style import Figure, panels

PANELS = {
    "direction of the head": ("cosine", {"cosine": "relaxed attention", "mean_cosine": "plain mean of values"}),
    "direction, demonstrations alone": ("cosine", {"demonstrations_cosine": "$\\Delta W_{ICL}\\, q$"}),
    "error of relaxed attention": (
        "relative error", {"relative_error": "as it is", "scaled_error": "at the best scale"},
    ),
    "softmax mass on demonstrations": ("mass a", {"mass": "a"}),
    "exact form, zero-shot part from\nthe run of the query alone": ("relative error", {"zero_shot_identity": "error"}),
    "rank of $\\Delta W_{ICL}$": ("rank", {"rank": "rank", "stable_rank": "stable rank"}),
}  # fmt: skip
LOGARITHMIC = ("error of relaxed attention", "exact form, zero-shot part from\nthe run of the query alone")


def figures(record: Record) -> dict[str, Figure]:
    """One figure: a row for each position encoding, a point for each head of each network, lines their mean."""
    there = encodings(record)
    figure, axes = panels(len(PANELS), len(there), width=2.7, height=2.5)
    for row, positions in zip(axes, there):
        for at, (title, (label, series)) in zip(row, PANELS.items()):
            for i, ((name, what), look) in enumerate(zip(series.items(), SERIES)):
                heads = np.moveaxis(record[f"{positions}/{name}"].mean(1), 1, 0)  # (L, M, H)
                points, x = heads.reshape(len(heads), -1), np.arange(1, len(heads) + 1) + 0.12 * i
                look = dict(look, linestyle=look["linestyle"])
                at.plot(x, points, linestyle="", marker=look["marker"], color=look["color"], markersize=2, alpha=0.4)
                at.plot(x, points.mean(1), color=look["color"], linestyle=look["linestyle"], label=what)
            at.set_title(f"{title} ({positions})", fontsize=8)
            at.set_xlabel("layer")
            at.set_ylabel(label)
            at.set_xticks(range(1, len(heads) + 1))
            if title in LOGARITHMIC:
                at.set_yscale("log")
            elif label == "cosine":
                at.set_ylim(-1.05, 1.05)
            else:
                at.set_ylim(bottom=0)
            at.legend(fontsize=7)
    return {"relaxed": figure}
