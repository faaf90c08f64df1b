"""Learners from papers and textbooks in plain numpy, that share no code with the laboratory's solvers and families.

A learner is a function of arrays ``(x (B, N, D), y (B, N, 1), x_query (B, D)) -> (B, 1)``. Those that find weights
are written as ``(x (B, N, D), y (B, N)) -> (B, D)``, and ``linear`` makes learners of them.
"""

import jax
import jax.numpy as jnp
import numpy as np


def linear(weights):
    """The learner that predicts by a weight vector; each context is solved once, however many queries it has."""

    def learner(x, y, q):
        x, y, q = (np.asarray(part, np.float64) for part in (x, y, q))
        first, back = contexts(x, y)
        w = weights(x[first], y[first, :, 0])[back]
        return (w * q).sum(1, keepdims=True)

    return learner


def contexts(x, y):
    """Where different contexts occur first, and which of them each prompt has."""
    mark = np.random.default_rng(0).normal(size=(x.shape[1], x.shape[2] + 1))
    sums = (x * mark[:, :-1]).sum((1, 2)) + (y[:, :, 0] * mark[:, -1]).sum(1)
    return np.unique(sums, return_index=True, return_inverse=True)[1:]


def solve(matrices, vectors):
    return np.linalg.solve(matrices, vectors[..., None])[..., 0]


def times(matrices, vectors):
    return (matrices @ vectors[..., None])[..., 0]


def moments(x, y):
    """X^T X and X^T y."""
    return x.swapaxes(1, 2) @ x, times(x.swapaxes(1, 2), y)


# Linear in the labels, a filter


def descent(rates, factor=None):
    """W <- W + e / N X^T (y - X W); ``factor`` multiplies the gradient from the left."""

    def weights(x, y):
        w = np.zeros((len(x), x.shape[2]))
        for e in rates:
            gradient = times(x.swapaxes(1, 2), y - times(x, w)) / x.shape[1]
            w = w + e * (gradient if factor is None else gradient @ factor.T)
        return w

    return linear(weights)


def ridge_weights(strength):
    def weights(x, y):
        gram, b = moments(x, y)
        return solve(gram + strength * np.eye(x.shape[2]), b)

    return weights


def least_squares_weights(x, y):
    return times(np.linalg.pinv(x), y)


def gaussian_process(strength):
    """Rasmussen & Williams 2006, equation 2.25, with the linear kernel: k^T (K + s I)^-1 y."""
    return kernel_ridge(lambda a, b: a @ b.swapaxes(1, 2), strength)


def kernel_ridge(kernel, strength):
    def learner(x, y, q):
        gram = kernel(x, x) + strength * np.eye(x.shape[1])
        return (kernel(q[:, None], x) @ np.linalg.solve(gram, y))[:, 0]

    return learner


def squares(a, b):
    """Squared distances (B, M, N)."""
    return ((a[:, :, None] - b[:, None]) ** 2).sum(-1)


def rbf(width):
    return lambda a, b: np.exp(-squares(a, b) / (2 * width**2))


def by_spectrum(response):
    """w = V diag(h(l)) V^T X^T y / N; ``response`` takes eigenvalues (B, D) in ascending order."""

    def weights(x, y):
        gram, b = (part / x.shape[1] for part in moments(x, y))
        values, vectors = np.linalg.eigh(gram)
        return times(vectors, response(values) * times(vectors.swapaxes(1, 2), b))

    return linear(weights)


def principal_components(count):
    def response(values):
        kept = np.arange(values.shape[1]) >= values.shape[1] - count
        return kept / values

    return by_spectrum(response)


def momentum(rate, schedule, *, look_ahead=True):
    """Nesterov 1983 (v = w + m_k (w - w_before), w = v - e grad(v)), or Polyak 1964 (gradient at w)."""

    def weights(x, y):
        gram, b = (part / x.shape[1] for part in moments(x, y))
        before = w = np.zeros_like(b)
        for m in schedule:
            v = w + m * (w - before)
            before, w = w, v - rate * (times(gram, v if look_ahead else w) - b)
        return w

    return linear(weights)


def schulz(start, steps):
    """Schulz 1933 (Fu et al. 2023): M <- 2 M - M S M from M = a I."""

    def weights(x, y):
        gram, b = (part / x.shape[1] for part in moments(x, y))
        inverse = np.broadcast_to(start * np.eye(x.shape[2]), gram.shape)
        for _ in range(steps):
            inverse = 2 * inverse - inverse @ gram @ inverse
        return times(inverse, b)

    return linear(weights)


def trace_normalised(rate, steps):
    """Steps divided by the mean eigenvalue of X^T X / N of the prompt."""

    def weights(x, y):
        size = (x**2).mean((1, 2))[:, None]
        w = np.zeros((len(x), x.shape[2]))
        for _ in range(steps):
            w = w + rate / size * times(x.swapaxes(1, 2), y - times(x, w)) / x.shape[1]
        return w

    return linear(weights)


