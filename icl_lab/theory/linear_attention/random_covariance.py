"""Closed forms of linear self-attention trained on prompts whose covariance is drawn anew for each of them.

Setting (Zhang, Frei & Bartlett 2023, section 4.3): Lam = diag(lam_1 .. lam_D) with independent positive entries; inputs
and query N(0, Lam), y = <w, x>, w ~ N(0, I), prediction h^T A x_q with h = (1/N) sum_i y_i x_i. What a closed form
needs of the distribution is its coordinate moments, a float64 array (3, D) whose rows are E lam_i, E lam_i^2,
E lam_i^3. Losses are half mean squared errors, risks whole ones. Everything is numpy.
"""

import numpy as np
from numpy.typing import ArrayLike

from icl_lab.theory.arguments import Matrix, check_length, check_noise, checked_stack


def variance_moments(law: str, input_size: int, *, shape: ArrayLike = 1.0, scale: ArrayLike = 1.0) -> Matrix:
    """First three moments of every coordinate's variance, for the distributions of ``random_covariance_regression``.

    ``exponential`` Exp(1): k!; ``gamma`` Gamma(s, 1): s (s+1) .. (s+k-1); ``uniform`` U(0, 1): 1/(k+1); ``lognormal``
    exp(s N(0, 1)): exp(s^2 k^2 / 2); ``constant`` 1. All times scale^k.

    Args:
      law: its name.
      input_size: D.
      shape: s of the gamma and lognormal distributions, a number or (D,).
      scale: a number, or (D,) for coordinates that are not identically distributed.

    Returns:
      (3, D).

    Raises:
      ValueError: for a distribution without known moments; a size below 1; a shape or scale that is not positive, or
        so large that the third moment is not a finite number.
    """
    from scipy import special

    if input_size < 1:
        raise ValueError(f"input_size must be at least 1, got {input_size}")
    shape, scale = np.asarray(shape, np.float64), np.asarray(scale, np.float64)
    for name, value in {"shape": shape, "scale": scale}.items():
        if not np.all(value > 0):
            raise ValueError(f"{name} must be positive, got {value}")
        if value.shape not in ((), (input_size,)):
            raise ValueError(f"{name} must be a number or have shape ({input_size},), got shape {value.shape}")
    known = {
        "exponential": lambda k: special.factorial(k),
        "gamma": lambda k: special.poch(shape, k),
        "uniform": lambda k: 1 / (k + 1),
        "lognormal": lambda k: np.exp((shape * k) ** 2 / 2),
        "constant": lambda k: 1.0,
    }
    if law not in known:
        raise ValueError(f"law must be one whose moments are known, {tuple(known)}, got {law!r}")
    with np.errstate(over="ignore"):
        moments = np.stack([np.broadcast_to(scale**k * known[law](k), (input_size,)) for k in (1, 2, 3)])
    return _checked(moments)


def random_covariance_loss(a: ArrayLike, moments: ArrayLike, context_length: float) -> np.ndarray:
    """Population loss of any A, half the mean squared error (extends Zhang, Frei & Bartlett 2023, appendix C).

    L(A) = (1/2) sum_ij zeta_ij A_ij^2 - sum_i xi_i A_ii + (1/2) sum_i E lam_i with xi_i = E lam_i^2 and

        zeta_ij = E[(1 + 1/N) lam_i^2 lam_j + (1/N) lam_i lam_j sum_k lam_k],

    whose diagonal is the paper's gam_i = E[(1 + 1/N) lam_i^3 + (1/N) lam_i^2 sum_k lam_k].

    Args:
      a: (..., D, D), of any form.
      moments: (3, D).
      context_length: N; infinity gives the limit.

    Returns:
      (...) losses.

    Raises:
      ValueError: for an A of another size, N < 1, or moments of no positive distribution (or that are not finite).
    """
    return random_covariance_risk(a, moments, context_length) / 2


def random_covariance_optimum(moments: ArrayLike, context_length: float) -> Matrix:
    """The A with the smallest loss, diag(xi_i / gam_i) = E[Gam Lam^2]^-1 E[Lam^2] (Zhang et al. 2023, Theorem 4.5).

    For Exp(1) it is N / (3 N + D + 5) I. Arguments and errors as ``random_covariance_loss``; returns (D, D).
    """
    moments = _checked(moments)
    return np.diag(moments[1] / np.diag(_weights(moments, context_length, 0.0)))


