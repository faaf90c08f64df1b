import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icl_lab.prompts import Prompt, linear_regression
from icl_lab.solvers import least_squares, ridge


@settings(max_examples=8)
@given(
    seed=st.integers(0, 2**30),
    n=st.integers(1, 8),
    d=st.integers(1, 5),
    noise=st.floats(0.1, 2.0),
    scale=st.floats(0.1, 2.0),
)
def test_ridge_is_the_posterior_mean_of_a_gaussian_task(seed, n, d, noise, scale):
    """Conditioning the joint Gaussian of (labels, answer), in which no regression weight appears."""
    draw = np.random.default_rng(seed).normal
    x, y, query = draw(size=(n, d)), draw(size=(n, 1)), draw(size=d)
    labels = scale**2 * x @ x.T + noise**2 * np.eye(n)
    expected = scale**2 * query @ x.T @ np.linalg.solve(labels, y)
    with jax.enable_x64(True):
        prompt = Prompt(x=jnp.asarray(x), y=jnp.asarray(y), x_query=jnp.asarray(query))
        found = jax.jit(ridge(noise**2 / scale**2))(prompt)
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("strength", [1e-2, 1e-4, 1e-6])
def test_with_fewer_examples_than_inputs_rounding_is_that_of_the_labels(strength):
    draw = np.random.default_rng(0).normal
    for _ in range(10):
        x, y, query = draw(size=(8, 16)), draw(size=(8, 1)), draw(size=16)
        expected = query @ x.T @ np.linalg.solve(x @ x.T + strength * np.eye(8), y)
        found = ridge(strength)(Prompt(*(jnp.asarray(part, jnp.float32) for part in (x, y, query))))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_no_other_strength_predicts_noisy_tasks_better():
    noise, scale = 0.5, 1.5
    sampler = linear_regression(context_length=8, input_size=4, task_scale=scale, label_noise=noise, input_law="normal")
    sample = jax.jit(sampler, static_argnums=1)(jax.random.key(0), 20_000)

    def losses(strength):
        return np.asarray(jnp.sum((jax.vmap(ridge(strength))(sample.prompt) - sample.target) ** 2, axis=1))

    best = noise**2 / scale**2
    for other in (best / 4, best * 4):
        gain = losses(other) - losses(best)
        assert gain.mean() > 4 * gain.std() / gain.size**0.5


def a_prompt(n, d=4, o=2):
    """One prompt in float64, the weights that made its labels, and no noise."""
    draw = np.random.default_rng(n).normal
    x, w, query = (jnp.asarray(draw(size=shape)) for shape in [(n, d), (d, o), d])
    return Prompt(x=x, y=x @ w, x_query=query), w


@pytest.mark.parametrize("n", [4, 9])
def test_least_squares_recovers_the_task_where_the_context_determines_it(x64, n):
    prompt, w = a_prompt(n)
    np.testing.assert_allclose(least_squares()(prompt), prompt.x_query @ w, rtol=1e-8)


def test_least_squares_takes_the_smallest_solution_where_it_does_not(x64):
    prompt, w = a_prompt(3)
    np.testing.assert_allclose(least_squares()(prompt), ridge(1e-7)(prompt), rtol=1e-4)
    assert np.all(np.abs(least_squares()(prompt) - prompt.x_query @ w) > 1e-3)
    seen = prompt.replace(x_query=prompt.x[1])  # it still interpolates
    np.testing.assert_allclose(least_squares()(seen), prompt.y[1], rtol=1e-8)
