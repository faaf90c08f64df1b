"""Small matrices without LAPACK: equal to NumPy's, differentiable, and several batches in one program end."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from accelerators import calls_of_lapack
from jax.test_util import check_grads

from icl_lab import matrices, solvers
from icl_lab.compare import prefix_losses
from icl_lab.matrices import (
    backward,
    cholesky,
    forward,
    orthonormal,
    positive_solve,
    pseudo_inverse,
    singular,
    spectrum,
)
from icl_lab.models.online import delta_pattern, mesa_of_grams, mesa_pattern
from icl_lab.prompts import gaussian_regression, linear_regression
from icl_lab.prompts.shifts import in_a_subspace, with_orthogonal_query

SHAPES = [(1, 1), (5, 1), (4, 2), (3, 3), (9, 4), (20, 20), (2, 7)]


def drawn(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


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
    assert pseudo_inverse(jnp.zeros((0, 3))).shape == (3, 0)


def test_a_matrix_that_is_not_definite_has_no_solution():
    assert jnp.isnan(positive_solve(jnp.asarray([[1.0, 2.0], [2.0, 1.0]]), jnp.ones(2))).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_decompositions_are_those_of_numpy(x64, shape):
    a = drawn(3, *shape)
    u, values, v = jax.vmap(singular)(a)
    count = min(shape)
    np.testing.assert_allclose(values[:, :count], np.linalg.svd(a, compute_uv=False), rtol=1e-12)
    np.testing.assert_allclose(jnp.einsum("bik,bk,bjk->bij", u, values, v), a, atol=1e-13)
    np.testing.assert_allclose(jnp.einsum("bji,bjk->bik", v, v), np.broadcast_to(np.eye(shape[1]), v.shape), atol=1e-13)
    np.testing.assert_allclose(jax.vmap(pseudo_inverse)(a), np.linalg.pinv(a), rtol=1e-9, atol=1e-11)
    gram = jnp.einsum("bni,bnj->bij", a, a)
    values, vectors = jax.vmap(spectrum)(gram)
    np.testing.assert_allclose(np.sort(values), np.linalg.eigvalsh(gram), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        jnp.einsum("bij,bjk->bik", gram, vectors), vectors * np.asarray(values)[:, None], atol=1e-12
    )
    if shape[0] >= shape[1]:
        basis = jax.vmap(orthonormal)(a)
        np.testing.assert_allclose(
            jnp.einsum("bni,bnj->bij", basis, basis), np.eye(shape[1])[None] + 0 * gram, atol=1e-13
        )
        np.testing.assert_allclose(jnp.einsum("bni,bmi,bmj->bnj", basis, basis, a), a, atol=1e-12)


@pytest.mark.parametrize("unit", [1e-25, 1e-12, 1.0, 1e12, 1e15])
def test_single_precision_keeps_what_it_can_in_any_unit(unit):
    """Errors of an inverse are the condition times a few roundings."""
    a = np.random.default_rng(5).normal(size=(100, 6, 4)).astype(np.float32)
    condition = np.linalg.cond(a.astype(float))
    expected = np.linalg.pinv(a.astype(float))
    found = np.asarray(jax.vmap(pseudo_inverse)(np.float32(unit) * a), float) * float(np.float32(unit))
    off = np.abs(found - expected).max((1, 2)) / np.abs(expected).max((1, 2))
    assert (off < 10 * condition * np.finfo(np.float32).eps).all()


def test_dependent_and_missing_columns_count_as_nothing(x64):
    a = drawn(6, 3)
    a = jnp.concatenate([a, a[:, :1] + 2 * a[:, 1:2], jnp.zeros((6, 1))], axis=1)
    np.testing.assert_allclose(pseudo_inverse(a), np.linalg.pinv(a, rcond=1e-13), atol=1e-12)
    np.testing.assert_allclose(orthonormal(a)[:, 3:], 0)
    assert not pseudo_inverse(jnp.zeros((4, 2))).any()
    np.testing.assert_allclose(
        pseudo_inverse(jnp.arange(6).reshape(3, 2)), np.linalg.pinv(np.arange(6.0).reshape(3, 2))
    )
    values, vectors = spectrum(jnp.eye(4))
    np.testing.assert_array_equal(values, np.ones(4))
    np.testing.assert_array_equal(vectors.T @ vectors, np.eye(4))


@pytest.mark.parametrize("shape", [(5, 3), (3, 3), (2, 4)])
def test_derivatives_are_differences(x64, shape):
    check_grads(pseudo_inverse, (drawn(*shape),), order=2, atol=1e-5, rtol=1e-5)

    def of_spectrum(root):  # does not depend on the order or the signs of eigenvectors
        values, vectors = spectrum(root.T @ root + jnp.diag(jnp.arange(shape[1]) + 1.0))
        return (vectors * jnp.exp(-values)[None]) @ vectors.T, values.max()

    check_grads(of_spectrum, (drawn(*shape),), order=2, atol=1e-5, rtol=1e-5)


def test_no_layer_nor_sampler_asks_lapack():
    q, k = drawn(2, 3), drawn(4, 3)
    assert calls_of_lapack(delta_pattern, q, k) == 0
    assert calls_of_lapack(functools.partial(mesa_pattern, strength=0.5), q, k) == 0
    assert calls_of_lapack(functools.partial(mesa_of_grams, strength=0.5), drawn(1, 2, 4, 3), drawn(1, 4, 4, 3)) == 0
    few = linear_regression(context_length=2, input_size=3)
    for sampler in (in_a_subspace(few, 2), with_orthogonal_query(few)):
        assert calls_of_lapack(lambda key: sampler(key, 4), jax.random.key(0)) == 0  # noqa: B023
    law = lambda key, root: gaussian_regression(context_length=2, covariance=root @ root.T)(key, 4)  # noqa: E731
    assert calls_of_lapack(law, jax.random.key(0), drawn(3, 3)) == 0


def test_batches_side_by_side_in_one_program_end():
    """By LAPACK this call waited for ever on two cores."""
    samples = linear_regression(context_length=4, input_size=3, input_law="normal")(jax.random.key(3), 4000)
    losses = jax.jit(functools.partial(prefix_losses, solvers.least_squares()))
    first = losses(samples)
    for _ in range(100):
        np.testing.assert_array_equal(losses(samples), first)


def test_a_hundred_columns_need_few_sweeps(x64, monkeypatch):
    a = drawn(120, 100)
    monkeypatch.setattr(matrices, "SWEEPS", 10)
    np.testing.assert_allclose(pseudo_inverse(a), np.linalg.pinv(a), atol=1e-11)
