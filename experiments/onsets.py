"""When a curve gets to a level: onsets, crossings, drops of the loss."""

import numpy as np


def onset(curves: np.ndarray, steps: np.ndarray, level: float) -> np.ndarray:
    """(...) first measured step at which curves (..., R) have reached the level; infinite if never."""
    reached = curves >= level
    return np.where(reached.any(axis=-1), steps[reached.argmax(axis=-1)].astype(float), np.inf)


def crossing(curves: np.ndarray, steps: np.ndarray, levels: np.ndarray | float) -> np.ndarray:
    """(...) step at which curves (..., R) first reach their levels, by linear interpolation; infinite if never."""
    levels = np.broadcast_to(levels, curves.shape[:-1])
    reached = curves >= levels[..., None]
    after = reached.argmax(axis=-1)
    before = np.maximum(after - 1, 0)
    low, high = (np.take_along_axis(curves, index[..., None], -1)[..., 0] for index in (before, after))
    rise = high - low
    share = np.where(rise > 0, (levels - low) / np.where(rise > 0, rise, 1.0), 1.0)
    return np.where(reached.any(axis=-1), steps[before] + share * (steps[after] - steps[before]), np.inf)


def half_drop_times(curves: np.ndarray, steps: np.ndarray, start: float, end: float) -> np.ndarray:
    """(...) first measured step at which curves (..., R) have done half of the way from one loss to another, or inf.

    Args:
      curves: (..., R) loss.
      steps: (R,) steps of the measurements.
      start: loss before the drop (predicting zero).
      end: loss after it (the best step).
    """
    return onset(-curves, steps, -(start + end) / 2)


def at_exact_start(curves: np.ndarray, start: float) -> np.ndarray:
    """(M, R) curves, each scaled to start at the exact loss of predicting zero: no evaluation noise in the level."""
    return curves * start / curves[:, :1]
