"""Positive definite matrices without LAPACK: equal to NumPy's, and several batches in one program end."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icl_lab.solvers.positive import backward, cholesky, forward, positive_solve


@pytest.mark.parametrize("d", [1, 2, 7])
def test_factor_and_solutions_are_those_of_numpy(x64, d):
    x = np.random.default_rng(d).normal(size=(d + 3, d))
    matrix, right = x.T @ x, np.random.default_rng(9).normal(size=(d, 3))
    root = cholesky(jnp.asarray(matrix))
    np.testing.assert_allclose(root, np.linalg.cholesky(matrix), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(root @ forward(root, jnp.asarray(right)), right, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(root.T @ backward(root, jnp.asarray(right)), right, rtol=1e-9, atol=1e-12)
    for b in (right, right[:, 0]):
        found = positive_solve(jnp.asarray(matrix), jnp.asarray(b))
        np.testing.assert_allclose(found, np.linalg.solve(matrix, b), rtol=1e-9, atol=1e-12)


def test_without_rows_there_is_nothing_to_solve():
    assert cholesky(jnp.zeros((0, 0))).shape == (0, 0)
    assert positive_solve(jnp.zeros((0, 0)), jnp.zeros((0, 2))).shape == (0, 2)


def test_a_matrix_that_is_not_definite_has_no_solution():
    assert jnp.isnan(positive_solve(jnp.asarray([[1.0, 2.0], [2.0, 1.0]]), jnp.ones(2))).all()


def test_no_program_of_it_asks_lapack():
    program = jax.jit(jax.vmap(positive_solve)).lower(jnp.ones((4, 3, 3)), jnp.ones((4, 3, 2))).as_text()
    assert "lapack" not in program
    assert "cholesky" not in program
