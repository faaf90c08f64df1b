"""In-context training and in-context learnability, the notions of Zhang, Frei & Bartlett 2023 (sections 2 to 4).

A model is *trained* on in-context examples of a class of functions if it minimises the mean loss over functions and
prompts of one length N: for linear functions that is ``optimum``, with the loss ``optimal_loss``. A model *learns* a
class in context up to an error eta if for every eps > 0 there is a length M(eps) beyond which its risk on prompts of
any function of the class is at most eta + eps. Linear self-attention that was trained does so, but eta > 0: no prompt,
however long, undoes the shrinkage that it learned at its training length.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from icl_lab.theory.arguments import Matrix, check_length, check_noise, checked_covariance, checked_matrix


def error_floor(risk_at: Callable[[float], float]) -> float:
    """eta, the least error up to which a model learns in context: the limit of its risk in the test length.

    Args:
      risk_at: ``M -> risk``, such as ``risk`` (mean over tasks), ``worst_risk`` (supremum over the class) or
        ``joint_risk`` (any distribution) at one A; infinity must be allowed.
    """
    return risk_at(math.inf)


def prompt_length(risk_at: Callable[[float], float], excess: float) -> int:
    """M(eps): the least test length from which on the risk is at most eta + eps, eta the ``error_floor``.

    Args:
      risk_at: ``M -> risk``, falling in M, as ``error_floor`` takes it.
      excess: eps.

    Raises:
      ValueError: for an excess that is not positive, or a risk whose limit is not finite.
    """
    if not excess > 0:
        raise ValueError(f"excess must be positive, got {excess}")
    allowed = risk_at(math.inf) + excess
    if not math.isfinite(allowed):
        raise ValueError(f"risk_at must be finite at infinity, got {allowed - excess}")
    high = 1
    while risk_at(high) > allowed:
        high *= 2
    low = high // 2  # its risk is too large, or it is 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if risk_at(middle) <= allowed else (middle, high)
    return high


def worst_risk(
    a: ArrayLike, *, test_length: float, covariance: ArrayLike, radius: float = 1.0, label_noise: float = 0.0
) -> float:
    """The largest ``risk`` over the class of linear functions <w, x> with |w| <= radius.

    The risk of one task is w^T Q w + (s^2/M) tr(Lam W) with W = A Lam A^T and
    Q = (1 + 1/M) Lam W Lam + (tr(Lam W)/M) Lam - Lam (A + A^T) Lam + Lam, so that Q's largest eigenvalue decides
    (this lab; the supremum in the paper's definition of in-context learning).

    Args:
      a: (D, D) A.
      test_length: M; infinity gives the limit.
      covariance: (D, D) Lam of the test inputs.
      radius: of the ball of tasks.
      label_noise: standard deviation s on the context labels.

    Raises:
      ValueError: for a covariance that is not symmetric positive definite, M < 1, a radius that is not positive,
        negative noise.
    """
    lam = checked_covariance(covariance, "covariance")
    a = checked_matrix(a, "a", len(lam))
    check_length(test_length, "test_length", infinite=True)
    check_noise(label_noise)
    if not (radius > 0 and math.isfinite(radius)):
        raise ValueError(f"radius must be a positive number, got {radius}")
    kept = a @ lam @ a.T
    noise = (lam * kept).sum() / test_length
    form = (1 + 1 / test_length) * lam @ kept @ lam + noise * lam - lam @ (a + a.T) @ lam + lam
    return float(radius**2 * np.linalg.eigvalsh((form + form.T) / 2)[-1] + label_noise**2 * noise)


def risk_bound(covariance: ArrayLike, train_length: int, test_length: float) -> float:
    """The paper's bound on the mean risk of the trained layer, of order 1/M + 1/N^2 (after Theorem 4.2).

    (d+1) tr(Lam)/M + (1/N^2) [tr Lam + 2 d tr Lam + tr(Lam^-1) tr(Lam)^2], w ~ N(0, I) and clean labels.

    Raises:
      ValueError: for a covariance that is not symmetric positive definite, N or M < 1.
    """
    lam, trace = _law(covariance, train_length)
    check_length(test_length, "test_length", infinite=True)
    size = len(lam)
    rest = trace + 2 * size * trace + float(np.trace(np.linalg.inv(lam))) * trace**2
    return (size + 1) * trace / test_length + rest / train_length**2


def error_floor_bound(covariance: ArrayLike, train_length: int) -> float:
    """The paper's eta = (1 + 2 d + d^2 kappa) tr(Lam) / N^2, kappa the condition number of Lam (its corollary).

    Raises:
      ValueError: as ``risk_bound``.
    """
    lam, trace = _law(covariance, train_length)
    size, values = len(lam), np.linalg.eigvalsh(lam)
    return float((1 + 2 * size + size**2 * values[-1] / values[0]) * trace / train_length**2)


def prompt_length_bound(covariance: ArrayLike, excess: float) -> float:
    """The paper's sufficient length M(eps) = (d+1) tr(Lam) / eps (its corollary).

    Raises:
      ValueError: for a covariance that is not symmetric positive definite, an excess that is not positive.
    """
    lam = checked_covariance(covariance, "covariance")
    if not excess > 0:
        raise ValueError(f"excess must be positive, got {excess}")
    return float((len(lam) + 1) * np.trace(lam) / excess)


def floor_exponent(covariance: ArrayLike, train_length: float) -> float:
    """Local exponent d ln(eta) / d ln(N) of the floor of the trained layer: from 0 to -2 as N grows (this lab).

    With t = tr Lam the floor is eta = sum_i lam_i (1 - lam_i/g_i)^2 = sum_i lam_i r_i^2 with
    r_i = (lam_i + t)/(N lam_i + lam_i + t), so that the exponent is the mean of -2 N lam_i/(N lam_i + lam_i + t) under
    the weights lam_i r_i^2; Lam = I: -2 N/(N + D + 1).

    Raises:
      ValueError: as ``risk_bound``.
    """
    lam, trace = _law(covariance, train_length)
    values = np.linalg.eigvalsh(lam)
    whole = train_length * values + values + trace
    weights = values * ((values + trace) / whole) ** 2
    return float(-2 * (weights * train_length * values / whole).sum() / weights.sum())


def _law(covariance: ArrayLike, train_length: float) -> tuple[Matrix, float]:
    check_length(train_length, "train_length")
    lam = checked_covariance(covariance, "covariance")
    return lam, float(np.trace(lam))
