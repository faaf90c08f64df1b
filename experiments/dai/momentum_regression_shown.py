"""What ``momentum_regression`` claims and shows: momentum in linear attention is not the momentum of a descent."""

from collections.abc import Callable

import numpy as np

from experiments.dai.mixers import kind, momenta, of
from experiments.dai.momentum_regression import COMPARED, ETA, FINAL, LOSS, STEPS
from experiments.dai.momentum_regression_figures import added, figures, left
from experiments.onsets import half_drop_times
from icl_lab.claims import FAILS, NOT_RESOLVED, Beside, Quick
from icl_lab.lab import Record, claims_of

__all__ = ["CLAIMS", "figures"]
_DIFFERENCE = COMPARED.at(part="joint", metric="sensitivity_difference")


def _penalty(record: Record) -> np.ndarray:
    measured, theory = added(record)
    gone = [left(record, "joint", name) for name in record.config["mixers"] if kind(name) != "vanilla"]
    return given(measured.sum(0) / theory.sum(0), np.any(gone, axis=0))


def _floor(record: Record) -> np.ndarray:
    """(M,) the lowest final loss of any mixer over that of the best step, on the same tasks."""
    return (FINAL(record, part="joint", learner="trained") / FINAL(record, part="joint", learner="gd")).min(0)


def given(values: np.ndarray, where: np.ndarray) -> np.ndarray:
    """(M,) values of the members that left the plateau; NaN of the others: they are counted by a claim of their own."""
    return np.where(where, values, np.nan)


def _over_momenta(record: Record, statistic: Callable[[str], np.ndarray]) -> np.ndarray:
    """(M,) mean over the coefficients with which a member left the plateau of joint tokens; NaN without any."""
    gone = np.stack([left(record, "joint", name) for name in momenta(record)])
    values = np.stack([statistic(name) for name in momenta(record)])
    return given((gone * values).sum(0) / np.maximum(gone.sum(0), 1), gone.sum(0) > 0)


def _leaves_with_momentum(record: Record) -> np.ndarray:
    """(M,) 1 where a member left the plateau of joint tokens with one coefficient at least, else 0."""
    return np.any([left(record, "joint", name) for name in momenta(record)], axis=0).astype(float)


def nearer(record: Record, other: str) -> np.ndarray:
    """(M,) distance of momentum layers from a learner over that from one plain step, in sensitivities."""

    def ratio(name: str) -> np.ndarray:
        far, near = (of(record, _DIFFERENCE.at(learner=one), name) for one in (other, "gd"))
        return far / near

    return _over_momenta(record, ratio)


def _nearer_to_momentum(record: Record) -> np.ndarray:
    """(M,) the smallest over the numbers of steps."""
    return np.min([nearer(record, f"heavy_ball_{steps}") for steps in record.config["descents"]], axis=0)


def _cosine(record: Record, learner: str = "gd") -> np.ndarray:
    """(M,) cosine of the sensitivities of momentum layers with those of a learner."""
    cosine = COMPARED.at(part="joint", learner=learner, metric="sensitivity_cosine")
    return _over_momenta(record, lambda name: of(record, cosine, name))


def _cosine_to_momentum(record: Record) -> np.ndarray:
    """(M,) cosine with the sensitivities of the descent with momentum that is nearest."""
    return np.max([_cosine(record, f"heavy_ball_{steps}") for steps in record.config["descents"]], axis=0)


def _later(record: Record, mixer: str, than: str) -> np.ndarray:
    """(M,) whether half of the way is done later with one mixer than with another, or never."""
    curves = [of(record, LOSS.at(part="joint"), name) for name in (mixer, than)]
    steps = STEPS(record, part="joint")
    start, end = record.metrics["joint_zero"], record.metrics["joint_best_step"]
    when, other = (half_drop_times(curve, steps, start, end) for curve in curves)
    return (when > other).astype(float)


def _learned(record: Record) -> np.ndarray:
    """(M,) last over first coefficient where it is learned."""
    name = next((name for name in record.config["mixers"] if kind(name) == "learned"), "learned")
    eta = of(record, ETA.at(part="joint"), name)[..., 0]
    return given(eta[:, -1] / eta[:, 0], left(record, "joint", name))


