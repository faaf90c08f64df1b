"""Linear self-attention on prompts of any distribution of (x, y): the best linear predictor and the risk against it.

Zhang, Frei & Bartlett 2023, Theorem 4.2: of a distribution nothing matters but the four moments held here. float64;
risks are whole mean squared errors.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from icl_lab.theory.arguments import (
    Matrix,
    check_length,
    check_noise,
    checked_covariance,
    checked_matrix,
    checked_vector,
)


class JointLaw(NamedTuple):
    """Moments of a distribution of (x, y) from which context and query are drawn independently.

    Attributes:
      second_moment: (D, D) Lam = E[x x^T].
      cross_moment: (D,) E[y x].
      label_moment: E[y^2].
      product_covariance: (D, D) Cov(y x).
    """

    second_moment: Matrix
    cross_moment: Matrix
    label_moment: float
    product_covariance: Matrix


def linear_labels(task: ArrayLike, covariance: ArrayLike, label_noise: float = 0.0) -> JointLaw:
    """The distribution y = <w, x> + noise of one task: Cov(y x) = (w^T Lam w) Lam + Lam w w^T Lam + s^2 Lam.

    Zhang, Frei & Bartlett 2023, after Theorem 4.2.

    Args:
      task: (D,) w.
      covariance: (D, D) Lam of the Gaussian inputs.
      label_noise: standard deviation s.

    Raises:
      ValueError: for a covariance that is not symmetric positive definite, a task of another size, negative noise.
    """
    lam = checked_covariance(covariance, "covariance")
    w = checked_vector(task, "task", len(lam))
    check_noise(label_noise)
    cross = lam @ w
    power = float(w @ cross + label_noise**2)
    return JointLaw(lam, cross, power, power * lam + np.outer(cross, cross))


def gaussian_labels(
    labels: Callable[[Matrix], Matrix],
    covariance: ArrayLike,
    coordinates: int,
    label_noise: float = 0.0,
    nodes: int = 40,
) -> JointLaw:
    """The distribution y = f(x_1 ... x_k) + noise with Gaussian inputs, its moments by Gauss-Hermite quadrature.

    The Cholesky factor makes the first k inputs functions of the first k normal variables alone, so that a product rule
    of ``nodes``^k points is enough whatever D.

    Args:
      labels: f, ``(..., D) -> (...)``, of the first k coordinates.
      covariance: (D, D) of the inputs.
      coordinates: k, from 1 to D.
      label_noise: standard deviation of the noise.
      nodes: points for each coordinate.

    Raises:
      ValueError: as ``linear_labels``; for k outside its range; where the quadrature has not converged, as for labels
        whose moments do not exist (the rule with one node more differs by more than 1e-6).
    """
    lam = checked_covariance(covariance, "covariance")
    check_noise(label_noise)
    if coordinates not in range(1, len(lam) + 1):
        raise ValueError(f"coordinates must be a whole number from 1 to D = {len(lam)}, got {coordinates}")
    law, finer = (_quadrature(labels, lam, coordinates, count) for count in (nodes, nodes + 1))
    power, spread = finer.label_moment, float(np.diag(lam).max())
    converged = (
        np.abs(law.cross_moment - finer.cross_moment).max() <= 1e-6 * math.sqrt(power * spread)
        and abs(law.label_moment - power) <= 1e-6 * power
        and np.abs(law.product_covariance - finer.product_covariance).max() <= 1e-6 * power * spread
    )
    if not converged:  # also where a moment is not a number
        raise ValueError("labels: the quadrature of their moments with x does not converge; do they exist?")
    noise = label_noise**2
    return law._replace(label_moment=law.label_moment + noise, product_covariance=law.product_covariance + noise * lam)


def best_linear_predictor(law: JointLaw) -> tuple[Matrix, float]:
    """(a, risk) of the linear predictor with the least mean squared error: a = Lam^-1 E[y x], E y^2 - a^T E[y x].

    Zhang, Frei & Bartlett 2023, Theorem 4.2.

    Raises:
      ValueError: for moments that no distribution has: Lam not symmetric positive definite, E y^2 below a^T E[y x].
    """
    lam = checked_covariance(law.second_moment, "second_moment")
    cross = checked_vector(law.cross_moment, "cross_moment", len(lam))
    a: Matrix = np.linalg.solve(lam, cross).astype(np.float64)
    explained = float(a @ cross)
    if not law.label_moment >= explained * (1 - 1e-9):
        raise ValueError(
            f"label_moment must be at least {explained:g} with these cross moments, got {law.label_moment}"
        )
    return a, max(0.0, float(law.label_moment) - explained)


def joint_risk(a: ArrayLike, law: JointLaw, test_length: float) -> float:
    """E (h^T A x_q - y_q)^2 on prompts of length M of this distribution, h = (1/M) sum_i y_i x_i; for any A.

    E h = Lam a and Cov(h) = S / M with a the best linear predictor and S = Cov(y x), so that

        R = R_best + tr(S A Lam A^T) / M + |A^T Lam a - a|^2_Lam,

    which at A = Gam^-1 is Zhang, Frei & Bartlett 2023, Theorem 4.2 (there S, Gam, Lam in another order, and the last
    term multiplied out). Nothing is asked of the inputs but that these moments exist.

    Args:
      a: (D, D) A.
      law: moments of the test prompts.
      test_length: M; infinity gives the limit.

    Raises:
      ValueError: as ``best_linear_predictor``; for shapes that do not fit, S not semidefinite, M < 1.
    """
    best, least = best_linear_predictor(law)
    size = len(best)
    lam = checked_covariance(law.second_moment, "second_moment")
    spread = checked_covariance(law.product_covariance, "product_covariance", semidefinite=True, size=size)
    a = checked_matrix(a, "a", size)
    check_length(test_length, "test_length", infinite=True)
    missed = a.T @ lam @ best - best
    return float(least + (spread * (a @ lam @ a.T)).sum() / test_length + missed @ lam @ missed)


def _quadrature(labels: Callable[[Matrix], Matrix], lam: Matrix, coordinates: int, nodes: int) -> JointLaw:
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    weights = weights / weights.sum()
    z = np.stack(np.meshgrid(*[points] * coordinates, indexing="ij"), axis=-1).reshape(-1, coordinates)
    mass = np.stack(np.meshgrid(*[weights] * coordinates, indexing="ij"), axis=-1).reshape(-1, coordinates).prod(1)
    root = np.linalg.cholesky(lam)
    x = np.zeros((len(z), len(lam)))
    x[:, :coordinates] = z @ root[:coordinates, :coordinates].T
    with np.errstate(all="ignore"):
        y = np.asarray(labels(x), np.float64)
        power = float(mass @ y**2)
        first = np.zeros(len(lam))
        first[:coordinates] = (mass * y) @ z  # E[y z]; the other normal variables are independent of y
        second = power * np.eye(len(lam))
        second[:coordinates, :coordinates] = (z * (mass * y**2)[:, None]).T @ z
        cross = root @ first
        return JointLaw(lam, cross, power, root @ second @ root.T - np.outer(cross, cross))
