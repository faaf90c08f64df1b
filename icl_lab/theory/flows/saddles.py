"""The staircase of separate rank-one attention: levels, scales of the heads, and when each plateau ends.

Setting (Zhang, Singh, Latham & Saxe 2025): y_hat = sum_h value_h (beta^T key_h)(query_h^T x_q), beta = (1/N) sum y x,
started small; a head that leaves the origin learns one principal component of the inputs, and the loss falls in D
steps. Losses are half mean squared errors (theirs are twice as large), one unit of time is their tau.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icl_lab.theory.arguments import Matrix, checked_covariance, checked_vector
from icl_lab.theory.linear_attention.closed_forms import gamma, principal_components_loss

HALF = 2 ** (-1 / 3)  # of its final scale: where a head has learned half of its component, value^3


def staircase_levels(covariance: ArrayLike, context_length: int) -> NDArray[np.float64]:
    """(D + 1,) losses of the plateaus, from nothing learned to everything, the largest component first.

    Level m is ``principal_components_loss`` at m; errors as there. A plateau on which other m components are learned
    is a fixed point too (2^D in all): the loss falls by the same amount for each component, whatever the order.
    """
    size = len(np.atleast_2d(covariance))
    return np.array([principal_components_loss(covariance, context_length, m) for m in range(size + 1)])


def head_scales(covariance: ArrayLike, context_length: int) -> NDArray[np.float64]:
    """(D,) final |value| of the head that learns each component: [lam_i (1 + (1 + tr Lam / lam_i) / N)]^(-1/3).

    From the largest eigenvalue down; exact for a small start, in which |value| = |key| = |query|
    (Zhang, Singh, Latham & Saxe 2025). Errors as ``gamma``.
    """
    return np.asarray(np.linalg.eigvalsh(gamma(covariance, context_length))[::-1] ** (-1 / 3), np.float64)


def head_velocity(
    value: ArrayLike, covariance: ArrayLike, context_length: int, component: int
) -> NDArray[np.float64] | np.float64:
    """dv/dt = lam^2 v^2 - lam^3 (1 + (1 + tr Lam / lam)/N) v^5 of a head aligned with one component and balanced.

    Args:
      value: v = |key| = |query|, any shape.
      covariance: (D, D) Lam.
      context_length: N.
      component: 0 for the largest eigenvalue.

    Raises:
      ValueError: as ``gamma``, or for a component that is not one of 0 ... D-1.
    """
    v = np.asarray(value, np.float64)
    lam, scale = _component(covariance, context_length, component)
    return lam**2 * v**2 * (1 - (v / scale) ** 3)


def head_time(start: float, end: float, covariance: ArrayLike, context_length: int, component: int) -> float:
    """Time in which ``head_velocity`` takes a head from one scale to a larger one (this lab: its exact integral).

    With x = v / scale, lam^2 scale t = -1/x - ln(1 - x)/3 + ln(1 + x + x^2)/6 - atan((2x + 1)/sqrt 3)/sqrt 3: a start
    of size w is left after a time 1 / (lam^2 w), not a logarithm.

    Args:
      start: v at the start.
      end: v at the end, below the final scale.
      covariance: (D, D) Lam.
      context_length: N.
      component: 0 for the largest eigenvalue.

    Raises:
      ValueError: as ``head_velocity``, or unless 0 < start <= end < final scale.
    """
    lam, scale = _component(covariance, context_length, component)
    if not 0 < start <= end < scale:
        raise ValueError(f"allowed is 0 < start <= end < {scale:g}, the final scale; got start={start}, end={end}")
    return (_primitive(end / scale) - _primitive(start / scale)) / (lam**2 * scale)


def escape_times(
    value: ArrayLike, key: ArrayLike, query: ArrayLike, covariance: ArrayLike, context_length: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Which component is learned when, from the initial weights alone: (components, times), both (D,) (this lab).

    While the weights are small the heads do not see each other, and a head moves as value' = sum_i r_i k_i q_i,
    k_i' = r_i value q_i, q_i' = r_i value k_i in the eigenbasis, r_i = lam_i^2, or 0 once component i is learned. With
    tau' = value this is linear, (k +- q)_i = (k +- q)_i(0) exp(+- r_i tau), so that a head blows up in finite time. The
    one that does so first learns the component it has turned to, half of it after the remaining time of ``head_time``,
    and the rest go on without it. First order in the initial scale: heads that escape together are not resolved.

    Args:
      value: (H,) initial values.
      key: (H, D) initial keys.
      query: (H, D) initial queries.
      covariance: (D, D) Lam.
      context_length: N.

    Returns:
      Components (0 for the largest eigenvalue; -1 where no prediction can be made) and the times at which half of each
      is learned (NaN where none).

    Raises:
      ValueError: for arguments whose shapes do not fit or are not finite, or as ``gamma``.
    """
    lam = checked_covariance(covariance, "covariance")
    size = len(lam)
    eigenvalues, basis = np.linalg.eigh(lam)
    eigenvalues, basis = eigenvalues[::-1], basis[:, ::-1]
    v = checked_vector(value, "value", np.size(value))
    keys, queries = (
        np.stack([checked_vector(row, name, size) for row in np.atleast_2d(given)]) @ basis
        for name, given in (("key", key), ("query", query))
    )
    if not len(v) == len(keys) == len(queries):
        raise ValueError(f"value, key and query must have as many heads: {len(v)}, {len(keys)}, {len(queries)}")
    heads = [(v[h], keys[h] + queries[h], keys[h] - queries[h]) for h in range(len(v))]
    components, times, now = np.full(size, -1), np.full(size, np.nan), 0.0
    rates, scales = eigenvalues**2, head_scales(covariance, context_length)
    for stage in range(min(size, len(heads))):
        blown = [_blow_up(head, rates) for head in heads]
        halves = [t + (_primitive(HALF) - _ORIGIN) / (eigenvalues[c] ** 2 * scales[c]) for t, c in blown]
        first = int(np.argmin(halves))
        components[stage], times[stage] = blown[first][1], now + halves[first]
        others = [h for h in range(len(heads)) if h != first]
        if any(blown[h][0] <= halves[first] for h in others):
            break
        heads = [_advance(heads[h], rates, halves[first]) for h in others]
        rates = np.where(np.arange(size) == components[stage], 0.0, rates)
        now = times[stage]
    return components, times