def remaining(record: Record, mixer: str) -> np.ndarray:
    """(M,) final loss on alternating tokens between one step of gradient descent (0) and predicting zero (1)."""
    trained, gd, zero = (
        of(record, FINAL.at(part="alternating", learner=name), mixer) for name in ("trained", "gd", "zero")
    )
    return (trained - gd) / (zero - gd)


def leaves(record: Record, mixer: str) -> np.ndarray:
    """(M,) 1 where a member left the plateau of alternating tokens, else 0."""
    return left(record, "alternating", mixer).astype(float)


def copies(record: Record, mixer: str) -> np.ndarray:
    """(M,) ``remaining`` given that the member left."""
    return given(remaining(record, mixer), left(record, "alternating", mixer))


def _order(record: Record, mixer: str) -> np.ndarray:
    """(M,) the share left with a mixer less that with the smallest coefficient, of members that left with both."""
    return copies(record, mixer) - copies(record, momenta(record)[0])


def _wins(record: Record, mixer: str) -> np.ndarray:
    """(M,) the least share left with momentum less that with a mixer.

    Members count that left with the mixer and the smallest coefficient.
    """
    shares = np.stack([np.nan_to_num(copies(record, name), nan=np.inf) for name in momenta(record)])
    gone = left(record, "alternating", momenta(record)[0])
    return given(np.where(gone, shares.min(0), 0.0) - copies(record, mixer), gone)


NONE_OF_TWENTY = 0.162
"""The largest share of trainings that leave, of which none of twenty does (upper end of the Wilson interval)."""

_claim = claims_of("dai.momentum_regression", "Dai et al. 2022, ", minimum_members=5)
_PAPER, _THEORY = {"where": "section 4"}, {"where": "section 4 (theory: this lab)"}
_MEDIAN = {"interval": "median"}
"""Ratios have no upper bound, and of the members that left a plateau some came to the end and some stopped on the way:
the median speaks of them."""
_SHIFT = "theory says the same of a shift"
_FAILS = {"at_lab": FAILS, "at_paper": FAILS}
"""Theory contradicts the paper's analogy."""

