"""What every solver refuses before it predicts, and the prompts on which none may fail."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icl_lab import solvers
from icl_lab.constructions import gradient_descent_weights
from icl_lab.prompts import Prompt, linear_regression

TASKS = np.ones((3, 2, 1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: solvers.ridge(np.float32(-1)), "strength"),
        (lambda: solvers.ridge(float("nan")), "strength"),
        (lambda: solvers.recursive_least_squares(0.0), "strength must be above 0, got 0"),
        (lambda: solvers.recursive_least_squares(0.1, 0.0), "forgetting"),
        (lambda: solvers.chebyshev(0.0, 1.0, 3), "low"),
        (lambda: solvers.chebyshev(2.0, 1.0, 3), "high must be above 2"),
        (lambda: solvers.dmmse(TASKS, 0.0), "noise_variance"),
        (lambda: solvers.lasso(0.0), "strength.*above 0"),
        (lambda: solvers.lasso(0.1, sweeps=0), "sweeps must be a whole number of at least 1, got 0"),
        (lambda: solvers.nearest_neighbours(0), "count must be a whole number of at least 1, got 0"),
        (lambda: solvers.dmmse(TASKS[..., 0], 1.0), r"tasks must be \(T, D, O\), got \(3, 2\)"),
        (lambda: solvers.gaussian_smoothing(0.0), "bandwidth"),
        (lambda: solvers.noise_adaptive_ridge(np.array([0.0, 1.0])), "strengths"),
        (lambda: solvers.noise_adaptive_ridge(np.array([])), "strengths"),
        (lambda: solvers.heavy_ball(np.array([0.5, 0.3]), 0.1, 2), "learning_rate must be one number"),
        (lambda: solvers.nesterov(np.array([0.5, 0.3]), 0.1, 2), "learning_rate must be one number"),
        (lambda: solvers.nesterov(0.5, [0.1, 0.1], 2), "momentum must be one number"),
        (lambda: solvers.chebyshev(1.0, [2.0, 3.0], 3), "high must be one number"),
        (lambda: solvers.newton([1.0], 3), "start must be one number"),
        (lambda: solvers.gradient_flow([1.0, 2.0]), "time must be one number"),
        (lambda: solvers.ridge(np.ones(2)), "strength.*must be one number"),
        (lambda: solvers.lms(np.ones(3)), "learning_rate must be one number"),
        (lambda: solvers.huber_regression(0.0), "threshold.*above 0"),
        (lambda: solvers.leaky_lms(0.1, 1.5), "leak must be at least 0 and at most 1"),
        (lambda: solvers.weighted_ridge(0.0, 1.0), "strength must be above 0"),
        (lambda: solvers.weighted_ridge(1.0, np.ones(2)), "slope must be one number"),
        (lambda: solvers.trace_normalised_gradient_descent(0.5), "steps"),
        (lambda: solvers.gaussian_smoothing(np.ones(2)), "bandwidth must be one number"),
        (lambda: solvers.logistic_map(0.0), "prior_scale"),
        (lambda: solvers.recursive_least_squares(1.0, 1.5), "forgetting must be above 0 and at most 1"),
        (lambda: solvers.dmmse_or_ridge(TASKS, 1.0, 0.0), "strength"),
        (lambda: solvers.dmmse_or_ridge(TASKS, -1.0, 1.0), "noise_variance"),
        (lambda: solvers.gradient_descent(0.5, 2.5), "whole number"),
        (lambda: linear_regression(context_length=2, input_size=2, label_noise=float("nan")), "label_noise"),
        (lambda: linear_regression(context_length=2, input_size=2, corrupted_labels=-1), "corrupted_labels"),
        (lambda: linear_regression(context_length=2, input_size=2, input_range=0.0), "input_range must be above 0"),
        (lambda: gradient_descent_weights(1.0, context_length=0, input_size=2), "context_length must be at least 1"),
    ],
)
def test_numbers_out_of_range_are_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_traced_number_is_not_looked_at():
    prompt = Prompt(x=jnp.ones((2, 2)), y=jnp.ones((2, 1)), x_query=jnp.ones(2))
    found = jax.jit(lambda strength: solvers.ridge(strength)(prompt))(0.5)
    np.testing.assert_allclose(found, solvers.ridge(0.5)(prompt), rtol=1e-6)


@pytest.mark.parametrize("learn", [solvers.dmmse(TASKS, 1.0), solvers.dmmse_or_ridge(TASKS, 1.0, 1.0)])
def test_a_set_of_tasks_with_one_output_is_not_broadcast_over_two(learn):
    with pytest.raises(AssertionError):
        learn(Prompt(x=jnp.ones((4, 2)), y=jnp.ones((4, 2)), x_query=jnp.ones(2)))


def test_whole_numbers_are_taken_where_the_parameters_are_not():
    whole = Prompt(jnp.array([[1, 0], [1, 1], [0, 2]]), jnp.array([[1], [-1], [1]]), jnp.array([1, 2]))
    real = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), whole)
    learners = solvers.gaussian_smoothing(1.0, 0.5), solvers.noise_adaptive_ridge(jnp.array([0.25, 0.5]))
    for learn in map(jax.jit, learners):
        np.testing.assert_allclose(learn(whole), learn(real), rtol=1e-6)
        assert jnp.abs(learn(real)) > 0.05


def test_one_pass_in_order_takes_labels_that_are_whole_numbers_and_rates_of_numpy(x64):
    samples = linear_regression(context_length=4, input_size=2)(jax.random.key(0), 1)
    prompt = jax.tree.map(lambda leaf: leaf[0].astype(jnp.float32), samples.prompt)
    of_signs = dataclasses.replace(prompt, y=jnp.sign(prompt.y))
    whole = dataclasses.replace(of_signs, y=of_signs.y.astype(jnp.int32))
    for make in (solvers.lms, solvers.recursive_least_squares):
        solver = make(np.float64(0.5))
        np.testing.assert_allclose(solver(whole), solver(of_signs), rtol=1e-6)
