"""The course of learning an induction head, in closed form: slow phase, path, and the time of the cliff (this lab).

All of it about the flow (beta_1, alpha, xi)' = -grad loss of ``nested_logits``, from the origin, T = 2N + 1.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icl_lab.theory.nested_logits.loss import check_sizes, checked_logits


def slow_phase_time(xi: ArrayLike, *, context_length: int, labels: int) -> NDArray[np.float64] | np.float64:
    """Time in which the flow takes the read-out from 0 to ``xi`` while alpha = 0 (this lab, both forms).

    Nothing in the attention tells the context labels apart, and xi alone grows:
    dxi/dt = p (L-N) / (N e^(p xi) + L - N), p = 1/T, so that

        t = T^2 [u + (e^u - 1) N / (L-N)],   u = xi / T,   T = 2N + 1:

    the wait grows as N^2, and as 1/(L/N - 1) near L = N, where it never ends.

    Args:
      xi: at least 0, any shape.
      context_length: N.
      labels: L.

    Raises:
      ValueError: as ``nested_logit_loss``, or for a negative xi.
    """
    check_sizes(context_length, labels)
    value = np.asarray(xi, np.float64)
    if not (np.isfinite(value).all() and np.all(value >= 0)):
        raise ValueError(f"xi must be finite and at least 0, got {xi!r}")
    tokens = 2 * context_length + 1
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(value > 0, np.expm1(value / tokens) * np.divide(context_length, labels - context_length), 0.0)
    return (tokens**2 * (value / tokens + share))[()]


def balanced_alpha(beta_1: ArrayLike, context_length: int) -> NDArray[np.float64] | np.float64:
    """alpha on the path of the simplified form: alpha^2 = 2 [beta_1 + (e^(beta_1) - 1) / (2N)] (this lab).

    The loss sees beta_1 and alpha as the product alpha c(beta_1) alone, and c' = c (1 - c), so that
    dbeta_1/dalpha = alpha (1 - c) = alpha / (1 + e^(beta_1) / (2N)) whatever xi, L or the loss do: alpha^2 / 2 -
    beta_1 - e^(beta_1) / (2N) is conserved. alpha goes first, beta_1 as its square.

    Args:
      beta_1: at least 0, any shape.
      context_length: N.

    Raises:
      ValueError: as ``nested_logit_loss``, or for a negative beta_1, which no path from the origin has.
    """
    check_sizes(context_length, context_length)
    value = checked_logits(beta_1, "beta_1")
    if np.any(value < 0):
        raise ValueError(f"beta_1 must be at least 0, got {beta_1!r}")
    return np.sqrt(2 * (value + np.expm1(value) / (2 * context_length)))[()]


def cliff_time_limit(context_length: ArrayLike, labels: ArrayLike) -> NDArray[np.float64] | np.float64:
    """(2 pi)^(1/4) T^(3/2) / (1 - N/L)^(1/2): time of the cliff for many pairs at fixed N/L < 1 (simplified form).

    To leading order xi = (1 - N/L) t / T grows by itself, alpha' = xi c / T with c = e^(beta_1) / T, and beta_1 =
    alpha^2 / 2 by ``balanced_alpha``. So alpha' = xi e^(alpha^2 / 2) / T^2, which blows up at a finite time:

        integral_0^infinity e^(-a^2 / 2) da = (pi/2)^(1/2) = (1 - N/L) t^2 / (2 T^3).

    That is why it is abrupt. By then the read-out has moved the loss by (2 pi)^(1/4) (1 - N/L)^(3/2) T^(-1/2) only:
    with equal rates the shelf ends near log L, not near log N. At L = 4N the time is 1 % too short at N = 32, 6 % at
    N = 8.

    Args:
      context_length: N, any shape.
      labels: L, above N.

    Raises:
      ValueError: naming the argument, unless N >= 1 and L > N.
    """
    n, count = np.asarray(context_length, np.float64), np.asarray(labels, np.float64)
    if not (np.isfinite(n).all() and np.all(n >= 1)):
        raise ValueError(f"context_length must be at least 1, got {context_length!r}")
    if not (np.isfinite(count).all() and np.all(count > n)):
        raise ValueError(f"labels must be above N, got {labels!r} for N = {context_length!r}")
    return ((2 * np.pi) ** 0.25 * (2 * n + 1) ** 1.5 / np.sqrt(1 - n / count))[()]