CLAIMS = (
    _claim(
        "penalty",
        "In one layer on joint tokens the sum that momentum adds is weight decay on the values: it adds to the loss "
        "what the closed form says (measured over predicted, same weights with and without, sums over all mixers).",
        _penalty, near=1.0, tolerance=0.05, **_THEORY, kind="identity", headline=2,
        reason="10^5 tasks leave a standard error of about 3 % a member",
        # one member or more is still on the plateau and has no value
        quick=Quick(0.15, "10^4 tasks for 10^5: three times the noise", NOT_RESOLVED),
    ),
    _claim(
        "floor",
        "Momentum does not lower the loss of a layer below that of the best single step of plain gradient descent "
        "(lowest of all mixers over the step's).",
        _floor, at_least=1.0, tolerance=0.01, **_THEORY, kind="identity", headline=1,
        reason="sampling of 10^5 paired tasks; the least of seven",
        quick=Quick(0.03, "10^4 paired tasks for 10^5: three times the noise"),
    ),
    _claim(
        "leaves_with_momentum",
        "With one coefficient of momentum at least a training leaves the plateau of the start on joint tokens (share "
        "of members, those that claims about layers that left it speak of; an estimate without a verdict).",
        _leaves_with_momentum, at_least=0.5, **_THEORY, interval="wilson", at_lab=None, at_paper=None,
        reason="no bound: theory names none",
    ),
    _claim(
        "analogy",
        "A layer with momentum is nearer to gradient descent with momentum (heavy ball of K steps, the nearest K) than "
        "to one plain step (ratio of the differences of sensitivities, layers that left the plateau of the start). The "
        "paper's analogy says so; theory says no.",
        _nearer_to_momentum, at_most=1.0, **_PAPER, **_FAILS, **_MEDIAN, headline=3,
        reason="an ordering, paired by member and task",
    ),
    _claim(
        "pass_over_demonstrations",
        "A layer with momentum is nearer to one pass over the demonstrations that sums gradients with momentum, the "
        "literal reading, than to one plain step (ratio of the differences of sensitivities, layers that left the "
        "plateau). Theory says no.",
        lambda record: nearer(record, "analogy"), at_most=1.0, **_PAPER, **_FAILS, **_MEDIAN,
        reason="an ordering, paired by member and task",
    ),
    _claim(
        "plain_step",
        "What a layer with momentum that left the plateau computes of the query is one step of plain gradient descent "
        "(cosine of sensitivities, mean over coefficients).",
        _cosine, near=1.0, tolerance=0.05, **_THEORY,
        reason="that of a layer without momentum, trained as long, is within .02 of 1", control=_cosine_to_momentum,
    ),
    _claim(
        "stays_longer",
        "Weight decay on the values slows the growth from a small start: with the largest coefficient half of the way "
        "to the best step is done later than without a mixer (share of members, paired on start and data).",
        lambda record: _later(record, momenta(record)[-1], "vanilla"), at_least=0.5, **_THEORY, interval="wilson",
        reason="later in more members than not",
        control=lambda record: _later(record, momenta(record)[0], momenta(record)[-1]),
    ),
    _claim(
        "learned_falls",
        "A learned coefficient falls, since all that it does is to add to the loss (last over first, layers that left "
        "the plateau).",
        _learned, at_most=1.0, **_THEORY, **_MEDIAN, reason="the sign of its gradient, which is that of the penalty",
    ),
    _claim(
        "vanilla_cannot_pair",
        "Two layers without positions or mixer cannot tell whose label a label is: on alternating tokens they stay at "
        "predicting zero (share of the way from the best step to it, median; all members are alike).",
        lambda record: remaining(record, "vanilla"), near=1.0, tolerance=0.03, **_THEORY, interval="median",
        reason="1 but for what is left of training's noise", control=lambda record: remaining(record, "recent_1"),
    ),
    _claim(
        "shift_leaves",
        "A shift by one token lets more trainings leave that plateau than none of twenty without a mixer leaves open "
        "(share of trainings that do more than half of the way to what copying by hand reaches).",
        lambda record: leaves(record, "recent_1"), at_least=NONE_OF_TWENTY, **_THEORY, interval="wilson",
        reason="upper end of the Wilson interval of 0 of 20", control=lambda record: leaves(record, "vanilla"),
    ),
    _claim(
        "shift_copies",
        "Given that it left, a training with the shift takes the step: its loss is at most that of the best single "
        "step (share of the way from it to predicting zero).",
        lambda record: copies(record, "recent_1"), at_most=0.0, tolerance=0.1, **_THEORY, **_MEDIAN,
        reason="a tenth of the way for a training that is not quite over; below 0 where the query is transformed too",
        control=lambda record: copies(record, momenta(record)[-1]),
    ),
    _claim(
        "momentum_leaves", "So does momentum of the smallest coefficient (share of trainings, as for the shift).",
        lambda record: leaves(record, momenta(record)[0]), at_least=NONE_OF_TWENTY, **_THEORY, interval="wilson",
        reason="upper end of the Wilson interval of 0 of 20", control=lambda record: leaves(record, "vanilla"),
        beside=Beside(lambda record: leaves(record, "recent_1"), _SHIFT),
    ),
    _claim(
        "momentum_copies",
        "Given that it left, a training with momentum of the smallest coefficient takes the step too (share of the way "
        "left; copying by hand with .3 leaves .003).",
        lambda record: copies(record, momenta(record)[0]), at_most=0.0, tolerance=0.1, **_THEORY, **_MEDIAN,
        reason="a tenth of the way, as for the shift", control=lambda record: copies(record, momenta(record)[-1]),
        beside=Beside(lambda record: copies(record, "recent_1"), _SHIFT),
    ),
    _claim(
        "past_is_noise",
        "The larger the coefficient the worse: its past pairs labels with inputs of other pairs (share of the way left "
        "with the largest less that with the smallest, members that left with both).",
        lambda record: _order(record, momenta(record)[-1]), at_least=0.0, **_THEORY, **_MEDIAN,
        reason="an ordering, paired by member", control=lambda record: _order(record, "recent_1"),
    ),
    _claim(
        "shift_suffices",
        "No coefficient of momentum does better than a shift by one token (least share of the way left with momentum "
        "less that with the shift, members that left with it and with the smallest coefficient).",
        lambda record: _wins(record, "recent_1"), at_least=0.0, tolerance=0.02, **_THEORY, **_MEDIAN,
        reason="a fiftieth of the way, what evaluation and training leave",
        control=lambda record: _wins(record, "recent_4"),
    ),
)  # fmt: skip
