import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icl_lab.prompts import Prompt, linear_regression
from icl_lab.solvers import gd_plus_plus, gradient_descent
from icl_lab.solvers.oracle import (
    context_eigenvalues,
    oracle_loss,
    tune_gd_plus_plus,
    tune_gradient_descent,
)
from icl_lab.theory import one_step_loss, one_step_optimum

DEFAULT = {"context_length": 10, "input_variance": 1 / 12}


@pytest.fixture(scope="module")
def spectra():
    """Contexts to tune on and contexts to judge on, N = D = 10."""
    drawn = context_eigenvalues(jax.random.key(0), 40_000, context_length=10, input_size=10)
    return drawn[:20_000], drawn[20_000:]


@settings(max_examples=6)
@given(seed=st.integers(0, 2**30), n=st.integers(1, 6), d=st.integers(1, 5), k=st.integers(1, 4))
def test_loss_given_the_context_is_exact(seed, n, d, k):
    """With labels Y = X (all unit tasks at once) a prediction is G x_q, and E (w^T (G - I) x_q)^2 = v |G - I|^2."""
    rng = np.random.default_rng(seed)
    x, eta, gamma = rng.normal(size=(n, d)), rng.uniform(0, 1, k), rng.uniform(0, 0.1, k)
    with jax.enable_x64(True):
        answer = gd_plus_plus(eta, gamma)
        prompt = Prompt(x=jnp.asarray(x), y=jnp.asarray(x), x_query=jnp.zeros(d))
        predictions = np.asarray(jax.jit(jax.vmap(lambda unit: answer(prompt.replace(x_query=unit))))(jnp.eye(d)))
    variance, scale = 0.7, 1.3
    expected = scale**2 * variance / 2 * np.sum((predictions - np.eye(d)) ** 2)
    setting = {"context_length": n, "input_variance": variance, "task_scale": scale}
    found = oracle_loss(np.linalg.eigvalsh(x.T @ x)[None], eta, gamma, **setting)
    np.testing.assert_allclose(found, [expected], rtol=1e-8)


@pytest.mark.parametrize("law", ["uniform", "laplace"])
def test_mean_loss_is_what_explicit_solvers_have(law):
    """Other contexts, 4 standard errors of both."""
    setting = {"context_length": 6, "input_size": 4, "input_law": law, "input_range": 0.8}
    variance = {"uniform": 1 / 12, "laplace": 2.0}[law] * 0.64
    eta, gamma = np.array([0.2, 0.25]) / variance, np.array([0.01, 0.0]) / variance
    sample = jax.jit(linear_regression(**setting), static_argnums=1)(jax.random.key(1), 40_000)
    spectrum = context_eigenvalues(jax.random.key(2), 40_000, **setting)
    for learner, bend in [(gradient_descent(eta), 0 * gamma), (gd_plus_plus(eta, gamma), gamma)]:
        error = jax.jit(jax.vmap(learner))(sample.prompt) - sample.target
        explicit = np.asarray(0.5 * jnp.sum(error**2, axis=1), np.float64)
        exact = oracle_loss(spectrum, eta, bend, context_length=6, input_variance=variance)
        tolerance = 4 * np.hypot(explicit.std(), exact.std()) / 200
        assert abs(explicit.mean() - exact.mean()) < tolerance < 0.1 * exact.mean()


def test_one_step_is_the_closed_form(spectra):
    losses = oracle_loss(spectra[0], [4.0], [0.0], **DEFAULT)
    exact = one_step_loss(4.0, input_size=10, **DEFAULT)
    assert abs(losses.mean() - exact) < 4 * losses.std() / len(losses) ** 0.5
    tuned = tune_gradient_descent(spectra[0], 1, held_out=spectra[1], **DEFAULT)
    best, least = one_step_optimum(input_size=10, **DEFAULT)
    assert abs(tuned.loss - least) < 4 * tuned.standard_error
    assert abs(tuned.learning_rates[0] - best) < 0.01 * best


@pytest.mark.parametrize(("steps", "rate", "loss"), [(1, 0.605, 0.2062), (2, 0.6, 0.1567), (5, 0.56, 0.1087)])
def test_gradient_descent_tuned(spectra, steps, rate, loss):
    """Within 4 standard errors of 20 000 contexts, the reference having as many, and half its last digit."""
    tuned = tune_gradient_descent(spectra[0], steps, held_out=spectra[1], **DEFAULT)
    assert abs(tuned.loss - loss) < 4 * 2**0.5 * tuned.standard_error + 5e-5
    assert abs(tuned.learning_rates[0] / 10 - rate) < 0.02
    assert np.all(tuned.gammas == 0)
    assert tuned.standard_error < 0.01 * loss


def test_ten_steps_of_gradient_descent_are_carried_by_rare_contexts(spectra):
    """.0851 is an in-sample value: between samples of 20 000 it scatters by .0012, twice its standard error."""
    tuned = tune_gradient_descent(spectra[0], 10, held_out=spectra[0], **DEFAULT)
    assert abs(tuned.loss - 0.0851) < 4 * 0.0012
    assert 0.45 < tuned.learning_rates[0] / 10 < 0.54


