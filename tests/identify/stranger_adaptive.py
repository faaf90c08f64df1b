"""Strangers that are not linear in the labels or not in the query, and attention; see ``stranger_learners``."""

import itertools
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from stranger_learners import least_squares_weights, linear, moments, ridge_weights, solve, squares, times

# Not linear in the labels


def krylov(steps):
    """Hestenes & Stiefel 1952, as the least squares solution in the Krylov space of X^T y."""

    def weights(x, y):
        gram, b = moments(x, y)
        space, now = [], b
        for _ in range(steps):
            before = np.linalg.norm(now, axis=1, keepdims=True)
            for other in space * 2:
                now = now - (now * other).sum(1, keepdims=True) * other
            size = np.linalg.norm(now, axis=1, keepdims=True)  # as good as zero: the space does not grow any more
            now = np.where(size > 1e-9 * before, now / np.maximum(size, 1e-300), 0)
            space.append(now)
            now = times(gram, now)
        k = np.stack(space, 2)
        inverse = np.linalg.pinv(k.swapaxes(1, 2) @ gram @ k, hermitian=True)
        return times(k @ inverse, times(k.swapaxes(1, 2), b))

    return linear(weights)


def barzilai_borwein(rate, steps):
    """Barzilai & Borwein 1988: rates |s|^2 / s.z of the last change s of w and z of the gradient."""

    def weights(x, y):
        gram, b = (part / x.shape[1] for part in moments(x, y))
        w, e = np.zeros_like(b), rate
        for _ in range(steps):
            change = e * (b - times(gram, w))
            w = w + change
            e = ((change**2).sum(1) / np.maximum((change * times(gram, change)).sum(1), 1e-300))[:, None]
        return w

    return linear(weights)


def lasso_weights(penalty, quadratic=0.0, sweeps=150):
    """|y - X w|^2 / (2 N) + penalty |w|_1 + quadratic |w|^2 / 2, by coordinate descent (Friedman et al. 2010)."""

    def weights(x, y):
        gram, b = (part / x.shape[1] for part in moments(x, y))
        w, rows = np.zeros_like(b), np.arange(len(b))
        for _ in range(sweeps):
            before = w.copy()
            for j in range(w.shape[1]):
                own = gram[:, j, j]
                partial = b[:, j] - (gram[:, j] * w).sum(1) + own * w[:, j]
                w[rows, j] = np.sign(partial) * np.maximum(np.abs(partial) - penalty, 0) / (own + quadratic)
            if np.abs(w - before).max() < 1e-9:
                break
        return w

    return weights


def median_weights(x, y):
    """Least absolute deviations (Barrodale & Roberts 1973): from a fit of D examples to the best neighbour."""
    rows, d = np.arange(len(x)), x.shape[2]
    basis, least = np.tile(np.arange(d), (len(x), 1)), np.full(len(x), np.inf)
    while True:
        inverse = np.linalg.inv(x[rows[:, None], basis])
        w = times(inverse, y[rows[:, None], basis])
        miss, slopes = y - times(x, w), x @ inverse  # along edge j the residuals are miss - t slopes_j
        loss = np.abs(miss).sum(1)
        if not (loss < least * (1 - 1e-12)).any():
            return w
        least = np.minimum(loss, least)
        at = np.where(np.abs(slopes) > 1e-12, miss[..., None] / np.where(slopes == 0, 1.0, slopes), 0.0)
        order = np.argsort(at, axis=1)
        share = np.cumsum(np.take_along_axis(np.abs(slopes), order, 1), axis=1)
        middle = np.take_along_axis(order, (share < share[:, -1:] / 2).sum(1)[:, None], 1)[:, 0]  # (B, D) examples
        t = np.take_along_axis(at, middle[:, None], 1)
        losses = np.abs(miss[..., None] - t * slopes).sum(1)
        edge = losses.argmin(1)
        better = losses[rows, edge] < loss * (1 - 1e-12)
        basis[rows[better], edge[better]] = middle[rows, edge][better]


