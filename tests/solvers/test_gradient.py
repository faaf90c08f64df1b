import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from linear_tasks import a_prompt

from icl_lab.prompts import Prompt
from icl_lab.solvers import gd_plus_plus, gradient_descent, least_squares, ridge


@settings(max_examples=8)
@given(seed=st.integers(0, 2**30), n=st.integers(1, 8), d=st.integers(1, 5), o=st.integers(1, 3))
def test_gradient_descent_follows_the_gradient_of_the_written_loss(seed, n, d, o):
    with jax.enable_x64(True):
        prompt = a_prompt(seed, n, d, o)
        w0 = jnp.asarray(np.random.default_rng(seed + 1).normal(size=(d, o)))
        rates = jnp.array([0.1, 0.3, 0.05])

        def descended(w):
            slope = jax.grad(lambda w: jnp.sum((prompt.x @ w - prompt.y) ** 2) / (2 * n))
            for rate in rates:
                w = w - rate * slope(w)
            return prompt.x_query @ w

        found = jax.jit(gradient_descent(rates, w0=w0))(prompt)
        np.testing.assert_allclose(found, jax.jit(descended)(w0), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("n", [3, 12])  # fewer and more context pairs than inputs
def test_many_steps_of_gradient_descent_are_least_squares(x64, n):
    """The context is made well conditioned (singular values 1 to 2), so that 150 steps are many."""
    prompt = a_prompt(0, n)
    left, singular, right = np.linalg.svd(prompt.x, full_matrices=False)
    prompt = prompt.replace(x=jnp.asarray(left @ np.diag(np.linspace(2, 1, len(singular))) @ right))
    expected = least_squares()(prompt)
    np.testing.assert_allclose(gradient_descent(n / 4, 150)(prompt), expected, rtol=1e-10)
    exact = n / np.linspace(2, 1, len(singular)) ** 2  # one step for each eigenvalue, which it removes
    np.testing.assert_allclose(gradient_descent(exact)(prompt), expected, rtol=1e-10)
    np.testing.assert_allclose(ridge(1e-7)(prompt), expected, rtol=1e-5)


def test_gd_plus_plus_without_gamma_is_gradient_descent():
    with jax.enable_x64(True):
        prompt, rates = a_prompt(1), jnp.array([0.4, 0.2, 0.1])
        np.testing.assert_allclose(gd_plus_plus(rates, 0.0)(prompt), gradient_descent(rates)(prompt), rtol=1e-12)


def test_gd_plus_plus_is_gradient_descent_on_moved_inputs():
    """Two steps written with matrices: the second step sees x (I - gamma M), the query as well."""
    with jax.enable_x64(True):
        prompt, (n, d) = a_prompt(2), (7, 4)
        eta, gamma = jnp.array([0.4, 0.9]), 0.03
        gram = prompt.x.T @ prompt.x
        move = jnp.eye(d) - gamma * gram
        w = eta[0] / n * prompt.x.T @ prompt.y
        residual = prompt.y - prompt.x @ w
        second = eta[1] / n * (prompt.x @ move).T @ residual
        expected = prompt.x_query @ w + prompt.x_query @ move @ second
        np.testing.assert_allclose(gd_plus_plus(eta, gamma)(prompt), expected, rtol=1e-10)


def test_the_last_gamma_has_no_effect():
    prompt = a_prompt(3)
    one, other = (gd_plus_plus(jnp.array([0.4, 0.2]), jnp.array([0.02, last]))(prompt) for last in (0.0, 5.0))
    np.testing.assert_array_equal(one, other)


def test_bad_steps():
    with pytest.raises(ValueError, match="steps"):
        gradient_descent(0.1)
    with pytest.raises(ValueError, match="one value per step"):
        gradient_descent(jnp.array([0.1, 0.2]), 3)
    with pytest.raises(ValueError, match="one value per step"):
        gradient_descent(jnp.ones((2, 2)))
    with pytest.raises(ValueError, match="gammas must be a scalar or have one value per step"):
        gd_plus_plus(jnp.array([0.1, 0.2]), jnp.array([0.1, 0.2, 0.3]), steps=2)
    with pytest.raises(ValueError, match="steps"):
        gd_plus_plus(0.1, 0.1)


@pytest.mark.parametrize("shape", [(3,), (3, 1), (1, 2), (1, 1)])
def test_a_start_that_would_be_broadcast_is_refused(shape):
    prompt = Prompt(jnp.ones((4, 3)), jnp.ones((4, 2)), jnp.ones(3))
    with pytest.raises(AssertionError), jax.numpy_rank_promotion("allow"):  # as in a run
        gradient_descent(0.1, 1, w0=jnp.ones(shape))(prompt)
