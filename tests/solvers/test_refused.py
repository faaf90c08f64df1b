"""What every solver refuses before it predicts, and the prompts on which none may fail."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icl_lab import solvers
from icl_lab.prompts import Prompt, linear_regression

TASKS = np.ones((3, 2, 1))


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
