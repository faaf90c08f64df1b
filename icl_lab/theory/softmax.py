"""One head of softmax attention on linear regression with Gaussian inputs: exact at any number of examples.

The head predicts eta sum_i p_i y_i, p = softmax_i(c x_i.x_q), for x, x_q, w ~ N(0, I_D) and y = w.x without noise. Its
error depends on the mean m = sum_i p_i x_i alone:

    MSE / D = eta^2 G - 2 eta H + 1,   G = E |m|^2 / D,   H = E m.x_q / D,

so eta = H / G is best, with 1 - H^2 / G. For infinitely many examples m is the mean of N(0, I) tilted by exp(u.x),
u = c x_q, which is u: softmax attention is linear attention there (Boursier & Boyer 2025). For many examples

    MSE / D = (eta c - 1)^2 + eta^2 V / N - 2 eta c (eta c - 1) (1 - 2s)^(-D/2 - 1) / N + O(1/N^2),
    V = (1 - 2s)^(-D/2) + s (1 - 2s)^(-D/2 - 1),   s = c^2,

so v = V / c^2 stands where a linear layer, of error 1 / (1 + N / (D + 1)), has D + 1.

At finite N (this lab), only the parts z_i of the inputs along the query matter for p, and with a = c |x_q| and
1/B^k = int t^(k-1) exp(-t B) dt / (k-1)! for B = sum_i exp(a z_i), all moments are integrals over t of products of
phi_jk(t) = E z^j exp(k a z) exp(-t exp(a z)), phi = phi_00:

    E m.x_q / |x_q|    = N int phi_11 phi^(N-1) dt
    E sum_i p_i^2      = N int t phi_02 phi^(N-1) dt
    E (m.x_q/|x_q|)^2  = N int t phi_22 phi^(N-1) dt + N (N-1) int t phi_11^2 phi^(N-2) dt,

and the other D - 1 parts of m have the mean 0 and the variance E sum_i p_i^2.
"""

import functools
import math

import numpy as np

from icl_lab.prompts.tracing import check_number, whole

RADII, STEP = 16, 0.1
"""Nodes over |x_q|^2 (Gauss-Laguerre), and the step of both trapezoids, over z and log t: they leave 1e-10 at c = c*,
and rounding leaves N 1e-14.
"""


def softmax_spread(scale: float, input_size: int) -> float:
    """V: the variance of softmax attention over one example, (1 - 2 c^2)^(-D/2) + c^2 (1 - 2 c^2)^(-D/2 - 1).

    Args:
      scale: c, of the logits c x_i.x_q; 0 < c^2 < 1/2, beyond which V is infinite.
      input_size: D.

    Raises:
      ValueError: for a scale that is not in (0, sqrt(1/2)), or a D below 1.
    """
    return math.exp(_log_spread(_scale(scale, math.sqrt(0.5)), whole("input_size", input_size)))


def _log_spread(c: float, d: int) -> float:
    left = 1 - 2 * c**2
    return -d / 2 * math.log(left) + math.log1p(c**2 / left)


def softmax_scale(input_size: int) -> tuple[float, float]:
    """(c*, v): the best scale of the logits for many examples, and the V / c^2 there.

    v / (D + 1) is how many times the examples of a linear layer the head needs: 3.19 at D = 5, and e for D to infinity.

    Raises:
      ValueError: for a D below 1.
    """
    from scipy.optimize import minimize_scalar  # scipy takes long to import

    d = whole("input_size", input_size)
    minimum = minimize_scalar(
        lambda c: _log_spread(c, d) - 2 * math.log(c), bounds=(0.1 / math.sqrt(d), min(0.7, 2 / math.sqrt(d))),
        method="bounded", options={"xatol": 1e-12},
    )  # fmt: skip
    return float(minimum.x), math.exp(minimum.fun)


