"""Learners in plain numpy that share no code with the laboratory's solvers and families, and prompts to ask them.

A learner is a function of arrays ``(x (B, N, D), y (B, N, 1), x_query (B, D)) -> (B, 1)``. Those that find weights
are written as ``(x (B, N, D), y (B, N)) -> (B, D)``, and ``linear`` makes learners of them.
"""

import jax
import jax.numpy as jnp
import numpy as np

from icl_lab.prompts import Prompt, Sample


def prompts(context_length, input_size, root=None, noise=0.0, tasks=None):
    """Sampler of y = w.x + N(0, noise), x ~ N(0, root^T root), and w ~ N(0, I) or one of ``tasks``."""

    def sampler(key, batch):
        keys = jax.random.split(key, 3)
        x = jax.random.normal(keys[0], (batch, context_length + 1, input_size))
        x = x if root is None else jnp.einsum("bnd,de->bne", x, jnp.asarray(root, x.dtype))
        w = jax.random.normal(keys[1], (batch, input_size, 1))
        if tasks is not None:
            w = jnp.asarray(tasks, x.dtype)[jax.random.randint(keys[1], (batch,), 0, len(tasks))][..., None]
        y = x @ w
        labels = y[:, :-1] + noise**0.5 * jax.random.normal(keys[2], (batch, context_length, 1))
        return Sample(Prompt(x[:, :-1], labels, x[:, -1]), y[:, -1], {"w": w})

    return sampler


def linear(weights):
    """The learner that predicts by a weight vector; each context is solved once, however many queries it has."""

    def learner(x, y, q):
        x, y, q = (np.asarray(part, np.float64) for part in (x, y, q))
        mark = np.random.default_rng(0).normal(size=(x.shape[1], x.shape[2] + 1))
        sums = (x * mark[:, :-1]).sum((1, 2)) + (y[:, :, 0] * mark[:, -1]).sum(1)
        _, first, back = np.unique(sums, return_index=True, return_inverse=True)
        return (weights(x[first], y[first, :, 0])[back] * q).sum(1, keepdims=True)

    return learner


def solve(matrices, vectors):
    return np.linalg.solve(matrices, vectors[..., None])[..., 0]


def times(matrices, vectors):
    return (matrices @ vectors[..., None])[..., 0]


def moments(x, y):
    """X^T X and X^T y."""
    return x.swapaxes(1, 2) @ x, times(x.swapaxes(1, 2), y)


def descent(rates, factor=None):
    """W <- W + e / N X^T (y - X W); ``factor`` multiplies the gradient from the left."""

    def weights(x, y):
        w = np.zeros((len(x), x.shape[2]))
        for e in rates:
            gradient = times(x.swapaxes(1, 2), y - times(x, w)) / x.shape[1]
            w = w + e * (gradient if factor is None else gradient @ factor.T)
        return w

    return linear(weights)


def ridge(strength):
    def weights(x, y):
        gram, b = moments(x, y)
        return solve(gram + strength * np.eye(x.shape[2]), b)

    return linear(weights)


def dual_ridge(strength):
    """Rasmussen & Williams 2006, equation 2.25, with the linear kernel: k^T (K + s I)^-1 y."""

    def learner(x, y, q):
        gram = x @ x.swapaxes(1, 2) + strength * np.eye(x.shape[1])
        return (q[:, None] @ x.swapaxes(1, 2) @ np.linalg.solve(gram, y))[:, 0]

    return learner


def least_squares_weights(x, y):
    return times(np.linalg.pinv(x), y)


least_squares = linear(least_squares_weights)


def with_ones(x, y, q):
    """Least squares with a column of ones."""
    more = np.concatenate([x, np.ones_like(x[:, :, :1])], 2)
    return (solve(*moments(more, y[:, :, 0])) * np.concatenate([q, np.ones_like(q[:, :1])], 1)).sum(1, keepdims=True)


def flow(time):
    """Gradient flow, w = V diag((1 - exp(-t l)) / l) V^T X^T y / N, with the eigenvalues l of X^T X / N."""

    def weights(x, y):
        gram, b = (part / x.shape[1] for part in moments(x, y))
        values, vectors = np.linalg.eigh(gram)
        return times(vectors, -np.expm1(-time * values) / values * times(vectors.swapaxes(1, 2), b))

    return linear(weights)


@linear
def james_stein(x, y):
    """Least squares times 1 - (D - 2) s^2 / |X w|^2 (James & Stein 1961), at least 0."""
    w = least_squares_weights(x, y)
    noise = ((y - times(x, w)) ** 2).sum(1) / (x.shape[1] - x.shape[2])
    factor = 1 - (x.shape[2] - 2) * noise / np.maximum((times(x, w) ** 2).sum(1), 1e-30)
    return np.maximum(factor, 0)[:, None] * w


def posterior_over(tasks, noise):
    """Posterior mean over equally likely tasks (M, D), with Gaussian label noise of this variance."""

    def weights(x, y):
        gram, b = moments(x, y)
        log = (b @ tasks.T - np.einsum("md,bde,me->bm", tasks, gram, tasks) / 2) / noise
        p = np.exp(log - log.max(1, keepdims=True))
        return p / p.sum(1, keepdims=True) @ tasks

    return linear(weights)


def lms(rate):
    """Widrow & Hoff 1960."""

    def weights(x, y):
        w = np.zeros((len(x), x.shape[2]))
        for i in range(x.shape[1]):
            w = w + rate * (y[:, i] - (w * x[:, i]).sum(1))[:, None] * x[:, i]
        return w

    return linear(weights)


def recursive(strength):
    """Recursive least squares by the matrix inversion lemma (Haykin 2002, table 9.1), P = I / strength."""

    def weights(x, y):
        w = np.zeros((len(x), x.shape[2]))
        p = np.broadcast_to(np.eye(x.shape[2]) / strength, (len(x), x.shape[2], x.shape[2]))
        for i in range(x.shape[1]):
            image = times(p, x[:, i])
            gain = image / (1 + (x[:, i] * image).sum(1))[:, None]
            w = w + gain * (y[:, i] - (w * x[:, i]).sum(1))[:, None]
            p = p - gain[:, :, None] * image[:, None]
        return w

    return linear(weights)


def clipped(learner, bound):
    return lambda x, y, q: learner(x, np.clip(y, -bound, bound), q)


def gained(learner, gain):
    return lambda x, y, q: gain * learner(x, y, q)


def mean_of(*learners):
    return lambda x, y, q: sum(learner(x, y, q) for learner in learners) / len(learners)


def rounded(learner, kind):
    """Inputs and answers are numbers of that kind, and the sums between them of float64."""
    return lambda x, y, q: learner(*(part.astype(kind).astype(np.float64) for part in (x, y, q))).astype(kind)
