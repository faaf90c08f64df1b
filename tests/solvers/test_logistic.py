import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icl_lab.compare.logistic import logistic_losses
from icl_lab.constructions import gradient_descent_weights
from icl_lab.models import LinearSelfAttention, learner
from icl_lab.prompts import Prompt, logistic_regression
from icl_lab.solvers import (
    effective_draws,
    gradient_descent,
    logistic_bayes,
    logistic_gradient_descent,
    logistic_map,
)
from icl_lab.solvers.logistic import _most_probable


def a_prompt(seed, n=7, d=4, o=2):
    """One random prompt in float64 with labels -1 and +1."""
    generator = np.random.default_rng(seed)
    return Prompt(
        x=jnp.asarray(generator.normal(size=(n, d))),
        y=jnp.asarray(generator.choice([-1.0, 1.0], size=(n, o))),
        x_query=jnp.asarray(generator.normal(size=d)),
    )


@settings(max_examples=6)
@given(seed=st.integers(0, 2**30), n=st.integers(1, 8), d=st.integers(1, 5), o=st.integers(1, 3))
def test_gradient_descent_follows_the_gradient_of_the_logistic_loss(seed, n, d, o):
    with jax.enable_x64(True):
        prompt, rates = a_prompt(seed, n, d, o), jnp.array([1.0, 3.0, 0.5])

        def descended(w):
            slope = jax.grad(lambda w: logistic_losses(prompt.x @ w, (1 + prompt.y) / 2).mean())
            for rate in rates:
                w = w - rate * slope(w)
            return prompt.x_query @ w

        predicted = jax.jit(logistic_gradient_descent(rates))(prompt)
        np.testing.assert_allclose(predicted, jax.jit(descended)(jnp.zeros((d, o))), rtol=1e-10, atol=1e-12)


def test_the_first_step_is_the_linear_regression_step_at_half_the_rate_and_the_second_is_not(x64):
    prompt = a_prompt(0, o=1)
    weights = gradient_descent_weights([0.5, 0.5], context_length=7, input_size=4)
    for steps, same in ((1, True), (2, False)):
        one, other = logistic_gradient_descent(1.0, steps)(prompt), gradient_descent(0.5, steps)(prompt)
        assert np.allclose(one, other, rtol=1e-12) == same
        layers = {"params": {name: w[:steps] for name, w in weights["params"].items()}}
        assert np.allclose(one, learner(LinearSelfAttention(layers=steps), layers)(prompt), rtol=1e-12) == same


@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
def test_the_map_has_no_gradient_left(x64, scale):
    prompt = a_prompt(1)

    def minus_log_posterior(w):
        return logistic_losses(prompt.x @ w, (1 + prompt.y) / 2).sum() + (w**2).sum() / (2 * scale**2)

    w = jax.jit(jax.vmap(lambda y: _most_probable(prompt.x, y, scale, 12), 1))(prompt.y)  # (O, D)
    np.testing.assert_allclose(jax.jit(jax.grad(minus_log_posterior))(w.T), 0, atol=1e-10)
    np.testing.assert_allclose(jax.jit(logistic_map(scale, 12))(prompt), w @ prompt.x_query, rtol=1e-12)


