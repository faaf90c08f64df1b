"""What ``transition`` claims: who learns, how long it waits, how fast it jumps, and in which order its parts move."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from experiments.onsets import crossing
from experiments.reddy.statistics import copies, learned, present
from icl_lab.lab import Record, claims_of

PARTS = ("novel", "trained")
"""What is trained on: mostly novel classes (Figs. 3, 4), trained classes alone (Fig. 1d)."""


def copies_of(part: str, config: Mapping[str, Any]) -> int:
    """B of the in-context tests of a part."""
    return copies(config, burstiness=config["trained_burstiness"]) if part == "trained" else copies(config)


def matched_item(context_length: int) -> int:
    """Item that the target of the prompts of an attention map is like: the one before the middle, counted from 0."""
    return (context_length - 1) // 2


def waits(accuracy: np.ndarray, steps: np.ndarray, guess: float) -> np.ndarray:
    """(M,) step at which accuracy is half-way from guessing a label of the context to 1; infinite if never."""
    return crossing(accuracy, steps, (1 + guess) / 2)


def _guess(record: Record, part: str) -> float:
    return copies_of(part, record.config) / record.config["context_length"]


def wait(record: Record, part: str) -> np.ndarray:
    """(M,) the wait of every member that ends it; no value for the others."""
    return present(waits(record.arrays[f"{part}/ic"], record.arrays["steps"], _guess(record, part)))


def done(record: Record, part: str, name: str) -> np.ndarray:
    """(M, R) share of the way from a measure's first to its last value."""
    curves = record.arrays[f"{part}/{name}"]
    way = curves[:, -1:] - curves[:, :1]
    return (curves - curves[:, :1]) / np.where(way == 0, np.nan, way)


def at_half_wait(record: Record, part: str, curves: np.ndarray) -> np.ndarray:
    """(M,) curves (M, R) half-way through each member's wait."""
    steps = record.arrays["steps"]
    times = 0.5 * wait(record, part)
    return np.array([np.interp(t, steps, curve) if np.isfinite(t) else np.nan for t, curve in zip(times, curves)])


def _reaches(part: str, *tests: str) -> Callable[[Record], np.ndarray]:
    """(M,) 1 where the last accuracies of all tests are .9 or more."""
    return lambda record: np.prod([learned(record.arrays[f"{part}/{test}"], 0.9) for test in tests], axis=0)


def _slope(record: Record, part: str, start: float, stop: float) -> np.ndarray:
    """(M,) fall of the loss on the training distribution between two shares of the wait, per wait."""
    curves, steps, waited = record.arrays[f"{part}/loss"], record.arrays["steps"], wait(record, part)
    ends = [[np.interp(share * t, steps, c) for t, c in zip(waited, curves)] for share in (start, stop)]
    return (np.array(ends[0]) - np.array(ends[1])) / (stop - start)


def _flatness(part: str) -> Callable[[Record], np.ndarray]:
    """(M,) slope of the loss around half of the wait over the smaller of those in its first tenth and last quarter."""

    def statistic(record: Record) -> np.ndarray:
        before, middle, after = (_slope(record, part, *ends) for ends in ((0, 0.1), (0.4, 0.6), (0.75, 1)))
        return middle / np.maximum(np.minimum(before, after), 1e-3)

    return statistic


def _shelf(part: str) -> Callable[[Record], np.ndarray]:
    """(M,) slope of the loss in the first half of the wait over that in its last quarter."""
    return lambda record: _slope(record, part, 0, 0.5) / _slope(record, part, 0.75, 1)


def _accuracy_at_half_wait(part: str) -> Callable[[Record], np.ndarray]:
    """(M,) in-context accuracy half-way through the wait, in units of that of a random label of the context."""
    return lambda record: at_half_wait(record, part, record.arrays[f"{part}/ic"]) / _guess(record, part)


def _done_at_half_wait(name: str) -> Callable[[Record], np.ndarray]:
    return lambda record: at_half_wait(record, "novel", done(record, "novel", name))


def _rise(part: str) -> Callable[[Record], np.ndarray]:
    """(M,) steps from a quarter to three quarters of the way from guessing to 1, over the wait."""

    def statistic(record: Record) -> np.ndarray:
        curves, steps, guess = record.arrays[f"{part}/ic"], record.arrays["steps"], _guess(record, part)
        low, high = (crossing(curves, steps, guess + share * (1 - guess)) for share in (0.25, 0.75))
        return np.where(np.isfinite(high), high - np.where(np.isfinite(low), low, 0.0), np.nan) / wait(record, part)

    return statistic


def _kept(part: str) -> Callable[[Record], np.ndarray]:
    """(M,) last in-context accuracy less the best on the way, of members that learned."""

    def statistic(record: Record) -> np.ndarray:
        curves = record.arrays[f"{part}/ic"]
        reached = curves.max(axis=1) >= 0.9
        return np.where(reached, curves[:, -1] - curves.max(axis=1), np.nan)

    return statistic


def lead(record: Record, part: str, first: str, then: str, share: float = 0.25) -> np.ndarray:
    """(M,) steps by which one measure has done a share of its way before another, over the member's wait."""
    steps = record.arrays["steps"]
    times = np.array([crossing(done(record, part, name), steps, share) for name in (first, then)])
    early, late = present(times)
    return (late - early) / wait(record, part)


