"""Products of small matrices, one for each task, with the task as last axis.

Matrices of 11 x 11 are too small for a library product each: vectors half empty, a call for every task. With arrays
``(blocks, i, k, tasks)`` a product is a sum over k of elementwise products, unrolled in Python; XLA makes one
vectorised loop of it, split over cores by block. On an accelerator the last axis is what is read together.
"""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import Array, lax

from icl_lab.unfused import unfused

MAX_UNROLLED = 32  # a longer contraction is unrolled in pieces inside a loop


def total(terms: Sequence[Array]) -> Array:
    """Sum of arrays."""
    return functools.reduce(jnp.add, terms)


def _contract(term: Callable, length: int) -> Array:
    """sum_k term(k)."""
    if length <= MAX_UNROLLED:
        return total([term(k) for k in range(length)])
    piece = MAX_UNROLLED // 2
    whole = length // piece
    part = lambda i: total([term(i * piece + k) for k in range(piece)])  # noqa: E731
    out = lax.fori_loop(1, whole, lambda i, acc: acc + part(i), part(0))
    return total([term(k) for k in range(whole * piece, length)] + [out])


def _at(a: Array, k, axis: int) -> Array:
    if isinstance(k, int):
        return lax.index_in_dim(a, k, axis, keepdims=False)
    return lax.dynamic_index_in_dim(a, k, axis, keepdims=False)


def _matmul(a: Array, b: Array, a_axis: int, b_axis: int, length: int | None = None) -> Array:
    term = lambda k: _at(a, k, a_axis)[..., :, None, :] * _at(b, k, b_axis)[..., None, :, :]  # noqa: E731
    return _contract(term, length or a.shape[a_axis])


@unfused
def matmul(a: Array, b: Array) -> Array:
    """(s, i, k, t), (s, k, j, t) -> (s, i, j, t)."""
    return _matmul(a, b, 2, 1)


@unfused(static=("length",))
def matmul_tn(a: Array, b: Array, *, length: int | None = None) -> Array:
    """(s, k, i, t), (s, k, j, t) -> (s, i, j, t), over the first ``length`` of k."""
    return _matmul(a, b, 1, 1, length)


@unfused
def matvec(a: Array, v: Array) -> Array:
    """(s, i, k, t), (s, k, t) -> (s, i, t)."""
    return _contract(lambda k: _at(a, k, 2) * _at(v, k, 1)[..., None, :], a.shape[2])


@unfused
def matvec_t(a: Array, v: Array) -> Array:
    """(s, k, i, t), (s, k, t) -> (s, i, t)."""
    return _contract(lambda k: _at(a, k, 1) * _at(v, k, 1)[..., None, :], a.shape[1])


def sum_over_tasks(a: Array, b: Array) -> Array:
    """sum over blocks, tasks and k of (s, i, k, t), (s, j, k, t) -> (i, j): the gradient of a shared weight.

    One long product a block and a small sum; a single einsum would transpose both operands first.
    """
    blocks, i, j = a.shape[0], a.shape[1], b.shape[1]
    flat_a, flat_b = a.reshape(blocks, i, -1), b.reshape(blocks, j, -1)
    return lax.dot_general(flat_a, flat_b, (((2,), (2,)), ((0,), (0,)))).sum(0)


def shared(matrix: Array) -> Array:
    """A matrix (i, j) that all tasks share, as an operand (1, i, j, 1)."""
    return matrix[None, :, :, None]


def context_mask(tokens: Array, context_length: int) -> Array:
    """(1, T, 1, 1): 1 on context tokens, 0 on the query token."""
    return (jnp.arange(tokens.shape[1]) < context_length).astype(tokens.dtype)[None, :, None, None]


@jax.custom_vjp
def by_shared(v: Array, matrix: Array) -> Array:
    """Row vectors times a matrix that all tasks share: (s, i, t), (i, j) -> (s, j, t)."""
    return matvec_t(shared(matrix), v)


def _by_shared_fwd(v, matrix):
    return by_shared(v, matrix), (v, matrix)


def _by_shared_bwd(residual, g):
    v, matrix = residual
    return matvec(shared(matrix), g), sum_over_tasks(v[:, :, None], g[:, :, None])


by_shared.defvjp(_by_shared_fwd, _by_shared_bwd)


@jax.custom_vjp
def symmetric_matvec(g: Array, v: Array) -> Array:
    """Symmetric matrix of each task times a vector: (s, i, i, t), (s, i, t) -> (s, i, t).

    Its gradient with respect to v is the same product, without a transposed read.
    """
    return matvec_t(g, v)


def _symmetric_fwd(g, v):
    return matvec_t(g, v), (g, v)


def _symmetric_bwd(residual, d):
    g, v = residual
    return v[:, :, None] * d[:, None], matvec_t(g, d)


symmetric_matvec.defvjp(_symmetric_fwd, _symmetric_bwd)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def gram(tokens: Array, context_length: int) -> Array:
    """C^T C of the context tokens: (s, T, E, t) -> (s, E, E, t)."""
    return matmul_tn(tokens, tokens, length=context_length)


def _gram_fwd(tokens, context_length):
    return gram(tokens, context_length), tokens


def _gram_bwd(context_length, tokens, d):
    return (context_mask(tokens, context_length) * matmul(tokens, d + jnp.swapaxes(d, 1, 2)),)


gram.defvjp(_gram_fwd, _gram_bwd)
