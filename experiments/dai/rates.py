"""How the learning rate of fine-tuning is chosen: the smallest that is as good as any, with no larger changes than ICL.

The maximum over a grid of a noisy score picks rates by chance, 1e-4 here and 80 there. So the score is the mean
log-probability of the right label among the candidates, on development questions, smoothed over neighbouring rates;
and of the rates within one standard error of the best the smallest is taken. A rate whose change of attention outputs
is larger than what demonstrations do is left out: similarities depend on size.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from experiments.dai.common import Floats

NEIGHBOURS = (0.25, 0.5, 0.25)
"""Weights of a rate's score and of those of the next rates of the grid."""


class Choice(NamedTuple):
    """Indices into the sorted grid of rates.

    Attributes:
      rate: the smallest that is as good as the best, among those that change no more than in-context learning does.
      free: the best of all by the smoothed score, whatever it changes: the most accurate fine-tuning.
    """

    rate: int
    free: int


def chosen_rate(log_probabilities: Floats, sizes: Floats, most: float) -> Choice:
    """The rule above; where every rate changes more than ``most``, the smallest rate.

    Args:
      log_probabilities: (R, I) of the right label, by rate in rising order and development question; those of networks
        that diverged need not be finite.
      sizes: (R,) of the change of attention outputs.
      most: that of in-context learning.
    """
    scores = smoothed(log_probabilities)
    allowed = np.flatnonzero(np.nan_to_num(sizes, nan=np.inf) <= most)
    free = int(scores.mean(1).argmax())
    if not allowed.size:
        return Choice(0, free)
    best = allowed[scores[allowed].mean(1).argmax()]
    deficit = scores[best] - scores[allowed]  # (R, I): the standard error is that of the difference
    error = deficit.std(1, ddof=min(1, deficit.shape[1] - 1)) / np.sqrt(deficit.shape[1])
    return Choice(int(allowed[np.flatnonzero(deficit.mean(1) <= error)[0]]), free)


def smoothed(values: ArrayLike) -> Floats:
    """(R, I) weighted means over neighbouring rates; at the ends of the grid over those that are there.

    What is not finite, or below -1e4 nats, counts as -1e4.
    """
    values = np.maximum(np.nan_to_num(np.asarray(values, np.float64), nan=-1e4, neginf=-1e4), -1e4)
    padded = np.pad(values, ((1, 1), (0, 0)))
    present = np.pad(np.ones(len(values)), 1)
    ends = [slice(i, i + len(values)) for i in range(3)]
    total, weights = (
        np.sum([weight * of[end] for weight, end in zip(NEIGHBOURS, ends)], axis=0) for of in (padded, present)
    )
    return total / weights[:, None]


def rms_over_layers(by_layer: ArrayLike) -> Floats:
    """(..., L) relative sizes as one number: their root mean square over layers."""
    return np.sqrt(np.square(np.asarray(by_layer, np.float64)).mean(-1))