def centred(weights, *, add_mean, centre_query=False):
    """Weights of centred inputs and labels."""
    inner = weights

    def learner(x, y, q):
        return inner(x - x.mean(1, keepdims=True), y - y.mean(1, keepdims=True), q - centre_query * x.mean(1)) + (
            y.mean(1) if add_mean else 0
        )

    return learner


def with_intercept(strength):
    """Ridge with a column of ones that is not shrunk."""

    def learner(x, y, q):
        more = np.concatenate([x, np.ones_like(x[:, :, :1])], 2)
        gram, b = moments(more, y[:, :, 0])
        shrink = strength * np.diag([1.0] * x.shape[2] + [0.0])
        return (solve(gram + shrink, b) * np.concatenate([q, np.ones_like(q[:, :1])], 1)).sum(1, keepdims=True)

    return learner


# Example by example


def one_pass(update, start=0.0):
    def weights(x, y):
        w = np.full((len(x), x.shape[2]), start)
        for i in range(x.shape[1]):
            w = update(w, x[:, i], y[:, i] - (w * x[:, i]).sum(1), y[:, i])
        return w

    return linear(weights)


def lms(rate):
    """Widrow & Hoff 1960."""
    return one_pass(lambda w, x, error, y: w + rate * error[:, None] * x)


def leaky_lms(rate, leak, *, first):
    """The leak before the step (``first``), whose error is then that of the shrunk weights, or within it (Widrow)."""
    if not first:
        return one_pass(lambda w, x, error, y: (1 - leak) * w + rate * error[:, None] * x)
    return one_pass(lambda w, x, error, y: (1 - leak) * w + rate * (y - (1 - leak) * (w * x).sum(1))[:, None] * x)


def kaczmarz(rate):
    """Kaczmarz 1937 with relaxation, one sweep: normalised LMS."""
    return one_pass(lambda w, x, error, y: w + rate * (error / (x**2).sum(1))[:, None] * x)


def sign_lms(rate):
    return one_pass(lambda w, x, error, y: w + rate * np.sign(error)[:, None] * x)


def recursive(strength, forgetting):
    """Recursive least squares by the matrix inversion lemma (Haykin 2002, table 9.1), P = I / strength."""

    def weights(x, y):
        w = np.zeros((len(x), x.shape[2]))
        p = np.broadcast_to(np.eye(x.shape[2]) / strength, (len(x), x.shape[2], x.shape[2]))
        for i in range(x.shape[1]):
            image = times(p, x[:, i])
            gain = image / (forgetting + (x[:, i] * image).sum(1))[:, None]
            w = w + gain * (y[:, i] - (w * x[:, i]).sum(1))[:, None]
            p = (p - gain[:, :, None] * image[:, None]) / forgetting
        return w

    return linear(weights)


def weighted_ridge(strength, slope, bend):
    """sum_i c_i (y_i - w.x_i)^2 + strength |w|^2, c_i = exp(slope t_i + bend t_i^2) of mean 1, t from -1/2 to 1/2."""

    def weights(x, y):
        t = np.linspace(-0.5, 0.5, x.shape[1])
        c = np.exp(slope * t + bend * t**2)
        root = np.sqrt(c / c.mean())
        return ridge_weights(strength)(x * root[:, None], y * root)

    return linear(weights)


def last_examples(count, learner):
    return lambda x, y, q: learner(x[:, -count:], y[:, -count:], q)


# Changes


def clipped(learner, bound):
    return lambda x, y, q: learner(x, np.clip(y, -bound, bound), q)


def gained(learner, gain):
    return lambda x, y, q: gain * learner(x, y, q)


def mean_of(*learners):
    return lambda x, y, q: sum(learner(x, y, q) for learner in learners) / len(learners)


def smooth_noise(learner, size):
    """Adds ``size`` root mean squares of a typical label times a random smooth function of the whole prompt."""

    def noisy(x, y, q):
        seen = np.concatenate([x.reshape(len(x), -1), y[:, :, 0], q], 1)
        direction = np.random.default_rng(0).normal(size=(seen.shape[1], 3)) / seen.shape[1] ** 0.5
        wave = np.sin(seen @ direction + np.arange(3)).sum(1, keepdims=True) * (2 / 3) ** 0.5
        return learner(x, y, q) + size * x.shape[2] ** 0.5 * wave

    return noisy


def rounded(learner, kind):
    """Inputs and answers are numbers of that kind, and the sums between them of float64."""
    return lambda x, y, q: learner(*(part.astype(kind).astype(np.float64) for part in (x, y, q))).astype(kind)


def computed_in(kind, rate, steps):
    """Gradient descent whose every operation rounds."""

    @jax.jit
    def learner(x, y, q):
        x, y, q = (part.astype(kind) for part in (x, y, q))
        w = jnp.zeros((len(x), x.shape[2], 1), kind)
        for _ in range(steps):
            w = w + jnp.asarray(rate / x.shape[1], kind) * (x.swapaxes(1, 2) @ (y - x @ w))
        return (q[:, None] @ w)[:, 0]

    return lambda x, y, q: learner(*(jnp.asarray(part, jnp.float32) for part in (x, y, q)))
