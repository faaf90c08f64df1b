"""Learners of labels that are no family of ``identify_classifier``; numbers keep away from limits that are."""

from collections.abc import Callable

import numpy as np

from icl_lab.identify.label_families import LabelPrompts, certain, softmax

KINDS = ("linear discriminant", "three nearest", "logistic regression", "label means", "random network", "last label",
         "mixture of two")  # fmt: skip
Predict = Callable[[LabelPrompts], np.ndarray]
STEPS = 100


def outsider(kind: str, rng: np.random.Generator, context_length: int, input_size: int, labels: int) -> Predict:
    """One of ``KINDS`` but the last: prompts -> (B, C) probabilities."""
    u = rng.uniform()
    return {
        "linear discriminant": lambda on: discriminant(on, 0.1 * 10**u),
        "three nearest": lambda on: three_nearest(on, 0.02 * 10**u),
        "logistic regression": lambda on: logistic(on, 0.01 * 10**u),
        "label means": lambda on: softmax(-_to_means(on) / (2 * input_size * 0.05 * 6**u)),
        "random network": network(rng, context_length, input_size, labels),
        "last label": lambda on: certain(on.hot[:, -1], 1 - 0.01 * 30**u),
    }[kind]


def _means(on: LabelPrompts) -> tuple[np.ndarray, np.ndarray]:
    """(B, C, D) mean input of every label, zero without examples, and (B, C) numbers of examples."""
    counts = on.hot.sum(1)
    return np.einsum("bnc,bnd->bcd", on.hot, on.x) / np.maximum(counts, 1)[..., None], counts


def _to_means(on: LabelPrompts) -> np.ndarray:
    """(B, C) squared distance of the query to the mean input of every label, very large without examples."""
    means, counts = _means(on)
    return np.where(counts > 0, ((means - on.q[:, None]) ** 2).sum(2), 1e6)


def discriminant(on: LabelPrompts, ridge: float) -> np.ndarray:
    """Linear discriminant analysis: normal inputs of every label with one covariance, to which ridge I is added."""
    means, counts = _means(on)
    off = on.x - np.einsum("bnc,bcd->bnd", on.hot, means)
    covariance = np.einsum("bnd,bne->bde", off, off) / on.x.shape[1] + ridge * np.eye(on.x.shape[2])
    weights = np.linalg.solve(covariance, means.swapaxes(1, 2))  # (B, D, C)
    scores = np.einsum("bd,bdc->bc", on.q, weights) - np.einsum("bcd,bdc->bc", means, weights) / 2
    return softmax(np.where(counts > 0, scores + np.log(np.maximum(counts, 1)), -1e6))


def three_nearest(on: LabelPrompts, smoothing: float) -> np.ndarray:
    """Labels of the three nearest examples, counted."""
    nearest = np.argsort(on.distances, axis=1)[:, :3, None]
    counts = np.take_along_axis(on.hot, nearest, 1).sum(1) + smoothing
    return counts / counts.sum(1, keepdims=True)


def logistic(on: LabelPrompts, penalty: float) -> np.ndarray:
    """Logistic regression with penalty |W|^2 / 2, by gradient descent."""
    n, rate = on.x.shape[1], 1 / ((on.x**2).sum((1, 2)) / on.x.shape[1] / 2 + penalty)  # at most the curvature
    w = np.zeros((len(on.x), on.x.shape[2], on.count))
    for _ in range(STEPS):
        error = softmax(on.x @ w) - on.hot
        w = w - rate[:, None, None] * (on.x.swapaxes(1, 2) @ error / n + penalty * w)
    return softmax((on.q[:, None] @ w)[:, 0])


def network(rng: np.random.Generator, n: int, d: int, labels: int, width: int = 64) -> Predict:
    """A random network of one hidden layer on the whole prompt."""
    size = n * (d + labels) + d
    into, out = rng.normal(size=(size, width)) / size**0.5, rng.normal(size=(width, labels)) / width**0.5

    def predict(on: LabelPrompts) -> np.ndarray:
        parts = [part.reshape(len(on.x), -1) for part in (on.x, on.hot, on.q)]
        return softmax(6 * np.tanh(2 * np.concatenate(parts, 1) @ into) @ out)

    return predict
