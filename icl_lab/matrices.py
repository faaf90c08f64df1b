"""Small matrices, one a task, without LAPACK.

On a CPU jaxlib 0.10.2 gives the matrices of a batch to the threads of XLA and waits for them on one of these threads.
So batches that are decomposed side by side in one program, as many as there are threads, wait for each other for ever:
on two cores least squares after every prefix of 4,000 contexts did within some hundred calls, and so did LU and
Cholesky. These are loops over columns, which ``vmap`` vectorises over tasks. They do not depend on the machine's BLAS.
"""

import jax
import jax.numpy as jnp
from jax import Array

SWEEPS = 30
"""Of Jacobi's rotations, at most; ten do for matrices of a hundred columns."""


def cholesky(matrix: Array) -> Array:
    """(D, D) lower triangular L with L L^T = A, for a symmetric positive definite A; NaN where it is not definite."""
    if not (d := matrix.shape[0]):  # of a context without examples
        return matrix

    def column(j: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        rest, root = state
        entries = jnp.where(jnp.arange(d) < j, 0, rest[:, j] / jnp.sqrt(rest[j, j]))
        return rest - entries[:, None] * entries[None], root.at[:, j].set(entries)

    return jax.lax.fori_loop(0, d, column, (matrix, jnp.zeros_like(matrix)))[1]


def forward(root: Array, right: Array) -> Array:
    """L^-1 B for a lower triangular L: (D, D), (D, O) -> (D, O)."""

    def row(j: Array, solution: Array) -> Array:
        return solution.at[j].set((right[j] - root[j] @ solution) / root[j, j])

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


def orthonormal(columns: Array) -> Array:
    """(D, K) orthonormal columns that span the same space, by Gram-Schmidt twice; zero for one that adds nothing."""
    floor = 10 * max(columns.shape) * jnp.finfo(columns.dtype).eps

    def column(j: Array, basis: Array) -> Array:
        rest = columns[:, j]
        norm = jnp.linalg.norm(rest)
        for _ in range(2):
            rest = rest - basis @ (basis.T @ rest)
        size = jnp.linalg.norm(rest)
        new = size > floor * norm
        return basis.at[:, j].set(jnp.where(new, rest / jnp.where(new, size, 1), 0))

    return jax.lax.fori_loop(0, columns.shape[1], column, jnp.zeros_like(columns))


def rotated(matrix: Array) -> tuple[Array, Array]:
    """(N, D) -> A V (N, D) with orthogonal columns, and V (D, D), orthogonal: one-sided Jacobi (Hestenes 1958).

    All columns are rotated at once in disjoint pairs, and every pair meets in a sweep, as in a tournament. Derivatives
    are those of the functions below.
    """
    n, d = matrix.shape
    half, eps = (d + 1) // 2, jnp.finfo(matrix.dtype).eps
    unit = power_of_two(matrix)
    both = jnp.concatenate([matrix.T / unit, jnp.eye(d, dtype=matrix.dtype)], axis=1)  # rows are columns of A, and of V
    both = jnp.pad(both, [(0, d % 2), (0, 0)])
    null = (max(n, d) * eps) ** 2 * jnp.sum(both[:, :n] ** 2)  # columns of rounding errors have no directions

    def meeting(_: int, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        left, right, worst = state
        a, b = jnp.sum(left[:, :n] ** 2, axis=1), jnp.sum(right[:, :n] ** 2, axis=1)
        product, nonzero = jnp.sum(left[:, :n] * right[:, :n], axis=1), jnp.minimum(a, b) > null
        cosine = jnp.where(nonzero, jnp.abs(product) / jnp.sqrt(jnp.where(nonzero, a * b, 1)), 0)
        most = jnp.where(nonzero, jnp.maximum(a, b), 1)
        apart, double = (b - a) / most, jnp.where(cosine > eps, 2 * product / most, 0)
        below = jnp.abs(apart) + jnp.sqrt(apart**2 + double**2)
        tangent = jnp.where(apart < 0, -double, double) / jnp.where(below > 0, below, 1)
        cos = 1 / jnp.sqrt(1 + tangent**2)
        cos, sin = cos[:, None], (cos * tangent)[:, None]
        left, right = cos * left - sin * right, sin * left + cos * right
        if half > 1:  # the first one stays, the others move on by one place
            left, right = (
                jnp.concatenate([left[:1], right[:1], left[1:-1]]), jnp.concatenate([right[1:], left[-1:]])
            )  # fmt: skip
        return left, right, jnp.maximum(worst, cosine.max())

    def sweep(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        left, right, _, count = state
        start = left, right, jnp.zeros((), matrix.dtype)
        return *jax.lax.fori_loop(0, 2 * half - 1, meeting, start), count + 1

    def going(state: tuple[Array, Array, Array, Array]) -> Array:
        return (state[2] > 2 * n**0.5 * eps) & (state[3] < SWEEPS)

    start = both[:half], both[half:], jnp.full((), jnp.inf, matrix.dtype), jnp.zeros((), jnp.int32)
    left, right, _, _ = jax.lax.while_loop(going, sweep, start)
    columns = jnp.concatenate([left, right])[:d].T  # after a sweep all are in their places
    return unit * columns[:n], columns[n:]


def power_of_two(values: Array) -> Array:
    """The power of two above the largest absolute value, a unit that rounds nothing; 1 where all are zero."""
    return jnp.ldexp(jnp.ones((), values.dtype), jnp.frexp(jax.lax.stop_gradient(jnp.abs(values).max(initial=0)))[1])


def singular(matrix: Array) -> tuple[Array, Array, Array]:
    """(N, D) with N >= D -> U (N, D), singular values (D,) from the largest, V (D, D): A = U diag V^T.

    Columns of U at singular values of 0 are 0. Not to be differentiated.
    """
    columns, basis = rotated(matrix)
    unit = power_of_two(matrix)  # squares of small columns leave float32
    values = unit * jnp.linalg.norm(columns / unit, axis=0)
    order = jnp.argsort(-values)
    columns, values, basis = columns[:, order], values[order], basis[:, order]
    nonzero = values[None] > 0
    return jnp.where(nonzero, columns / jnp.where(nonzero, values[None], 1), 0), values, basis


def pseudo_inverse(matrix: Array) -> Array:
    """A^+ (D, N) of A (N, D); singular values up to 10 max(N, D) roundings of the largest one count as 0."""
    return _pseudo_inverse(matrix.astype(jnp.result_type(matrix, float)))


@jax.custom_jvp
def _pseudo_inverse(matrix: Array) -> Array:
    if not matrix.size:
        return matrix.T
    if matrix.shape[0] < matrix.shape[1]:
        return _pseudo_inverse(matrix.T).T
    u, values, v = singular(matrix)
    nonzero = values > 10 * max(matrix.shape) * jnp.finfo(matrix.dtype).eps * values[0]
    return v @ (jnp.where(nonzero, 1 / jnp.where(nonzero, values, 1), 0)[:, None] * u.T)


@_pseudo_inverse.defjvp
def _pseudo_inverse_jvp(at: tuple[Array], moved: tuple[Array]) -> tuple[Array, Array]:
    """Golub & Pereyra 1973, at constant rank."""
    (a,), (da,) = at, moved
    p = _pseudo_inverse(a)
    seen = p @ p.T @ (da.T - da.T @ a @ p)
    return p, seen - p @ da @ p + (da.T - p @ (a @ da.T)) @ p.T @ p


@jax.custom_jvp
def spectrum(matrix: Array) -> tuple[Array, Array]:
    """Eigenvalues (D,), in no order, and eigenvectors (D, D), in columns, of a symmetric positive semidefinite S."""
    if not matrix.size:
        return matrix[0], matrix
    columns, vectors = rotated(matrix)
    return jnp.sum(vectors * columns, axis=0), vectors


@spectrum.defjvp
def _spectrum_jvp(at: tuple[Array], moved: tuple[Array]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Of eigenvectors only where eigenvalues differ; equal ones do not turn into each other."""
    values, vectors = spectrum(*at)
    inner, gaps = vectors.T @ moved[0] @ vectors, values[None] - values[:, None]
    turned = jnp.where(gaps == 0, 0, inner / jnp.where(gaps == 0, 1, gaps))
    return (values, vectors), (jnp.diagonal(inner), vectors @ turned)
