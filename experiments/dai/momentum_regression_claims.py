"""What ``momentum_regression`` claims: momentum in linear attention is not the momentum of a descent."""

import numpy as np

from experiments.dai.mixers import kind, momenta, of
from icl_lab.lab import NotRun, Record, claims_of


def added(record: Record) -> tuple[np.ndarray, np.ndarray]:
    """(V', M) what the mixer adds to the loss of the same weights, measured and by ``mixer_penalty``; of all mixers."""
    present = [i for i, name in enumerate(record.config["mixers"]) if kind(name) != "vanilla"]
    final = record["joint/final"]
    return (final["trained"] - final["without"])[present], record["joint/penalty"][present]


def _penalty(record: Record) -> np.ndarray:
    measured, theory = added(record)
    return measured.sum(0) / theory.sum(0)


def _floor(record: Record) -> np.ndarray:
    """(M,) the lowest final loss of any mixer over that of the best step, on the same tasks."""
    return (record["joint/final/trained"] / record["joint/final/gd"]).min(0)


def nearer(record: Record, other: str) -> np.ndarray:
    """(M,) distance of momentum layers from a learner over that from one plain step, in sensitivities; mean of all."""
    ratios = [
        of(record, f"joint/{other}/sensitivity_difference", name) / of(record, "joint/gd/sensitivity_difference", name)
        for name in momenta(record)
    ]
    return np.mean(ratios, axis=0)


def _nearer_to_momentum(record: Record) -> np.ndarray:
    """(M,) the smallest over the numbers of steps."""
    return np.min([nearer(record, f"heavy_ball_{steps}") for steps in record.config["descents"]], axis=0)


def _cosine(record: Record) -> np.ndarray:
    return np.mean([of(record, "joint/gd/sensitivity_cosine", name) for name in momenta(record)], axis=0)


def _learned(record: Record) -> np.ndarray:
    """(M,) last over first coefficient where it is learned."""
    eta = of(record, "joint/eta", _named(record, "learned"))[..., 0]
    return eta[:, -1] / eta[:, 0]


def _named(record: Record, which: str) -> str:
    found = [name for name in record.config["mixers"] if kind(name) == which]
    if not found:
        raise NotRun(which)
    return found[0]


def share(record: Record, mixer: str) -> np.ndarray:
    """(M,) final loss on alternating tokens between one step of gradient descent (0) and predicting zero (1)."""
    trained, gd, zero = (of(record, f"alternating/final/{name}", mixer) for name in ("trained", "gd", "zero"))
    return (trained - gd) / (zero - gd)


def _order(record: Record) -> np.ndarray:
    """(M,) share of the largest coefficient less that of the smallest."""
    return share(record, momenta(record)[-1]) - share(record, momenta(record)[0])


def _shift_wins(record: Record) -> np.ndarray:
    """(M,) share of the best momentum less that of the shift."""
    return np.min([share(record, name) for name in momenta(record)], axis=0) - share(record, "recent_1")


_AT_LAB = {
    "plain_step": "fails", "shift_copies": "not resolved", "momentum_copies": "not resolved",
    "past_is_noise": "not resolved", "shift_suffices": "not resolved",
}  # fmt: skip
"""Verdicts of the lab record that are not those of theory."""


_claim = claims_of("dai.momentum_regression", "Dai et al. 2022, ", _AT_LAB, minimum_members=5)
_PAPER, _THEORY = "section 4", "section 4 (theory: this lab)"
_FAILS = {"lab": "fails", "paper": "fails"}
"""Theory contradicts the paper's analogy."""

CLAIMS = (
    _claim(
        "penalty", _THEORY,
        "In one layer on joint tokens the sum that momentum adds is weight decay on the values: it adds to the loss "
        "what the closed form says (measured over predicted, same weights with and without, sums over all mixers).",
        _penalty, 1.0, 0.05, reason="10^5 tasks leave a standard error of about 3 % a member",
    ),
    _claim(
        "floor", _THEORY,
        "Momentum does not lower the loss of a layer below that of the best single step of plain gradient descent "
        "(lowest of all mixers over the step's).",
        _floor, 1.0, 0.01, relation=">=", reason="sampling of 10^5 paired tasks; the least of seven",
    ),
    _claim(
        "analogy", _PAPER,
        "A layer with momentum is nearer to gradient descent with momentum (heavy ball of K steps, the nearest K) than "
        "to one plain step (ratio of the differences of sensitivities). The paper's analogy says so; theory says no.",
        _nearer_to_momentum, 1.0, relation="<=", expected_verdict=_FAILS,
        reason="an ordering, paired by member and task",
    ),
    _claim(
        "pass_over_demonstrations", _PAPER,
        "A layer with momentum is nearer to one pass over the demonstrations that sums gradients with momentum, the "
        "literal reading, than to one plain step (ratio of the differences of sensitivities). Theory says no.",
        lambda record: nearer(record, "analogy"), 1.0, relation="<=", expected_verdict=_FAILS,
        reason="an ordering, paired by member and task",
    ),
    _claim(
        "plain_step", _THEORY,
        "What a layer with momentum computes of the query is one step of plain gradient descent (cosine of "
        "sensitivities, mean over coefficients).",
        _cosine, 1.0, 0.05, reason="that of a layer without momentum, trained as long, is within .02 of 1",
    ),
    _claim(
        "learned_falls", _THEORY,
        "A learned coefficient falls, since all that it does is to add to the loss (last over first).",
        _learned, 1.0, relation="<=", reason="the sign of its gradient, which is that of the penalty",
    ),
    _claim(
        "vanilla_cannot_pair", _THEORY,
        "Two layers without positions or mixer cannot tell whose label a label is: on alternating tokens they stay at "
        "predicting zero (share of the way from the best step to it, median).",
        lambda record: share(record, "vanilla"), 1.0, 0.03, interval="median",
        reason="1 but for what is left of training's noise",
    ),
    _claim(
        "shift_copies", _THEORY,
        "A shift by one token lets them take the step: their loss is at most that of the best single step "
        "(share, median: some trainings stay on a plateau).",
        lambda record: share(record, "recent_1"), 0.0, 0.1, relation="<=", interval="median",
        reason="a tenth of the way for a training that is not quite over; below 0 where the query is transformed too",
    ),
    _claim(
        "momentum_copies", _THEORY,
        "Momentum of the smallest coefficient lets them pair labels with inputs: less than half of the way is left "
        "(share, median; 1 is predicting zero).",
        lambda record: share(record, momenta(record)[0]), 0.5, relation="<=", interval="median",
        reason="half of the way; by hand a coefficient of .3 loses 1 %",
        control=lambda record: share(record, "recent_1"),
    ),
    _claim(
        "past_is_noise", _THEORY,
        "The larger the coefficient the worse: its past pairs labels with inputs of other pairs (share of the largest "
        "less that of the smallest, median).",
        _order, 0.0, relation=">=", interval="median", reason="an ordering, paired by member",
    ),
    _claim(
        "shift_suffices", _THEORY,
        "No coefficient of momentum does better than a shift by one token (least share of momentum less the shift's, "
        "median).",
        _shift_wins, 0.0, 0.02, relation=">=", interval="median",
        reason="a fiftieth of the way, what evaluation and training leave",
    ),
)  # fmt: skip
