"""What ``momentum_regression`` claims: momentum in linear attention is not the momentum of a descent."""

from collections.abc import Callable

import numpy as np

from experiments.dai.mixers import kind, momenta, of
from experiments.onsets import half_drop_times
from icl_lab.lab import NotRun, Record, claims_of


def added(record: Record) -> tuple[np.ndarray, np.ndarray]:
    """(V', M) what the mixer adds to the loss of the same weights, measured and by ``mixer_penalty``; of all mixers."""
    present = [i for i, name in enumerate(record.config["mixers"]) if kind(name) != "vanilla"]
    final = record["joint/final"]
    return (final["trained"] - final["without"])[present], record["joint/penalty"][present]


def _penalty(record: Record) -> np.ndarray:
    measured, theory = added(record)
    gone = [left(record, "joint", name) for name in record.config["mixers"] if kind(name) != "vanilla"]
    return given(measured.sum(0) / theory.sum(0), np.any(gone, axis=0))


def _floor(record: Record) -> np.ndarray:
    """(M,) the lowest final loss of any mixer over that of the best step, on the same tasks."""
    return (record["joint/final/trained"] / record["joint/final/gd"]).min(0)


def left(record: Record, part: str, mixer: str) -> np.ndarray:
    """(M,) whether a member left the plateau of its start.

    Its final loss is more than half of the way from that of predicting zero to the least that theory allows: the best
    step, on alternating tokens after copying by hand with this mixer.
    """
    trained = of(record, f"{part}/final/trained", mixer)  # first: a run without this part is told by it
    zero, best = (record.metrics[f"{part}_{name}"] for name in ("zero", "best_step"))
    if part == "alternating":
        best = record.metrics["alternating_by_hand"].get(mixer, best)
    return trained < (zero + best) / 2


def given(values: np.ndarray, where: np.ndarray) -> np.ndarray:
    """(M,) values of the members that left the plateau; NaN of the others: they are counted by a claim of their own."""
    return np.where(where, values, np.nan)


def _over_momenta(record: Record, statistic: Callable[[str], np.ndarray]) -> np.ndarray:
    """(M,) mean over the coefficients with which a member left the plateau of joint tokens; NaN without any."""
    gone = np.stack([left(record, "joint", name) for name in momenta(record)])
    values = np.stack([statistic(name) for name in momenta(record)])
    return given((gone * values).sum(0) / np.maximum(gone.sum(0), 1), gone.sum(0) > 0)


def nearer(record: Record, other: str) -> np.ndarray:
    """(M,) distance of momentum layers from a learner over that from one plain step, in sensitivities."""

    def ratio(name: str) -> np.ndarray:
        far, near = (of(record, f"joint/{one}/sensitivity_difference", name) for one in (other, "gd"))
        return far / near

    return _over_momenta(record, ratio)


def _nearer_to_momentum(record: Record) -> np.ndarray:
    """(M,) the smallest over the numbers of steps."""
    return np.min([nearer(record, f"heavy_ball_{steps}") for steps in record.config["descents"]], axis=0)


def _cosine(record: Record) -> np.ndarray:
    return _over_momenta(record, lambda name: of(record, "joint/gd/sensitivity_cosine", name))


def _stays_longer(record: Record) -> np.ndarray:
    """(M,) whether half of the way is done later with the largest coefficient than without a mixer, or never."""
    curves, steps = [of(record, "joint/loss", name) for name in ("vanilla", momenta(record)[-1])], record["joint/steps"]
    start, end = record.metrics["joint_zero"], record.metrics["joint_best_step"]
    without, largest = (half_drop_times(curve, steps, start, end) for curve in curves)
    return (largest > without).astype(float)


def _learned(record: Record) -> np.ndarray:
    """(M,) last over first coefficient where it is learned."""
    name = _named(record, "learned")
    eta = of(record, "joint/eta", name)[..., 0]
    return given(eta[:, -1] / eta[:, 0], left(record, "joint", name))


def _named(record: Record, which: str) -> str:
    found = [name for name in record.config["mixers"] if kind(name) == which]
    if not found:
        raise NotRun(which)
    return found[0]


def remaining(record: Record, mixer: str) -> np.ndarray:
    """(M,) final loss on alternating tokens between one step of gradient descent (0) and predicting zero (1)."""
    trained, gd, zero = (of(record, f"alternating/final/{name}", mixer) for name in ("trained", "gd", "zero"))
    return (trained - gd) / (zero - gd)


def leaves(record: Record, mixer: str) -> np.ndarray:
    """(M,) 1 where a member left the plateau of alternating tokens, else 0."""
    return left(record, "alternating", mixer).astype(float)


def copies(record: Record, mixer: str) -> np.ndarray:
    """(M,) ``remaining`` given that the member left."""
    return given(remaining(record, mixer), left(record, "alternating", mixer))


def _order(record: Record) -> np.ndarray:
    """(M,) that of the largest coefficient less that of the smallest, of members that left with both."""
    return copies(record, momenta(record)[-1]) - copies(record, momenta(record)[0])


def _shift_wins(record: Record) -> np.ndarray:
    """(M,) that of the best momentum less that of the shift, of members that left with the smallest and the shift."""
    each = np.stack([np.nan_to_num(copies(record, name), nan=np.inf) for name in momenta(record)])
    gone = left(record, "alternating", momenta(record)[0])
    return given(np.where(gone, each.min(0), 0.0) - copies(record, "recent_1"), gone)