def softmax_expansion(context_length: int, input_size: int, scale: float, learning_rate: float) -> float:
    """MSE / D of one softmax head to first order in 1/N: for the best head at N = 200 and D = 5 it is 14 % too large.

    Args:
      context_length: N.
      input_size: D.
      scale: c, of the logits; 0 < c^2 < 1/2.
      learning_rate: eta, the factor on the attention's output.

    Raises:
      ValueError: for sizes below 1, a scale that is not in (0, sqrt(1/2)), or a rate that is not a number.
    """
    n, d, c = whole("context_length", context_length), whole("input_size", input_size), _scale(scale, math.sqrt(0.5))
    check_number("learning_rate", learning_rate)
    off, tilt = learning_rate * c - 1, (1 - 2 * c**2) ** (-d / 2 - 1)
    return off**2 + (learning_rate**2 * softmax_spread(c, d) - 2 * learning_rate * c * off * tilt) / n


def softmax_risk(context_length: int, input_size: int, scale: float, learning_rate: float | None = None) -> float:
    """MSE / D of one softmax head, exact.

    Args:
      context_length: N.
      input_size: D.
      scale: c, of the logits.
      learning_rate: eta, the factor on the attention's output; None: the best for this N and c.

    Raises:
      ValueError: for sizes below 1, a scale that is not a positive number up to 3, or a rate that is not a number.
    """
    squared, along = _moments(whole("context_length", context_length), whole("input_size", input_size), _scale(scale))
    if learning_rate is None:
        return 1 - along**2 / squared
    check_number("learning_rate", learning_rate)
    return learning_rate**2 * squared - 2 * learning_rate * along + 1


def softmax_optimum(context_length: int, input_size: int) -> tuple[float, float, float]:
    """(c, eta, MSE / D) of the best softmax head for N examples: the minimum of the exact error over 0 < c < 3.

    Raises:
      ValueError: for sizes below 1.
    """
    from scipy.optimize import minimize_scalar

    n, d = whole("context_length", context_length), whole("input_size", input_size)
    minimum = minimize_scalar(
        lambda c: softmax_risk(n, d, c), bounds=(1e-3, 3.0), method="bounded", options={"xatol": 1e-6}
    )
    squared, along = _moments(n, d, float(minimum.x))
    return float(minimum.x), along / squared, float(minimum.fun)


def _scale(scale: float, below: float = math.inf) -> float:
    if not (0 < scale <= 3 and scale < below):
        most = "up to 3" if below > 3 else f"below {below:.4g}"
        raise ValueError(f"scale must be a number above 0 and {most}, got {scale}")
    return float(scale)


@functools.lru_cache(maxsize=256)
def _moments(n: int, d: int, c: float) -> tuple[float, float]:
    """G and H."""
    from scipy.special import roots_genlaguerre

    halves, weights = roots_genlaguerre(RADII, d / 2 - 1)
    weights, radii = weights / weights.sum(), np.sqrt(2 * halves)
    kept = weights > 1e-15
    parts = np.array([_along(n, c * radius) for radius in radii[kept]])
    mean, square, shares = parts.T
    squared, along = square + (d - 1) * shares, mean * radii[kept]
    return float(weights[kept] @ squared) / d, float(weights[kept] @ along) / d


def _along(n: int, a: float) -> tuple[float, float, float]:
    """E m.x_q / |x_q|, its mean square, and E sum p^2, at a = c |x_q|."""
    z = np.arange(-9.0, 9.0 + 2 * a, STEP)
    log_t = np.arange(-45.0, 10.0 + 9.0 * a, STEP) - math.log(n) - a**2 / 2
    # weights of dz and dt; t to the power that an integral has is put on the phi, which are small where t is large
    density = np.exp(-(z**2) / 2) * STEP / math.sqrt(2 * math.pi)
    size = np.exp(np.minimum(log_t[:, None] + a * z, 700))  # t exp(a z)
    inside = np.exp(-size)
    tilted = size * inside  # at most 1/e
    twice = size * tilted
    phi, one, two, squares = inside @ density, tilted @ (z * density), twice @ density, twice @ (z**2 * density)
    mean = n * np.sum(one * phi ** (n - 1)) * STEP
    shares = n * np.sum(two * phi ** (n - 1)) * STEP
    square = n * np.sum(squares * phi ** (n - 1)) * STEP
    if n > 1:
        square += n * (n - 1) * np.sum(one**2 * phi ** (n - 2)) * STEP
    return mean, square, shares
