"""What ``clamping`` claims and shows: functions of its record."""

import numpy as np

from experiments.onsets import crossing
from experiments.panels import described
from experiments.reddy.clamping import CURVE, PARTS, STEPS, conditions
from experiments.reddy.panels import CONDITIONS
from experiments.reddy.statistics import control_learns, onset_times, or_last, present
from experiments.statistics import of_record
from icl_lab.claims import NOT_REACHED, Beside, Quick
from icl_lab.lab import Record, claims_of
from icl_lab.lab.style import Figure, band, panels


def onsets(record: Record, condition: str) -> np.ndarray:
    """(M,) onset of a condition's in-context accuracy; infinite if never."""
    return onset_times(CURVE(record, condition=condition, metric="ic"), STEPS(record), record.config)


@of_record
def delay(record: Record, condition: str) -> np.ndarray:
    """(M,) how much later the onset is than that of the member's control, over the steps for which a part is frozen.

    Infinite where it never comes, so that such a member counts against a claim that it is short; no value where the
    control's does not.
    """
    return (onsets(record, condition) - present(onsets(record, "control"))) / record.config["hold"]


@of_record
def least_delay(record: Record, condition: str) -> np.ndarray:
    """(M,) the delay, up to the last step where the onset never comes: a lower bound, for a claim that it is long."""
    times = or_last(onsets(record, condition), STEPS(record))
    return (times - present(onsets(record, "control"))) / record.config["hold"]


@of_record
def _less_than(record: Record, other: str, condition: str) -> np.ndarray:
    """(M,) paired difference of two delays, at least; an ``other`` that alone never learns counts against it."""
    never = np.isinf(onsets(record, condition)) & np.isinf(onsets(record, other))
    return np.where(never, np.nan, least_delay(condition)(record) - delay(other)(record))


@of_record
def _moved(record: Record, name: str, held: str = "cla_held") -> np.ndarray:
    """(M,) rise of a measure at the control's onset where a part was frozen, as a share of the control's rise.

    No value where the control's onset lies within the time frozen, or there is none.
    """
    steps, control = STEPS(record), CURVE(record, condition="control", metric=name)
    times = onsets(record, "control")
    at = np.searchsorted(steps, or_last(times, steps))
    rises = [
        np.take_along_axis(CURVE(record, condition=one, metric=name), at[:, None], 1)[:, 0] - control[:, 0]
        for one in (held, "control")
    ]
    judged = np.isfinite(times) & (times > record.config["hold"])
    return np.where(judged, rises[0] / np.where(judged, rises[1], 1.0), np.nan)


@of_record
def _cla_without(record: Record, condition: str) -> np.ndarray:
    """(M,) rise of CLA up to the last measurement while a part is frozen, as a share of the control's rise.

    The measurement at the last of these steps is the first one without the clamp. No value where the control's CLA has
    risen by less than ``RISE`` by then.
    """
    at = np.searchsorted(STEPS(record), record.config["hold"]) - 1
    held, free = (CURVE(record, condition=name, metric="cla") for name in (condition, "control"))
    rise = free[:, at] - free[:, 0]
    return np.where(rise >= RISE, (held[:, at] - held[:, 0]) / np.maximum(rise, RISE), np.nan)


def _cla_learned(record: Record, condition: str) -> np.ndarray:
    """(M,) step at which CLA is half way from the control's start to 1; infinite if never."""
    given, control = (CURVE(record, condition=name, metric="cla") for name in (condition, "control"))
    return crossing(given - (1 + control[:, :1]) / 2, STEPS(record), 0.0)


def _cla_time(record: Record) -> np.ndarray:
    """(M,) steps until CLA is half way from its start to 1, with a perfect first layer over the control's.

    With it at most the last step; no value where the control's never is.
    """
    given, control = (_cla_learned(record, condition) for condition in ("ila1_given", "control"))
    return or_last(given, STEPS(record)) / present(control)


def _second_phase(record: Record) -> np.ndarray:
    """(M,) steps from there to the onset, with a perfect first layer over the control's."""
    given, control = (
        present(onsets(record, condition)) - present(_cla_learned(record, condition))
        for condition in ("ila1_given", "control")
    )
    return given / control


def _remaining(record: Record) -> np.ndarray:
    """(M,) onset with a perfect first layer, at most the last step, over that of the control."""
    return or_last(onsets(record, "ila1_given"), STEPS(record)) / present(onsets(record, "control"))


RISE = 0.1
"""Rise of CLA, of one from N/(B L) to 1, that is more than the noise of a test set (.02)."""

_NAMES = {"ila1": "the first layer's attention", "tila2": "the target's attention", "tla2": "the labels' share of it"}

claim = claims_of(
    "reddy.clamping", "Reddy 2023, Figs. 4 to 6: what drives the transition", presets=["lab"], minimum_members=6
)

LEARNED = control_learns(onsets)

