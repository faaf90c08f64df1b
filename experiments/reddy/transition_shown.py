"""What ``transition`` claims and shows: who learns, how long it waits, how fast it jumps, in which order parts move."""

from typing import Any

import numpy as np

from experiments.onsets import crossing
from experiments.panels import ABOVE, described
from experiments.reddy.statistics import guess, learned, onset_times, present, values_at, way_done
from experiments.reddy.transition import CURVE, MAP, PARTS, STEPS, in_part, matched_item
from experiments.statistics import Statistic, of_record
from icl_lab.claims import FAILS, NOT_RESOLVED, Quick
from icl_lab.lab import Record, claims_of
from icl_lab.lab.style import THEORY, Axes, Figure, band, panels

IC, LOSS = CURVE.at(metric="ic"), CURVE.at(metric="loss")


def wait(record: Record, part: str) -> np.ndarray:
    """(M,) the wait of every member that ends it; no value for the others."""
    return present(onset_times(IC(record, part=part), STEPS(record), in_part(part, record.config)))


def at_half_wait(record: Record, part: str, curves: np.ndarray) -> np.ndarray:
    """(M,) curves (M, R) half-way through each member's wait."""
    return values_at(0.5 * wait(record, part), STEPS(record), curves)


def _reaches(part: str, *tests: str) -> Statistic:
    """(M,) 1 where the last accuracies of all tests are .9 or more."""
    return lambda record: np.prod([learned(CURVE(record, part=part, metric=test), 0.9) for test in tests], axis=0)


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


def _shelf(part: str) -> Statistic:
    """(M,) slope of the loss in the first half of the wait over that in its last quarter."""
    return lambda record: _slope(record, part, 0, 0.5) / _slope(record, part, 0.75, 1)


def _accuracy_at_half_wait(part: str) -> Statistic:
    """(M,) in-context accuracy half-way through the wait, in units of that of a random label of the context."""
    return lambda record: at_half_wait(record, part, IC(record, part=part)) / guess(in_part(part, record.config))


def _done_at_half_wait(name: str) -> Statistic:
    return lambda record: at_half_wait(record, "novel", way_done(CURVE(record, part="novel", metric=name)))


@of_record
def _rise(record: Record, part: str) -> np.ndarray:
    """(M,) steps from a quarter to three quarters of the way from guessing to 1, over the wait."""
    curves, steps, start = IC(record, part=part), STEPS(record), guess(in_part(part, record.config))
    low, high = (crossing(curves, steps, start + share * (1 - start)) for share in (0.25, 0.75))
    return (present(high) - present(low)) / wait(record, part)


@of_record
def _kept(record: Record, part: str) -> np.ndarray:
    """(M,) last in-context accuracy less the best on the way, of members that learned."""
    curves, best = IC(record, part=part), IC(record, part=part).max(axis=1)
    return np.where(best >= 0.9, curves[:, -1] - best, np.nan)


@of_record
def _lead(record: Record, first: str, then: str, part: str = "novel", share: float = 0.25) -> np.ndarray:
    """(M,) steps by which one measure has done a share of its way before another, over the member's wait."""
    times = [crossing(way_done(CURVE(record, part=part, metric=name)), STEPS(record), share) for name in (first, then)]
    early, late = present(np.array(times))
    return (late - early) / wait(record, part)


def _last(name: str) -> Statistic:
    """(M,) last value of a measure of the members that learned."""
    curves = CURVE.at(part="novel", metric=name)
    return lambda record: np.where(np.isnan(wait(record, "novel")), np.nan, curves(record)[:, -1])


def _apart(part: str, one: str, other: str) -> Statistic:
    """(M,) steps between the times at which two measures have done half of their way, over the wait."""
    return lambda record: np.abs(_lead(one, other, part, 0.5)(record))


claim = claims_of("reddy.transition", "Reddy 2023, ", minimum_members=6)

