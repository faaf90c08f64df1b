"""Figures and claims of clamping, from its record."""

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.panels import ABOVE
from experiments.reddy.statistics import learned, onset, onsets, or_last, present
from icl_lab.lab.claims import Claim
from icl_lab.lab.records import Record
from icl_lab.lab.style import band
from icl_lab.lab.style import panels as axes_grid

PARTS = {
    "held": ("ila1_held", "tila2_held", "tla2_held", "cla_held"),
    "lost": ("attention_lost", "answer_lost", "ila1_given"),
}
"""Conditions beside the control: clamped for the hold; starting afresh after it, or with a perfect first layer."""

LOOKS: dict[str, dict] = {
    "control": {"color": "#000000", "linestyle": "-", "marker": "o", "label": "nothing held"},
    "ila1_held": {"color": "#0072B2", "linestyle": "--", "marker": "s", "label": "ILA1 held"},
    "tila2_held": {"color": "#009E73", "linestyle": "-.", "marker": "^", "label": "TILA2 held"},
    "tla2_held": {"color": "#CC79A7", "linestyle": (0, (4, 1, 1, 1, 1, 1)), "marker": "D", "label": "TLA2 held"},
    "cla_held": {"color": "#D55E00", "linestyle": (0, (1, 1)), "marker": "v", "label": "CLA held"},
    "ila1_given": {"color": "#56B4E9", "linestyle": (0, (6, 2)), "marker": "P", "label": "ILA1 given"},
    "attention_lost": {"color": "#E69F00", "linestyle": (0, (3, 1)), "marker": "X", "label": "Q, K lost"},
    "answer_lost": {"color": "#777777", "linestyle": (0, (5, 1, 1, 1)), "marker": "*", "label": "V, classifier lost"},
}
MEASURES = {
    "ic": "accuracy on novel classes",
    "cla": "CLA, label of the context",
    "ila1": "ILA1, label to item",
    "tila2": "TILA2, target to its label",
}


def delay(record: Record, condition: str) -> np.ndarray:
    """(M,) how much later the onset is than that of the member's control, in units of the steps of the hold.

    Infinite where it never comes; no value where the control's does not.
    """
    return (onsets(record, condition) - present(onsets(record, "control"))) / record.config["hold"]


def least_delay(record: Record, condition: str) -> np.ndarray:
    """(M,) the delay, up to the last step where the onset never comes: a lower bound."""
    times = or_last(onsets(record, condition), record)
    return (times - present(onsets(record, "control"))) / record.config["hold"]


def conditions(record: Record) -> list[str]:
    """Those that the record holds."""
    return [name for name in LOOKS if f"{name}_ic" in record.arrays]


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
                band(axes, steps, record.arrays[f"{condition}_{name}"], **look)
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
    axes.set_xticks(range(len(shown)), [LOOKS[name]["label"].replace(", c", ",\nc") for name in shown], rotation=30)
    axes.set_ylabel("delay of the onset / steps of the hold")
    return figure


def _points(axes: Axes, at: float, values: np.ndarray, look: dict) -> None:
    marks = {"linestyle": "", "color": look["color"], "marker": look["marker"]}
    values = np.sort(values[np.isfinite(values)])  # none where a control has no onset
    axes.plot(at + 0.25 * np.linspace(-1, 1, len(values)), values, markersize=3, alpha=0.5, **marks)
    if values.size:
        axes.plot([at], [np.median(values)], markersize=7, **marks)


def _delay(condition: str) -> Callable[[Record], np.ndarray]:
    """(M,) the delay; a member that never learns counts against a claim that it is short."""
    return lambda record: delay(record, condition)


def _least_delay(condition: str) -> Callable[[Record], np.ndarray]:
    """(M,) a lower bound of the delay, for a claim that it is long."""
    return lambda record: least_delay(record, condition)


def _less_than(other: str, condition: str) -> Callable[[Record], np.ndarray]:
    """(M,) paired difference of two delays, at least; an ``other`` that never learns counts against it."""
    return lambda record: least_delay(record, condition) - delay(record, other)


def _moved(name: str) -> Callable[[Record], np.ndarray]:
    """(M,) rise of a measure at the control's onset where the classifier was held, as a share of the control's rise.

    No value where the control's onset lies within the hold, or there is none.
    """

    def statistic(record: Record) -> np.ndarray:
        steps, control = record.arrays["steps"], record.arrays[f"control_{name}"]
        found = onsets(record, "control")
        at = np.searchsorted(steps, or_last(found, record))
        rises = [
            np.take_along_axis(record.arrays[f"{one}_{name}"], at[:, None], 1)[:, 0] - control[:, 0]
            for one in ("cla_held", "control")
        ]
        judged = np.isfinite(found) & (found > record.config["hold"])
        return np.where(judged, rises[0] / np.where(judged, rises[1], 1.0), np.nan)

    return statistic


