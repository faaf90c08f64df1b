"""Contexts of correlated inputs: a layer of linear attention sees them as shorter contexts of independent ones.

The inputs are x_i ~ N(0, Lam) with E x_i x_j^T = K_ij Lam, K_ij = c^|i-j|; the query is independent of them. Then

    E S^2 = (1 + t) Lam^2 + t tr(Lam) Lam,   S = X^T X / N,   t = tr(K^2) / N^2

(Letey, Lu, Pehlevan & Zavatone-Veth 2026 for Lam = I; any Lam: this lab). Independent inputs have t = 1/N, so without
noise every closed form of ``closed_forms`` holds with N_eff = 1/t in place of N. The noise on the labels stays
independent, and its term is s^2 Lam / N whatever K: at N_eff that is a noise of s sqrt(N_eff / N). With Lam = I and
h = X^T y / N, then,

    E (a h.x_q - w.x_q)^2 / D = (1 - a)^2 + a^2 ((D + 1) t + s^2 / N),

least at a* = 1 / (1 + (D + 1) t + s^2 / N), where it is 1 - a*.
"""

import math

from icl_lab.theory.arguments import check_length, check_noise


def effective_length(context_length: int, correlation: float) -> float:
    """N_eff = N^2 / tr K^2: how many independent inputs tell linear attention as much as N correlated ones.

    tr K^2 = sum_ij c^(2|i-j|) = N (1 + r)/(1 - r) - 2 r (1 - r^N)/(1 - r)^2, r = c^2.

    Args:
      context_length: N.
      correlation: c in [-1, 1].

    Returns:
      N_eff, from 1 (c = 1 or -1) to N (c = 0).

    Raises:
      ValueError: for a length below 1, or a correlation outside [-1, 1].
    """
    check_length(context_length, "context_length")
    if not abs(correlation) <= 1:
        raise ValueError(f"correlation must be a number from -1 to 1, got {correlation}")
    lags = range(1, int(context_length))
    return context_length**2 / (context_length + 2 * sum((context_length - k) * correlation ** (2 * k) for k in lags))


def effective_noise(context_length: int, correlation: float, label_noise: float) -> float:
    """s sqrt(N_eff / N): the label noise that goes with ``effective_length`` in the closed forms of independent inputs.

    Args:
      context_length: N.
      correlation: c in [-1, 1].
      label_noise: standard deviation s of the noise on the context labels.

    Raises:
      ValueError: as ``effective_length``; for noise that is not a number >= 0.
    """
    check_noise(label_noise)
    return label_noise * math.sqrt(effective_length(context_length, correlation) / context_length)


def correlation_of(context_length: int, effective: float) -> float:
    """The c >= 0 at which N inputs have this effective length, the inverse of ``effective_length``.

    Args:
      context_length: N, at least 2 where ``effective`` is less than N.
      effective: N_eff, from 1 to N.

    Raises:
      ValueError: for a length below 1, or an effective length outside [1, N].
    """
    from scipy.optimize import brentq  # scipy takes long to import

    check_length(context_length, "context_length")
    if not 1 <= effective <= context_length:
        raise ValueError(f"effective must be from 1 to N = {context_length}, got {effective}")
    if effective in (1, context_length):
        return float(effective == 1 and context_length > 1)
    return float(brentq(lambda c: effective_length(context_length, c) - effective, 0.0, 1.0, xtol=1e-14))