def random_covariance_scale(moments: ArrayLike, context_length: float) -> float:
    """u* to which gradient flow from the paper's initialisation tends, |A*|_F^(1/2) = (sum_i (xi_i/gam_i)^2)^(1/4).

    U11 tends to A* / u*. Equations (4.12) and (C.17) of Zhang, Frei & Bartlett 2023; their (C.15) prints
    (sum_i xi_i/gam_i)^(1/4), which is a slip. Arguments and errors as ``random_covariance_loss``.
    """
    return float(np.linalg.norm(random_covariance_optimum(moments, context_length)) ** 0.5)


def random_covariance_risk(
    a: ArrayLike,
    moments: ArrayLike,
    test_length: float,
    *,
    label_noise: float = 0.0,
    query_moments: ArrayLike | None = None,
) -> np.ndarray:
    """Mean squared error of any A on prompts of length M whose variances have these moments (this lab).

    R = sum_ij zeta_ij A_ij^2 - 2 sum_i xi_i A_ii + sum_i E lam_i with M for N in zeta, and s^2 beside the sum over k.
    For A = a I and c times an i.i.d. distribution R/D = c m1 - 2 a c^2 m2 + a^2 c^3 [m3 (1 + 2/M) + (D-1) m1 m2 / M],
    for Exp(1) c - 4 a c^2 + a^2 c^3 (6 + (2D + 10)/M). The query has the prompt's own variances (the paper), unless
    ``query_moments`` says that it has others, drawn independently.

    Args:
      a: (..., D, D), however it was trained.
      moments: (3, D) of the test prompts' variances.
      test_length: M; infinity gives the limit.
      label_noise: standard deviation s of the noise on the context labels.
      query_moments: (3, D) of the query's independent variances; None means those of the context.

    Returns:
      (...) risks, not divided by D.

    Raises:
      ValueError: as ``random_covariance_loss``.
    """
    moments = _checked(moments)
    a = checked_stack(a, "a", moments.shape[1])
    check_noise(label_noise)
    diagonal = np.diagonal(a, axis1=-2, axis2=-1)
    seen, norm = _of_query(query_moments, moments)
    if query_moments is None:
        zeta = _weights(moments, test_length, label_noise**2)
    else:
        zeta = _context_weights(moments, test_length, label_noise**2)[:, None] * norm[None, :]
    return (zeta * a**2).sum((-2, -1)) - 2 * diagonal @ seen + norm.sum()


def failure_law(moments: ArrayLike) -> np.ndarray:
    """(D,) error of every coordinate in the limit N, M -> inf over that of predicting zero, 1 - m2^2 / (m1 m3).

    Not negative, and zero only where the variance is constant (Cauchy-Schwarz): 1/3 for Exp(1), 1/(s+2) for Gamma(s),
    1/9 for U(0, 1), 1 - exp(-s^2) for exp(s N(0, 1)). Least squares has 0 from M = D on (this lab; it makes Zhang, Frei
    & Bartlett 2023, section 4.3 quantitative). Errors as ``random_covariance_loss``.
    """
    m1, m2, m3 = _checked(moments)
    return 1 - m2**2 / (m1 * m3)


def regression_slope(a: ArrayLike, moments: ArrayLike, query_moments: ArrayLike | None = None) -> np.ndarray:
    """E[y_hat y] / E[y^2] over prompts, tasks and queries, for any A and any prompt length (this lab).

    It is sum_i A_ii E lam_i^2 / sum_i E lam_i, in the limit m2^2 / (m1 m3): 2/3 for Exp(1). Zhang, Frei & Bartlett 2023
    (after Theorem 4.5) have E[y_hat | x_q, w] = <w, x_q> / 3, the average over covariances as if x_q were independent
    of its own; with a query that is (``query_moments``) the slope is sum_i A_ii E lam_i E lam'_i / sum_i E lam'_i, 1/3.
    Arguments and errors as ``random_covariance_risk``.
    """
    moments = _checked(moments)
    diagonal = np.diagonal(checked_stack(a, "a", moments.shape[1]), axis1=-2, axis2=-1)
    seen, norm = _of_query(query_moments, moments)
    return diagonal @ seen / norm.sum()


def expected_variance(x: ArrayLike) -> np.ndarray:
    """E[lam | x] = |x| / sqrt 2 + 1/2 of a coordinate x ~ N(0, lam) whose variance is drawn from Exp(1) (this lab).

    Since E[h | x_q, w, lam] = Lam w, the prediction of A = a I has the mean a sum_i E[lam_i | x_qi] w_i x_qi given
    query and task. In the limit, a = 1/3, coordinate i therefore enters with the factor (|x_qi| / sqrt 2 + 1/2) / 3,
    not 1/3 (Zhang, Frei & Bartlett 2023, after Theorem 4.5).
    """
    return np.abs(np.asarray(x, np.float64)) / np.sqrt(2) + 0.5


