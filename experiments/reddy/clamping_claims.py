"""Claims of clamping, from its record."""

from collections.abc import Callable

import numpy as np

from experiments.onsets import crossing
from experiments.reddy.statistics import onsets, or_last, present
from icl_lab.lab import Record, claims_of

PARTS = {
    "held": ("ila1_held", "tila2_held", "tla2_held", "cla_held"),
    "lost": ("attention_lost", "answer_lost", "ila1_given"),
}
"""Conditions beside the control: clamped for the hold; starting afresh after it, or with a perfect first layer."""

NAMES = {
    "control": "nothing held",
    "ila1_held": "ILA1 held",
    "tila2_held": "TILA2 held",
    "tla2_held": "TLA2 held",
    "cla_held": "CLA held",
    "ila1_given": "ILA1 given",
    "attention_lost": "Q, K lost",
    "answer_lost": "V, classifier lost",
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


def _delay(condition: str) -> Callable[[Record], np.ndarray]:
    """(M,) the delay; a member that never learns counts against a claim that it is short."""
    return lambda record: delay(record, condition)


def _least_delay(condition: str) -> Callable[[Record], np.ndarray]:
    """(M,) a lower bound of the delay, for a claim that it is long."""
    return lambda record: least_delay(record, condition)


def _less_than(other: str, condition: str) -> Callable[[Record], np.ndarray]:
    """(M,) paired difference of two delays, at least; an ``other`` that alone never learns counts against it."""

    def statistic(record: Record) -> np.ndarray:
        never = np.isinf(onsets(record, condition)) & np.isinf(onsets(record, other))
        return np.where(never, np.nan, least_delay(record, condition) - delay(record, other))

    return statistic


def _moved(name: str) -> Callable[[Record], np.ndarray]:
    """(M,) rise of a measure at the control's onset where the classifier was held, as a share of the control's rise.

    No value where the control's onset lies within the hold, or there is none.
    """

    def statistic(record: Record) -> np.ndarray:
        steps, control = record.arrays["steps"], record.arrays[f"control/{name}"]
        found = onsets(record, "control")
        at = np.searchsorted(steps, or_last(found, record))
        rises = [
            np.take_along_axis(record.arrays[f"{one}/{name}"], at[:, None], 1)[:, 0] - control[:, 0]
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
        held, free = (record.arrays[f"{name}/cla"] for name in (condition, "control"))
        rise = free[:, at] - free[:, 0]
        return np.where(rise >= RISE, (held[:, at] - held[:, 0]) / np.maximum(rise, RISE), np.nan)

    return statistic


def _cla_time(record: Record) -> np.ndarray:
    """(M,) steps until CLA is half way from its start to 1, with a perfect first layer over the control's.

    With it at most the last step; no value where the control's never is.
    """
    steps, half = record.arrays["steps"], (1 + record.arrays["control/cla"][:, :1]) / 2

    given, control = (crossing(record.arrays[f"{name}/cla"] - half, steps, 0.0) for name in ("ila1_given", "control"))
    return or_last(given, record) / present(control)


def _remaining(record: Record) -> np.ndarray:
    """(M,) onset with a perfect first layer, at most the last step, over that of the control."""
    return or_last(onsets(record, "ila1_given"), record) / present(onsets(record, "control"))


RISE = 0.1
"""Rise of CLA, of one from N/(B L) to 1, that is more than the noise of a test set (.02)."""

_NAMES = {"ila1": "the first layer's attention", "tila2": "the target's attention", "tla2": "the labels' share of it"}

_claim = claims_of(
    "reddy.clamping", "Reddy 2023, Figs. 4 to 6: what drives the transition", presets=["lab"], minimum_members=6
)

CLAIMS = (
    _claim(
        "cla_delays", "", "Holding the classifier delays the onset by most of the hold (delay over hold).",
        _least_delay("cla_held"), 0.5, relation=">=",
        reason="what must move first costs the hold itself, what comes later none of it",
    ),
    *(
        _claim(
            f"{name}_does_not_delay", "",
            f"Holding {_NAMES[name]} while CLA is learned delays the onset by less than half of the hold.",
            _delay(f"{name}_held"), 0.5, relation="<=", control=_least_delay("cla_held"),
            reason="the same half; it says nothing of later holds: in this one the control's ILA1 hardly moves",
        )
        for name in ("ila1", "tla2")
    ),
    *(
        _claim(
            f"cla_before_{name}", "", f"Holding the classifier delays the onset by more than holding {about} does "
            "(paired difference of delays over hold).",
            _less_than(f"{name}_held", "cla_held"), 0.0, relation=">=",
            reason="an order: which of the two must move first",
        )
        for name, about in _NAMES.items()
    ),
    *(
        _claim(
            f"cla_drives_{name}", "",
            f"At the control's onset, {name.upper()} of the member whose classifier was held has "
            "not moved (its rise over the control's).",
            _moved(name), 0.25, relation="<=",
            reason="a quarter: it follows CLA, which has risen part of the way since the release",
        )
        for name in ("ila1", "tila2")
    ),
    _claim(
        "cla_is_held", "",
        "Holding the classifier holds CLA, though the values train on (its rise in the hold over the "
        "control's).", _cla_without("cla_held"), 0.25, relation="<=",

        reason="a quarter: else the delay would not be that of a held CLA; the values move it through the frozen "
        "read-out",
    ),
    *(
        _claim(
            f"cla_without_{name}", "", f"CLA rises while {about} is held (its rise in the hold over the control's).",
            _cla_without(f"{name}_held"), 0.75, relation=">=",
            reason="three quarters: CLA is the first to move and needs none of them",
        )
        for name, about in _NAMES.items()
    ),
    _claim(
        "slow_phase_stays", "",
        "A perfect first layer from the start does not remove the slow phase: CLA takes as long to rise half way to 1 "
        "(steps over the control's).",
        _cla_time, 0.5, relation=">=", reason="half as long would be another phase",
    ),
    _claim(
        "wait_stays", "", "Nor does it remove the wait (onset over the control's).",
        _remaining, 0.5, relation=">=",
        reason="the slow phase, in which CLA is learned, is the larger part of the wait",
    ),
    _claim(
        "attention_lost", "", "Queries and keys that start afresh after the hold cost less than half of it.",
        _delay("attention_lost"), 0.5, relation="<=", reason="the slow phase learns to answer, not to attend",
        control=_least_delay("answer_lost"),
    ),
    _claim(
        "answer_before_attention", "",
        "Values and classifier that start afresh then cost more than queries and keys do "
        "(paired difference of delays over hold).",
        _less_than("attention_lost", "answer_lost"), 0.0, relation=">=", reason="an order, for the same reason",
    ),
)  # fmt: skip
