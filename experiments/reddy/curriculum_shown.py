"""What the curricula claim and show: functions of their record."""

import numpy as np

from experiments.panels import described
from experiments.reddy.curriculum import CURRICULA, CURVE, STEPS
from experiments.reddy.statistics import control_learns, learned, onset_times, or_last, present, solved
from experiments.statistics import Statistic
from icl_lab.claims import NOT_REACHED, Quick
from icl_lab.lab import Record, claims_of
from icl_lab.lab.style import Figure, band, panels

ACCURACY = CURVE.at(metric="ic")


def onsets(record: Record, curriculum: str) -> np.ndarray:
    """(M,) onset of the in-context accuracy; infinite if never."""
    return onset_times(ACCURACY(record, curriculum=curriculum), STEPS(record), record.config)


def _change(name: str) -> Statistic:
    """(M,) paired difference of onset, with a curriculum minus without, as a share of that without.

    Infinite, against the claim, where it never comes with the curriculum; no value where it never comes without.
    """
    return lambda record: onsets(record, name) / present(onsets(record, "control")) - 1


claim = claims_of("reddy.curriculum", "Reddy 2023, discussion", presets=["lab"], minimum_members=6)
_CHANGE = (
    "(paired difference of onset over the control's; negative is earlier; median, as a member may never get there)"
)

_LEARNED = control_learns(onsets)

CLAIMS = (
    claim(
        "length", f"Starting from short contexts brings the onset earlier at equal samples {_CHANGE}; control: "
        "starting from novel classes.",
        _change("length"), at_most=0.0, headline=1, interval="median", control=_change("novel"),
        reason="the outlook says only that it is earlier; the size is what the interval shows",
        quick=Quick(0.0, "200 steps; at this rate the onset comes after 2,000", NOT_REACHED, _LEARNED),
    ),
    *(
        claim(
            name, f"{sentence} does not change the onset by more than a tenth at equal samples {_CHANGE}.",
            _change(name), near=0.0, tolerance=0.1, headline=2 if name == "novel" else 0, interval="median",
            reason="an equivalence: a tenth of the wait, less than a third of what growing contexts bring",
            control=_change("length"),
        )
        for name, sentence in (
            ("labels", "Starting from few labels"), ("novel", "Starting from novel classes alone")
        )
    ),
    claim(
        "length_learned", "Growing contexts end at the whole task (share of members with accuracy .9 on novel "
        "classes; control: before training).",
        lambda record: learned(ACCURACY(record, curriculum="length"), 0.9), at_least=0.5, interval="wilson",
        control=lambda record: learned(ACCURACY(record, curriculum="length")[:, :1], 0.9),
        reason="most members must do it",
    ),
)  # fmt: skip

LOOKS: dict[str, dict] = {
    "control": {"color": "#000000", "linestyle": "-", "marker": "o"},
    "length": {"color": "#D55E00", "linestyle": "--", "marker": "s"},
    "labels": {"color": "#0072B2", "linestyle": "-.", "marker": "^"},
    "novel": {"color": "#009E73", "linestyle": (0, (1, 1)), "marker": "v"},
}


def figures(record: Record) -> dict[str, Figure]:
    """Accuracy and level over training, and each member's onset against its control's."""
    figure, (row,) = panels(3, 1)
    steps = STEPS(record)
    for name, label in CURRICULA.items():
        look = LOOKS[name] | {"label": label, "markevery": max(1, len(steps) // 6), "markersize": 3}
        band(row[0], steps, ACCURACY(record, curriculum=name), **look)
        if name != "control":
            band(row[1], steps, CURVE(record, curriculum=name, metric="level") + 1, **look)
            spot = {key: look[key] for key in ("color", "marker", "label")}
            times = (or_last(onsets(record, one), steps) for one in ("control", name))
            row[2].plot(*times, linestyle="", markersize=4, **spot)
    row[0].axhline(solved(record.config), color="0.6", linewidth=0.8)
    described(row[0], 2, xlabel="training step", ylabel="accuracy, novel classes", title="learning")
    row[1].set_yticks(range(1, len(record.config["lengths"]) + 1))
    described(row[1], 2, xlabel="training step", ylabel="level of the curriculum", title="the curricula")
    ends = [0, steps[-1]]
    row[2].plot(ends, ends, color="0.6", linewidth=0.8)
    row[2].set(xlabel="onset without a curriculum (step)", ylabel="onset with it (step)")
    described(row[2], 2, title="every member")
    return {"curriculum": figure}
