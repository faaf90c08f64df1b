"""Claims of the curricula, from their record."""

from collections.abc import Callable

import numpy as np

from experiments.reddy.statistics import learned, onsets, present
from icl_lab.lab import Record, claims_of

CURRICULA = {
    "control": "no curriculum",
    "length": "context length N",
    "labels": "labels in use",
    "novel": "novel share",
}
"""What each begins with less of, and its name in figures."""


def _change(name: str) -> Callable[[Record], np.ndarray]:
    """(M,) paired difference of onset, with a curriculum minus without, as a share of that without.

    Infinite, against the claim, where it never comes with the curriculum; no value where it never comes without.
    """
    return lambda record: onsets(record, name) / present(onsets(record, "control")) - 1


def _learned(name: str) -> Callable[[Record], np.ndarray]:
    return lambda record: learned(record.arrays[f"{name}/ic"], 0.9)


_SENTENCES = {
    "length": "Starting from short contexts brings the onset earlier at equal samples",
    "labels": "Starting from few labels brings the onset earlier at equal samples",
    "novel": "Starting from novel classes alone brings the onset earlier at equal samples",
}

_AT_LAB = {"labels": "not resolved", "novel": "fails"}
"""What the lab record says of the claims that do not hold."""

_claim = claims_of("reddy.curriculum", "Reddy 2023, discussion", _AT_LAB, presets=["lab"], minimum_members=6)

CLAIMS = (
    *(
        _claim(
            name, "",
            f"{sentence} (paired difference of onset over the control's; negative is earlier; median, as a "
            "member may never get there).",
            _change(name), expected=0.0, relation="<=", interval="median",
            reason="the outlook says only that it is earlier; the size is what the interval shows",
        )
        for name, sentence in _SENTENCES.items()
    ),
    *(
        _claim(
            f"{name}_learned", "",
            f"Curriculum: {CURRICULA[name]}. The whole task is solved in the end (share of members with accuracy "
            ".9 on novel classes).",
            _learned(name), expected=0.5, relation=">=", interval="wilson", reason="most members must do it",
        )
        for name in CURRICULA
    ),
)  # fmt: skip