CLAIMS = (
    claim(
        "cla_delays", "Freezing the classifier delays the onset by most of the time frozen (delay over that time; "
        "control: freezing the first layer's attention).",
        least_delay("cla_held"), at_least=0.5, headline=1, control=least_delay("ila1_held"),
        reason="what must move first costs all of that time, what comes later none of it",
        quick=Quick(0.0, "100 steps; at this rate the onset comes after 2,000", NOT_REACHED, LEARNED),
    ),
    *(
        claim(
            f"{name}_does_not_delay",
            f"Freezing {_NAMES[name]} while CLA is learned delays the onset by less than half of that time (control: "
            "freezing the classifier).",
            delay(f"{name}_held"), at_most=0.5, control=least_delay("cla_held"),
            headline=2 if name == "ila1" else 0,
            reason="the same half; it says nothing of later times: in this one the control's ILA1 hardly moves",
        )
        for name in ("ila1", "tla2")
    ),
    *(
        claim(
            f"cla_before_{name}", f"Freezing the classifier delays the onset by more than freezing {about} does "
            "(paired difference of delays over the time frozen"
            f"{'; control: the first layer frozen in place of the classifier' if name != 'ila1' else ''}).",
            _less_than(f"{name}_held", "cla_held"), at_least=0.0,
            control=None if name == "ila1" else _less_than(f"{name}_held", "ila1_held"),
            reason="an order: which of the two must move first",
        )
        for name, about in _NAMES.items()
    ),
    *(
        claim(
            f"cla_drives_{name}",
            f"At the control's onset, {name.upper()} of the member whose classifier was frozen has "
            "not moved (its rise over the control's; control: the labels' share of the attention frozen).",
            _moved(name), at_most=0.25, control=_moved(name, "tla2_held"),
            reason="a quarter: it follows CLA, which has risen part of the way since the release",
        )
        for name in ("ila1", "tila2")
    ),
    claim(
        "cla_is_held",
        "Freezing the classifier stops CLA, though the values train on (its rise while frozen over the "
        "control's; control: the first layer's attention frozen).",
        _cla_without("cla_held"), at_most=0.25, control=_cla_without("ila1_held"),
        reason="a quarter: else the delay would not be that of a stopped CLA; the values move it through the frozen "
        "read-out",
    ),
    *(
        claim(
            f"cla_without_{name}", f"CLA rises while {about} is frozen (its rise in that time over the control's; "
            "control: the classifier frozen).",
            _cla_without(f"{name}_held"), at_least=0.75, control=_cla_without("cla_held"),
            reason="three quarters: CLA is the first to move and needs none of them",
        )
        for name, about in _NAMES.items()
    ),
    claim(
        "slow_phase_stays",
        "A perfect first layer from the start does not remove the slow phase: CLA takes as long to rise half way to 1 "
        "(steps over the control's; control: the steps from there to the onset).",
        _cla_time, at_least=0.5, headline=3, reason="half as long would be another phase", control=_second_phase,
    ),
    claim(
        "wait_stays", "Nor does it remove the wait (onset over the control's; control: the part of it after CLA).",
        _remaining, at_least=0.5, control=_second_phase,
        reason="the slow phase, in which CLA is learned, is the larger part of the wait",
    ),
    claim(
        "attention_lost",
        "Queries and keys that start afresh after the time for which parts are frozen cost less than half of it "
        "(control: the classifier frozen).",
        delay("attention_lost"), at_most=0.5, reason="the slow phase learns to answer, not to attend",
        control=least_delay("cla_held"),
        beside=Beside(least_delay("answer_lost"), "answers, too, are soon learned again; the next claim compares them"),
    ),
    claim(
        "answer_before_attention",
        "Values and classifier that start afresh then cost more than queries and keys do "
        "(paired difference of delays over that time; control: in place of the former, the first layer frozen).",
        _less_than("attention_lost", "answer_lost"), at_least=0.0, reason="an order, for the same reason",
        control=_less_than("attention_lost", "ila1_held"),
    ),
)  # fmt: skip

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


TITLES = {"held": "parts frozen", "lost": "parts given or lost"}


def figures(record: Record) -> dict[str, Figure]:
    """The measures over training, a row for each part; the delays, member by member."""
    return {"clamping": _curves(record), "delays": _delays(record)}


def _curves(record: Record) -> Figure:
    parts = [part for part in PARTS if record.config["only"] in ("all", part)]
    figure, rows = panels(len(MEASURES), len(parts))
    steps = STEPS(record)
    for part, row in zip(parts, rows):
        shown = ("control", *PARTS[part])
        for axes, (name, label) in zip(row, MEASURES.items()):
            for i, condition in enumerate(shown):
                every = max(len(shown), len(steps) // 6)
                look = LOOKS[condition] | {"markersize": 3, "markevery": (i * every // len(shown), every)}
                band(axes, steps, CURVE(record, condition=condition, metric=name), label=CONDITIONS[condition], **look)
            axes.axvspan(0, record.config["hold"], color="0.92", zorder=0, label="frozen")
            described(axes, 2, xlabel="training step", ylabel=label, title=TITLES[part], ylim=(-0.02, 1.02))
    return figure


def _delays(record: Record) -> Figure:
    """Each member as a small marker, the median as a large one; one without an onset as if it came at the last step."""
    figure, ((axes,),) = panels(1, 1, shape=0.45)
    shown = conditions(record.config["only"])[1:]
    for at, condition in enumerate(shown):
        delays = least_delay(condition)(record)
        delays = np.sort(delays[np.isfinite(delays)])  # none where a control has no onset
        marks = LOOKS[condition] | {"linestyle": ""}
        axes.plot(at + 0.25 * np.linspace(-1, 1, len(delays)), delays, markersize=3, alpha=0.5, **marks)
        if delays.size:
            axes.plot([at], [np.median(delays)], markersize=7, **marks)
    for value in (0, 1):
        axes.axhline(value, color="0.6", linewidth=0.8)
    axes.set_xticks(range(len(shown)), [CONDITIONS[name].replace(", c", ",\nc") for name in shown], rotation=30)
    axes.set_ylabel("delay of the onset / steps frozen")
    return figure