NONE_OF_TWENTY = 0.162
"""The largest share of trainings that leave, of which none of twenty does (upper end of the Wilson interval)."""

_claim = claims_of("dai.momentum_regression", "Dai et al. 2022, ", minimum_members=5)
_PAPER, _THEORY = "section 4", "section 4 (theory: this lab)"
_FAILS = {"lab": "fails", "paper": "fails"}
"""Theory contradicts the paper's analogy."""

CLAIMS = (
    _claim(
        "penalty", _THEORY,
        "In one layer on joint tokens the sum that momentum adds is weight decay on the values: it adds to the loss "
        "what the closed form says (measured over predicted, same weights with and without, sums over all mixers).",
        _penalty, 1.0, 0.05, kind="identity", reason="10^5 tasks leave a standard error of about 3 % a member",
    ),
    _claim(
        "floor", _THEORY,
        "Momentum does not lower the loss of a layer below that of the best single step of plain gradient descent "
        "(lowest of all mixers over the step's).",
        _floor, 1.0, 0.01, relation=">=", kind="identity",
        reason="sampling of 10^5 paired tasks; the least of seven",
    ),
    _claim(
        "analogy", _PAPER,
        "A layer with momentum is nearer to gradient descent with momentum (heavy ball of K steps, the nearest K) than "
        "to one plain step (ratio of the differences of sensitivities, layers that left the plateau of the start). The "
        "paper's analogy says so; theory says no.",
        _nearer_to_momentum, 1.0, relation="<=", expected_verdict=_FAILS,
        reason="an ordering, paired by member and task",
    ),
    _claim(
        "pass_over_demonstrations", _PAPER,
        "A layer with momentum is nearer to one pass over the demonstrations that sums gradients with momentum, the "
        "literal reading, than to one plain step (ratio of the differences of sensitivities, layers that left the "
        "plateau). Theory says no.",
        lambda record: nearer(record, "analogy"), 1.0, relation="<=", expected_verdict=_FAILS,
        reason="an ordering, paired by member and task",
    ),
    _claim(
        "plain_step", _THEORY,
        "What a layer with momentum that left the plateau computes of the query is one step of plain gradient descent "
        "(cosine of sensitivities, mean over coefficients).",
        _cosine, 1.0, 0.05, reason="that of a layer without momentum, trained as long, is within .02 of 1",
    ),
    _claim(
        "stays_longer", _THEORY,
        "Weight decay on the values slows the growth from a small start: with the largest coefficient half of the way "
        "to the best step is done later than without a mixer (share of members, paired on start and data).",
        _stays_longer, 0.5, relation=">=", interval="wilson", reason="later in more members than not",
    ),
    _claim(
        "learned_falls", _THEORY,
        "A learned coefficient falls, since all that it does is to add to the loss (last over first, layers that left "
        "the plateau).",
        _learned, 1.0, relation="<=", reason="the sign of its gradient, which is that of the penalty",
    ),
    _claim(
        "vanilla_cannot_pair", _THEORY,
        "Two layers without positions or mixer cannot tell whose label a label is: on alternating tokens they stay at "
        "predicting zero (share of the way from the best step to it, median; all members are alike).",
        lambda record: remaining(record, "vanilla"), 1.0, 0.03, interval="median",
        reason="1 but for what is left of training's noise",
    ),
    _claim(
        "shift_leaves", _THEORY,
        "A shift by one token lets more trainings leave that plateau than none of twenty without a mixer leaves open "
        "(share of trainings that do more than half of the way to what copying by hand reaches).",
        lambda record: leaves(record, "recent_1"), NONE_OF_TWENTY, relation=">=", interval="wilson",
        reason="upper end of the Wilson interval of 0 of 20", control=lambda record: leaves(record, "vanilla"),
    ),
    _claim(
        "shift_copies", _THEORY,
        "Given that it left, a training with the shift takes the step: its loss is at most that of the best single "
        "step (share of the way from it to predicting zero).",
        lambda record: copies(record, "recent_1"), 0.0, 0.1, relation="<=",
        reason="a tenth of the way for a training that is not quite over; below 0 where the query is transformed too",
    ),
    _claim(
        "momentum_leaves", _THEORY,
        "So does momentum of the smallest coefficient (share of trainings, as for the shift).",
        lambda record: leaves(record, momenta(record)[0]), NONE_OF_TWENTY, relation=">=", interval="wilson",
        reason="upper end of the Wilson interval of 0 of 20", control=lambda record: leaves(record, "recent_1"),
    ),
    _claim(
        "momentum_copies", _THEORY,
        "Given that it left, a training with momentum of the smallest coefficient takes the step too (share of the way "
        "left; copying by hand with .3 leaves .003).",
        lambda record: copies(record, momenta(record)[0]), 0.0, 0.1, relation="<=",
        reason="a tenth of the way, as for the shift", control=lambda record: copies(record, "recent_1"),
    ),
    _claim(
        "past_is_noise", _THEORY,
        "The larger the coefficient the worse: its past pairs labels with inputs of other pairs (share of the way left "
        "with the largest less that with the smallest, members that left with both).",
        _order, 0.0, relation=">=", reason="an ordering, paired by member",
    ),
    _claim(
        "shift_suffices", _THEORY,
        "No coefficient of momentum does better than a shift by one token (least share of the way left with momentum "
        "less that with the shift, members that left with it and with the smallest coefficient).",
        _shift_wins, 0.0, 0.02, relation=">=", reason="a fiftieth of the way, what evaluation and training leave",
    ),
)  # fmt: skip
