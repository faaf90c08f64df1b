"""What claims of several binaries of this paper read off a record."""

from collections.abc import Iterable

import numpy as np

from experiments.statistics import Statistic, largest, late, log_ratio, ratio
from icl_lab.lab import Record
from icl_lab.lab.quantities import Quantity


def over(losses: Quantity, learner: str, reference: str) -> Statistic:
    """(M, ...) loss of one learner over that of another, on the same tasks."""
    return ratio(losses.at(learner=learner), losses.at(learner=reference))


def log_over(losses: Quantity, learner: str, reference: str) -> Statistic:
    """(M, ...) log of it."""
    return log_ratio(losses.at(learner=learner), losses.at(learner=reference))


def worst(shifted: Iterable[Quantity], learner: str, reference: str) -> Statistic:
    """(M,) largest |log ratio| of two learners' losses, over all of several shifts."""
    return largest(*(log_over(losses, learner, reference) for losses in shifted))


def early(curve: Statistic, share: float = 0.0) -> Statistic:
    """(M,) the measurement of an array (M, R) after this share of the training: at 0 of the untrained network."""

    def measured(record: Record) -> np.ndarray:
        curves = curve(record)
        return curves[:, round(share * (curves.shape[1] - 1))]

    return measured


def late_of_a_short_run(times: np.ndarray) -> np.ndarray:
    """(M,) 1 for members that are late had every training ended after three quarters of the median time."""
    return late(np.where(times < 0.75 * np.median(times), times, np.inf))


def off_diagonal(matrices: np.ndarray) -> np.ndarray:
    """(...) root mean square of the entries of (..., D, D) off the diagonal, over the mean size of those on it."""
    off = matrices[..., ~np.eye(matrices.shape[-1], dtype=bool)]
    on = np.diagonal(matrices, axis1=-2, axis2=-1)
    return np.sqrt((off**2).mean(axis=-1)) / np.abs(on).mean(axis=-1)
