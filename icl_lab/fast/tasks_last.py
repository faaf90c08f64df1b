"""Arithmetic of batches of small tasks, arrays (blocks, tokens, channels, tasks): the task is the last axis.

Matrices of 11 x 11 are too small for a library product each: vectors half empty, a call for every task. Here a product
of two matrices of each task (``contract``) is a sum of elementwise products, unrolled in Python, of which XLA makes one
loop vectorised over tasks and split over cores by block. A product with weights that all tasks share (``by_shared``)
is a library product of the weights with the tasks of a block. On an accelerator the last axis is what is read together.

What XLA:CPU must not fuse into its users (``unfused``) has its gradient written in the same terms, so that autodiff
composes them: reverse mode only.
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array, lax

from icl_lab.fast.pointwise import clipped, inside
from icl_lab.prompts.unfused import unfused

MAX_UNROLLED = 32  # a longer contraction is unrolled in pieces inside a loop


def total(terms: Sequence[Array]) -> Array:
    """Sum of arrays."""
    return functools.reduce(jnp.add, terms)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def contract(a: Array, b: Array, axes: tuple[int, int]) -> Array:
    """Product of two matrices of each task, summed over axis ``axes[0]`` of a and ``axes[1]`` of b, 1 or 2 each.

    (s, ., ., t), (s, ., ., t) -> (s, i, j, t): i is the other axis of a, j of b. Axes (2, 1) give a b, (1, 1) a^T b,
    (2, 2) a b^T.
    """
    return _contract(a, b, axes=axes)


@unfused(static=("axes",))
def _contract(a: Array, b: Array, *, axes: tuple[int, int]) -> Array:
    def term(k: int | Array) -> Array:
        return _at(a, k, axes[0])[:, :, None] * _at(b, k, axes[1])[:, None]

    length = a.shape[axes[0]]
    if length <= MAX_UNROLLED:
        return total([term(k) for k in range(length)])
    piece = MAX_UNROLLED // 2
    whole = length // piece
    part = lambda i: total([term(i * piece + k) for k in range(piece)])  # noqa: E731
    out = lax.fori_loop(1, whole, lambda i, acc: acc + part(i), part(0))
    return total([term(k) for k in range(whole * piece, length)] + [out])


def _at(a: Array, k: int | Array, axis: int) -> Array:
    if isinstance(k, int):
        return lax.index_in_dim(a, k, axis, keepdims=False)
    return lax.dynamic_index_in_dim(a, k, axis, keepdims=False)


def _contract_fwd(a, b, axes):
    return contract(a, b, axes), (a, b)


def _contract_bwd(axes, residual, d):
    a, b = residual
    i, j = 3 - axes[0], 3 - axes[1]
    da = contract(d, b, (2, j)) if axes[0] == 2 else contract(b, d, (j, 2))
    db = contract(a, d, (i, 1)) if axes[1] == 1 else contract(d, a, (1, i))
    return da, db


contract.defvjp(_contract_fwd, _contract_bwd)


@jax.custom_vjp
def by_shared(x: Array, w: Array) -> Array:
    """Rows times a matrix that all tasks share, x W: (s, T, E, t), (E, F) -> (s, T, F, t)."""
    s, n, e, t = x.shape
    rows = jnp.broadcast_to(w.T, (s * n, *w.shape[::-1]))
    return lax.dot_general(rows, x.reshape(s * n, e, t), (((2,), (1,)), ((0,), (0,)))).reshape(s, n, -1, t)


def _by_shared_fwd(x, w):
    return by_shared(x, w), (x, w)


def _by_shared_bwd(residual, d):
    x, w = residual
    (s, n, e, t), f = x.shape, d.shape[2]
    dw = lax.dot_general(x.reshape(s * n, e, t), d.reshape(s * n, f, t), (((2,), (2,)), ((0,), (0,)))).sum(0)
    return by_shared(d, w.T), dw


by_shared.defvjp(_by_shared_fwd, _by_shared_bwd)


@jax.custom_vjp
def gram(x: Array) -> Array:
    """x^T x: (s, N, E, t) -> (s, E, E, t)."""
    return _contract(x, x, axes=(1, 1))


def _gram_bwd(x, d):
    return (contract(x, _plus_transpose(d), (2, 1)),)


gram.defvjp(lambda x: (gram(x), x), _gram_bwd)


@unfused
def _plus_transpose(g: Array) -> Array:
    return g + jnp.swapaxes(g, 1, 2)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def linear_layer(x: Array, a: Array, b: Array, clip: float, keys: int) -> Array:
    """Tokens after a layer of linear attention, x + x sum_h A_h G B_h, clipped: G is the first ``keys`` tokens' Gram.

    What autodiff would compose, but for sums of tokens that are fused into the products before them.

    (s, T, E, t), the query last; (H, E, E); (H, E, E) -> (s, T, E, t).
    """
    return _linear_layer_fwd(x, a, b, clip, keys)[0]


def _linear_layer_fwd(x, a, b, clip, keys):
    update, pull = jax.vjp(between, gram(x[:, :keys]), a, b)
    out = _advance(x, update, clip=clip)
    return out, (x, update, pull, out if clip else None)


def _linear_layer_bwd(clip, keys, residual, d):
    x, update, pull, out = residual
    d = inside(out, d, clip=clip) if clip else d
    d_gram, da, db = pull(contract(x, d, (1, 1)))
    return _retreat(d, x, update, _plus_transpose(d_gram), keys=keys), da, db


linear_layer.defvjp(_linear_layer_fwd, _linear_layer_bwd)


@unfused(static=("clip",))
def _advance(x: Array, update: Array, *, clip: float) -> Array:
    return clipped(x + _contract.__wrapped__(x, update, axes=(2, 1)), clip)


@unfused(static=("keys",))
def _retreat(d: Array, x: Array, update: Array, d_gram: Array, *, keys: int) -> Array:
    """Cotangent of the tokens: the residual, their own use, the keys' use in the Gram matrix."""
    in_context = (jnp.arange(x.shape[1]) < keys).astype(x.dtype)[None, :, None, None]
    direct = _contract.__wrapped__(d, update, axes=(2, 2))
    return d + direct + in_context * _contract.__wrapped__(x, d_gram, axes=(2, 1))


