"""Layers that learn online as recurrences, in numpy and float64: references to test an implementation against.

Each takes queries (T, K), keys (T, K) and values (T, V) of one sequence and gives what query t reads after example t,
(T, V), and the last state (K, V). Their patterns of attention, for JAX: ``online``.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icl_lab.models.online import checked_each
from icl_lab.prompts.tracing import check_number

Floats = NDArray[np.float64]


def linear_attention(queries: ArrayLike, keys: ArrayLike, values: ArrayLike) -> tuple[Floats, Floats]:
    """S <- S + k v^T, without a mean over examples; (T, V) outputs q^T S and the last state (K, V).

    Raises:
      ValueError: for arrays that are not (T, K), (T, K) and (T, V).
    """
    q, k, v = _checked(queries, keys, values)
    states = np.cumsum(k[:, :, None] * v[:, None, :], axis=0)
    return np.einsum("tk,tkv->tv", q, states), states[-1]


def delta_rule(
    queries: ArrayLike, keys: ArrayLike, values: ArrayLike, *, rates: ArrayLike = 1.0, gates: ArrayLike = 1.0,
    momentum: float = 0.0,
) -> tuple[Floats, Floats]:  # fmt: skip
    """S <- a S; M <- mu M + b k (v - S^T k)^T; S <- S + M: DeltaNet, gated, with momentum.

    Args:
      queries: (T, K).
      keys: (T, K).
      values: (T, V).
      rates: b, one number or (T,).
      gates: a, one number or (T,), on the state alone.
      momentum: mu.

    Returns:
      (T, V) outputs q^T S and the last state (K, V).

    Raises:
      ValueError: for arrays of other shapes.
    """
    q, k, v = _checked(queries, keys, values)
    rate, gate = _each(rates, "rates", len(k)), _each(gates, "gates", len(k))
    check_number("momentum", momentum, scalar=True)
    state = velocity = np.zeros((k.shape[1], v.shape[1]))
    outputs = np.empty_like(v)
    for t in range(len(k)):
        state = gate[t] * state
        velocity = momentum * velocity + rate[t] * np.outer(k[t], v[t] - k[t] @ state)
        state = state + velocity
        outputs[t] = q[t] @ state
    return outputs, state


def mesa_layer(
    queries: ArrayLike, keys: ArrayLike, values: ArrayLike, *, strength: float, rates: ArrayLike = 1.0,
    gates: ArrayLike = 1.0,
) -> tuple[Floats, Floats]:  # fmt: skip
    """H <- a H + b k k^T, G <- a G + b k v^T, S = (lambda I + H)^-1 G: weighted ridge regression on every prefix.

    Args:
      queries: (T, K).
      keys: (T, K).
      values: (T, V).
      strength: lambda above 0.
      rates: b, one number or (T,), not negative.
      gates: a, one number or (T,), not negative.

    Returns:
      (T, V) outputs q^T S and the last state (K, V).

    Raises:
      ValueError: for arrays of other shapes, or a strength that is not above 0.
    """
    q, k, v = _checked(queries, keys, values)
    rate, gate = _each(rates, "rates", len(k)), _each(gates, "gates", len(k))
    check_number("strength", strength, above=0, scalar=True)
    hessian, seen = np.zeros((k.shape[1],) * 2), np.zeros((k.shape[1], v.shape[1]))
    outputs, state = np.empty_like(v), seen
    for t in range(len(k)):
        hessian = gate[t] * hessian + rate[t] * np.outer(k[t], k[t])
        seen = gate[t] * seen + rate[t] * np.outer(k[t], v[t])
        state = np.linalg.solve(strength * np.eye(len(hessian)) + hessian, seen)
        outputs[t] = q[t] @ state
    return outputs, state


def _checked(queries: ArrayLike, keys: ArrayLike, values: ArrayLike) -> tuple[Floats, Floats, Floats]:
    for name, part in {"queries": queries, "keys": keys, "values": values}.items():
        check_number(name, part)
    q, k, v = (np.asarray(part, np.float64) for part in (queries, keys, values))
    if k.ndim != 2 or v.ndim != 2 or q.shape != k.shape or len(v) != len(k) or not len(k):
        raise ValueError(
            f"queries, keys and values must be (T, K), (T, K) and (T, V), got {q.shape}, {k.shape} and {v.shape}"
        )
    return q, k, v


def _each(value: ArrayLike, name: str, examples: int) -> Floats:
    return np.broadcast_to(np.asarray(checked_each(value, name, examples), np.float64), (examples,))