def _lead(first: str, then: str) -> Callable[[Record], np.ndarray]:
    return lambda record: lead(record, "novel", first, then)


def _apart(part: str, one: str, other: str) -> Callable[[Record], np.ndarray]:
    """(M,) steps between the times at which two measures have done half of their way, over the wait."""
    return lambda record: np.abs(lead(record, part, one, other, 0.5))


def _last(name: str) -> Callable[[Record], np.ndarray]:
    """(M,) last value of a measure of the members that learned."""
    return lambda record: np.where(np.isnan(wait(record, "novel")), np.nan, record.arrays[f"novel/{name}"][:, -1])


_claim = claims_of("reddy.transition", "Reddy 2023, ", minimum_members=6)


_LAW = {"novel": "mostly novel classes", "trained": "trained classes alone"}
_WHERE = {"novel": "Fig. 3", "trained": "Fig. 1d"}

CLAIMS = (
    *(
        claim
        for part in PARTS
        for claim in (
            _claim(
                f"learns_{part}", _WHERE[part],
                f"On {_LAW[part]} members learn in context: accuracy .9 on novel classes and on swapped labels at the "
                "end (share of members).",
                _reaches(part, "ic", "ic2"), 0.6, 0.0, relation=">=", interval="wilson",
                reason="all six seeds of the paper do; the interval needs all of 6 members, 14 of 16",
            ),
            _claim(
                f"plateau_{part}", _WHERE[part],
                f"On {_LAW[part]} the loss falls to a plateau and leaves it: around half of the wait its slope is less "
                "than half of those in the first tenth and in the last quarter of the wait (over the smaller one; "
                "median).",
                _flatness(part), 0.5, 0.0, relation="<=", interval="median", expected_verdict={"lab": "fails"},
                reason="a plateau is flat against what comes before and after; half is the least that can be seen",
            ),
            _claim(
                f"guesses_{part}", _WHERE[part],
                f"Half-way through the wait, on {_LAW[part]}, new classes are answered no better than by a random "
                "label of the context (accuracy over B/N).",
                _accuracy_at_half_wait(part), 1.2, 0.0, relation="<=",
                reason="the beginning of the jump, where it is soft; solved would be N/B = 4",
            ),
            _claim(
                f"abrupt_{part}", _WHERE[part],
                f"On {_LAW[part]} the transition is short compared with the wait (steps from a quarter to three "
                "quarters of the way from guessing to 1, over the wait; median).",
                _rise(part), 0.3, 0.0, relation="<=", interval="median",
                reason="half of what a steady rise from the start would take, (1 - B/N) / (1 + B/N) = .6",
            ),
            _claim(
                f"kept_{part}", "section 3 (no transience)",
                f"In-context learning, once acquired on {_LAW[part]}, is not lost (last accuracy less the best).",
                _kept(part), 0.0, 0.03, reason="the best of several dozen measurements of 1000 tasks is .01 too good",
            ),
        )
    ),
    _claim(
        "shelf_novel", "Fig. 3",
        "On mostly novel classes the loss begins flat and ends steep: its slope in the first half of the wait is less "
        "than half of that in the last quarter (ratio; median; control: on trained classes alone).",
        _shelf("novel"), 0.5, 0.0, relation="<=", interval="median", reason="a steady fall has one",
        control=_shelf("trained"),
    ),
    _claim(
        "together", "Fig. 1d",
        "Accuracy on novel classes and on swapped labels of trained ones rise together (time between the halves of "
        "their ways, over the wait; median).",
        _apart("trained", "ic", "ic2"), 0.1, 0.0, relation="<=", interval="median",
        reason="a tenth of the wait is less than what the rise itself takes",
    ),
    *(
        _claim(
            f"order_{first}_{then}", "Fig. 4",
            f"{first.upper()} moves before {then.upper()} (steps between a quarter of their ways, over the wait).",
            _lead(first, then), 0.0, 0.0, relation=">=", reason="an ordering, paired by member",
        )
        for first in ("cla", "tla2")
        for then in ("ila1", "tila2")
    ),
    _claim(
        "slow_phase", "Fig. 4",
        "Half-way through the wait the network answers with labels of the context (share of CLA's way done).",
        _done_at_half_wait("cla"), 0.5, 0.0, relation=">=", reason="more than half of the way",
    ),
    *(
        _claim(
            f"latent_{name}", "Fig. 4",
            f"Half-way through the wait {name.upper()} is where it started (share of its way done).",
            _done_at_half_wait(name), 0.0, 0.1, reason="a tenth of its way",
        )
        for name in ("ila1", "tila2")
    ),
    _claim(
        "jump_together", "Fig. 4",
        "ILA1 and TILA2 jump together (time between the halves of their ways, over the wait; median).",
        _apart("novel", "ila1", "tila2"), 0.15, 0.0, relation="<=", interval="median",
        reason="half of what the rise of the accuracy may take",
    ),
    *(
        _claim(
            f"head_{name}", "Fig. 3",
            f"At the end {what} (mean attention).",
            _last(name), 0.5, 0.0, relation=">=", reason="most of the attention; uniform it would be a quarter or less",
        )
        for name, what in (
            ("ila1", "labels attend to the token before them in the first layer"),
            ("tila2", "the target attends to the right label in the second"),
        )
    ),
)  # fmt: skip
