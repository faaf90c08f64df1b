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


_claim = claims_of("reddy.curriculum", "Reddy 2023, discussion", presets=["lab"], minimum_members=6)
_CHANGE = (
    "(paired difference of onset over the control's; negative is earlier; median, as a member may never get there)"
)

CLAIMS = (
    _claim(
        "length", "", f"Starting from short contexts brings the onset earlier at equal samples {_CHANGE}.",
        _change("length"), 0.0, relation="<=", interval="median",
        reason="the outlook says only that it is earlier; the size is what the interval shows",
    ),
    *(
        _claim(
            name, "", f"{sentence} does not change the onset by more than a tenth at equal samples {_CHANGE}.",
            _change(name), 0.0, 0.1, interval="median",
            reason="an equivalence: a tenth of the wait, less than a third of what growing contexts bring",
            control=_change("length"),
        )
        for name, sentence in (
            ("labels", "Starting from few labels"), ("novel", "Starting from novel classes alone")
        )
    ),
    _claim(
        "length_learned", "", "Growing contexts end at the whole task (share of members with accuracy .9 on novel "
        "classes).", _learned("length"), 0.5, relation=">=", interval="wilson", reason="most members must do it",
    ),
)  # fmt: skip
