"""What ``transition`` claims and shows: who learns, how long it waits, how fast it jumps, in which order parts move."""

import numpy as np

from experiments.onsets import crossing
from experiments.reddy import transition_panels as drawn
from experiments.reddy.statistics import guess, learned, present, values_at, way_done
from experiments.reddy.transition import CURVE, PARTS, STEPS, in_part
from experiments.reddy.transition_panels import TITLES, wait
from experiments.statistics import Statistic, of_record
from icl_lab.claims import FAILS, NOT_RESOLVED, Beside, Quick
from icl_lab.lab import Record, claims_of
from icl_lab.lab.style import Figure, panels

IC, LOSS = CURVE.at(metric="ic"), CURVE.at(metric="loss")


def at_half_wait(record: Record, part: str, curves: np.ndarray) -> np.ndarray:
    """(M,) curves (M, R) half-way through each member's wait."""
    return values_at(0.5 * wait(record, part), STEPS(record), curves)


@of_record
def _reaches(record: Record, part: str, measurements: slice = slice(None)) -> np.ndarray:
    """(M,) 1 where the last accuracies, of all or of some measurements, are .9 or more on both tests."""
    curves = (CURVE(record, part=part, metric=test)[:, measurements] for test in ("ic", "ic2"))
    return np.prod([learned(curve, 0.9) for curve in curves], axis=0)


def _slope(record: Record, part: str, start: float, stop: float) -> np.ndarray:
    """(M,) fall of the loss on the training distribution between two shares of the wait, per wait."""
    first, last = (
        values_at(share * wait(record, part), STEPS(record), LOSS(record, part=part)) for share in (start, stop)
    )
    return (first - last) / (stop - start)


@of_record
def _flatness(record: Record, part: str) -> np.ndarray:
    """(M,) slope of the loss around half of the wait over the smaller of those in its first tenth and last quarter."""
    before, middle, after = (_slope(record, part, *ends) for ends in ((0, 0.1), (0.4, 0.6), (0.75, 1)))
    return middle / np.maximum(np.minimum(before, after), 1e-3)


def _shelf(part: str, start: float = 0.75, stop: float = 1.0) -> Statistic:
    """(M,) slope of the loss in the first half of the wait over that in its last quarter, or between other shares."""
    return lambda record: _slope(record, part, 0, 0.5) / _slope(record, part, start, stop)


def _accuracy_at_half_wait(part: str) -> Statistic:
    """(M,) in-context accuracy half-way through the wait, in units of that of a random label of the context."""
    return lambda record: at_half_wait(record, part, IC(record, part=part)) / guess(in_part(part, record.config))


def _accuracy_at_the_end(part: str) -> Statistic:
    """(M,) the same of the last measurement."""
    return lambda record: IC(record, part=part)[:, -1] / guess(in_part(part, record.config))


def _done_at_half_wait(name: str) -> Statistic:
    return lambda record: at_half_wait(record, "novel", way_done(CURVE(record, part="novel", metric=name)))


@of_record
def _rise(record: Record, part: str) -> np.ndarray:
    """(M,) steps from a quarter to three quarters of the way from guessing to 1, over the wait."""
    curves, steps, start = IC(record, part=part), STEPS(record), guess(in_part(part, record.config))
    low, high = (crossing(curves, steps, start + share * (1 - start)) for share in (0.25, 0.75))
    return (present(high) - present(low)) / wait(record, part)


@of_record
def _rise_of(record: Record, part: str, name: str) -> np.ndarray:
    """(M,) steps from a quarter to three quarters of a measure's own way, over the wait."""
    way = way_done(CURVE(record, part=part, metric=name))
    low, high = (crossing(way, STEPS(record), share) for share in (0.25, 0.75))
    return (present(high) - present(low)) / wait(record, part)


@of_record
def _kept(record: Record, part: str, last: int = -1) -> np.ndarray:
    """(M,) last in-context accuracy, or another measurement, less the best on the way, of members that learned."""
    curves, best = IC(record, part=part), IC(record, part=part).max(axis=1)
    return np.where(best >= 0.9, curves[:, last] - best, np.nan)


