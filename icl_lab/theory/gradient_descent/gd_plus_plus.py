"""GD and GD++ as maps of the eigenvalues of the context (von Oswald et al. 2022, section 3 and A.10).

From W0 = 0 both act diagonally in the eigenbasis of M = sum_i x_i x_i^T. Each eigenvalue l keeps a residual factor r
and an input factor h, both 1 at first; a layer maps, with the old values on the right,

    r <- r (1 - (eta_k / N) l h^2),    h <- h (1 - gamma_k l h^2),

and over w ~ N(0, s^2 I) and a query of variance v per coordinate, independent of the context, the loss of one task is
(s^2 v / 2) sum_l r_K^2. Exact where tokens are not clipped; derived from Proposition 1 and A.10.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icl_lab.prompts.tracing import check_sizes

Floats = NDArray[np.float64]


def residual_factor(eigenvalues, rates, gammas):
    """r_K of every eigenvalue after K layers of GD++ (of GD, for gamma = 0), for numpy and JAX arrays alike.

    Args:
      eigenvalues: any shape.
      rates: (K,) eta_k / N.
      gammas: (K,) gamma_k; the last one has no effect.

    Returns:
      the shape of ``eigenvalues``.
    """
    residual, factor = 1.0, 1.0
    for rate, gamma in zip(rates, gammas, strict=True):
        seen = eigenvalues * factor**2
        residual, factor = residual * (1 - rate * seen), factor * (1 - gamma * seen)
    return residual


def best_gd_plus_plus(layers: int, nodes: Floats, weights: Floats, starts: int = 20) -> tuple[Floats, Floats, float]:
    """The best GD++ of L layers found for a law of eigenvalues: rates (L,), gammas (L,) and E r_L^2.

    r_L has the degree (3^L - 1) / 2 in l. By BFGS from random starts: the least minimum found.

    Args:
      layers: L.
      nodes: l.
      weights: of each, with the sum 1.
      starts: how many.

    Raises:
      ValueError: for no layer or no start.
    """
    from scipy.optimize import minimize  # scipy takes long to import

    (layers, starts), rng = check_sizes(layers=layers, starts=starts), np.random.default_rng(0)
    parts = lambda z: (z[:layers], np.append(z[layers:], 0.0))  # noqa: E731
    error = lambda z: float(residual_factor(nodes, *parts(z)) ** 2 @ weights)  # noqa: E731
    drawn = [np.append(rng.uniform(0.3, 2, layers), rng.normal(0, 0.3, layers - 1)) for _ in range(starts)]
    best = min((minimize(error, z, method="BFGS", options={"gtol": 1e-10}) for z in drawn), key=lambda run: run.fun)
    return *parts(best.x), float(best.fun)


def eigenvalue_density(eigenvalues: Floats, cells: int = 2048) -> tuple[Floats, Floats]:
    """Density of eigenvalues as (nodes, weights), each (cells,): all that the mean loss over contexts depends on.

    mean(f(eigenvalues)) = sum(weights f(nodes)) up to the square of a cell's width. Cells are even in the square root,
    because for N = D the density grows like l^(-1/2) towards zero; a node is the mean of its cell.
    """
    values = eigenvalues.ravel()
    root = np.sqrt(values)
    cell = np.minimum((root * (cells / root.max())).astype(int), cells - 1)
    counts = np.bincount(cell, minlength=cells)
    return np.bincount(cell, values, cells) / np.maximum(counts, 1), counts / values.size


def gd_plus_plus_eigenvalues(eigenvalues: ArrayLike, gamma: ArrayLike) -> Floats | np.float64:
    """Eigenvalues of sum_i x_i x_i^T after one GD++ input transformation: l (1 - gamma l)^2.

    Arguments broadcast (von Oswald et al. 2022, A.10). Double root at 1/gamma.
    """
    spectrum = _float64(eigenvalues)
    return spectrum * (1 - _float64(gamma) * spectrum) ** 2


def gd_plus_plus_peak(gamma: ArrayLike) -> tuple[Floats | np.float64, Floats | np.float64]:
    """Local maximum of l (1 - gamma l)^2: where it is, 1 / (3 gamma), and its value, 4 / (27 gamma).

    Von Oswald et al. 2022, A.10; gamma > 0.
    """
    where = 1 / (3 * _float64(gamma))
    return where, 4 / 9 * where


def condition_number(eigenvalues: ArrayLike) -> Floats | np.float64:
    """Largest over smallest eigenvalue, (..., D) -> (...); infinite where the smallest is zero."""
    spectrum = _float64(eigenvalues)
    with np.errstate(divide="ignore"):
        return spectrum.max(axis=-1) / spectrum.min(axis=-1)


def gd_plus_plus_condition_number(eigenvalues: ArrayLike, gamma: ArrayLike) -> Floats | np.float64:
    """kappa++ = l'(1/(3 gamma)) / min(l'(l_min), l'(l_max)), with l' = l (1 - gamma l)^2.

    Von Oswald et al. 2022, A.10. It takes the spectrum as filling [l_min, l_max], with 1/(3 gamma) inside and 1/gamma
    outside. What a finite spectrum really gets is ``condition_number(gd_plus_plus_eigenvalues(eigenvalues, gamma))``.

    Args:
      eigenvalues: (..., D), in any order.
      gamma: > 0; broadcasts against (...).

    Returns:
      (...), infinite where an end of the spectrum is mapped to zero.
    """
    spectrum = _float64(eigenvalues)
    low = gd_plus_plus_eigenvalues(spectrum.min(axis=-1), gamma)
    high = gd_plus_plus_eigenvalues(spectrum.max(axis=-1), gamma)
    with np.errstate(divide="ignore"):
        return gd_plus_plus_peak(gamma)[1] / np.minimum(low, high)


def _float64(value: ArrayLike) -> Floats | np.float64:
    return np.asarray(value, np.float64)
