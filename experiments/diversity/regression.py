"""Reduced linear attention at finite size, in float64: features without contexts, the fit, and its exact error.

The model is that of ``icl_lab.theory.diversity``: the prediction x_q^T G h, h = [(d/l) sum y x, (1/l) sum y^2].
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Law(NamedTuple):
    """Of one fit: d, the eigenvalues (d,) of C, alpha, kappa, tau and rho."""

    size: int
    spectrum: Floats
    context: float
    diversity: float
    prompts: float
    noise_variance: float

    @property
    def length(self) -> int:
        """l, examples in a prompt."""
        return round(self.context * self.size)

    @property
    def counts(self) -> tuple[int, int]:
        """k tasks and n prompts; tau counts the d (d + 1) features rather than d^2, the same in the limit."""
        return max(1, round(self.diversity * self.size)), round(self.prompts * self.size * (self.size + 1))


def features(rng: np.random.Generator, tasks: Floats, length: int, noise_variance: float) -> Floats:
    """(n, d + 1) h of prompts with these tasks (n, d), drawn exactly but without their l >= 2 examples.

    With u = X w and y = u + e, X^T y is (u.y) w / |w|^2 along w, and normal of variance |y|^2 / d across it. The
    products u.u, u.e and e.e are a Wishart matrix of l degrees of freedom (Bartlett's decomposition).
    """
    n, d = tasks.shape
    norm = np.linalg.norm(tasks, axis=1)
    a, b, c = np.sqrt(rng.chisquare(length, n)), rng.standard_normal(n), np.sqrt(rng.chisquare(length - 1, n))
    scale, noise = norm / np.sqrt(d) * a, np.sqrt(noise_variance)  # u = (scale, 0), e = noise (b, c) in their plane
    along, square = scale * (scale + noise * b), (scale + noise * b) ** 2 + (noise * c) ** 2
    way = tasks / norm[:, None]
    across = rng.standard_normal((n, d))
    across -= way * np.sum(across * way, axis=1, keepdims=True)
    h = d / length * (way * (along / norm)[:, None] + np.sqrt(square / d)[:, None] * across)
    return np.concatenate([h, square[:, None] / length], axis=1)


def fitted(rng: np.random.Generator, law: Law) -> tuple[Floats, Floats]:
    """(d, d + 1) G of one training, and its tasks (k, d): least squares, or the least G that fits every prompt."""
    d, (k, n) = law.size, law.counts
    tasks = rng.standard_normal((k, d)) * np.sqrt(law.spectrum)
    prompt_tasks = tasks[rng.integers(k, size=n)]
    query = rng.standard_normal((n, d)) / np.sqrt(d)
    labels = np.sum(query * prompt_tasks, axis=1) + np.sqrt(law.noise_variance) * rng.standard_normal(n)
    h = features(rng, prompt_tasks, law.length, law.noise_variance)
    design = (query[:, :, None] * h[:, None, :]).reshape(n, d * (d + 1))
    if n > d * (d + 1):
        weights = np.linalg.solve(design.T @ design, design.T @ labels)
    else:
        weights = design.T @ np.linalg.solve(design @ design.T, labels)
    return weights.reshape(d, d + 1), tasks


def error(weights: Floats, spectrum: Floats, law: Law) -> float:
    """E (y - x_q^T G h)^2 of a noisy label for new tasks w ~ N(0, C'), C' diagonal with this spectrum (d,); exact.

    With r = |w|^2 / d + rho and h = (h_1, h_2): E[h_1 | w] = w, E[h_2 | w] = r, E[h_2^2 | w] = r^2 (1 + 2/l) and
    E[h_1 h_1^T | w] = (1 + 1/l) w w^T + (d/l) r. Odd moments of w vanish, and with them those of h_1 h_2.
    """
    d, l, first, last = law.size, law.length, weights[:, :-1], weights[:, -1]  # noqa: E741
    mean = spectrum.mean() + law.noise_variance
    square = mean**2 + 2 * np.sum(spectrum**2) / d**2
    noisy = (1 + 1 / l) * spectrum + d / l * mean  # of E h_1 h_1^T, which is diagonal
    left = spectrum.sum() - 2 * np.diag(first) @ spectrum + np.sum(first**2 @ noisy)
    return float(law.noise_variance + (left + (1 + 2 / l) * square * last @ last) / d)
