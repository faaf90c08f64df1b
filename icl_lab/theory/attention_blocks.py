"""Population loss of one layer of linear self-attention with every block that matters, and its spurious minimum.

Setting (Zhang, Frei & Bartlett 2023, sections 3 and 5): prediction r^T (E E^T / N) K x_q with r = (u12; u) the last row
of W_PV and K = (U11; u21^T) the first D columns of W_KQ; the query column (x_q; 0) is part of E; x ~ N(0, Lam),
w ~ N(0, I), y = <w, x>. The paper follows the flow from u12 = u21 = 0, which it keeps.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from icl_lab.theory.arguments import check_length, checked_covariance, checked_matrix, checked_vector
from icl_lab.theory.linear_attention import merged_loss_terms


def block_loss(
    u11: ArrayLike, u: float, u12: ArrayLike, u21: ArrayLike, covariance: ArrayLike, context_length: int
) -> float:
    """Half the mean squared error of linear self-attention, all blocks, exact Gaussian moments (this lab).

    At u12 = u21 = 0 it is ``population_loss`` of A = u U11. Invariant under (u, u12) -> c (u, u12),
    (U11, u21) -> (U11, u21) / c.

    Args:
      u11: (D, D) upper left block of W_KQ.
      u: entry (D+1, D+1) of W_PV.
      u12: (D,) rest of the last row of W_PV.
      u21: (D,) rest of the last row of W_KQ.
      covariance: (D, D) Lam.
      context_length: N.

    Raises:
      ValueError: naming the argument, for shapes that do not fit, a covariance that is not symmetric positive definite,
        N < 1.
    """
    lam = checked_covariance(covariance, "covariance")
    check_length(context_length, "context_length")
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
