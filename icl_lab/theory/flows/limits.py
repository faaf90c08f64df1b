"""What Zhang, Frei & Bartlett 2023 prove of the population gradient flow of merged linear attention.

Their initialisation (Assumption 3.3): u(0) = s, U11(0) = s Th Th^T with ||Th Th^T||_F = 1, u12 = u21 = 0. Losses are
half mean squared errors; Gam as in ``gamma``.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from icl_lab.theory.arguments import Matrix, checked_covariance, checked_matrix
from icl_lab.theory.linear_attention.closed_forms import gamma


def flow_limit(covariance: ArrayLike, context_length: int, balance: float = 0.0) -> tuple[float, Matrix]:
    """Limit (u, U11) of the flow: U11 = Gam^-1 / u, and u = ||Gam^-1||_F^1/2 from a balanced start (Theorem 4.1).

    The flow conserves c = u^2 - ||U11||_F^2, so that from any start that converges
    u^2 = (c + sqrt(c^2 + 4 ||Gam^-1||_F^2)) / 2 (this lab). Both signs of u are limits, (u, U11) -> (-u, -U11); the
    positive one is returned.

    Args:
      covariance: (D, D) Lam.
      context_length: N.
      balance: c at the start.

    Raises:
      ValueError: for a covariance that is not symmetric positive definite, N < 1, or a balance that is not finite.
    """
    inverse = np.asarray(np.linalg.inv(gamma(covariance, context_length)), np.float64)
    if not math.isfinite(balance):
        raise ValueError(f"balance must be finite, got {balance}")
    size = float(np.linalg.norm(inverse))
    whole = math.hypot(balance, 2 * size)
    square = (balance + whole) / 2 if balance > 0 else 2 * size**2 / (whole - balance)  # without cancellation
    return math.sqrt(square), inverse / math.sqrt(square)


def largest_initial_scale(covariance: ArrayLike, context_length: int) -> float:
    """The s below which convergence is proven: s^2 ||Gam||_op sqrt(D) < 2 (Theorem 4.1). Sufficient, not necessary.

    Raises:
      ValueError: for a covariance that is not symmetric positive definite, or N < 1.
    """
    gam = gamma(covariance, context_length)
    return math.sqrt(2 / (np.linalg.norm(gam, 2) * math.sqrt(len(gam))))


def smallest_value_square(covariance: ArrayLike, context_length: int, scale: float, theta: ArrayLike) -> float:
    """Lower bound on u(t)^2 along the flow, s^2 ||Lam Th||_F^2 (2 - sqrt(D) s^2 ||Gam||_op) / (2 sqrt(D) ||Lam||_op^2).

    Zhang, Frei & Bartlett 2023, section 5; what keeps the flow off the saddle at the origin.

    Args:
      covariance: (D, D) Lam.
      context_length: N.
      scale: s.
      theta: (D, D) Th, scaled here to ||Th Th^T||_F = 1.

    Raises:
      ValueError: as ``largest_initial_scale``; for a scale at which nothing is proven, or Lam Th = 0.
    """
    lam = checked_covariance(covariance, "covariance")
    th = checked_matrix(theta, "theta", len(lam))
    if not 0 < scale < largest_initial_scale(covariance, context_length):
        raise ValueError(
            f"scale must lie between 0 and {largest_initial_scale(covariance, context_length):g}, got {scale}"
        )
    if not th.any():
        raise ValueError("theta must not be zero: the flow starts on the stable manifold of the origin")
    weight = np.linalg.norm(lam @ th) ** 2 / np.linalg.norm(th @ th.T)
    root = math.sqrt(len(lam))
    slack = 2 - root * scale**2 * np.linalg.norm(gamma(lam, context_length), 2)
    return float(scale**2 * weight * slack / (2 * root * np.linalg.norm(lam, 2) ** 2))


def pl_constant(covariance: ArrayLike, context_length: int, scale: float, theta: ArrayLike) -> float:
    """mu of the Polyak-Lojasiewicz inequality ||grad L||^2 >= mu (L - L*) along the flow (Lemma 5.4).

    mu = 2 ``smallest_value_square`` / (tr(Gam^-1 Lam^-1) tr(Lam^-1)); arguments and errors as there. Holds with orders
    of magnitude to spare.
    """
    least = smallest_value_square(covariance, context_length, scale, theta)
    inverse = np.linalg.inv(np.asarray(covariance, np.float64))
    return float(2 * least / (np.trace(np.linalg.solve(gamma(covariance, context_length), inverse)) * inverse.trace()))


def isotropic_course(
    times: ArrayLike, *, input_size: int, context_length: int, scale: float, variance: float = 1.0
) -> np.ndarray:
    """a(t) of the exact flow A(t) = u U11 = a(t) I, for Lam = v I from u(0) = s, U11(0) = s I / sqrt(D).

        a(t) = 1 / (g + (sqrt(D)/s^2 - g) exp(-2 v^2 sqrt(D) t)),   g = v (1 + (D + 1)/N)

    (this lab; at v = 1 it agrees with Zhang, Singh, Latham & Saxe 2025, time course of merged attention).

    Args:
      times: t, any shape.
      input_size: D.
      context_length: N.
      scale: s.
      variance: v.

    Raises:
      ValueError: for sizes below 1, or a scale or variance that is not positive.
    """
    if not (input_size >= 1 and context_length >= 1 and scale > 0 and variance > 0):
        raise ValueError(
            "input_size and context_length must be at least 1, scale and variance positive; "
            f"got {input_size}, {context_length}, {scale}, {variance}"
        )
    root, g = math.sqrt(input_size), variance * (1 + (input_size + 1) / context_length)
    decay = np.exp(-2 * variance**2 * root * np.asarray(times, np.float64))
    return 1 / (g + (root / scale**2 - g) * decay)


def escape_rate(covariance: ArrayLike) -> float:
    """||Lam^2||_F, the rate at which merged attention leaves the origin; from size w the plateau lasts ln(1/w) over it.

    Zhang, Singh, Latham & Saxe 2025; errors for a covariance that is not symmetric positive definite (ValueError).
    """
    lam = checked_covariance(covariance, "covariance")
    return float(np.linalg.norm(lam @ lam))
