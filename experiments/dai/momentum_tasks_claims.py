"""What ``momentum_tasks`` claims: whether momentum helps on the six tasks, and more than a local mixer does.

Expectations and tolerances were committed before any network was trained. A network counts where it and the one without
a mixer, or both that are compared, came through the curriculum; how many did is shown.
"""

import numpy as np

from experiments.dai.mixers import chosen
from icl_lab.lab import Record, claims_of

PUBLISHED = 0.028
"""Mean gain of accuracy on the six data sets of Table 7: 51.9 to 54.7 %."""


def through(record: Record) -> np.ndarray:
    """(V, M) whether a network came through the curriculum, the last stage included."""
    return record["reached"] == len(record.metrics["stages"])


def accuracy(record: Record) -> np.ndarray:
    """(V, M) behind all demonstrations, mean of the six tasks."""
    return record["final_accuracy"][..., -1].mean(-1)


def _best(record: Record, which: str, values: np.ndarray) -> np.ndarray:
    """(M,) of the mixer of a kind that is most accurate for the other members; of its own where there is one."""
    return chosen(record, which, values, by=1 - accuracy(record))


def _both(record: Record, values: np.ndarray, *kinds: str) -> np.ndarray:
    """(M,) values where the networks of these kinds came through; NaN elsewhere."""
    came = through(record).astype(float)
    return np.where(np.min([_best(record, which, came) for which in kinds], axis=0) == 1, values, np.nan)


def better(record: Record, which: str = "momentum", than: str = "vanilla") -> np.ndarray:
    """(M,) accuracy of a kind less that of another."""
    ends = accuracy(record)
    return _both(record, _best(record, which, ends) - _best(record, than, ends), which, than)


def sooner(record: Record, which: str = "momentum", than: str = "vanilla") -> np.ndarray:
    """(M,) steps to the mixture of a kind, of all stages but the last, over those of another."""
    steps = record["end/steps"][..., :-1].sum(-1).astype(float)
    return _both(record, _best(record, which, steps) / np.maximum(_best(record, than, steps), 1), which, than)


_claim = claims_of("dai.momentum_tasks", "Dai et al. 2022, ", minimum_members=3)
_GAIN = "the published gain: whether there is any gain at all would take thousands of networks"

CLAIMS = (
    _claim(
        "better", "Table 7",
        "With momentum of a fixed coefficient a network answers more questions behind all demonstrations, by the "
        "paper's .028 or more (accuracy, mean of the six tasks, less that without a mixer).",
        better, PUBLISHED, relation=">=", reason=_GAIN, control=lambda record: better(record, "recent"),
    ),
    _claim(
        "learned_better", "Table 7 (this lab)",
        "So does one whose coefficients are learned, one a head.",
        lambda record: better(record, "learned"), PUBLISHED, relation=">=", reason=_GAIN,
        control=lambda record: better(record, "recent"),
    ),
    _claim(
        "no_more_than_local_mixers", "Table 7 (this lab)",
        "What momentum does for accuracy, the better of two local mixers does too: they differ by no more than the "
        "gain that the paper reports.",
        lambda record: better(record, "momentum", "recent"), 0.0, PUBLISHED, reason="2.8 points, the published gain",
    ),
    _claim(
        "sooner", "Table 7 (implied)",
        "With momentum a network comes to the mixture in fewer steps (those of the first three stages, which end by "
        "their loss, over those without a mixer).",
        sooner, 1.0, relation="<=", reason="fewer is less than one", control=lambda record: sooner(record, "recent"),
    ),
    _claim(
        "sooner_than_local_mixers", "section 4 (implied)",
        "It comes there in fewer steps than the better of two local mixers (steps over theirs). The paper's reading "
        "implies it.",
        lambda record: sooner(record, "momentum", "recent"), 1.0, relation="<=", reason="fewer is less than one",
    ),
)  # fmt: skip
