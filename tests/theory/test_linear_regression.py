import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icl_lab.prompts import input_variance, linear_regression
from icl_lab.solvers import gradient_descent
from icl_lab.solvers.oracle import context_eigenvalues
from icl_lab.theory import (
    centred_step_optimum,
    condition_number,
    eigenvalue_density,
    gd_plus_plus_condition_number,
    gd_plus_plus_eigenvalues,
    gd_plus_plus_peak,
    input_kurtosis,
    one_step_loss,
    one_step_loss_out_of_distribution,
    one_step_optimum,
)

DEFAULT = {"context_length": 10, "input_size": 10, "input_variance": 1 / 12}


@functools.partial(jax.jit, static_argnames=("batch", "context_length", "input_size", "input_law"))
def step_losses(learning_rate, key, batch, **setting):
    sample = linear_regression(**setting)(key, batch)
    prediction = jax.vmap(gradient_descent(learning_rate, 1))(sample.prompt)
    return 0.5 * jnp.sum((prediction - sample.target) ** 2, axis=1)


def sampled_loss(learning_rate, seed, batch=20_000, **setting):
    """Mean and standard error of half the squared error of one explicit step."""
    losses = np.asarray(step_losses(learning_rate, jax.random.key(seed), batch, **setting), np.float64)
    return losses.mean(), losses.std() / batch**0.5


@settings(max_examples=8)
@given(
    law=st.sampled_from(["uniform", "normal", "laplace"]),
    sizes=st.sampled_from([(1, 3), (6, 2), (4, 5)]),  # N, D: few, because each compiles
    step=st.floats(0.05, 0.8),  # eta v
    r=st.floats(0.5, 2.0),
    scale=st.floats(0.5, 2.0),
    noise=st.floats(0.0, 1.0),
    seed=st.integers(0, 2**30),
)
def test_one_step_loss_is_what_explicit_steps_have(law, sizes, step, r, scale, noise, seed):
    variance = input_variance(law, r)
    setting = {"context_length": sizes[0], "input_size": sizes[1], "task_scale": scale, "label_noise": noise}
    mean, error = sampled_loss(step / variance, seed, input_law=law, input_range=r, **setting)
    exact = one_step_loss(step / variance, input_variance=variance, kurtosis=input_kurtosis(law), **setting)
    assert abs(mean - exact) < 4 * error


@settings(max_examples=30)
@given(
    n=st.integers(1, 50),
    d=st.integers(1, 50),
    variance=st.floats(0.01, 4.0),
    kurtosis=st.floats(1.0, 9.0),
    scale=st.floats(0.1, 3.0),
    noise=st.floats(0.0, 2.0),
)
def test_the_optimum_is_where_the_loss_is_least(n, d, variance, kurtosis, scale, noise):
    setting = {"context_length": n, "input_size": d, "input_variance": variance, "kurtosis": kurtosis}
    setting |= {"task_scale": scale, "label_noise": noise}
    best, least = one_step_optimum(**setting)
    np.testing.assert_allclose(one_step_loss(best, **setting), least, rtol=1e-9, atol=1e-12)
    assert np.all(one_step_loss(best * np.array([0.9, 1.1]), **setting) > least)


def test_published_setting():
    best, least = one_step_optimum(**DEFAULT)
    np.testing.assert_allclose([best, least], [12 * 10 / 19.8, 5 / 12 * 9.8 / 19.8], rtol=1e-12)
    sizes = [2, 5, 10, 15, 20, 25]
    losses = [one_step_optimum(context_length=d, input_size=d, input_variance=1 / 12)[1] for d in sizes]
    np.testing.assert_allclose(losses, [0.0395, 0.1020, 0.2062, 0.3104, 0.4146, 0.5187], atol=6e-5)


def test_out_of_distribution_loss():
    inputs = one_step_loss_out_of_distribution(np.array([0.5, 1.0, 1.5, 2.0]), **DEFAULT)
    np.testing.assert_allclose(inputs, [0.0812, 0.2062, 1.2038, 8.401], atol=6e-4)
    tasks = one_step_loss_out_of_distribution(1.0, task_scale=np.array([1.0, 3.0]), **DEFAULT)
    np.testing.assert_allclose(tasks, one_step_optimum(**DEFAULT)[1] * np.array([1, 9]), rtol=1e-12)
    mean, error = sampled_loss(
        float(one_step_optimum(**DEFAULT)[0]), 0, context_length=10, input_size=10, input_range=1.5, task_scale=2.0
    )
    assert abs(mean - one_step_loss_out_of_distribution(1.5, task_scale=2.0, **DEFAULT)) < 4 * error