Head = tuple[float, Matrix, Matrix]
"""Value, key + query and key - query of one head, in the eigenbasis."""

_ORIGIN = -math.pi / (6 * math.sqrt(3))  # of the primitive, without its -1/x


def _primitive(x: float) -> float:
    log = math.log1p(x + x**2) / 6 - math.log1p(-x) / 3
    return log - 1 / x - math.atan((2 * x + 1) / math.sqrt(3)) / math.sqrt(3)


def _component(covariance: ArrayLike, context_length: int, component: int) -> tuple[float, float]:
    """Eigenvalue and final scale of a component."""
    scales = head_scales(covariance, context_length)
    if component not in range(len(scales)):
        raise ValueError(f"component must be a whole number from 0 to {len(scales) - 1}, got {component}")
    return float(np.linalg.eigvalsh(np.asarray(covariance, np.float64))[::-1][component]), float(scales[component])


def _course(head: Head, rates: Matrix, until: float, largest: float) -> tuple[float, float, float]:
    """(time, tau, value) where a head that sees no other is at ``until``, or where |value| has grown to ``largest``."""
    from scipy.integrate import solve_ivp

    value, plus, minus = head

    def velocity(_, state):
        grown, shrunk = plus * np.exp(rates * state[0]), minus * np.exp(-rates * state[0])
        return [state[1], float(rates @ (grown**2 - shrunk**2)) / 4]

    def grown(_, state):
        return abs(state[1]) - largest

    grown.terminal = True  # type: ignore[attr-defined]
    path = solve_ivp(velocity, (0.0, until), [0.0, value], events=grown, rtol=1e-8, atol=1e-12, method="LSODA")
    return float(path.t[-1]), float(path.y[0, -1]), float(path.y[1, -1])


def _blow_up(head: Head, rates: Matrix) -> tuple[float, int]:
    """When a head that sees no other blows up, and along which component."""
    size = float(abs(head[0]) + np.linalg.norm(head[1]) + np.linalg.norm(head[2]))
    time, tau, value = _course(head, rates, 1e6 / (rates.max() * size), 100 * size)
    shape = np.abs(head[1]) * np.exp(rates * tau) + np.abs(head[2]) * np.exp(-rates * tau)
    component = int(np.argmax(np.where(rates > 0, shape, -1.0)))
    return time + 1 / (rates[component] * abs(value)), component


def _advance(head: Head, rates: Matrix, time: float) -> Head:
    _, tau, value = _course(head, rates, time, math.inf)
    return value, head[1] * np.exp(rates * tau), head[2] * np.exp(-rates * tau)
