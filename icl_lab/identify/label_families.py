"""Algorithms that classify from examples, with at most two numbers each: what ``identify_classifier`` names.

Same in a limit: ``kernel vote (distance)`` at temperature 0 is ``nearest label`` with confidence 1. Both kernel votes
at infinite temperature are ``majority`` without smoothing. ``induction copy`` of a radius beyond all distances is
``nearest label``. With confidence 1/C, infinite smoothing or rate 0 these and the gradient step are ``flat``.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from icl_lab.identify.asking import Floats
from icl_lab.identify.others import softmax

NEAR = 0.05, 1.0
"""Distances of near queries from an example, over the root mean square norm of inputs."""

PROPERTIES = {
    "label_permutation": "names of labels", "order": "the order of the examples", "rotation": "the basis of the inputs",
    "query_independence": "the query",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class LabelPrompts:
    """Prompts and what families read of them: x (B, N, D), labels (B, N), q (B, D), of C ``labels``."""

    x: Floats
    labels: np.ndarray
    q: Floats
    count: int

    def take(self, rows: Any) -> "LabelPrompts":
        """Some of the prompts."""
        return LabelPrompts(self.x[rows], self.labels[rows], self.q[rows], self.count)

    @functools.cached_property
    def hot(self) -> Floats:
        """(B, N, C) labels as unit vectors."""
        return np.eye(self.count)[self.labels]

    @functools.cached_property
    def products(self) -> Floats:
        """(B, N) inner products of the query and the inputs."""
        return np.einsum("bnd,bd->bn", self.x, self.q)

    @functools.cached_property
    def distances(self) -> Floats:
        """(B, N) squared distances of the query from the inputs."""
        return ((self.x - self.q[:, None]) ** 2).sum(2)

    @functools.cached_property
    def size(self) -> float:
        """Mean squared norm of the inputs."""
        return float((self.x**2).sum(2).mean())


@dataclasses.dataclass(frozen=True)
class LabelFamily:
    """An algorithm with at most two numbers.

    Attributes:
      parameters: their names.
      predict: ``(prompts, *numbers) -> (B, C)`` probabilities.
      grids: for prompts, the values of each number that are tried first, ascending.
      has: the properties that it has exactly, of ``PROPERTIES``.
    """

    parameters: tuple[str, ...]
    predict: Callable[..., Floats]
    grids: Callable[[LabelPrompts], tuple[Floats, ...]]
    has: tuple[str, ...] = ("label_permutation", "order", "rotation")


def flat(on: LabelPrompts) -> Floats:
    """All labels alike."""
    return np.full((len(on.x), on.count), 1 / on.count)


def nearest(on: LabelPrompts, confidence: float) -> Floats:
    """The label of the nearest example, the others alike."""
    return certain(np.take_along_axis(on.hot, on.distances.argmin(1)[:, None, None], 1)[:, 0], confidence)


def certain(winner: Floats, confidence: float) -> Floats:
    """(B, C) probabilities of a label (B, C), a unit vector, and of the others alike."""
    return winner * confidence + (1 - winner) * (1 - confidence) / (winner.shape[1] - 1)


def copy(on: LabelPrompts, confidence: float, radius: float) -> Floats:
    """The label of the nearest example if it is within the radius, else all labels alike: an induction head."""
    close = on.distances.min(1) <= radius**2
    return np.where(close[:, None], nearest(on, confidence), flat(on))


def dot_vote(on: LabelPrompts, temperature: float) -> Floats:
    """Examples vote with weight exp(x_q . x_i / t)."""
    return _vote(on, on.products / temperature)


def distance_vote(on: LabelPrompts, temperature: float) -> Floats:
    """Examples vote with weight exp(-|x_q - x_i|^2 / 2 t)."""
    return _vote(on, -on.distances / (2 * temperature))


def _vote(on: LabelPrompts, logits: Floats) -> Floats:
    return np.einsum("bn,bnc->bc", softmax(logits), on.hot)


def logistic_step(on: LabelPrompts, rate: float) -> Floats:
    """One step of gradient descent on the mean cross-entropy of linear logits from zero: W = a/N sum (e_c - 1/C) x."""
    return softmax(rate * np.einsum("bn,bnc->bc", on.products, on.hot) / on.x.shape[1])


def majority(on: LabelPrompts, smoothing: float) -> Floats:
    """Shares of the labels, with a pseudo-count added to each."""
    counts = on.hot.sum(1) + smoothing
    return counts / counts.sum(1, keepdims=True)


def _confidences(on: LabelPrompts) -> Floats:
    return np.linspace(1 / on.count, 1, 81)


def _radii(on: LabelPrompts) -> Floats:
    return np.sqrt(on.size) * np.geomspace(NEAR[0] / 2, 4, 81)


def _temperatures(on: LabelPrompts) -> tuple[Floats]:
    return (on.size * np.geomspace(1e-3, 1e3, 81),)


NO_QUERY = ("label_permutation", "order", "rotation", "query_independence")
LABEL_FAMILIES = {
    "flat": LabelFamily((), flat, lambda on: (), NO_QUERY),
    "majority": LabelFamily(("smoothing",), majority, lambda on: (np.geomspace(1e-3, 1e3, 81),), NO_QUERY),
    "nearest label": LabelFamily(("confidence",), nearest, lambda on: (_confidences(on),)),
    "logistic step": LabelFamily(("rate",), logistic_step, lambda on: (np.geomspace(1e-2, 1e4, 81) / on.size,)),
    "kernel vote (dot product)": LabelFamily(("temperature",), dot_vote, _temperatures),
    "kernel vote (distance)": LabelFamily(("temperature",), distance_vote, _temperatures),
    "induction copy": LabelFamily(("confidence", "radius"), copy, lambda on: (_confidences(on), _radii(on))),
}
"""By name; of equal ones with as many numbers the nearest gives the name."""
