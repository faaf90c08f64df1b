import jax
import jax.numpy as jnp
import numpy as np
import pytest
from linear_tasks import a_prompt

from icl_lab.prompts import Prompt
from icl_lab.solvers import gradient_descent
from icl_lab.solvers.heavy_ball import heavy_ball, heavy_ball_losses, tune_heavy_ball


def test_it_is_the_sum_over_past_gradients_of_dai_et_al(x64):
    """Theta_t = Theta_(t-1) - gamma sum_(i < t) eta^(t-i) grad_i, written as it stands there, is K = t - 1 steps."""
    prompt, gamma, eta = a_prompt(), 0.7, 0.6
    slope = jax.grad(lambda w: jnp.sum((prompt.x @ w - prompt.y) ** 2) / (2 * 7))
    theta, gradients = jnp.zeros((4, 2)), []
    for t in range(2, 6):
        gradients.append(slope(theta))
        theta = theta - gamma * sum(eta ** (t - i) * g for i, g in enumerate(gradients, start=1))
    np.testing.assert_allclose(heavy_ball(gamma * eta, eta, 4)(prompt), prompt.x_query @ theta, rtol=1e-10)


def test_without_momentum_and_in_its_first_step_it_is_gradient_descent(x64):
    prompt = a_prompt(1)
    np.testing.assert_allclose(heavy_ball(0.5, 0.0, 3)(prompt), gradient_descent(0.5, 3)(prompt), rtol=1e-12)
    np.testing.assert_allclose(heavy_ball(0.5, 0.9, 1)(prompt), gradient_descent(0.5, 1)(prompt), rtol=1e-12)


def test_the_loss_is_that_of_the_map_from_task_to_prediction(x64):
    """f = w^T P x_q for a context, so that E over w ~ N(0, I) and x_q of variance v is v / 2 |I - P|^2."""
    x, (n, d), v = np.random.default_rng(2).normal(size=(6, 3)), (6, 3), 0.3
    solver = heavy_ball(0.4, 0.5, 3)
    matrix = [[solver(Prompt(jnp.asarray(x), jnp.asarray(x[:, [i]]), e))[0] for e in jnp.eye(d)] for i in range(d)]
    expected = v / 2 * np.sum((np.eye(d) - np.array(matrix)) ** 2)
    spectrum = np.linalg.eigvalsh(x.T @ x)[None]
    found = heavy_ball_losses(spectrum, 0.4, 0.5, 3, context_length=n, input_variance=v)
    np.testing.assert_allclose(found, [expected], rtol=1e-10)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_tuned_is_a_minimum_that_momentum_lowers(steps):
    x = np.random.default_rng(3).uniform(-0.5, 0.5, size=(200, 10, 5))
    spectrum = np.linalg.eigvalsh(x.swapaxes(1, 2) @ x)
    law = {"context_length": 10, "input_variance": 1 / 12}
    best = tune_heavy_ball(spectrum, steps, **law)

    def loss(rate, momentum):
        return heavy_ball_losses(spectrum, rate, momentum, steps, **law).mean()

    assert best.loss == pytest.approx(loss(best.learning_rate, best.momentum), rel=1e-12)
    around = [loss(best.learning_rate * a, best.momentum + b) for a in (0.98, 1, 1.02) for b in (-0.01, 0, 0.01)]
    plain = min(loss(rate, 0.0) for rate in np.linspace(0.1, 30, 600))
    if steps == 1:
        assert best.momentum == 0
        assert best.loss <= plain * (1 + 1e-9)
    else:
        assert min(around) >= best.loss * (1 - 1e-9)
        assert best.loss < 0.999 * plain
        assert 0 < best.momentum < 1