@of_record
def _lead(record: Record, first: str, then: str, part: str = "novel", share: float = 0.25) -> np.ndarray:
    """(M,) steps by which one measure has done a share of its way before another, over the member's wait."""
    times = [crossing(way_done(CURVE(record, part=part, metric=name)), STEPS(record), share) for name in (first, then)]
    early, late = present(np.array(times))
    return (late - early) / wait(record, part)


def _at_half_wait(name: str) -> Statistic:
    """(M,) a measure half-way through the wait."""
    return lambda record: at_half_wait(record, "novel", CURVE(record, part="novel", metric=name))


def _last(name: str) -> Statistic:
    """(M,) last value of a measure of the members that learned."""
    curves = CURVE.at(part="novel", metric=name)
    return lambda record: np.where(np.isnan(wait(record, "novel")), np.nan, curves(record)[:, -1])


def _apart(part: str, one: str, other: str) -> Statistic:
    """(M,) steps between the times at which two measures have done half of their way, over the wait."""
    return lambda record: np.abs(_lead(one, other, part, 0.5)(record))


claim = claims_of("reddy.transition", "Reddy 2023, ", minimum_members=6)

_ABRUPT = {
    "headline": 1,
    "quick": Quick(0.0, "a share of the wait, whatever the rate; 2,000 steps at .1 for 5,000 at .05"),
}
_ORDER = {"headline": 2, "quick": Quick(0.0, "an ordering has no slack at lab either")}
_LEARNS = {
    "headline": 3,  # five of six have
    "quick": Quick(0.0, "at twice the rate waits of 950 to 1,550 of 2,000 steps; all six are needed", NOT_RESOLVED),
}
_WHERE = {"novel": "Fig. 3", "trained": "Fig. 1d"}