def initial_scale_bound(theta: ArrayLike, variances: ArrayLike, context_length: int) -> float:
    """Largest sigma for which Theorem 4.5 guarantees convergence from u = sigma, U11 = sigma Theta Theta^T.

    sigma^2 < 2 |E[Lam] Theta|_F^2 / (sqrt D E[|Gam|_op |Lam|_F^2]) (Zhang, Frei & Bartlett 2023). Sufficient, not
    necessary.

    Args:
      theta: (D, D) Theta; |Theta Theta^T|_F must be 1.
      variances: (S, D) draws of the variances, whose mean stands for the expectation; one row is a fixed covariance.
      context_length: N.

    Raises:
      ValueError: for variances that are not positive, a Theta that is not normalised, or N < 1.
    """
    variances, theta = np.asarray(variances, np.float64), np.asarray(theta, np.float64)
    check_length(context_length, "context_length")
    if variances.ndim != 2 or not (np.all(variances > 0) and np.isfinite(variances).all()):
        raise ValueError(f"variances must be (S, D) positive numbers, got shape {variances.shape}")
    d = variances.shape[1]
    theta = checked_stack(theta, "theta", d)
    if abs(np.linalg.norm(theta @ theta.T) - 1) > 1e-6:
        raise ValueError(f"theta must have |theta theta^T|_F = 1, got {np.linalg.norm(theta @ theta.T):.3g}")
    n = context_length
    largest = (1 + 1 / n) * variances.max(1) + variances.sum(1) / n  # |Gam|_op
    growth = np.mean(largest * (variances**2).sum(1))
    return float(np.sqrt(2 * np.sum((variances.mean(0)[:, None] * theta) ** 2) / (d**0.5 * growth)))


def _weights(moments: Matrix, n: float, noise: float) -> Matrix:
    """(D, D) zeta_ij = E[lam_i lam_j ((1 + 1/n) lam_i + (sum_k lam_k + noise) / n)]."""
    check_length(n, "test_length or context_length", infinite=True)
    m1, m2, m3 = moments
    others = noise + m1.sum() - m1[:, None] - m1[None, :]  # of the sum, what is independent of lam_i and lam_j
    apart = m2[:, None] * m1[None, :]
    zeta = (1 + 1 / n) * apart + (apart + apart.T + np.outer(m1, m1) * others) / n
    np.fill_diagonal(zeta, (1 + 2 / n) * m3 + m2 * (noise + m1.sum() - m1) / n)
    return zeta


def _context_weights(moments: Matrix, n: float, noise: float) -> Matrix:
    """(D,) E (h^2)_i = E[lam_i ((1 + 1/n) lam_i + (sum_k lam_k + noise) / n)]."""
    check_length(n, "test_length", infinite=True)
    m1, m2, _ = moments
    return (1 + 2 / n) * m2 + m1 * (noise + m1.sum() - m1) / n


def _checked(moments: ArrayLike, name: str = "moments") -> Matrix:
    """(3, D) float64 moments of positive distributions."""
    moments = np.asarray(moments, np.float64)
    if moments.ndim != 2 or moments.shape[0] != 3 or not moments.size:
        raise ValueError(f"{name} must have shape (3, D), got {moments.shape}")
    if not np.isfinite(moments).all():
        raise ValueError(f"{name}: the first three moments of every variance must exist and be finite, got {moments}")
    m1, m2, m3 = moments
    slack = 1 + 1e-9
    if not (np.all(m1 > 0) and np.all(m1**2 <= slack * m2) and np.all(m2**2 <= slack * m1 * m3)):
        raise ValueError(f"{name}: a positive law has m1 > 0, m1^2 <= m2 and m2^2 <= m1 m3, got {moments}")
    return moments


def _of_query(query_moments: ArrayLike | None, moments: Matrix) -> tuple[Matrix, Matrix]:
    """(D,) E lam_i lam'_i and E lam'_i of the query's variances lam', which for None are those of the context."""
    if query_moments is None:
        return moments[1], moments[0]
    query = _checked(query_moments, "query_moments")
    if query.shape != moments.shape:
        raise ValueError(f"query_moments must be {moments.shape} as moments, got {query.shape}")
    return moments[0] * query[0], query[0]