def test_shared_gd_plus_plus_tuned(spectra):
    tuned = tune_gd_plus_plus(spectra[0], 2, shared=True, held_out=spectra[1], starts=3, **DEFAULT)
    assert abs(tuned.loss - 0.1106) < 4 * 2**0.5 * tuned.standard_error + 5e-5
    np.testing.assert_allclose(tuned.learning_rates / 10, 1.355, rtol=0.02)
    np.testing.assert_allclose(tuned.gammas, 0.1765, rtol=0.02)


@pytest.mark.parametrize(
    ("n", "rate", "gamma", "loss"),
    [(25, 0.736, 0.0994, 0.0183), (50, 0.397, 0.0562, 0.0025), (100, 0.204, 0.0296, 0.0004)],
)
def test_best_shared_gamma_follows_the_context_length(n, rate, gamma, loss):
    spectra = context_eigenvalues(jax.random.key(n), 6000, context_length=n, input_size=10)
    setting = {"context_length": n, "input_variance": 1 / 12}
    tuned = tune_gd_plus_plus(spectra[:4000], 2, shared=True, held_out=spectra[4000:], starts=2, **setting)
    np.testing.assert_allclose(tuned.learning_rates / n, rate, rtol=0.02)
    np.testing.assert_allclose(tuned.gammas, gamma, rtol=0.02)
    assert abs(tuned.loss - loss) < 4 * tuned.standard_error + 5e-5


def test_free_layers_are_better_than_shared_ones_and_descent_alone_stops_early(spectra):
    """The minimum that the released initialisation leads to (.1038) is not the best one in the box (below .093)."""
    setting = {"shared": False, "held_out": spectra[1], **DEFAULT}
    released = tune_gd_plus_plus(spectra[0], 2, starts=1, **setting)
    best = tune_gd_plus_plus(spectra[0], 2, starts=10, **setting)
    assert abs(released.loss - 0.1038) < 4 * 2**0.5 * released.standard_error + 5e-5
    assert best.loss + 4 * best.standard_error < 0.097
    assert best.gammas[-1] == 0
    assert best.gammas.max() / 12 * 10 <= 0.34


def test_tuning_ignores_units(spectra):
    """Inputs three times as large: eta and gamma nine times smaller, the loss nine times larger."""
    small = tune_gd_plus_plus(spectra[0], 3, shared=True, held_out=spectra[1], starts=1, **DEFAULT)
    setting = {"context_length": 10, "input_variance": 9 / 12}
    large = tune_gd_plus_plus(9 * spectra[0], 3, shared=True, held_out=9 * spectra[1], starts=1, **setting)
    np.testing.assert_allclose(9 * large.gammas, small.gammas, rtol=1e-6)
    np.testing.assert_allclose([9 * large.learning_rates[0], large.loss / 9], [small.learning_rates[0], small.loss])


def test_tuning_leaves_the_precision_of_the_caller_alone(spectra):
    tune_gd_plus_plus(spectra[0], 2, shared=True, held_out=spectra[1], starts=1, **DEFAULT)
    assert not jax.config.jax_enable_x64
    assert jnp.ones(1).dtype == jnp.float32


def test_tuning_finds_what_the_published_scan_finds(spectra):
    """The released code of von Oswald et al. 2022 tries 0.001, 0.101, .., 24.901 on the contexts that it judges on.

    The best of them is within half a grid step of the continuous optimum, and cannot be better.
    """
    contexts, rates = spectra[0][:2000], 0.001 + 0.1 * np.arange(250)
    losses = [oracle_loss(contexts, np.full(2, eta), np.zeros(2), **DEFAULT).mean() for eta in rates]
    tuned = tune_gradient_descent(contexts, 2, held_out=contexts, **DEFAULT)
    assert abs(rates[np.argmin(losses)] - tuned.learning_rates[0]) < 0.051
    assert 0 <= min(losses) - tuned.loss < 1e-4


def test_eigenvalues_are_those_of_the_sampler():
    setting = {"context_length": 3, "input_size": 5}
    spectrum = context_eigenvalues(jax.random.key(3), 4, **setting)
    x = np.asarray(linear_regression(**setting)(jax.random.key(3), 4).prompt.x, np.float64)
    assert spectrum.shape == (4, 5)
    assert spectrum.dtype == np.float64
    np.testing.assert_allclose(spectrum[:, 2:], np.linalg.svd(x, compute_uv=False)[:, ::-1] ** 2, rtol=1e-8)
    np.testing.assert_allclose(spectrum[:, :2], 0, atol=1e-12)


def test_divergence_is_an_infinite_loss_without_a_warning():
    losses = oracle_loss(np.array([[1.0, 5.0]]), np.full(12, 80.0), np.full(12, 3.0), **DEFAULT)
    assert losses == np.inf


def test_bad_arguments(spectra):
    with pytest.raises(ValueError, match=r"need \(B, D\), \(K,\) and \(K,\)"):
        oracle_loss(spectra[0], [1.0, 2.0], [1.0], **DEFAULT)
    with pytest.raises(ValueError, match="input_variance must be one number or"):
        oracle_loss(spectra[0], [1.0], [0.0], **DEFAULT | {"input_variance": np.ones((len(spectra[0]), 1))})
    with pytest.raises(ValueError, match="starts must be at least 1"):
        tune_gd_plus_plus(spectra[0], 2, shared=True, held_out=spectra[1], starts=0, **DEFAULT)
    with pytest.raises(ValueError, match="input_law must be one of"):
        context_eigenvalues(jax.random.key(0), 1, context_length=1, input_size=1, input_law="cauchy")