@pytest.mark.parametrize("law", ["uniform", "normal", "laplace"])
def test_kurtosis_is_that_of_the_sampler(law):
    sampler = linear_regression(context_length=1, input_size=1, input_law=law)
    x = np.asarray(jax.jit(sampler, static_argnums=1)(jax.random.key(0), 300_000).prompt.x)
    ratio = (x.astype(np.float64) / input_variance(law) ** 0.5) ** 4
    assert abs(ratio.mean() - input_kurtosis(law)) < 4 * ratio.std() / ratio.size**0.5


def test_bad_arguments():
    with pytest.raises(ValueError, match="centred laws"):
        input_kurtosis("exponential")
    with pytest.raises(ValueError, match="at least 1"):
        one_step_loss(1.0, context_length=0, input_size=2, input_variance=1.0)
    with pytest.raises(ValueError, match="input_variance must be above 0"):
        one_step_optimum(context_length=1, input_size=2, input_variance=0.0)


def test_gd_plus_plus_transforms_the_eigenvalues_of_the_context():
    x = np.random.default_rng(0).normal(size=(7, 4))
    gamma, gram = 0.07, x.T @ x
    moved = x - gamma * x @ gram
    mapped = np.sort(gd_plus_plus_eigenvalues(np.linalg.eigvalsh(gram), gamma))
    np.testing.assert_allclose(np.linalg.eigvalsh(moved.T @ moved), mapped, atol=1e-12)


def test_peak_of_the_eigenvalue_map():
    gamma = np.array([0.03, 0.2])
    where, value = gd_plus_plus_peak(gamma)
    np.testing.assert_allclose(gd_plus_plus_eigenvalues(where, gamma), value, rtol=1e-12)
    assert np.all(gd_plus_plus_eigenvalues(where * np.array([[0.99], [1.01]]), gamma) < value)
    assert gd_plus_plus_eigenvalues(1 / 0.2, 0.2) == 0


def test_condition_number_of_gd_plus_plus():
    spectrum = np.array([0.5, 1 / (3 * 0.1), 5.0])  # the peak is one of the eigenvalues
    exact = condition_number(gd_plus_plus_eigenvalues(spectrum, 0.1))
    np.testing.assert_allclose(gd_plus_plus_condition_number(spectrum, 0.1), exact, rtol=1e-12)
    assert condition_number(np.array([0.0, 1.0])) == np.inf
    assert gd_plus_plus_condition_number(np.array([1.0, 10.0]), 0.1) == np.inf


def test_gamma_near_one_tenth_conditions_contexts_of_25_and_twice_as_much_ruins_them():
    spectra = context_eigenvalues(jax.random.key(0), 2000, context_length=25, input_size=10)
    gamma = np.array([0.05, 0.099, 0.2])[:, None]
    middle, tail = (np.quantile(gd_plus_plus_condition_number(spectra, gamma), q, axis=1) for q in (0.5, 0.9))
    assert middle[1] < middle[0] < np.median(condition_number(spectra))
    assert tail[2] > 10 * tail[1]


def test_density_keeps_the_mean_of_smooth_functions():
    spectra = context_eigenvalues(jax.random.key(0), 2000, context_length=10, input_size=10)
    nodes, weights = eigenvalue_density(spectra)
    np.testing.assert_allclose([weights.sum(), weights @ nodes], [1, spectra.mean()], rtol=1e-12)
    np.testing.assert_allclose(weights @ (1 - 0.6 * nodes) ** 10, np.mean((1 - 0.6 * spectra) ** 10), rtol=1e-4)


@pytest.mark.parametrize(("n", "d", "law"), [(10, 10, "uniform"), (3, 5, "normal"), (2, 2, "laplace")])
def test_centred_step_is_the_best_step_on_centred_inputs(n, d, law):
    size = {"context_length": n, "input_size": d}
    variance = input_variance(law, 1.3)
    eta, loss = centred_step_optimum(**size, input_variance=variance, kurtosis=input_kurtosis(law))

    @jax.jit
    def draw(key):
        samples = linear_regression(**size, input_law=law, input_range=1.3)(key, 200_000)
        x, y = samples.prompt.x, samples.prompt.y[..., 0]
        step = jnp.einsum("bd,bnd,bn->b", samples.prompt.x_query, x - x.mean(axis=1, keepdims=True), y) / n
        return step, samples.target[:, 0]

    step, target = draw(jax.random.key(n))

    def losses(rate):
        return 0.5 * (rate * step - target) ** 2

    here = losses(eta)
    assert abs(float(here.mean()) - loss) < 4 * float(here.std()) / here.size**0.5
    for factor in (0.8, 1.25):  # paired: a worse rate is worse on the same tasks
        more = losses(factor * eta) - here
        assert float(more.mean()) > 4 * float(more.std()) / more.size**0.5


def test_centred_step_needs_two_pairs():
    with pytest.raises(ValueError, match="context_length"):
        centred_step_optimum(context_length=1, input_size=3, input_variance=1.0)
