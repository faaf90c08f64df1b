"""Population loss of one layer of linear self-attention with every block that matters, and its spurious minimum.

Setting (Zhang, Frei & Bartlett 2023, sections 3 and 5): prediction r^T (E E^T / N) K x_q with r = (u12; u) the last row
of W_PV and K = (U11; u21^T) the first D columns of W_KQ; the query column (x_q; 0) is part of E; x ~ N(0, Lam),
w ~ N(0, I), y = <w, x>. The paper follows the flow from u12 = u21 = 0, which it keeps.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from icl_lab.theory.arguments import Matrix, check_length, checked_covariance, checked_matrix, checked_vector
from icl_lab.theory.linear_attention.closed_forms import gamma, merged_loss_terms


def block_loss(
    u11: ArrayLike, u: float, u12: ArrayLike, u21: ArrayLike, covariance: ArrayLike, context_length: float
) -> float:
    """Half the mean squared error of linear self-attention, all blocks, exact Gaussian moments (this lab).

    At u12 = u21 = 0 it is ``population_loss`` of A = u U11. Invariant under (u, u12) -> c (u, u12), (U11, u21) ->
    (U11, u21) / c. The layer divides by the length of the prompt that it is given, so that twice this loss at N = M is
    its risk on prompts of length M, wherever it was trained.

    Args:
      u11: (D, D) upper left block of W_KQ.
      u: entry (D+1, D+1) of W_PV.
      u12: (D,) rest of the last row of W_PV.
      u21: (D,) rest of the last row of W_KQ.
      covariance: (D, D) Lam.
      context_length: N; infinity gives the limit.

    Raises:
      ValueError: naming the argument, for shapes that do not fit, a covariance that is not symmetric positive definite,
        N < 1.
    """
    lam = checked_covariance(covariance, "covariance")
    check_length(context_length, "context_length", infinite=True)
    if not np.isfinite(u):
        raise ValueError(f"u must be a finite number, got {u}")
    size = lam.shape[0]
    return float(
        block_loss_terms(
            checked_matrix(u11, "u11", size),
            np.float64(u),
            checked_vector(u12, "u12", size),
            checked_vector(u21, "u21", size),
            lam,
            context_length,
        )
    )


def spurious_point(covariance: ArrayLike, context_length: int) -> tuple[Matrix, float, Matrix, Matrix]:
    """Blocks (U11, u, u12, u21) of the spurious stationary point: one principal component read in context (this lab).

    U11 = 0, u = 0 and u12 = u21 = g^-1/2 e_1 with g the largest eigenvalue of Gam and e_1 its eigenvector, so that
    A = u12 u21^T = e_1 e_1^T / g; its loss is ``spurious_loss``. Balanced: u12 -> c u12, u21 -> u21 / c is as good.

    Raises:
      ValueError: for a covariance that is not symmetric positive definite, or N < 1.
    """
    values, vectors = np.linalg.eigh(gamma(covariance, context_length))
    direction = vectors[:, -1] / np.sqrt(values[-1])
    return np.zeros((len(values), len(values))), 0.0, direction, direction


def spurious_curvature(covariance: ArrayLike, context_length: int) -> float:
    """Curvature of the loss along u at ``spurious_point``, the loss minimised over U11: is it a minimum? (this lab).

    The Hessian there is block diagonal in (u12, u21), positive semidefinite always, in the off-diagonal entries of U11
    (in the eigenbasis of Lam), positive too, and in (u, diag U11), where the part even in w costs
    (1/2) E (alpha sum_j (Shat_1j x_j + x_1 x_j^2 / N) U_jj + alpha (w^T Shat w) x_1 u)^2, alpha = g^-1/2, and what
    the retrieval of the other components gains is u sum_(j>1) lam_j^2 U_jj. The Schur complement of that block is what
    is returned: positive, the point is a local minimum (strict but for the scale symmetry and equal eigenvalues);
    negative, it is a saddle. For D > 1 it falls without bound as N grows (diag U11 costs but 1/N), so that **only short
    prompts have the spurious minimum**: N <= 20 for eigenvalues 1.5, 0.5; N <= 5 for 2, 1.5, 1, 0.6, 0.3.

    Raises:
      ValueError: as ``spurious_point``.
    """
    values = np.linalg.eigvalsh(checked_covariance(covariance, "covariance"))[::-1]
    check_length(context_length, "context_length")
    n, top, trace = context_length, values[0], values.sum()
    alpha = ((1 + 1 / n) * top + trace / n) ** -0.5
    along_u = top * (1 + 2 / n) * (trace**2 + 2 * (values**2).sum())
    along_diagonal = top * np.outer(values, values) / n**2
    along_diagonal[0] = along_diagonal[:, 0] = top**2 * values * (1 / n + 3 / n**2)
    np.fill_diagonal(along_diagonal, top * values**2 * (1 / n + 3 / n**2))
    along_diagonal[0, 0] = top**3 * (1 + 3 / n) * (1 + 5 / n)
    mixed = alpha**2 * trace * top * values / n - values**2
    mixed[0] = alpha**2 * top**2 * (trace + (2 * top + 3 * trace) / n)
    return float(alpha**2 * along_u - mixed @ np.linalg.solve(alpha**2 * along_diagonal, mixed))


def block_loss_terms(u11: Any, u: Any, u12: Any, u21: Any, lam: Any, n: Any) -> Any:
    """``block_loss`` unchecked, for numpy and JAX arrays alike (jit, grad, vmap); a scalar of the arrays' type.

    With Shat = sum x x^T / N, the error y_hat - <w, x_q> is the sum of a part odd in w, the merged prediction's error
    at A = u U11 + u12 u21^T, and of a part even in w, of which the cross moment with the first vanishes:

        e = u12^T Shat U11 x_q + (u12^T x_q)(x_q^T U11 x_q) / N + u (w^T Shat w)(u21^T x_q).
    """
    merged = u * u11 + u12[:, None] * u21[None, :]
    return merged_loss_terms(merged, lam, n) + 0.5 * _even_part(u11, u, u12, u21, lam, n)


def _even_part(u11: Any, u: Any, u12: Any, u21: Any, lam: Any, n: Any) -> Any:
    """E e^2 of the part even in w, e = a^T x_q + c(x_q) with a = U11^T Shat u12 + u (w^T Shat w) u21, c the cubic form.

    E[Shat B Shat] = (1+1/N) Lam B Lam + tr(B Lam)/N Lam (Wishart, B symmetric), E[tr(Shat) Shat] = tr(Lam) Lam +
    (2/N) Lam^2, E (w^T Shat w)^2 = (1+2/N)(tr(Lam)^2 + 2 tr Lam^2), and Isserlis' theorem for the query: with
    V = (U11 + U11^T)/2, t = tr(V Lam), E[x (u12^T x)(x^T V x)] = t Lam u12 + 2 Lam V Lam u12.
    """
    trace, squares = lam.trace(), (lam * lam).sum()
    p, q = lam @ u12, lam @ u21
    weighted = p @ u12
    carried = u11.T @ p  # U11^T Lam u12
    through = lam @ u11.T  # Lam U11^T
    linear = (
        (1 + 1 / n) * (carried @ lam @ carried)
        + (through * (u11.T @ lam)).sum() / n * weighted  # tr(U11 Lam U11^T Lam) / N
        + 2 * u * (trace * (q @ carried) + 2 / n * (q @ (u11.T @ (lam @ p))))
        + u**2 * (1 + 2 / n) * (trace**2 + 2 * squares) * (q @ u21)
    )
    symmetric = (u11 + u11.T) / 2
    t = (symmetric * lam).sum()
    bent = symmetric @ p  # V Lam u12
    tilted = lam @ bent
    mixed = (carried + u * trace * u21) @ (t * p + 2 * tilted) / n
    spread = ((symmetric @ lam) * (lam @ symmetric)).sum()  # tr(V Lam V Lam)
    cubic = (weighted * (t**2 + 2 * spread) + 4 * t * (p @ bent) + 8 * (bent @ tilted)) / n**2
    return linear + 2 * mixed + cubic