def reweighted(weight, steps):
    """Iteratively reweighted least squares (Holland & Welsch 1977) from least squares; ``weight(residual, step)``."""

    def weights(x, y):
        w = least_squares_weights(x, y)
        for k in range(steps):
            root = np.sqrt(weight(np.abs(y - times(x, w)), k))
            w = ridge_weights(0.0)(x * root[..., None], y * root)
        return w

    return linear(weights)


def huber(threshold):
    return reweighted(lambda r, k: np.minimum(1, threshold / np.maximum(r, 1e-300)), 60)


def total_least_squares(x, y):
    """Golub & Van Loan 1980: from the last right singular vector of [X, y]."""
    vector = np.linalg.svd(np.concatenate([x, y[:, :, None]], 2), full_matrices=False)[2][:, -1]
    return -vector[:, :-1] / np.where(np.abs(vector[:, -1:]) < 1e-9, 1e-9, vector[:, -1:])


def plug_in_ridge(x, y):
    """Ridge with the noise variance estimated from the residuals of least squares, and tasks N(0, I)."""
    miss = y - times(x, least_squares_weights(x, y))
    noise = (miss**2).sum(1) / (x.shape[1] - x.shape[2])
    gram, b = moments(x, y)
    return solve(gram + noise[:, None, None] * np.eye(x.shape[2]), b)


def james_stein(x, y):
    """Least squares times 1 - (D - 2) s^2 / |X w|^2 (James & Stein 1961), at least 0."""
    w = least_squares_weights(x, y)
    noise = ((y - times(x, w)) ** 2).sum(1) / (x.shape[1] - x.shape[2])
    factor = 1 - (x.shape[2] - 2) * noise / np.maximum((times(x, w) ** 2).sum(1), 1e-30)
    return np.maximum(factor, 0)[:, None] * w


def spike_and_slab(inclusion, noise):
    """Posterior mean where each weight is N(0, 1) with that probability, else 0 (Mitchell & Beauchamp 1988)."""

    def weights(x, y):
        gram, b = moments(x, y)
        d = x.shape[2]
        evidence, means = [], []
        for chosen in itertools.product((0.0, 1.0), repeat=d):
            s = np.array(chosen)
            precision = gram / noise * np.outer(s, s) + np.eye(d)
            mean = solve(precision, b * s / noise)
            prior = s.sum() * np.log(inclusion) + (d - s.sum()) * np.log(1 - inclusion)
            evidence.append(prior + (mean * b).sum(1) / (2 * noise) - np.linalg.slogdet(precision)[1] / 2)
            means.append(mean)
        return mixed(np.stack(evidence, 1), np.stack(means, 1))

    return weights


def mixed(log, means):
    """Means (B, M, D) or (M, D) weighted by exp(log (B, M))."""
    p = np.exp(log - log.max(1, keepdims=True))
    p = p / p.sum(1, keepdims=True)
    return p @ means if means.ndim == 2 else (p[:, None] @ means)[:, 0]


def posterior_over(tasks, log_prior, noise):
    """Posterior mean over tasks (M, D) with these log prior weights and Gaussian label noise of this variance."""
    of_pairs = np.einsum("md,me->mde", tasks, tasks).reshape(len(tasks), -1)

    def weights(x, y):
        gram, b = moments(x, y)
        return mixed(log_prior + (b @ tasks.T - gram.reshape(len(x), -1) @ of_pairs.T / 2) / noise, tasks)

    return linear(weights)


def laplace_prior(scale, noise):
    """Posterior mean of two weights with density exp(-|w| / scale), on a grid."""
    line = np.linspace(-6, 6, 61)
    grid = np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)
    return posterior_over(grid, -np.abs(grid).sum(1) / scale, noise)


# Neighbours, kernels and trees


