"""What the claims of this paper read off a record: when a member learns, and whether it does."""

import numpy as np


def solved(context_length: int, burstiness: int = 1) -> float:
    """In-context accuracy half way from guessing a label of the context (B/N) to 1."""
    return 0.5 * (1 + burstiness / context_length)


def onset(curves: np.ndarray, steps: np.ndarray, level: float) -> np.ndarray:
    """(M,) first measured step at which a curve (M, R) has reached the level; infinite if never."""
    reached = curves >= level
    return np.where(reached.any(axis=1), steps[reached.argmax(axis=1)].astype(float), np.inf)


def learned(curves: np.ndarray, level: float) -> np.ndarray:
    """(M,) 1 where the last measurement is at the level or above."""
    return (curves[:, -1] >= level).astype(float)