TITLES = {"novel": "mostly novel classes", "trained": "trained classes alone"}
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
                "the end (share of members).",
                _reaches(part, "ic", "ic2"), where=_WHERE[part], at_least=0.6, interval="wilson",
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
                "label of the context (accuracy over B/N).",
                _accuracy_at_half_wait(part), where=_WHERE[part], at_most=1.2,
                reason="the beginning of the jump, where it is soft; solved would be N/B = 4",
            ),
            claim(
                f"abrupt_{part}",
                f"On {TITLES[part]} the transition is short compared with the wait (steps from a quarter to three "
                "quarters of the way from guessing to 1, over the wait; median).",
                _rise(part), where=_WHERE[part], at_most=0.3, interval="median",
                published=("jump from 28,000 to 32,000 steps (0.14)", "Fig. 3, rerun") if part == "novel" else None,
                reason="half of what a steady rise from the start would take, (1 - B/N) / (1 + B/N) = .6",
                **(_ABRUPT if part == "novel" else {}),
            ),
            claim(
                f"kept_{part}",
                f"In-context learning, once acquired on {TITLES[part]}, is not lost (last accuracy less the best).",
                _kept(part), where="section 3 (no transience)", near=0.0, tolerance=0.03,
                reason="the best of several dozen measurements of 1000 tasks is .01 too good",
            ),
        )
    ),
    claim(
        "shelf_novel",
        "On mostly novel classes the loss begins flat and ends steep: its slope in the first half of the wait is less "
        "than half of that in the last quarter (ratio; median; control: on trained classes alone).",
        _shelf("novel"), where="Fig. 3", at_most=0.5, interval="median", reason="a steady fall has one",
        control=_shelf("trained"),
    ),
    claim(
        "together",
        "Accuracy on novel classes and on swapped labels of trained ones rise together (time between the halves of "
        "their ways, over the wait; median).",
        _apart("trained", "ic", "ic2"), where="Fig. 1d", at_most=0.1, interval="median",
        reason="a tenth of the wait is less than what the rise itself takes",
    ),
    *(
        claim(
            f"order_{first}_{then}",
            f"{first.upper()} moves before {then.upper()} (steps between a quarter of their ways, over the wait).",
            _lead(first, then), where="Fig. 4", at_least=0.0, published=("CLA, TLA2 before ILA1, TILA2", "Fig. 4"),
            reason="an ordering, paired by member",
            **(_ORDER if (first, then) == ("cla", "ila1") else {}),
        )
        for first in ("cla", "tla2")
        for then in ("ila1", "tila2")
    ),
    claim(
        "slow_phase",
        "Half-way through the wait the network answers with labels of the context (share of CLA's way done).",
        _done_at_half_wait("cla"), where="Fig. 4", at_least=0.5, reason="more than half of the way",
    ),
    *(
        claim(
            f"latent_{name}",
            f"Half-way through the wait {name.upper()} is where it started (share of its way done).",
            _done_at_half_wait(name), where="Fig. 4", near=0.0, tolerance=0.1, reason="a tenth of its way",
        )
        for name in ("ila1", "tila2")
    ),
    claim(
        "jump_together",
        "ILA1 and TILA2 jump together (time between the halves of their ways, over the wait; median).",
        _apart("novel", "ila1", "tila2"), where="Fig. 4", at_most=0.15, interval="median",
        reason="half of what the rise of the accuracy may take",
    ),
    *(
        claim(
            f"head_{name}", f"At the end {what} (mean attention).",
            _last(name), where="Fig. 3", at_least=0.5,
            reason="most of the attention; uniform it would be a quarter or less",
        )
        for name, what in (
            ("ila1", "labels attend to the token before them in the first layer"),
            ("tila2", "the target attends to the right label in the second"),
        )
    ),
)  # fmt: skip

ACCURACIES: dict[str, dict[str, Any]] = {
    "ic": {"color": "#0072B2", "linestyle": "-", "label": "novel classes"},
    "ic2": {"color": "#D55E00", "linestyle": "--", "label": "swapped labels"},
    "iwl": {"color": "#777777", "linestyle": "-.", "label": "in weights"},
}
MEASURES: dict[str, dict[str, Any]] = {
    "cla": {"color": "#009E73", "linestyle": "-.", "label": "CLA"},
    "tla2": {"color": "#CC79A7", "linestyle": (0, (4, 1, 1, 1, 1, 1)), "label": "TLA2"},
    "ila1": {"color": "#0072B2", "linestyle": "-", "label": "ILA1"},
    "tila2": {"color": "#D55E00", "linestyle": "--", "label": "TILA2"},
}
STEP = "training step"


