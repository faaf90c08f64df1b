"""Compiled programs: what this process has is not compiled again, and what differs is."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.experimental import io_callback

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


def scaled_on_the_host(scale, x, calls):
    return jax.pure_callback(lambda x: scale * np.asarray(x), x, x, vmap_method="sequential")


def told(scale, x, calls):
    jax.debug.callback(lambda: calls.append(scale))
    return x


def printed(scale, x, calls):
    jax.debug.print(f"{scale} {{}}", x)
    return x


HOST = {
    "pure": scaled_on_the_host,
    "inside a loop": lambda scale, x, calls: jax.lax.map(lambda one: scaled_on_the_host(scale, one, calls), x),
    "with an effect": lambda scale, x, calls: io_callback(lambda x: scale * np.asarray(x), x, x),
    "in order": lambda scale, x, calls: io_callback(lambda x: scale * np.asarray(x), x, x, ordered=True),
    "debug": told,
    "print": printed,
}


@pytest.mark.parametrize("kind", HOST)
def test_programs_that_call_python_are_never_shared(kind, capfd):
    """The text of a program does not say which function a callback calls."""
    x, calls = jnp.ones(3), []
    found = [
        programs.compiled(jax.jit(lambda x: HOST[kind](scale, x, calls)).trace(x), {})(x)  # noqa: B023
        for scale in (2.0, 5.0)
    ]
    jax.effects_barrier()
    if kind == "debug":
        assert calls == [2.0, 5.0]
    elif kind == "print":
        assert [line[:3] for line in capfd.readouterr().out.splitlines()] == ["2.0", "5.0"]
    else:
        np.testing.assert_array_equal(found, [[2.0] * 3, [5.0] * 3])


def test_a_second_training_calls_its_own_functions_of_the_host():
    sampler = linear_regression(context_length=3, input_size=2)

    def train(scale):
        def ours(prompts):
            return scaled_on_the_host(scale, jax.lax.stop_gradient(prompts.x_query)[:, :1], None)

        trained = icl_lab.train(
            LinearSelfAttention(), sampler, members=1, steps=1, batch=4, eval_tasks=4, references={"ours": ours},
            progress=False,
        )  # fmt: skip
        return trained.fit.metrics["ours_loss"][0, 0]

    assert train(1e3) > 100 * train(1.0)
