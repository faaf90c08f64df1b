"""Closed forms of linear self-attention on out-of-distribution prompts of Garg et al. 2022, for any A (this lab).

Prediction h^T A x_q with h = (1/M) sum_i y_i x_i, y = <w, x>, w ~ N(0, I). Shifts of covariance, query covariance, task
and noise are in ``linear_attention.risk``; here inputs or query depend on each other. All are full mean squared errors,
float64, of any A (..., D, D), leading axes being members.
"""

import numpy as np
from numpy.typing import ArrayLike

from icl_lab.theory.arguments import Matrix, check_length, checked_covariance, checked_stack


def orthant_risk(a: ArrayLike, *, test_length: float, covariance: ArrayLike) -> np.ndarray:
    """Risk where the context lies in one random orthant and the query anywhere (Garg et al. 2022).

    Context x_i = s |z_i| with z_i ~ N(0, Lam) and signs s in {-1, 1}^D drawn once a prompt, query N(0, Lam). With
    B_jk = E|z_j z_k| = (2/pi) sigma_j sigma_k (sqrt(1 - rho^2) + rho arcsin rho) the mean of h h^T is diagonal,

        C_jj = (1/M) (Lam_jj tr Lam + 2 (Lam^2)_jj) + (1 - 1/M) sum_k B_jk^2,

    and R = tr(C A Lam A^T) - 2 tr(diag(Lam) A Lam) + tr Lam. The inputs of an orthant have a mean, which adds
    (4/pi^2)(D - 1) to the error of A = I at Lam = I however long the prompt: linear attention does not tolerate this
    shift, while least squares has no error from M = D on.

    Args:
      a: (..., D, D), however it was trained.
      test_length: M; infinity gives the limit.
      covariance: (D, D) Lam, positive definite.

    Raises:
      ValueError: naming the argument, for a covariance that is none, an A of another size, or M < 1.
    """
    lam = checked_covariance(covariance, "covariance")
    a = checked_stack(a, "a", len(lam))
    check_length(test_length, "test_length", infinite=True)
    spread = np.sqrt(np.diag(lam))
    rho = np.clip(lam / np.outer(spread, spread), -1, 1)
    absolute = 2 / np.pi * np.outer(spread, spread) * (np.sqrt(1 - rho**2) + rho * np.arcsin(rho))
    one = np.diag(lam) * np.trace(lam) + 2 * np.diag(lam @ lam)
    context = one / test_length + (1 - 1 / test_length) * (absolute**2).sum(1)
    moved = a @ lam
    seen = np.diagonal(moved, axis1=-2, axis2=-1) @ np.diag(lam)
    return (context[:, None] * moved * a).sum((-2, -1)) - 2 * seen + np.trace(lam)


def subspace_risk(a: ArrayLike, *, test_length: float, subspace_size: int, input_scale: float = 1.0) -> np.ndarray:
    """Risk where all inputs of a prompt, the query too, lie in one random subspace (Garg et al. 2022).

    Inputs c P z with z ~ N(0, I) and P the projector on a uniformly drawn k-dimensional subspace. From the second
    moment of P, E P_ij P_kl = alpha d_ij d_kl + beta (d_ik d_jl + d_il d_jk) with beta = k (D-k) / (D (D-1) (D+2)) and
    alpha = k/D - (D+1) beta,

        R / c^2 = c^4 (1 + (k+1)/M) [alpha |A|_F^2 + beta (tr A^2 + (tr A)^2)] - 2 c^2 (k/D) tr A + k.

    At c = 1 long prompts are no harder than under the N(0, I) of training, but with the mean square of the inputs
    kept, c^2 = D/k, as in the released code of Garg et al., the error over that of predicting 0 tends to (1 - D/k)^2.

    Args:
      a: (..., D, D), however it was trained.
      test_length: M; infinity gives the limit.
      subspace_size: k, from 1 to D.
      input_scale: c, positive.

    Raises:
      ValueError: naming the argument.
    """
    a = checked_stack(a, "a")
    d, k = a.shape[-1], subspace_size
    check_length(test_length, "test_length", infinite=True)
    if k not in range(1, d + 1):
        raise ValueError(f"subspace_size must be from 1 to D = {d}, got {k}")
    if not input_scale > 0:
        raise ValueError(f"input_scale must be positive, got {input_scale}")
    a = input_scale**2 * a
    beta = _mixing(k, d)
    inside = (k / d - (d + 1) * beta) * _square(a) + beta * (_trace(a @ a) + _trace(a) ** 2)  # E tr(P A P A^T)
    return input_scale**2 * ((1 + (k + 1) / test_length) * inside - 2 * k / d * _trace(a) + k)


def orthogonal_query_prediction(a: ArrayLike, *, test_length: int) -> np.ndarray:
    """Mean square of the prediction for a query orthogonal to the context (Garg et al. 2022).

    Context N(0, I), M < D, query the part of an N(0, I) draw that is orthogonal to all of it. Nothing can be known
    of the answer, and least squares predicts 0. Linear attention does so only if A is a multiple of the identity:

        E y_hat^2 = (D + 1 + M) (D - M) / (M (D - 1) (D + 2)) [(D+1) |A|_F^2 - tr A^2 - (tr A)^2]

    which for a symmetric A is proportional to |A - (tr A / D) I|_F^2. Zhang, Frei & Bartlett 2023 say 0 of every
    training covariance; Gamma^-1 is a multiple of the identity only where the covariance is. The error is
    E y_hat^2 + D - M, since the answer is uncorrelated with the prediction.

    Args:
      a: (..., D, D), however it was trained, D >= 2.
      test_length: M, from 1 to D - 1.

    Raises:
      ValueError: naming the argument.
    """
    a = checked_stack(a, "a")
    d, m = a.shape[-1], test_length
    if m not in range(1, d):
        raise ValueError(f"test_length must be from 1 to D - 1 = {d - 1}, got {m}: no input is orthogonal to more")
    leaving = _mixing(m, d) * ((d + 1) * _square(a) - _trace(a @ a) - _trace(a) ** 2)  # E tr(P A (I - P) A^T)
    return d * (m + d + 1) / m**2 * leaving


def _mixing(k: int, d: int) -> float:
    """beta of E P_ij P_kl = alpha d_ij d_kl + beta (d_ik d_jl + d_il d_jk), P a random projector of rank k."""
    return k * (d - k) / (d * (d - 1) * (d + 2)) if d > 1 else 0.0


def _trace(a: Matrix) -> np.ndarray:
    return np.trace(a, axis1=-2, axis2=-1)


def _square(a: Matrix) -> np.ndarray:
    return (a**2).sum((-2, -1))