def figures(record: Record) -> dict[str, Figure]:
    """Curves and attention maps of every part that was run."""
    parts = [part for part in PARTS if part in record.config["only"]]
    figure, rows = panels(4, len(parts))
    for part, row in zip(parts, rows):
        _accuracy(row[0], record, part)
        _loss(row[1], record, part)
        _progress(row[2], record, part)
        _aligned(row[3], record, part)
    return {"curves": figure, "attention": _maps(record, parts)}


def _accuracy(axes: Axes, record: Record, part: str) -> None:
    _bands(axes, record, part, ACCURACIES)
    axes.axhline(guess(in_part(part, record.config)), **THEORY, label="guess, B/N")
    described(axes, 2, xlabel=STEP, ylabel="accuracy", ylim=(0, 1.02), title=f"{TITLES[part]}: accuracy")


def _loss(axes: Axes, record: Record, part: str) -> None:
    _bands(axes, record, part, {"loss": {"color": "#0072B2", "label": "training distribution"}})
    axes.axhline(np.log(record.config["labels"]), color="black", linestyle="-.", linewidth=0.9, label="log L")
    axes.axhline(-np.log(guess(in_part(part, record.config))), **THEORY, label="log(N/B)")
    described(axes, 4, xlabel=STEP, ylabel="loss (nats)", ylim=(0, None), title=f"{TITLES[part]}: loss")


def _progress(axes: Axes, record: Record, part: str) -> None:
    _bands(axes, record, part, MEASURES)
    described(axes, 4, xlabel=STEP, ylabel="progress measure", ylim=(0, 1.02), title=f"{TITLES[part]}: progress")


def _bands(axes: Axes, record: Record, part: str, looks: dict[str, dict[str, Any]]) -> None:
    for name, look in looks.items():
        band(axes, STEPS(record), CURVE(record, part=part, metric=name), **look)


def _aligned(axes: Axes, record: Record, part: str) -> None:
    """Progress of the members that learn, in units of their own wait."""
    steps, waits, grid = STEPS(record), wait(record, part), np.linspace(0, 2, 81)
    for name, look in MEASURES.items():
        curves = [
            np.interp(grid * t, steps, curve, right=np.nan)
            for t, curve in zip(waits, CURVE(record, part=part, metric=name))
            if np.isfinite(t)
        ]
        if curves:
            band(axes, grid, np.stack(curves), **look)
    axes.axvline(1, color="0.6", linewidth=0.8)
    axes.set(xlabel=f"{STEP} / wait of the member", ylabel="progress measure", ylim=(0, 1.02))
    axes.set_title(f"{TITLES[part]}: by own wait")
    if axes.lines[:-1]:
        axes.legend(ncols=4, **ABOVE)


def _maps(record: Record, parts: list[str]) -> Figure:
    """Attention of both layers half-way through the wait and at the end, of prompts whose target matches one item."""
    n = record.config["context_length"]
    every = 1 if n <= 4 else 2  # of pairs the items: all labels would run into one another
    tokens = [*(f"{kind}{i + 1}" for i in range(n) for kind in "xl"), "t"][::every]
    columns = [(part, *when) for part in parts for when in (("half", "half of the wait"), ("end", "end"))]
    figure, grid = panels(len(columns), 2, shape=0.77)
    for (part, when, about), column in zip(columns, grid.T):
        titles = f"{TITLES[part]}\nlayer 1, {about}", f"layer 2, {about}"
        for axes, attention, title in zip(column, MAP(record, part=part, when=when).mean(axis=0), titles):
            image = axes.imshow(attention, cmap="Greys", vmin=0, vmax=1, interpolation="nearest")
            axes.set(xlabel="attended token", ylabel="query token", title=title)
            axes.set_xticks(range(0, 2 * n + 1, every), tokens)
            axes.set_yticks(range(0, 2 * n + 1, every), tokens)
            axes.grid(False)
    where = f"target of the class of x{matched_item(n) + 1}"
    figure.colorbar(image, ax=grid, shrink=0.7, label=f"attention (mean over prompts and members;\n{where})")
    return figure
