"""Compiled programs: what this process has is not compiled again, and what differs is."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import icl_lab
from icl_lab.lab.profile import Profile
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts import linear_regression
from icl_lab.solvers import gradient_descent
from icl_lab.training import programs


def test_a_second_training_of_the_same_shapes_compiles_nothing():
    """Every function is made anew; what differs (seed, values of settings) is an argument of the programs."""

    def train(seed, rate=0.1, batch=4):
        sampler = linear_regression(context_length=3, input_size=2)
        settings = {"noise": jnp.array([0.0, rate])}
        noisy = lambda setting: lambda key, batch: sampler(key, batch)  # noqa: E731
        icl_lab.train(
            LinearSelfAttention(), noisy, members=2, steps=2, batch=batch, eval_tasks=4, seed=seed, settings=settings,
            optimizer=optax.adam(1e-3), references={"gd": jax.vmap(gradient_descent(1.0, 1))}, progress=False,
        )  # fmt: skip

    counted = Profile()
    train(0)
    with counted.listening():
        train(1, rate=0.2)
    assert sum(one["programs"] for one in counted.found.values()) == 0
    with counted.listening():
        train(1, batch=5)
    assert sum(one["programs"] for one in counted.found.values()) > 0


def test_programs_that_read_other_values_are_compiled_apart():
    found = [
        programs.compiled(jax.jit(lambda x: x + values).trace(jnp.zeros(3)), {})(jnp.zeros(3)).tolist()  # noqa: B023
        for values in (np.arange(3.0), np.ones(3), np.arange(3.0))
    ]
    assert found == [[0, 1, 2], [1, 1, 1], [0, 1, 2]]


def test_programs_that_differ_in_an_argument_that_nothing_uses_are_compiled_apart():
    for size in (2, 3):
        arguments = jnp.arange(3.0), jnp.zeros(size)
        found = programs.compiled(jax.jit(lambda x, unused: 2 * x).trace(*arguments), {})(*arguments)
        assert found.tolist() == [0, 2, 4]
