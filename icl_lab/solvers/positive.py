"""Positive definite matrices of a few rows, without LAPACK.

On a CPU jaxlib 0.10.2 decomposes a batch of matrices on the threads of XLA, and batches that are decomposed side by
side in one program, as many as there are threads, wait for each other for ever (seen with four times 5,000 matrices of
11 x 11 on two cores, by LU and by Cholesky). These are loops over columns, vectorised over tasks by ``vmap``.
"""

import jax
import jax.numpy as jnp
from jax import Array


def cholesky(matrix: Array) -> Array:
    """(D, D) lower triangular L with L L^T = A, for a symmetric positive definite A; NaN where it is not definite."""
    if not (d := matrix.shape[0]):  # of a context without examples
        return matrix

    def column(j: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        rest, root = state
        found = jnp.where(jnp.arange(d) < j, 0, rest[:, j] / jnp.sqrt(rest[j, j]))
        return rest - found[:, None] * found[None], root.at[:, j].set(found)

    return jax.lax.fori_loop(0, d, column, (matrix, jnp.zeros_like(matrix)))[1]


def forward(root: Array, right: Array) -> Array:
    """L^-1 B for a lower triangular L: (D, D), (D, O) -> (D, O)."""

    def row(j: Array, found: Array) -> Array:
        return found.at[j].set((right[j] - root[j] @ found) / root[j, j])

    return jax.lax.fori_loop(0, root.shape[0], row, jnp.zeros_like(right))


def backward(root: Array, right: Array) -> Array:
    """L^-T B for a lower triangular L: (D, D), (D, O) -> (D, O)."""
    return forward(root.T[::-1, ::-1], right[::-1])[::-1]


def positive_solve(matrix: Array, right: Array) -> Array:
    """A^-1 B for a symmetric positive definite A: (D, D), (D,) or (D, O) -> as B; NaN where A is not definite."""
    if not right.size:
        return right
    dtype = jnp.result_type(matrix, right, float)
    root, columns = cholesky(matrix.astype(dtype)), right.astype(dtype).reshape(right.shape[0], -1)
    return backward(root, forward(root, columns)).reshape(right.shape)
