"""What the claims of this paper read off a record: when a member learns, and whether it does."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.onsets import crossing
from icl_lab.lab import Record
from icl_lab.prompts import copies_without_bursts


def copies(config: Mapping[str, Any], **changed: int) -> int:
    """B of the in-context tests; ``changed`` are fields of the configuration that differ in a part of the run."""
    config = {**config, **changed}
    return config["burstiness"] or copies_without_bursts(config["context_length"])


def guess(config: Mapping[str, Any], **changed: int) -> float:
    """In-context accuracy of answering with a random label of the context: B/N.

    So where the labels of a context are different; where they may repeat, (1 - B/N)/L more on novel classes.
    """
    return copies(config, **changed) / {**config, **changed}["context_length"]


def solved(config: Mapping[str, Any], **changed: int) -> float:
    """In-context accuracy half way from guessing a label of the context to 1."""
    return 0.5 * (1 + guess(config, **changed))


def onsets(record: Record, name: str) -> np.ndarray:
    """(M,) onset of the in-context accuracy ``<name>/ic``, between measurements by interpolation; infinite if never."""
    return crossing(record.arrays[f"{name}/ic"], record.arrays["steps"], solved(record.config))


def or_last(times: np.ndarray, record: Record) -> np.ndarray:
    """Times, the last step where they are infinite: a lower bound of what was not waited for."""
    return np.minimum(times, record.arrays["steps"][-1])


def present(times: np.ndarray) -> np.ndarray:
    """Times, no value where they are infinite."""
    return np.where(np.isfinite(times), times, np.nan)


def learned(curves: np.ndarray, level: float) -> np.ndarray:
    """(M,) 1 where the last measurement is at the level or above."""
    return (curves[:, -1] >= level).astype(float)