@pytest.mark.parametrize("scale", [1.0, 10.0, 100.0])
def test_the_map_has_converged_for_wide_priors_too(x64, scale):
    """Labels that a hyperplane separates: w grows until the prior stops it."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=(10, 3)))
    prompt = Prompt(x, jnp.sign(x @ jnp.array([[1.0], [-2.0], [0.5]])), jnp.ones(3))
    np.testing.assert_allclose(logistic_map(scale)(prompt), logistic_map(scale, 400)(prompt), rtol=1e-6)


def test_every_newton_step_descends_even_where_whole_steps_do_not(x64):
    """One far input, one label against the others, an almost flat prior: whole steps raise the loss by 10^10."""
    far = [[-1.9, -21.4], [1.0, 0.6], [2.4, -0.9], [-2.7, 30.8], [-3351.0, -1836.4], [-0.1, -0.4]]
    x, y, scale = jnp.array(far), jnp.array([1.0, 1.0, 1.0, -1.0, -1.0, -1.0]), 100.0
    value = lambda w: logistic_losses((x @ w)[:, None], (1 + y[:, None]) / 2).sum() + (w**2).sum() / (2 * scale**2)  # noqa: E731
    values = [value(_most_probable(x, y, scale, steps)) for steps in range(12)]  # no step: w = 0
    assert (np.diff(values) < 1e-12).all()
    assert values[-1] < 0.7 * values[0]


def test_a_narrow_prior_makes_the_map_one_small_step(x64):
    """For s -> 0 the posterior mode is s^2 times the gradient at zero: one GD step with eta/N = s^2."""
    prompt, s = a_prompt(2), 1e-3
    np.testing.assert_allclose(logistic_map(s)(prompt), logistic_gradient_descent(7 * s**2, 1)(prompt), rtol=1e-4)


def test_bayes_is_the_posterior_mean_of_the_probability(x64):
    """Against quadrature over the w of one-dimensional inputs; both outputs have their own task."""
    scale, w = 2.0, np.linspace(-16, 16, 4001)
    prompt = a_prompt(5, n=6, d=1)
    found = logistic_bayes(jax.random.key(0), scale, 100_000)(prompt)
    for output in range(2):
        losses = np.log1p(np.exp(-np.asarray(prompt.y[:, output, None] * prompt.x) * w[None])).sum(0)
        weight = np.exp(-losses - w**2 / (2 * scale**2))
        p = (weight / (1 + np.exp(-np.asarray(prompt.x_query) * w))).sum() / weight.sum()
        np.testing.assert_allclose(found[output], np.log(p / (1 - p)), atol=0.02)


def test_effective_draws_give_the_error_of_bayes_and_too_few_are_refused():
    sampler = logistic_regression(context_length=40, input_size=10, input_range=4.0, task_scale=2.0)
    prompts = sampler(jax.random.key(1), 4).prompt

    @jax.jit
    def over_keys(keys):
        one = lambda key, prompt: (logistic_bayes(key, 2.0, 1000)(prompt), effective_draws(key, 2.0, 1000)(prompt))  # noqa: E731
        return jax.lax.map(lambda key: jax.vmap(lambda prompt: one(key, prompt))(prompts), keys)

    logits, effective = over_keys(jax.random.split(jax.random.key(0), 20))  # (keys, prompts, 1)
    answered = effective >= 100
    np.testing.assert_array_equal(np.isnan(logits), ~answered)
    assert answered.mean() > 0.5  # draws from the prior are worth about one
    spread = np.nanstd(np.where(answered, logits, np.nan), axis=0)
    assert (spread < 2 * np.sqrt(2 / 100)).all()
    refused = jax.tree.map(lambda leaf: leaf[0], sampler(jax.random.key(1), 1).prompt)
    few = logistic_bayes(jax.random.key(0), 100.0, 100)  # labels are separated, the prior is flat: far from Gaussian
    with pytest.raises(ValueError, match="draws must be raised for this prompt: 100 are worth"):
        few(refused)
    assert jnp.isnan(jax.jit(few)(refused)).all()


def test_no_learner_has_a_smaller_loss_than_bayes():
    sampler = logistic_regression(context_length=6, input_size=2, input_range=4.0, task_scale=3.0)
    samples = jax.jit(sampler, static_argnums=1)(jax.random.key(1), 4000)
    learners = {
        "bayes": logistic_bayes(jax.random.key(2), 3.0, 400),
        "map": logistic_map(3.0),
        "one step": logistic_gradient_descent(1.5, 1),
        "knows nothing": lambda prompt: jnp.zeros(1),
    }
    losses = {
        name: logistic_losses(jax.jit(jax.vmap(predict))(samples.prompt), samples.latent["probability"])
        for name, predict in learners.items()
    }
    for name in ("map", "one step", "knows nothing"):
        surplus = np.asarray(losses[name] - losses["bayes"])
        assert surplus.mean() > 4 * surplus.std() / np.sqrt(surplus.size), name


@pytest.mark.parametrize(
    "learn", [logistic_gradient_descent(1.0, 2), logistic_map(1.0), logistic_bayes(jax.random.key(0), 1.0, 4)]
)
def test_labels_zero_and_one_are_refused_where_they_are_known(learn):
    prompt = a_prompt(3)
    of_zero_and_one = dataclasses.replace(prompt, y=(1 + prompt.y) / 2)
    with pytest.raises(ValueError, match=r"labels must be -1 and \+1; from labels 0 and 1 they are 2 \* y - 1"):
        learn(of_zero_and_one)
    assert jax.eval_shape(learn, of_zero_and_one).shape == (2,)  # traced: unknown
    with pytest.raises(ValueError, match=r"probability must lie between 0 and 1; of labels y it is \(1 \+ y\) / 2"):
        logistic_losses(learn(prompt), jnp.array([-1.0, 1.0]))
