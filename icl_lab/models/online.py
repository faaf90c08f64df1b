"""Layers that learn online, one example after the other, as patterns of attention; the query reads the last state.

With keys k_t, values v_t, rates b_t, gates a_t, momentum mu the *delta rule* keeps a state S (K, V) and a velocity M,

    S <- a_t S;   M <- mu M + b_t k_t (v_t - S^T k_t)^T;   S <- S + M,

and a query reads q^T S. It is DeltaNet at a = 1 and mu = 0 (Schlag et al. 2021), gated DeltaNet at mu = 0 (Yang et al.
2024). On keys sqrt(b) x and values y it is least mean squares at the rate b, leaky LMS with gates, and heavy ball with
momentum, one example a step. *Mesa* reads the ridge regression that weights examples by c_t = b_t prod_(j>t) a_j,

    S = (lambda I + sum_t c_t k_t k_t^T)^-1 sum_t c_t k_t v_t^T   (von Oswald et al. 2023; von Oswald et al. 2025).

Both are linear in the values, so they are patterns q S = P v. The write of example j, k_j u_j^T, is in the state after
example t with the weight C_tj = sum_(i=j)^t a_(i+1) .. a_t mu^(i-j), of which example t has seen C_tj - mu^(t-j); hence

    P = (q K^T diag(C_N)) (I + diag(b) tril((C - mu^(t-j)) * K K^T, -1))^-1 diag(b).

The same as recurrences, in float64: ``recurrences``.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from icl_lab.matrices import backward, positive_solve
from icl_lab.prompts.tracing import check_number, is_traced


def delta_pattern(
    queries: Array, keys: Array, *, rates: ArrayLike = 1.0, gates: ArrayLike = 1.0, momentum: ArrayLike = 0.0,
    normalised: bool = False,
) -> Array:  # fmt: skip
    """Pattern of the delta rule for one task, (T, K) queries, (N, K) keys -> (T, N).

    Args:
      queries: all read the last state.
      keys: of the examples, in their order.
      rates: b, one number or (N,).
      gates: a, one number or (N,).
      momentum: mu, one number.
      normalised: keys and values are divided by |k| (a key of zero is left as it is): normalised LMS, and at a rate of
        1 randomised Kaczmarz.

    Raises:
      ValueError: for rates or gates that are not one number or (N,), or a momentum that is not one number.
    """
    queries, keys = jnp.asarray(queries), jnp.asarray(keys)
    seen, kept = (jnp.asarray(part, keys.dtype) for part in memory(keys.shape[0], gates, momentum))
    rates = _each(rates, "rates", keys.shape[0], keys.dtype)
    sizes = _sizes(jnp.sum(keys**2, axis=1)) if normalised else jnp.ones_like(keys[:, 0])
    keys = keys / sizes[:, None]
    coupling = rates[:, None] * seen * (keys @ keys.T)
    read = (queries @ keys.T) * kept[None]
    system = jnp.eye(keys.shape[0], dtype=keys.dtype) + coupling
    solution = backward(system, read.T).T
    return solution * (rates / sizes)[None]


def delta_of_grams(
    scores: Array, gram: Array, *, rates: ArrayLike = 1.0, gates: ArrayLike = 1.0, momentum: ArrayLike = 0.0,
    normalised: bool = False,
) -> Array:  # fmt: skip
    """``delta_pattern`` of a batch of tasks, from q.k and k.k by back substitution, one example after the other.

    (blocks, T, N, tasks) scores, (blocks, N, N, tasks) gram -> (blocks, T, N, tasks); other arguments and errors as
    there.
    """
    n = scores.shape[2]
    seen, kept = (jnp.asarray(part, scores.dtype) for part in memory(n, gates, momentum))
    rates = _each(rates, "rates", n, scores.dtype)
    sizes = jnp.ones((1, n, 1), scores.dtype)
    if normalised:
        sizes = _sizes(jnp.moveaxis(jnp.diagonal(gram, axis1=1, axis2=2), 2, 1))  # (blocks, N, tasks)
    coupling = (rates[:, None] * seen)[None, :, :, None] * gram / (sizes[:, :, None] * sizes[:, None])
    read = scores * kept[None, None, :, None] / sizes[:, None]

    def step(rest: Array, last: tuple[Array, Array]) -> tuple[Array, None]:
        i, row = last  # what example i wrote is known; take off what earlier ones read through it
        one = jax.lax.dynamic_index_in_dim(rest, i, 2)
        return rest - one * row[:, None], None

    rows = (jnp.arange(n), jnp.moveaxis(coupling, 1, 0))
    solution, _ = jax.lax.scan(step, read, rows, reverse=True)
    return solution * (rates[None, :, None] / sizes)[:, None]


def mesa_pattern(
    queries: Array, keys: Array, *, strength: ArrayLike, rates: ArrayLike = 1.0, gates: ArrayLike = 1.0
) -> Array:
    """Pattern of the mesa layer for one task, (T, K) queries, (N, K) keys -> (T, N).

    Args:
      queries: all read the last state.
      keys: of the examples, in their order.
      strength: lambda above 0, of ridge regression on the *sum* of squares. Recursive least squares that forgets by a
        has lambda a^N in its place.
      rates: b, one number or (N,), not negative.
      gates: a, one number or (N,), not negative.

    Raises:
      ValueError: for a strength that is not one number above 0; for rates or gates that are not one number or (N,).
    """
    check_number("strength", strength, above=0, scalar=True)
    queries, keys = jnp.asarray(queries), jnp.asarray(keys)
    weights = _weights(keys.shape[0], rates, gates, keys.dtype)
    weighted = weights[:, None] * keys
    hessian = keys.T @ weighted + jnp.asarray(strength, keys.dtype) * jnp.eye(keys.shape[1], dtype=keys.dtype)
    return queries @ positive_solve(hessian, weighted.T)


def mesa_of_grams(
    scores: Array, gram: Array, *, strength: ArrayLike, rates: ArrayLike = 1.0, gates: ArrayLike = 1.0
) -> Array:
    """``mesa_pattern`` of a batch of tasks, from q.k and k.k: q K^T (lambda I + diag(c) K K^T)^-1 diag(c).

    (blocks, T, N, tasks) scores, (blocks, N, N, tasks) gram -> (blocks, T, N, tasks); other arguments and errors as
    there.
    """
    check_number("strength", strength, above=0, scalar=True)
    n, dtype = scores.shape[2], scores.dtype
    weights = _weights(n, rates, gates, dtype)
    ridge = jnp.asarray(strength, dtype) * jnp.eye(n, dtype=dtype)
    system = weights[None, :, None, None] * gram + ridge[None, :, :, None]
    solution = _eliminated(system, scores)
    return solution * weights[None, None, :, None]


def _eliminated(system: Array, scores: Array) -> Array:
    """S M^-1 of a batch of tasks: (blocks, N, N, tasks) M, (blocks, T, N, tasks) S -> (blocks, T, N, tasks).

    Columns are eliminated in their order: pivots are those of the symmetric diag(c)^1/2 K K^T diag(c)^1/2 + lambda I,
    all positive.
    """
    n = system.shape[1]

    def column(both: Array, k: Array) -> tuple[Array, None]:
        row = jax.lax.dynamic_index_in_dim(both, k, 1, keepdims=False)  # (blocks, N, tasks)
        pivot = jax.lax.dynamic_index_in_dim(row, k, 1)
        scaled = jax.lax.dynamic_index_in_dim(both, k, 2) / pivot[:, None]  # (blocks, N + T, 1, tasks)
        others = jnp.where((jnp.arange(n) == k)[None, :, None], 0, row)
        both = jnp.where((jnp.arange(n) == k)[None, None, :, None], scaled, both - scaled * others[:, None])
        return both, None

    return jax.lax.scan(column, jnp.concatenate([system, scores], axis=1), jnp.arange(n))[0][:, n:]


def memory(examples: int, gates: ArrayLike = 1.0, momentum: ArrayLike = 0.0) -> tuple[ArrayLike, ArrayLike]:
    """How much of the write of example j is in the state that example t sees, and in the last state.

    C_tj = a_t C_(t-1)j + mu^(t-j) with C_tj = 0 for t < j. Without momentum it is the product of the gates after j.

    Args:
      examples: N.
      gates: a, one number or (N,).
      momentum: mu, one number.

    Returns:
      (N, N) a_t C_(t-1)j, strictly lower triangular, and (N,) C_Nj; of numbers in float64, of traced ones traced.

    Raises:
      ValueError: for gates that are not one number or (N,), or a momentum that is not one number.
    """
    check_number("momentum", momentum, scalar=True)
    lag = np.maximum(np.subtract.outer(np.arange(examples), np.arange(examples)), -1)
    xp = jnp if is_traced(gates) or is_traced(momentum) else np  # constants need no program
    per_example: Any = xp.broadcast_to(xp.asarray(checked_each(gates, "gates", examples)), (examples,))
    fresh = xp.where(lag >= 0, momentum ** np.maximum(lag, 0), 0)
    before, seen = xp.zeros(examples), []
    for gate, added in zip(per_example, fresh):
        seen.append(gate * before)
        before = seen[-1] + added
    return xp.stack(seen), before


def _weights(examples: int, rates: ArrayLike, gates: ArrayLike, dtype: jnp.dtype) -> Array:
    """(N,) c_t = b_t prod_(j > t) a_j."""
    return _each(rates, "rates", examples, dtype) * jnp.asarray(memory(examples, gates)[1], dtype)


def _each(value: ArrayLike, name: str, examples: int, dtype: jnp.dtype) -> Array:
    """(N,) the value of every example."""
    return jnp.broadcast_to(jnp.asarray(checked_each(value, name, examples), dtype), (examples,))


def checked_each(value: Any, name: str, examples: int) -> Any:
    """The value, if it is one number or (N,) numbers; ValueError naming it otherwise."""
    if np.shape(value) not in ((), (examples,)):
        raise ValueError(f"{name} must be one number or one an example ({examples},), got shape {np.shape(value)}")
    check_number(name, value)
    return value


def _sizes(squares: Array) -> Array:
    """|k| of its square, 1 for a key of zero, whose gradient is zero too."""
    return jnp.sqrt(jnp.where(squares > 0, squares, 1))
