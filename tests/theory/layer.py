"""The linear attention layer of Zhang, Frei & Bartlett 2023, word for word, and random settings of its closed forms."""

import numpy as np


def covariance(rng, size, least=0.1):
    """A random rotation of eigenvalues between ``least`` and 2."""
    rotation, _ = np.linalg.qr(rng.normal(size=(size, size)))
    matrix = rotation @ np.diag(rng.uniform(least, 2.0, size)) @ rotation.T
    return (matrix + matrix.T) / 2


def blocks(rng, size, scale=0.5):
    """Random (U11, u, u12, u21)."""
    draw = lambda *shape: scale * rng.normal(size=shape)  # noqa: E731
    return draw(size, size), float(draw()), draw(size), draw(size)


def draws(rng, tasks, n, covariance, query_covariance=None, task_moment=None, noise=0.0):
    """x (B, N, D), y (B, N), x_query (B, D), clean target (B,), w (B, D)."""
    size = len(covariance)
    x = normal(rng, (tasks, n), covariance)
    query = normal(rng, (tasks,), covariance if query_covariance is None else query_covariance)
    w = normal(rng, (tasks,), np.eye(size) if task_moment is None else task_moment)
    y = (x @ w[..., None])[..., 0] + noise * rng.normal(size=(tasks, n))
    return x, y, query, (w * query).sum(1), w


def normal(rng, shape, covariance):
    values, vectors = np.linalg.eigh(covariance)
    return rng.normal(size=(*shape, len(covariance))) @ (vectors * np.sqrt(np.maximum(values, 0))).T


def predictions(u11, u, u12, u21, x, y, query):
    """(B,) entry (D+1, N+1) of f(E) = E + W_PV E (E^T W_KQ E) / N, E with columns (x_i; y_i) and (x_q; 0)."""
    tasks, n, size = x.shape
    context = np.concatenate([x, y[..., None]], axis=2)
    last = np.concatenate([query, np.zeros((tasks, 1))], axis=1)
    e = np.concatenate([context, last[:, None]], axis=1).swapaxes(1, 2)
    w_kq, w_pv = np.zeros((2, size + 1, size + 1))
    w_kq[:size, :size], w_kq[size, :size] = u11, u21
    w_pv[size, :size], w_pv[size, size] = u12, u
    f = e + w_pv @ e @ (e.swapaxes(1, 2) @ w_kq @ e) / n
    return f[:, size, n]


def deviation(samples, exact):
    """(mean of the samples - exact) in standard errors."""
    return (samples.mean() - exact) / (samples.std() / len(samples) ** 0.5)