def between(g: Array, a: Array, b: Array) -> Array:
    """sum_h A_h G B_h for symmetric G: (s, E, E, t), (H, E, E), (H, E, E) -> (s, E, E, t).

    One head is two unrolled products; several share theirs, which are a library's.
    """
    (s, e, _, t), h = g.shape, a.shape[0]
    if h == 1:
        return _between_one(g, a[0], b[0])
    gb = by_shared(g, b.transpose(1, 0, 2).reshape(e, h * e))  # [k, (h, j)] of (G B_h)[k, j]
    rows = by_shared(gb.reshape(s, 1, e * h, e * t), a.transpose(2, 0, 1).reshape(e * h, e))
    return rows.reshape(s, e, e, t)


@jax.custom_vjp
def _between_one(g: Array, a: Array, b: Array) -> Array:
    return _between_one_fwd(g, a, b)[0]


def _between_one_fwd(g, a, b):
    gb = _contract(g, _shared(b), axes=(2, 1))
    return _contract(_shared(a), gb, axes=(2, 1)), (g, gb, a, b)


def _between_one_bwd(residual, d):
    g, gb, a, b = residual
    d_gb_t = _contract(d, _shared(a), axes=(1, 1))  # (d GB)^T = dU^T A
    return _contract(d_gb_t, _shared(b.T), axes=(1, 1)), _sum_over_tasks(d, gb), _sum_over_tasks(g, d_gb_t)


_between_one.defvjp(_between_one_fwd, _between_one_bwd)


def _shared(matrix: Array) -> Array:
    """A matrix (i, j) that all tasks share, as an operand (1, i, j, 1)."""
    return matrix[None, :, :, None]


def _sum_over_tasks(a: Array, b: Array) -> Array:
    """sum over blocks, tasks and k of (s, i, k, t), (s, j, k, t) -> (i, j).

    With one long product of each block a step of five layers takes 1.26 times as long, with ``sum`` over blocks 1.03.
    """
    products = contract(a, b, (2, 2))
    ones = jnp.ones((1, len(products)), products.dtype)
    over_blocks = jnp.matmul(ones, products.reshape(len(products), -1), precision=lax.Precision.HIGHEST)
    return over_blocks.reshape(products.shape[1:]).sum(-1)
