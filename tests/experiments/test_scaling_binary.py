"""``depth.scaling``: its layers, prompts, errors and starts."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_headline_controls import at_lab

from experiments.depth import looped
from experiments.depth import scaling as binary
from experiments.depth import scaling_shown as shown
from icl_lab.solvers import gradient_descent
from icl_lab.theory import depth_error, gram_spectrum
from icl_lab.training import Fit

CONFIG = binary.PRESETS["lab"]


@pytest.mark.parametrize("own", [1, 3])
def test_layers_are_linear_attention_and_gradient_descent(own):
    rng = np.random.default_rng(0)
    config = dataclasses.replace(CONFIG, input_size=4, tasks=1)
    prompts = binary.isotropic(config, 4)(jax.random.key(0), 5).prompt
    params = {"params": {"a": jnp.asarray(rng.normal(size=(own, 4, 4)), jnp.float32)}}
    model, same = binary.layers_of(4, 3, own), looped.model(config, "free_3" if own == 3 else "looped_3")
    np.testing.assert_allclose(model.learner(params)(prompts), same.learner(params)(prompts), rtol=2e-4, atol=2e-4)
    rates = np.linspace(0.2, 0.6, own)
    params = {"params": {"a": jnp.asarray(rates[:, None, None] * np.eye(4), jnp.float32)}}
    expected = jax.vmap(gradient_descent(np.tile(rates, 3 // own)))(prompts)
    np.testing.assert_allclose(model.learner(params)(prompts), expected, rtol=1e-4, atol=1e-4)


def test_turned_prompts_are_the_power_law():
    """X^T X / N has its eigenvalues in every prompt, rotations have no mean, and rates leave the error of the law."""
    law, size = binary.modes(CONFIG, CONFIG.input_size), CONFIG.input_size
    samples = binary.turned(CONFIG)(jax.random.key(1), 20_000)
    x, w = np.asarray(samples.prompt.x, np.float64), np.asarray(samples.latent["w"][..., 0])
    grams = np.einsum("bnd,bne->bde", x, x) / size
    np.testing.assert_allclose(np.linalg.eigvalsh(grams[:50])[:, ::-1], np.tile(law[0], (50, 1)), rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(grams.mean(0), law[0].mean() * np.eye(size), atol=0.01)
    np.testing.assert_allclose(np.einsum("bd,bde,be->b", w, grams, w).mean(), 1, atol=0.03)
    np.testing.assert_allclose(np.square(samples.target).mean(), 1, atol=0.06)
    rates = binary.best(law, 2)["tied"]
    params = {"params": {"a": jnp.asarray(rates[:, None, None] * np.eye(size), jnp.float32)}}
    found = np.square(binary.layers_of(size, 2, 2).learner(params)(samples.prompt) - samples.target).mean()
    assert found == pytest.approx(depth_error(rates, law), rel=0.08)


def test_rates_leave_the_exact_error_on_isotropic_prompts():
    config = dataclasses.replace(CONFIG, members=1, final_tasks=20_000)
    params = {"params": {"a": np.full((1, 1, 4, 4), 0.5) * np.eye(4)}}
    law = gram_spectrum(4, 4, 4)
    beside = {"best": binary.best(law, 2)["tied"][:1]}
    found = binary.errors(
        config, binary.layers_of(4, 2, own=1), Fit(params, *(3 * [{}])), binary.isotropic(config, 4), 1, beside
    )
    for name, rate in {"trained": 0.5, "best": beside["best"][0]}.items():
        assert found[name] / (4 * config.tasks) == pytest.approx(depth_error([rate, rate], law), rel=0.03)


@pytest.mark.parametrize(("learner", "exponent", "tolerance"), [("free", -1.875, 0.15), ("tied", -0.5, 0.05)])
def test_only_many_modes_have_the_exponents(learner, exponent, tolerance):
    """Theory against theory: the slopes are near -beta (2 + alpha) and -beta, those of 45 modes are not."""
    record = at_lab("depth.scaling")[0]
    many, few = (shown.slope(of, learner)(record) for of in ("many", "few"))
    assert many == pytest.approx(exponent, abs=tolerance)
    assert few < exponent - 2 * tolerance


def test_a_training_that_diverged_has_an_infinite_error():
    errors = shown.over("apart_4", "tied")(at_lab("depth.scaling")[0])
    assert np.isinf(errors).sum() == 1
    assert not np.isnan(errors).any()


def test_starts_of_the_kinds():
    start = lambda name: binary.model(CONFIG, name).init(jax.random.key(0))["params"]  # noqa: E731
    zeros, apart = start("zeros_4")["a"], start("apart_4")["a"]
    assert zeros.shape == apart.shape == (4, 16, 16)
    assert not zeros.any()
    rates = np.diagonal(apart, axis1=1, axis2=2)
    assert (np.ptp(rates, axis=1) == 0).all()
    assert (np.ptp(rates, axis=0) > 0).all()
    assert set(start("inputs_2")) == {"a", "b"}