def _cla_without(condition: str) -> Callable[[Record], np.ndarray]:
    """(M,) rise of CLA up to the last measurement inside the hold, as a share of the control's rise.

    The measurement at the step of the hold is the first one without the clamp. No value where the control's CLA has
    risen by less than ``RISE`` by then.
    """

    def statistic(record: Record) -> np.ndarray:
        at = np.searchsorted(record.arrays["steps"], record.config["hold"]) - 1
        held, free = (record.arrays[f"{name}_cla"] for name in (condition, "control"))
        rise = free[:, at] - free[:, 0]
        return np.where(rise >= RISE, (held[:, at] - held[:, 0]) / np.maximum(rise, RISE), np.nan)

    return statistic


def _cla_time(record: Record) -> np.ndarray:
    """(M,) steps until CLA is half way from its start to 1, with a perfect first layer over the control's.

    With it at most the last step; no value where the control's never is.
    """
    steps, half = record.arrays["steps"], (1 + record.arrays["control_cla"][:, :1]) / 2

    given, control = (onset(record.arrays[f"{name}_cla"] - half, steps, 0.0) for name in ("ila1_given", "control"))
    return or_last(given, record) / present(control)


def _remaining(record: Record) -> np.ndarray:
    """(M,) onset with a perfect first layer, at most the last step, over that of the control."""
    return or_last(onsets(record, "ila1_given"), record) / present(onsets(record, "control"))


def _solved(condition: str) -> Callable[[Record], np.ndarray]:
    return lambda record: learned(record.arrays[f"{condition}_ic"], 0.9)


RISE = 0.1
"""Rise of CLA, of one from N/(B L) to 1, that is more than the noise of a test set (.02)."""

_LAB = {"lab": "holds"}
_PAPER = "Reddy 2023, Figs. 4 to 6: what drives the transition"
_NAMES = {"ila1": "the first layer's attention", "tila2": "the target's attention", "tla2": "the labels' share of it"}


def _claim(name: str, statement: str, statistic: Callable, bound: float, relation: str, reason: str, **options):
    return Claim(
        f"reddy.clamping.{name}", _PAPER, statement, statistic, expected=bound, tolerance=0.0, relation=relation,
        reason=reason, expected_verdict=_LAB, minimum_members=6, **options,
    )  # fmt: skip


CLAIMS = (
    _claim(
        "cla_delays", "Holding the classifier delays the onset by most of the hold (delay over hold).",
        _least_delay("cla_held"), 0.5, ">=", "what must move first costs the hold itself, what comes later none of it",
    ),
    *(
        _claim(
            f"{name}_does_not_delay", f"Holding {_NAMES[name]} delays the onset by less than half of it.",
            _delay(f"{name}_held"), 0.5, "<=", "the same half", control=_least_delay("cla_held"),
        )
        for name in ("ila1", "tla2")
    ),
    *(
        _claim(
            f"cla_before_{name}", f"Holding the classifier delays the onset by more than holding {about} does "
            "(paired difference of delays over hold).",
            _less_than(f"{name}_held", "cla_held"), 0.0, ">=", "an order: which of the two must move first",
        )
        for name, about in _NAMES.items()
    ),
    *(
        _claim(
            f"cla_drives_{name}", f"At the control's onset, {name.upper()} of the member whose classifier was held has "
            "not moved (its rise over the control's).",
            _moved(name), 0.25, "<=", "a quarter: it follows CLA, which has risen part of the way since the release",
        )
        for name in ("ila1", "tila2")
    ),
    _claim(
        "cla_is_held", "Holding the classifier holds CLA, though the values train on (its rise in the hold over the "
        "control's).", _cla_without("cla_held"), 0.25, "<=",
        "a quarter: else the delay would not be that of a held CLA; the values move it through the frozen read-out",
    ),
    *(
        _claim(
            f"cla_without_{name}", f"CLA rises while {about} is held (its rise in the hold over the control's).",
            _cla_without(f"{name}_held"), 0.75, ">=", "three quarters: CLA is the first to move and needs none of them",
        )
        for name, about in _NAMES.items()
    ),
    _claim(
        "slow_phase_stays",
        "A perfect first layer from the start does not remove the slow phase: CLA takes as long to rise half way to 1 "
        "(steps over the control's).",
        _cla_time, 0.5, ">=", "half as long would be another phase",
    ),
    _claim(
        "wait_stays", "Nor does it remove the wait (onset over the control's).",
        _remaining, 0.5, ">=", "the slow phase, in which CLA is learned, is the larger part of the wait",
    ),
    _claim(
        "attention_lost", "Queries and keys that start afresh after the hold cost less than half of it.",
        _delay("attention_lost"), 0.5, "<=", "the slow phase learns to answer, not to attend",
        control=_least_delay("answer_lost"),
    ),
    _claim(
        "answer_before_attention", "Values and classifier that start afresh then cost more than queries and keys do "
        "(paired difference of delays over hold).",
        _less_than("attention_lost", "answer_lost"), 0.0, ">=", "an order, for the same reason",
    ),
    *(
        _claim(
            f"{name}_learns", f"Condition: {LOOKS[name]['label']}. The task is solved in the end (share of members "
            "with accuracy .9 on novel classes).",
            _solved(name), 0.5, ">=", "a delay is one only where the onset comes", interval="wilson",
        )
        for name in LOOKS
    ),
)  # fmt: skip