CLAIMS = (
    *(
        one
        for part in PARTS
        for one in (
            claim(
                f"learns_{part}",
                f"On {TITLES[part]} members learn in context: accuracy .9 on novel classes and on swapped labels at "
                "the end (share of members; control: before training).",
                _reaches(part), control=_reaches(part, slice(1)), where=_WHERE[part], at_least=0.6, interval="wilson",
                published=("six of six seeds", "Figs. 1d and 4"),
                reason="all six seeds of the paper do; the interval needs all of 6 members, 14 of 16",
                **(_LEARNS if part == "novel" else {}),
            ),
            claim(
                f"plateau_{part}",
                f"On {TITLES[part]} the loss falls to a plateau and leaves it: around half of the wait its slope is "
                "less than half of those in the first tenth and in the last quarter of the wait (over the smaller one; "
                "median).",
                _flatness(part), where=_WHERE[part], at_most=0.5, interval="median", presets=(), at_lab=FAILS,
                published=("loss has a plateau (ratio below 0.5)", "Figs. 1d and 3a"),
                reason="a plateau is flat against what comes before and after; half is the least that can be seen",
            ),
            claim(
                f"guesses_{part}",
                f"Half-way through the wait, on {TITLES[part]}, new classes are answered no better than by a random "
                "label of the context (accuracy over B/N; control: at the end).",
                _accuracy_at_half_wait(part), where=_WHERE[part], at_most=1.2, control=_accuracy_at_the_end(part),
                reason="the beginning of the jump, where it is soft; solved would be N/B = 4",
            ),
            claim(
                f"abrupt_{part}",
                f"On {TITLES[part]} the transition is short compared with the wait (steps from a quarter to three "
                "quarters of the way from guessing to 1, over the wait; median; control: of TLA2's way).",
                _rise(part), where=_WHERE[part], at_most=0.3, interval="median", control=_rise_of(part, "tla2"),
                published=("jump from 28,000 to 32,000 steps (0.14)", "Fig. 3, rerun") if part == "novel" else None,
                reason="half of what a steady rise from the start would take, (1 - B/N) / (1 + B/N) = .6",
                **(_ABRUPT if part == "novel" else {}),
            ),
            claim(
                f"kept_{part}",
                f"In-context learning, once acquired on {TITLES[part]}, is not lost (last accuracy less the best; "
                "control: training backwards).",
                _kept(part), where="section 3 (no transience)", near=0.0, tolerance=0.03, control=_kept(part, 0),
                reason="the best of several dozen measurements of 1000 tasks is .01 too good",
            ),
        )
    ),
    claim(
        "shelf_novel",
        "On mostly novel classes the loss begins flat and ends steep: its slope in the first half of the wait is less "
        "than half of that in the last quarter (ratio; median; control: over that in the third quarter).",
        _shelf("novel"), where="Fig. 3", at_most=0.5, interval="median", reason="a steady fall has one",
        control=_shelf("novel", 0.5, 0.75),
        beside=Beside(_shelf("trained"), "on trained classes alone, of which Fig. 3 says nothing, it is about a half"),
    ),
    claim(
        "together",
        "Accuracy on novel classes and on swapped labels of trained ones rise together (time between the halves of "
        "their ways, over the wait; median; control: in context and in weights).",
        _apart("trained", "ic", "ic2"), where="Fig. 1d", at_most=0.1, interval="median",
        control=_apart("trained", "ic", "iwl"),
        reason="a tenth of the wait is less than what the rise itself takes",
    ),
    *(
        claim(
            f"order_{first}_{then}",
            f"{first.upper()} moves before {then.upper()} (steps between a quarter of their ways, over the wait; "
            "control: TILA2 before ILA1).",
            _lead(first, then), control=_lead("tila2", "ila1"), where="Fig. 4", at_least=0.0,
            published=("CLA, TLA2 before ILA1, TILA2", "Fig. 4"),
            reason="an ordering, paired by member",
            **(_ORDER if (first, then) == ("cla", "ila1") else {}),
        )
        for first in ("cla", "tla2")
        for then in ("ila1", "tila2")
    ),
    claim(
        "slow_phase",
        "Half-way through the wait the network answers with labels of the context (share of CLA's way done; control: "
        "of ILA1's).",
        _done_at_half_wait("cla"), where="Fig. 4", at_least=0.5, reason="more than half of the way",
        control=_done_at_half_wait("ila1"),
    ),
    *(
        claim(
            f"latent_{name}",
            f"Half-way through the wait {name.upper()} is where it started (share of its way done; control: CLA's).",
            _done_at_half_wait(name), where="Fig. 4", near=0.0, tolerance=0.1, reason="a tenth of its way",
            control=_done_at_half_wait("cla"),
        )
        for name in ("ila1", "tila2")
    ),
    claim(
        "jump_together",
        "ILA1 and TILA2 jump together (time between the halves of their ways, over the wait; median; control: CLA and "
        "ILA1).",
        _apart("novel", "ila1", "tila2"), where="Fig. 4", at_most=0.15, interval="median",
        control=_apart("novel", "cla", "ila1"),
        reason="half of what the rise of the accuracy may take",
    ),
    *(
        claim(
            f"head_{name}", f"At the end {what} (mean attention; control: half-way through the wait).",
            _last(name), where="Fig. 3", at_least=0.5, control=_at_half_wait(name),
            reason="most of the attention; uniform it would be a quarter or less",
        )
        for name, what in (
            ("ila1", "labels attend to the token before them in the first layer"),
            ("tila2", "the target attends to the right label in the second"),
        )
    ),
)  # fmt: skip


def figures(record: Record) -> dict[str, Figure]:
    """Curves and attention maps of every part that was run."""
    parts = [part for part in PARTS if part in record.config["only"]]
    figure, rows = panels(4, len(parts))
    for part, row in zip(parts, rows):
        drawn.accuracy_panel(row[0], record, part)
        drawn.loss_panel(row[1], record, part)
        drawn.progress_panel(row[2], record, part)
        drawn.aligned_panel(row[3], record, part)
    return {"curves": figure, "attention": drawn.attention_maps(record, parts)}