def nearest(count):
    def learner(x, y, q):
        order = np.argsort(squares(q[:, None], x)[:, 0], axis=1)[:, :count]
        return np.take_along_axis(y[:, :, 0], order, 1).mean(1, keepdims=True)

    return learner


def weighted_labels(scores):
    """sum_i p_i y_i with p the softmax of scores (B, N)."""

    def learner(x, y, q):
        return mixed(scores(x, q), y)

    return learner


def softmax_head(sharpness):
    return weighted_labels(lambda x, q: sharpness * times(x, q))


def nadaraya_watson(width):
    return weighted_labels(lambda x, q: -squares(q[:, None], x)[:, 0] / (2 * width**2))


def tree(depth):
    """CART (Breiman et al. 1984): the split of least squared error, to that depth, at least one example in a leaf."""

    def learner(x, y, q):
        inside = np.ones(x.shape[:2], bool)
        for _ in range(depth):
            best = np.full(len(x), np.inf)
            side = inside
            for j, i in itertools.product(range(x.shape[2]), range(x.shape[1])):
                left = inside & (x[:, :, j] <= x[:, i, None, j])
                right = inside & ~left
                miss = sum(spread(half, y[:, :, 0]) for half in (left, right))
                better = (miss < best) & left.any(1) & right.any(1) & inside[:, i]
                best = np.where(better, miss, best)
                mine = np.where((q[:, j] <= x[:, i, j])[:, None], left, right)
                side = np.where(better[:, None], mine, side)
            inside = side
        return ((inside * y[:, :, 0]).sum(1) / inside.sum(1))[:, None]

    return learner


def spread(inside, y):
    """Squared deviations from the mean, inside."""
    count = np.maximum(inside.sum(1), 1)
    return (inside * y**2).sum(1) - (inside * y).sum(1) ** 2 / count


# Attention


def attention(layers, np=np):
    """Linear attention of Ahn et al. 2023, equation 3: Z <- Z + P Z M Z^T Q Z / N of (D + 1, N + 1), negated."""

    def learner(x, y, q):
        z = np.concatenate([np.concatenate([x, y], 2), np.concatenate([q, np.zeros_like(q[:, :1])], 1)[:, None]], 1)
        z, n = z.swapaxes(1, 2), x.shape[1]
        for p, of in layers:
            seen = z[:, :, :n]
            z = z + p @ (seen @ (seen.swapaxes(1, 2) @ (of @ z))) / n
        return -z[:, -1, -1:]

    return learner


def sparse_layer(a, b):
    """Matrices (P, Q) with an input part b I of P, 1 for the labels, and Q = -diag(A, 0)."""
    d = len(a)
    p, of = np.zeros((2, d + 1, d + 1))
    p[:d, :d], p[d, d], of[:d, :d] = b * np.eye(d), 1.0, -a
    return p, of


@cache
def drawn_layers(depth, size, trained):
    """Dense random layers, after so many steps of Adam on prompts of eight examples."""
    rng = np.random.default_rng(depth)
    weights = jnp.asarray(0.3 * rng.normal(size=(depth, 2, size + 1, size + 1)))

    def loss(weights, x, y, q, target):
        return ((attention(weights, jnp)(x, y, q) - target) ** 2).mean()

    step, mean, square = jax.jit(jax.grad(loss)), 0.0, 0.0
    for k in range(1, trained + 1):
        x, w = rng.normal(size=(128, 9, size)), rng.normal(size=(128, size, 1))
        y = x @ w
        g = step(weights, *(jnp.asarray(part) for part in (x[:, :8], y[:, :8], x[:, 8], y[:, 8])))
        mean, square = 0.9 * mean + 0.1 * g, 0.99 * square + 0.01 * g**2
        weights = weights - 0.01 * (mean / (1 - 0.9**k)) / (jnp.sqrt(square / (1 - 0.99**k)) + 1e-8)
    return np.asarray(weights, np.float64)
