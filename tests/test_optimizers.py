"""Optimizers of optax in ``fit``: any that can be used is; others are refused before anything is compiled."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax import contrib

import icl_lab
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts import linear_regression
from icl_lab.training import ensembles
from icl_lab.training.clamping import fit_clamped
from icl_lab.training.fitting import fit

KEYS = jax.random.split(jax.random.key(0), 2)
SAMPLER = linear_regression(context_length=3, input_size=2)


def loss(params, key, setting):
    return 0.5 * jnp.sum((params["w"] - 1) ** 2) + jnp.sum((params["b"] + 2) ** 2)


def init(key, setting):
    return {"w": jnp.zeros((2, 3)), "b": jnp.zeros(3)}


def trained(optimizer, steps=4, **options):
    return fit(init, loss, optimizer, KEYS, steps=steps, measure_every=2, **options)


@pytest.fixture
def nothing_compiles(monkeypatch):
    def refused(*_, **__):
        raise AssertionError("training was compiled")

    monkeypatch.setattr(ensembles.Ensemble, "__init__", refused)


@pytest.mark.parametrize(
    "optimizer",
    [
        optax.polyak_sgd(1.0),
        optax.chain(optax.sgd(0.1), contrib.reduce_on_plateau()),
        optax.MultiSteps(optax.sgd(0.1), 2),
        optax.chain(optax.scale(-1.0), optax.scale_by_backtracking_linesearch(5)),
        optax.inject_hyperparams(optax.adam)(learning_rate=0.1),
    ],
    ids=["value", "value in a chain", "MultiSteps", "value_fn", "hyperparameters"],
)
def test_optimizers_that_ask_for_more_than_a_gradient_descend(optimizer):
    found = trained(optimizer).metrics["train_loss"]
    assert (found[:, 2] < found[:, 1]).all()


def test_value_and_gradient_are_those_of_the_step_and_value_fn_its_loss():
    def update(gradient, state, params=None, *, value, grad, value_fn, **_):
        same = jnp.allclose(value_fn(params), value) & jnp.allclose(grad["w"], jax.grad(value_fn)(params)["w"])
        return jax.tree.map(lambda leaf: jnp.where(same, -0.5, 0.0) * leaf, gradient), state

    checked = optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)
    draws = lambda params, key, _: jnp.sum((params["w"] - jax.random.normal(key, (2, 3))) ** 2)  # noqa: E731
    fitted = fit(lambda key, _: {"w": jnp.zeros((2, 3))}, draws, lambda _: checked, KEYS, jnp.zeros(2), steps=1)
    assert (np.abs(fitted.params["w"]) > 0).all()


def test_schedule_free_is_measured_and_ends_at_its_evaluation_weights():
    """Against a loop of optax alone."""
    free = contrib.schedule_free_sgd(0.3, b1=0.5)
    params = init(None, None)
    state = free.init(params)
    for _ in range(4):
        updates, state = free.update(jax.grad(loss)(params, None, None), state, params)
        params = optax.apply_updates(params, updates)
    expected = contrib.schedule_free_eval_params(state, params)
    assert np.abs(expected["w"] - params["w"]).max() > 0.01
    measure = lambda params, key, _: {"w": params["w"]}  # noqa: E731
    for optimizer in (free, optax.chain(optax.clip_by_global_norm(100.0), free)):
        fitted = trained(optimizer, measure=measure)
        for found in (fitted.params["w"], fitted.metrics["w"][:, -1]):
            np.testing.assert_allclose(found[1], expected["w"], rtol=1e-5)


PARTLY_FREE = optax.partition({"a": contrib.schedule_free_sgd(0.1), "b": optax.sgd(0.1)}, {"w": "a", "b": "b"})
PRIVATE = contrib.differentially_private_aggregate(1.0, 0.1, key=jax.random.key(0))
NORMALISED = optax.chain(contrib.normalize(), optax.sgd(0.05))


@pytest.mark.parametrize(
    ("optimizer", "said"),
    [
        (optax.adam, "the function adam and no settings"),
        ("adam", "got 'adam'"),
        (optax.GradientTransformation, "optimizer"),
        (contrib.sam(optax.sgd(0.1), NORMALISED), "optimizer: sam cannot be used here"),
        (optax.lookahead(optax.sgd(0.1), 5, 0.5), "optimizer: lookahead cannot be used here"),
        (contrib.sophia(0.1), "optimizer: hutchinson_estimator_diag_hessian cannot be used here"),
        (PRIVATE, "optimizer: .* cannot be used here"),
        (PARTLY_FREE, "schedule_free has evaluation weights only where it has all parameters"),
        (optax.scale_by_adam(), r"up the gradient, \['b'\], \['w'\]"),
        (optax.masked(optax.sgd(0.1), {"w": True, "b": False}), r"up the gradient, \['b'\]:"),
    ],
)
def test_what_cannot_train_is_refused_by_name_before_anything_is_compiled(optimizer, said, nothing_compiles):
    with pytest.raises(ValueError, match=said):
        trained(optimizer)
    if isinstance(optimizer, str) or said.endswith("settings"):
        network = LinearSelfAttention()
        with pytest.raises(ValueError, match=said):
            icl_lab.train(network, SAMPLER, steps=2, optimizer=optimizer)
        with pytest.raises(ValueError, match=said):
            fit_clamped(init, None, None, lambda _: SAMPLER, optimizer, KEYS, None, batch=2, steps=2)


def test_a_function_that_gives_no_transformation_for_a_setting_is_refused(nothing_compiles):
    with pytest.raises(ValueError, match=re.escape("must give an optax transformation for a setting, got 0.1")):
        fit(init, loss, lambda setting: 0.1, KEYS, jnp.zeros(2), steps=2)


def test_an_optimizer_that_frozen_parameters_are_held_from_gets_the_loss_too():
    held = fit_clamped(
        init,
        lambda params, prompt, *_: (params["w"].sum() * prompt.y[0], None),
        lambda prediction, sample: 0.5 * jnp.sum((prediction - sample.target) ** 2),
        lambda _: SAMPLER, contrib.momo(0.1), KEYS, None, batch=4, steps=2,
    )  # fmt: skip
    assert (held.diverged_at == -1).all()


def test_settings_without_a_number_are_settings():
    """A configuration of whole numbers and names alone: its optimizer is still a function of it."""
    fitted = trained(lambda _: optax.sgd(0.1), settings=(None,))
    assert np.isfinite(fitted.params["w"]).all()
