"""What of an attention layer's weights the prediction can see: reachable entries, gauges and orders of heads."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from icl_lab.matrices import orthonormal, singular


def reachable(*, layers: int, looped: bool, input_size: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Which rows i of A and columns m of B can reach the prediction: two boolean (S, E).

    For joint tokens with W0 = 0, every channel updated and N >= 2. The prediction is the query's y-block after the
    last layer.

    - The last layer is read at the query's y-block only: m in y, and what it does to the context is never seen.
    - Layer 1 meets a query whose y-block is 0. If it is also the last layer the query is its only reader: i in x.
    - Any earlier layer moves the context, all of whose channels (as i, and as j, k through G) and new values (as m)
      enter the next layer's G; the query needs nothing more. From layer 2 on its own y-block is not 0: i in x and y.

    Hence one layer: (x, y). Looped, L >= 2: everything (union over passes). Otherwise everything, but (all, y) in the
    last layer. Entries j, k always count in full. The number of free entries of S is then the rank of the map from
    weights to predictions (tests), so nothing more can be masked.

    Raises:
      ValueError: unless L >= 1 and 1 <= D < E.
    """
    if layers < 1 or not 1 <= input_size < width:
        raise ValueError(f"need layers >= 1 and 1 <= D < E, got layers={layers}, D={input_size}, E={width}")
    is_y = np.arange(width) >= input_size
    rows, columns = np.ones((2, 1 if looped else layers, width), bool)
    if layers == 1:
        rows[0] = ~is_y
    if layers == 1 or not looped:
        columns[-1] = is_y
    return rows, columns


def linear_distance(pair_a: tuple[Array, Array], pair_b: tuple[Array, Array]) -> Array:
    """|S_a - S_b| / |S_b| of one weight set, row i by row i: memory E^3, and exact near 0 (a sum of squares)."""

    def symmetric_row(rows: Array, b: Array) -> Array:
        t = jnp.einsum("hj,hkm->jkm", rows, b)
        return (t + t.swapaxes(0, 1)) / 2

    def squares(rows: tuple[Array, Array]) -> tuple[Array, Array]:
        s_a, s_b = symmetric_row(rows[0], pair_a[1]), symmetric_row(rows[1], pair_b[1])
        return jnp.sum((s_a - s_b) ** 2), jnp.sum(s_b**2)

    difference, norm = jax.lax.map(squares, (pair_a[0].swapaxes(0, 1), pair_b[0].swapaxes(0, 1)))
    return jnp.sqrt(difference.sum() / norm.sum())


def unit_scale(a: Array, b: Array, input_size: int) -> tuple[Array, Array]:
    """The scale gauge in which the first D diagonal entries of A have mean 1."""
    beta = jnp.diagonal(a, axis1=-2, axis2=-1)[..., :input_size].mean(-1)[..., None, None]
    return a / beta, b * beta


def canonical(a: Array, b: Array, input_size: int) -> tuple[Array, Array]:
    """Canonical heads (H, E, E) of T = sum_h A_h B_h of one weight set, without forming its E^4 entries."""
    heads = a.shape[0]
    if heads == 1:
        return unit_scale(a, b, input_size)
    of_a, of_b = (stack.reshape(heads, -1).T for stack in (a, b))  # (E^2, H)
    q_a, q_b = orthonormal(of_a), orthonormal(of_b)
    u, values, v = singular(q_a.T @ of_a @ of_b.T @ q_b)
    new_a = (q_a @ u * jnp.sqrt(values)[None]).T.reshape(-1, *a.shape[1:])
    new_b = (q_b @ v * jnp.sqrt(values)[None]).T.reshape(-1, *b.shape[1:])
    sign = jnp.where(jnp.trace(new_a, axis1=-2, axis2=-1) < 0, -1, 1)[:, None, None]
    return new_a * sign, new_b * sign


def logits_and_values(a: Array, b: Array, key_size: int, direction: ArrayLike | None) -> tuple[Array, Array]:
    """A / sqrt(K) and B (S, H, E, E), without what a constant direction of the context makes irrelevant."""
    a = a / key_size**0.5
    if direction is None:
        return a, b
    c = jnp.asarray(direction, a.dtype)
    along = jnp.outer(c, c) / jnp.sum(c**2)
    constant = jnp.einsum("jk,shkm->shjm", along, b)
    return a - a @ along, b - constant + constant.mean(1, keepdims=True)


def match_heads(pair_a: tuple[Array, Array], pair_b: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
    """Best distance of one weight set over all orders of the heads of a, and a in that order."""

    def relative_squares(x: Array, y: Array) -> Array:
        return jnp.sum((x[:, None] - y[None]) ** 2, axis=(2, 3)) / jnp.sum(y**2)  # (H of a, H of b)

    cost = (relative_squares(pair_a[0], pair_b[0]) + relative_squares(pair_a[1], pair_b[1])) / 2
    heads = cost.shape[0]
    orders = np.array(list(itertools.permutations(range(heads))))  # (H!, H): head of a at each head of b
    totals = cost[orders, np.arange(heads)[None]].sum(-1)
    best = jnp.asarray(orders)[jnp.argmin(totals)]
    return jnp.sqrt(totals.min()), (pair_a[0][best], pair_a[1][best])
