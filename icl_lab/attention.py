"""One function per attention. A head is: pattern = f(queries, keys), then pattern @ values."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array


def linear_pattern(queries: Array, keys: Array) -> Array:
    """Pattern of linear self-attention: raw scores, no softmax, no 1/sqrt(K), no 1/N.

    (T, K), (N, K) -> (T, N). von Oswald et al. 2022, eq. 2 (the 1/N of gradient descent sits in the projection P).
    """
    return queries @ keys.T


def softmax_pattern(queries: Array, keys: Array) -> Array:
    """Pattern of softmax attention, scores divided by sqrt(K) (the released code of von Oswald et al. 2022, A.9).

    (T, K), (N, K) -> (T, N); rows sum to one.
    """
    return jax.nn.softmax(scaled_scores(queries, keys), axis=-1)


def scaled_scores(queries: Array, keys: Array) -> Array:
    """Scores of softmax attention, q.k / sqrt(K): (T, K), (N, K) -> (T, N)."""
    return queries @ keys.T / jnp.sqrt(jnp.asarray(keys.shape[-1], keys.dtype))


PATTERNS: dict[str, Callable[[Array, Array], Array]] = {"linear": linear_pattern, "softmax": softmax_pattern}


def fast_weight_matrix(keys: Array, values: Array) -> Array:
    """The matrix that linear attention writes, sum_j k_j v_j^T; a query q reads it out as q @ W.

    (N, K), (N, V) -> (K, V). The fast-weight reading of linear attention (Schlag et al. 2021, eq. 4; von Oswald et al.
    2022, section 2): ``linear_pattern(q, k) @ v == q @ fast_weight_matrix(k, v)``.
    """
    return jnp.einsum("nk,nv->kv", keys, values)
