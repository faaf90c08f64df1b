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
from icl_lab.solvers import gradient_descent, logistic_gradient_descent, logistic_laplace, logistic_map
from icl_lab.solvers.logistic import _newton


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
        prompt, rates, w = a_prompt(seed, n, d, o), jnp.array([1.0, 3.0, 0.5]), jnp.zeros((d, o))
        slope = jax.grad(lambda w: logistic_losses(prompt.x @ w, (1 + prompt.y) / 2).mean())
        for rate in rates:
            w = w - rate * slope(w)
        predicted = logistic_gradient_descent(rates)(prompt)
        np.testing.assert_allclose(predicted, prompt.x_query @ w, rtol=1e-10, atol=1e-12)


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

    w, hessian = jax.vmap(lambda y: _newton(prompt.x, y, scale, 12), 1)(prompt.y)  # (O, D), (O, D, D)
    np.testing.assert_allclose(jax.grad(minus_log_posterior)(w.T), 0, atol=1e-10)
    np.testing.assert_allclose(logistic_map(scale, 12)(prompt), w @ prompt.x_query, rtol=1e-12)
    full = jax.hessian(minus_log_posterior)(w.T)  # (D, O, D, O)
    np.testing.assert_allclose(hessian, np.stack([full[:, o, :, o] for o in range(2)]), rtol=1e-10, atol=1e-12)


def test_every_newton_step_descends_even_where_whole_steps_do_not(x64):
    """Far inputs of an almost flat prior: undamped Newton from zero overshoots on this prompt."""
    x, y = jnp.array([[40.0], [-1.0], [-1.2]]), jnp.array([1.0, 1.0, 1.0])
    value = lambda w: logistic_losses((x @ w)[:, None], (1 + y[:, None]) / 2).sum() + (w**2).sum() / 200  # noqa: E731
    values = [value(jnp.zeros(1)), *(value(_newton(x, y, 10.0, steps)[0]) for steps in range(1, 12))]
    assert (np.diff(values) < 1e-12).all()
    np.testing.assert_allclose(jax.grad(value)(_newton(x, y, 10.0, 30)[0]), 0, atol=1e-9)


def test_a_narrow_prior_makes_the_map_one_small_step(x64):
    """For s -> 0 the posterior mode is s^2 times the gradient at zero: one GD step with eta/N = s^2."""
    prompt, s = a_prompt(2), 1e-3
    np.testing.assert_allclose(logistic_map(s)(prompt), logistic_gradient_descent(7 * s**2, 1)(prompt), rtol=1e-4)


def bayes_logit(prompt, scale, points=4001):
    """The exact posterior predictive logit of one-dimensional inputs, by quadrature over w."""
    w = np.linspace(-8, 8, points) * scale
    losses = np.log1p(np.exp(-np.asarray(prompt.y) * np.asarray(prompt.x) * w[None])).sum(0) + w**2 / (2 * scale**2)
    weight = np.exp(losses.min() - losses)
    p = (weight / (1 + np.exp(-np.asarray(prompt.x_query) * w))).sum() / weight.sum()
    return np.log(p / (1 - p))


def test_laplace_is_nearly_the_bayes_predictor_and_the_map_is_overconfident(x64):
    samples = logistic_regression(context_length=5, input_size=1, input_range=4.0)(jax.random.key(0), 200)
    prompts = [jax.tree.map(lambda leaf, i=i: leaf[i], samples.prompt) for i in range(200)]
    exact = np.array([bayes_logit(prompt, 1.0) for prompt in prompts])
    laplace, mode = (jax.vmap(make(1.0))(samples.prompt)[:, 0] for make in (logistic_laplace, logistic_map))
    error, of_mode = (np.sqrt(np.mean((found - exact) ** 2)) for found in (laplace, mode))
    assert error < 0.06  # of a logit
    assert of_mode > 1.5 * error
    assert np.abs(mode).mean() > 1.05 * np.abs(exact).mean()


@pytest.mark.parametrize(
    "make", [lambda: logistic_gradient_descent(1.0, 2), lambda: logistic_map(1.0), lambda: logistic_laplace(1.0)]
)
def test_symmetries_batches_and_wrong_prompts(x64, make):
    prompt, order = a_prompt(3), np.random.default_rng(0).permutation(7)
    shuffled = prompt.replace(x=prompt.x[order], y=prompt.y[order])
    np.testing.assert_allclose(make()(shuffled), make()(prompt), rtol=1e-9)
    np.testing.assert_allclose(make()(prompt.replace(y=-prompt.y)), -make()(prompt), rtol=1e-9)
    batch = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), prompt)
    assert jax.vmap(make())(batch).shape == (2, 2)
    with pytest.raises(AssertionError):
        make()(batch)


def test_bad_steps():
    with pytest.raises(ValueError, match="scalar learning_rate needs steps >= 1"):
        logistic_gradient_descent(1.0)
    for make in (logistic_map, logistic_laplace):
        with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
            make(1.0, 0)
