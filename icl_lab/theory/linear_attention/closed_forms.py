"""Closed forms of one trained layer of linear self-attention: its population loss, its optimum, its risk under shifts.

Setting (Zhang, Frei & Bartlett 2023): prompt of N pairs, x ~ N(0, Lam), w ~ N(0, I_D), y = <w, x>. With u12 = u21 = 0
the prediction is y_hat = h^T A x_q, h = (1/N) sum_i y_i x_i, A = u U11, so that everything below is a function of A
(D, D). float64; nothing larger than a (D, D) matrix is formed. Losses are half mean squared errors, risks whole ones.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from icl_lab.theory.arguments import Matrix, check_length, check_noise, checked_covariance, checked_matrix


def gamma(covariance: ArrayLike, context_length: float) -> Matrix:
    """Gam = (1 + 1/N) Lam + (tr Lam / N) I (Zhang, Frei & Bartlett 2023, Theorem 4.1).

    Args:
      covariance: (D, D) Lam.
      context_length: N.

    Returns:
      (D, D) float64.

    Raises:
      ValueError: for a covariance that is not symmetric positive definite, or N < 1.
    """
    lam = _law(covariance, context_length)
    return (1 + 1 / context_length) * lam + np.trace(lam) / context_length * np.eye(len(lam))


def optimum(
    covariance: ArrayLike,
    context_length: float,
    task_moment: ArrayLike | None = None,
    label_noise: float = 0.0,
) -> Matrix:
    """The A that has the smallest population loss: Gam^-1 for w ~ N(0, I) and clean labels (Theorem 4.1).

    With E[w w^T] = S and label noise of variance s^2 the gradient of ``risk`` vanishes at

        A* = [(1 + 1/N) Lam + ((tr(S Lam) + s^2) / N) S^-1]^-1 = [(1 + 1/N) S Lam + (tr(S Lam) + s^2)/N I]^-1 S,

    symmetric though S and Lam need not commute; the second form, which is computed, holds for singular S too and is the
    optimum of least norm there (this lab; for S = Lam^-1 that of Mahankali, Hashimoto & Ma 2023).

    Args:
      covariance: (D, D) Lam.
      context_length: N.
      task_moment: (D, D) S, semidefinite and not zero; None means the identity.
      label_noise: standard deviation s of the noise on the context labels.

    Raises:
      ValueError: as ``gamma``; for a task moment that is not symmetric, has a negative eigenvalue or is zero.
    """
    lam = _law(covariance, context_length)
    s = _task_moment(task_moment, len(lam))
    check_noise(label_noise)
    if not s.any():
        raise ValueError("task_moment must not be zero: every A would be as good")
    ridge = ((s * lam).sum() + label_noise**2) / context_length
    a = np.linalg.solve((1 + 1 / context_length) * s @ lam + ridge * np.eye(len(lam)), s)
    return (a + a.T) / 2


def population_loss(a: ArrayLike, covariance: ArrayLike, context_length: int) -> float:
    """L(A) = (1/2) tr(Gam Lam A Lam A^T) - tr(Lam^2 A^T) + (1/2) tr Lam, for any A.

    Zhang, Frei & Bartlett 2023, section 5, where the constant (1/2) tr Lam is left out.

    Args:
      a: (D, D), not necessarily symmetric.
      covariance: (D, D) Lam.
      context_length: N.

    Raises:
      ValueError: as ``gamma``, or for an A of another shape.
    """
    lam = _law(covariance, context_length)
    return float(merged_loss_terms(checked_matrix(a, "a", len(lam)), lam, context_length))


def merged_loss_terms(a: Any, lam: Any, n: Any) -> Any:
    """``population_loss`` unchecked, for numpy and JAX arrays alike (jit, grad, vmap); a scalar of their type."""
    left, right = lam @ a, a @ lam
    fit = (1 + 1 / n) * ((lam @ right) * left).sum() + lam.trace() / n * (right * left).sum()
    return 0.5 * fit - (lam * right).sum() + 0.5 * lam.trace()


def optimal_loss(covariance: ArrayLike, context_length: float) -> float:
    """L* = (1/2) [tr Lam - tr(Lam^2 Gam^-1)], the loss at A = Gam^-1 (arguments as ``gamma``)."""
    lam = _law(covariance, context_length)
    return float((np.trace(lam) - np.trace(lam @ np.linalg.solve(gamma(lam, context_length), lam))) / 2)


def principal_components_loss(covariance: ArrayLike, context_length: int, components: int) -> float:
    """Loss of the best A that reads the first m principal components only: level m of the staircase.

    (1/2) [tr Lam - sum_(i<=m) lam_i / (1 + (1 + tr Lam / lam_i) / N)], lam_1 >= lam_2 >= ... the eigenvalues of Lam
    (Zhang, Singh, Latham & Saxe 2025, whose loss is twice this); m = D gives ``optimal_loss``.

    Args:
      covariance: (D, D) Lam.
      context_length: N.
      components: m, from 0 to D.

    Raises:
      ValueError: as ``gamma``, or for another m.
    """
    values = np.linalg.eigvalsh(_law(covariance, context_length))[::-1]
    if components not in range(len(values) + 1):
        raise ValueError(f"components must be a whole number from 0 to D = {len(values)}, got {components}")
    trace, kept = values.sum(), values[:components]
    return float((trace - (kept / (1 + (1 + trace / kept) / context_length)).sum()) / 2)


def spurious_loss(covariance: ArrayLike, context_length: int) -> float:
    """Loss at the spurious stationary point of the full blocks, u12 u21^T = e_1 e_1^T / g_1 and u = U11 = 0 (this lab).

    It reads one principal component, ``principal_components_loss`` at m = 1; arguments and errors as there.
    """
    return principal_components_loss(covariance, context_length, 1)


def risk(
    a: ArrayLike,
    *,
    test_length: float,
    covariance: ArrayLike,
    query_covariance: ArrayLike | None = None,
    task_moment: ArrayLike | None = None,
    label_noise: float = 0.0,
    noisy_query: bool = False,
) -> float:
    """Mean squared error E (h^T A x_q - y_q)^2 of any A under every shift of the test prompt at once (this lab).

    With test covariance Lt, query covariance Lq, task moment S, noise s and test length M,

        R = tr(C A Lq A^T) - 2 tr(S Lt A Lq) + tr(S Lq),   C = (1 + 1/M) Lt S Lt + ((tr(S Lt) + s^2) / M) Lt = E[h h^T],

    plus s^2 if the query's label is noisy. At M = N and the training distribution it is twice
    ``population_loss`` (extends Zhang, Frei & Bartlett 2023, Theorem 4.2).

    Args:
      a: (D, D) A, however it was trained.
      test_length: M; ``math.inf`` gives the limit.
      covariance: (D, D) Lt of the test inputs, semidefinite.
      query_covariance: (D, D) Lq, semidefinite; None means Lt.
      task_moment: (D, D) S = E[w w^T], or w w^T of one task; None means the identity.
      label_noise: standard deviation s of the noise on the context labels.
      noisy_query: whether the error is taken against a noisy label.

    Raises:
      ValueError: naming the argument, for a covariance or moment that is not symmetric or has a negative eigenvalue,
        shapes that do not fit, M < 1, noise below 0.
    """
    lam = checked_covariance(covariance, "covariance", semidefinite=True)
    size = len(lam)
    a = checked_matrix(a, "a", size)
    query = lam
    if query_covariance is not None:
        query = checked_covariance(query_covariance, "query_covariance", semidefinite=True, size=size)
    s = _task_moment(task_moment, size)
    check_length(test_length, "test_length", infinite=True)
    check_noise(label_noise)
    seen = s @ lam
    context = (1 + 1 / test_length) * lam @ seen + (np.trace(seen) + label_noise**2) / test_length * lam
    moved = a @ query
    error = (context * (moved @ a.T)).sum() - 2 * (seen.T * moved).sum() + (s * query).sum()
    return float(error + (label_noise**2 if noisy_query else 0.0))


def isotropic_risk(
    input_size: ArrayLike, train_length: ArrayLike, test_length: ArrayLike, label_noise: ArrayLike = 0.0
) -> np.ndarray:
    """R/D = [(D+1)^2 + N^2 (D+1+s^2)/M] / (N+D+1)^2: ``risk`` for Lam = I of the A trained without noise (this lab).

    Args:
      input_size: D.
      train_length: N.
      test_length: M; infinity gives the floor ((D+1)/(N+D+1))^2.
      label_noise: standard deviation s on the context labels.

    Returns:
      float64; all arguments broadcast.

    Raises:
      ValueError: for sizes below 1, D or N that are not finite, or negative noise.
    """
    d, n, m, s = (np.asarray(v, np.float64) for v in (input_size, train_length, test_length, label_noise))
    for name, value in (("input_size", d), ("train_length", n), ("test_length", m)):
        if not np.all(value >= 1):
            raise ValueError(f"{name} must be at least 1, got {value}")
        if name != "test_length" and not np.isfinite(value).all():
            raise ValueError(f"{name} must be finite, got {value}")
    if not np.all(s >= 0):
        raise ValueError(f"label_noise is a standard deviation: allowed is a number >= 0, got {s}")
    return ((d + 1) ** 2 + n**2 * (d + 1 + s**2) / m) / (n + d + 1) ** 2


def _law(covariance: ArrayLike, context_length: float) -> Matrix:
    check_length(context_length, "context_length")
    return checked_covariance(covariance, "covariance")


def _task_moment(task_moment: ArrayLike | None, size: int) -> Matrix:
    if task_moment is None:
        return np.eye(size)
    return checked_covariance(task_moment, "task_moment", semidefinite=True, size=size)
