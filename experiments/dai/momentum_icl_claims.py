"""What ``momentum_icl`` claims: when in-context learning is acquired, and how good it gets."""

import numpy as np

from experiments.dai.mixers import chosen, of
from experiments.onsets import crossing
from icl_lab.lab import Record, claims_of

TASKS = ("strings", "pairs")
"""Repeated random strings; pairs of a word and a label."""

ACQUIRED = 0.8
"""Accuracy from which a task counts as acquired."""


def acquired_at(curves: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """(V, M) by mixer, share of the steps after which accuracy is ``ACQUIRED``, by interpolation; 1 if it never is.

    Args:
      curves: (V, M, R) accuracy.
      steps: (R,).
    """
    return np.minimum(crossing(curves, steps, ACQUIRED) / steps[-1], 1.0)


def times(record: Record, task: str) -> np.ndarray:
    """(V, M) when every member acquires a task."""
    return acquired_at(record[f"{task}/accuracy"], record["steps"])


def sooner(record: Record, task: str, which: str = "momentum") -> np.ndarray:
    """(M,) time of the best mixer of a kind (chosen by the other members) over that of vanilla."""
    table = times(record, task)
    return chosen(record, which, table) / table[list(record.config["mixers"]).index("vanilla")]


def sooner_than_local(record: Record, task: str) -> np.ndarray:
    """(M,) time of the best momentum over that of the best local mixer."""
    table = times(record, task)
    return chosen(record, "momentum", table) / chosen(record, "recent", table)


def better(record: Record, task: str, which: str = "momentum") -> np.ndarray:
    """(M,) last accuracy on harder sequences of the best mixer of a kind, less that of vanilla."""
    last = record[f"{task}/harder"][..., -1]
    return -chosen(record, which, -last) - of(record, f"{task}/harder", "vanilla")[:, -1]


def against_local(record: Record, task: str) -> np.ndarray:
    """(M,) last accuracy on harder sequences of the best momentum, less that of the best local mixer."""
    wrong = 1 - record[f"{task}/harder"][..., -1]
    return chosen(record, "recent", wrong) - chosen(record, "momentum", wrong)


PUBLISHED = 0.028
"""Gain of accuracy, mean of the six data sets of Table 7: 51.9 to 54.7 %."""

_ESTIMATES = ("beats_local_mixers_strings", "beats_local_mixers_pairs", "no_more_than_local_mixers_strings")
"""Without a verdict at lab: so near their bounds that hundreds or thousands of networks would be needed to tell."""
_claim = claims_of("dai.momentum_icl", "Dai et al. 2022, ", interval="median", at_lab=dict.fromkeys(_ESTIMATES))

_WHAT = {"strings": "to continue repeated strings", "pairs": "to label words by pairs of the context"}
_HARDER = {"strings": "longer strings", "pairs": "twice as many words"}

CLAIMS = tuple(
    claim
    for task in TASKS
    for claim in (
        _claim(
            f"sooner_{task}", "Table 7 (implied)",
            f"With momentum a network learns {_WHAT[task]} in fewer steps (time to accuracy {ACQUIRED:g} over vanilla's"
            ", paired, coefficient chosen by the other members; who never does counts with all steps; median).",
            lambda record, task=task: sooner(record, task), 1.0, relation="<=", reason="fewer is less than one",
            control=lambda record, task=task: sooner(record, task, "recent"),
        ),
        _claim(
            f"better_{task}", "Table 7",
            f"With momentum a network is better at it in the end, on {_HARDER[task]} than in training (accuracy less "
            "vanilla's, paired, coefficient chosen by the other members; median).",
            lambda record, task=task: better(record, task), 0.0, relation=">=",
            reason="the sign of a paired difference",
            control=lambda record, task=task: better(record, task, "recent"),
        ),
        _claim(
            f"beats_local_mixers_{task}", "section 4 (implied)",
            f"Momentum learns {_WHAT[task]} in fewer steps than the better of two local mixers of equal cost (time "
            "over theirs, both chosen by the other members; median). The paper's reading implies it.",
            lambda record, task=task: sooner_than_local(record, task), 1.0, relation="<=",
            reason="fewer is less than one",
        ),
        _claim(
            f"no_more_than_local_mixers_{task}", "Table 7 (this lab)",
            f"What momentum does for the last accuracy on {_HARDER[task]}, the better of two local mixers does too: "
            "they differ by no more than the mean gain that the paper reports (both chosen by the other members).",
            lambda record, task=task: against_local(record, task), 0.0, PUBLISHED, interval="t", minimum_members=5,
            reason="2.8 points, the published gain", control=lambda record, task=task: better(record, task),
        ),
    )
)  # fmt: skip
