import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icl_lab.theory import overfitting_coefficient


def squares(params, samples):
    x, y = samples
    return 0.5 * (x @ params["w"] - y) ** 2


@functools.partial(jax.jit, static_argnums=(1, 2))
def draw(key, tasks, size, noise):
    x_key, noise_key = jax.random.split(key)
    x = jax.random.normal(x_key, (tasks, size))
    return x, x.sum(axis=1) + noise * jax.random.normal(noise_key, (tasks,))


def test_least_squares_costs_half_the_noise_for_each_parameter():
    samples = draw(jax.random.key(0), 50_000, 6, noise=0.5)
    assert overfitting_coefficient(squares, {"w": jnp.ones(6)}, samples) == pytest.approx(6 * 0.25 / 2, rel=0.03)


def test_one_parameter_is_enough():
    samples = draw(jax.random.key(0), 50_000, 1, noise=0.5)
    assert overfitting_coefficient(squares, {"w": jnp.ones(1)}, samples) == pytest.approx(0.25 / 2, rel=0.03)


def test_a_symmetry_of_the_parameters_costs_nothing():
    def doubled(params, samples):  # a * w is what acts: one direction of the parameters does nothing
        return squares({"w": params["a"] * params["w"]}, samples)

    samples = draw(jax.random.key(1), 50_000, 6, noise=0.5)
    plain = overfitting_coefficient(squares, {"w": jnp.ones(6)}, samples)
    found = overfitting_coefficient(doubled, {"w": jnp.full(6, 0.5), "a": jnp.float32(2.0)}, samples)
    assert found == pytest.approx(plain, rel=0.02)


def test_it_is_the_excess_of_the_minimiser_over_a_set():
    noise, size, tasks = 0.5, 3, 60
    coefficient = overfitting_coefficient(squares, {"w": jnp.ones(size)}, draw(jax.random.key(2), 50_000, size, noise))

    def gap(key):
        x, y = draw(key, tasks, size, noise)
        w = jnp.linalg.lstsq(x, y)[0]
        excess = 0.5 * jnp.sum((w - 1) ** 2)  # population loss above its minimum: the inputs have unit covariance
        return excess, squares({"w": jnp.ones(size)}, (x, y)).mean() - squares({"w": w}, (x, y)).mean()

    fresh, own = jax.jit(jax.vmap(gap))(jax.random.split(jax.random.key(3), 4000))
    for values, bias in ((fresh, 1 / (1 - (size + 1) / tasks)), (own, 1.0)):
        error = 4 * float(values.std()) / 4000**0.5
        assert abs(float(values.mean()) - bias * coefficient / tasks) < error + 0.03 * coefficient / tasks


def test_parameters_that_are_no_minimum_are_refused():
    samples = draw(jax.random.key(4), 100, 2, noise=0.1)
    with pytest.raises(ValueError, match="no minimum"):
        overfitting_coefficient(lambda p, s: -squares(p, s), {"w": jnp.ones(2)}, samples)
    assert np.isfinite(overfitting_coefficient(squares, {"w": jnp.ones(2)}, samples))
