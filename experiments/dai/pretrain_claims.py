"""What ``pretrain`` claims: the network learns from its context, and more than which labels occur in it."""

from collections.abc import Callable

import numpy as np

from experiments.dai.common import ENCODINGS
from icl_lab.lab import Record, claims_of

GAIN, TASKS = 0.1, 4
"""A network is useful where demonstrations gain at least so much accuracy on at least so many of the six tasks."""


def gains(record: Record, positions: str) -> np.ndarray:
    """(M, 6) accuracy behind all demonstrations less zero-shot accuracy, at the end."""
    last = record[f"{positions}/final_accuracy"]
    return last[..., -1] - last[..., 0]


def _gain_of_fourth(positions: str) -> Callable[[Record], np.ndarray]:
    """(M,) the gain that ``TASKS`` of the tasks reach."""
    return lambda record: np.sort(gains(record, positions), axis=1)[:, -TASKS]


def _below_guessing(positions: str) -> Callable[[Record], np.ndarray]:
    """(M,) nats by which the last loss of late labels lies below the entropy of the set of labels."""
    return lambda record: (record[f"{positions}/label_entropy"] - record[f"{positions}/late_loss"])[:, -1]


def _zero_shot(positions: str) -> Callable[[Record], np.ndarray]:
    """(M,) zero-shot accuracy less that of chance, mean over tasks."""
    chance = np.mean(1 / np.array([2, 5, 2, 2, 4, 3]))
    return lambda record: record[f"{positions}/final_accuracy"][..., 0].mean(-1) - chance


_AT_LAB = {f"{name}_{positions}": "not resolved" for name in ("useful", "zero_shot") for positions in ENCODINGS}
_AT_LAB |= {"beyond_the_set_rotary": "not resolved", "beyond_the_set_learned": "fails"}
"""Verdicts of the lab record that are not those expected."""
_claim = claims_of("dai.pretrain", at_lab=_AT_LAB, relation=">=", minimum_members=3)
_WHERE = "this lab, for Dai et al. 2022"

CLAIMS = tuple(
    claim
    for positions in ENCODINGS
    for claim in (
        _claim(
            f"useful_{positions}", _WHERE,
            f"With {positions} positions demonstrations gain at least .1 over zero-shot on {TASKS} of the six held-out "
            "tasks (the gain of the fourth; below it no similarity is judged).",
            _gain_of_fourth(positions), GAIN, reason="a network that gains less is not taken to learn in context",
        ),
        _claim(
            f"beyond_the_set_{positions}", _WHERE,
            f"With {positions} positions labels are predicted better than by guessing among those of the context (nats "
            "below the entropy of the label set).",
            _below_guessing(positions), 0.1, reason="what a network that copies the label set would not reach is 0",
        ),
        _claim(
            f"zero_shot_{positions}", _WHERE,
            f"With {positions} positions meanings tell something without demonstrations (accuracy above chance, mean "
            "of the tasks).",
            _zero_shot(positions), 0.0, reason="an ordering",
        ),
    )
)  # fmt: skip
