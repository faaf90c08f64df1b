"""When the loss of a member drops: the statistics of phase transitions."""

import numpy as np


def half_drop_times(curves: np.ndarray, steps: np.ndarray, start: float, end: float) -> np.ndarray:
    """(M,) first measured step at which half of the way from one loss to another is done; infinite if never.

    Args:
      curves: (M, R) loss.
      steps: (R,) steps of the measurements.
      start: loss before the drop (predicting zero).
      end: loss after it (the best step).
    """
    done = curves <= (start + end) / 2
    return np.where(done.any(axis=1), steps[done.argmax(axis=1)].astype(float), np.inf)


def at_exact_start(curves: np.ndarray, start: float) -> np.ndarray:
    """(M, R) curves, each scaled to start at the exact loss of predicting zero: no evaluation noise in the level."""
    return curves * start / curves[:, :1]
