"""``depth.looped``: layers that are built as an algorithm, starts of the kinds, turned prompts."""

import dataclasses

import jax
import numpy as np
import pytest

from experiments.depth import looped as binary
from icl_lab.solvers import gd_plus_plus, gradient_descent
from icl_lab.theory import best_gd_plus_plus, gram_spectrum

CONFIG = binary.PRESETS["lab"]


@pytest.mark.parametrize("name", ["looped_3", "free_2", "inputs_2", "turned_2"])
def test_built_layers_are_the_algorithm(name):
    """Gradient descent, and GD++ where inputs move; on turned inputs z, gradient descent on C^(-1/2) z."""
    kind, layers = name.split("_")
    best, side = binary.optima(CONFIG, int(layers)), np.linalg.inv(binary.root(CONFIG, name))
    samples = binary.sampler(CONFIG, name)(jax.random.key(0), 6)
    prompts = samples.prompt
    white = dataclasses.replace(prompts, x=prompts.x @ side, x_query=prompts.x_query @ side)
    expected = {key: gradient_descent(rates) for key, rates in best.rates.items()}
    if kind == "inputs":
        spectrum = gram_spectrum(CONFIG.context_length, CONFIG.input_size, 8)
        rates, gammas, _ = best_gd_plus_plus(2, *spectrum)
        expected["gd++"] = gd_plus_plus(rates, gammas / CONFIG.context_length)
    for key, (built, weights) in binary.solvers(CONFIG, name).items():
        model = binary.model(CONFIG, f"{built}_{layers}" if "b" not in weights["params"] else name)
        found = model.learner(weights)(prompts)
        np.testing.assert_allclose(found, jax.vmap(expected[key])(white), rtol=1e-4, atol=1e-4)
    one = {"params": {"a": np.float32(best.rates["looped"][:1, None, None] * side @ side)}}
    looped = binary.model(CONFIG, f"looped_{layers}").learner(one)(prompts)
    np.testing.assert_allclose(looped, jax.vmap(expected["looped"])(white), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("depth", [2, 3])
def test_descent_ends_at_the_free_error_from_rates_apart_and_at_the_looped_one_from_equal_ones(depth):
    best = binary.optima(CONFIG, depth)
    _, (_, ends) = binary._descents(dataclasses.replace(CONFIG, members=3), depth)
    np.testing.assert_allclose(ends["apart"], best.errors["free"], rtol=0.01)
    np.testing.assert_allclose(ends["equal"], best.errors["looped"], rtol=1e-6)
    assert best.errors["free"] < 0.8 * best.errors["looped"]


def test_starts_of_the_kinds():
    shapes = {name: binary.model(CONFIG, name).init(jax.random.key(0))["params"] for name in CONFIG.networks}
    assert {name: len(params["a"]) for name, params in shapes.items() if name[:6] == "looped"} == {
        "looped_2": 1, "looped_3": 1
    }  # fmt: skip
    assert (shapes["equal_2"]["a"][0] == shapes["equal_2"]["a"][1]).all()
    assert (shapes["free_2"]["a"][0] != shapes["free_2"]["a"][1]).all()
    assert [name for name, params in shapes.items() if "b" in params] == ["inputs_2"]


def test_turned_prompts_have_the_covariances_of_their_name():
    samples = binary.sampler(CONFIG, "turned_2")(jax.random.key(1), 20_000)
    covariance = binary.root(CONFIG, "turned_2") @ binary.root(CONFIG, "turned_2")
    np.testing.assert_allclose(np.linalg.eigvalsh(covariance), np.sort(np.square(CONFIG.scales)), rtol=1e-10)
    x, w = samples.prompt.x_query, samples.latent["w"][..., 0]
    np.testing.assert_allclose(x.T @ x / len(x), covariance, atol=0.05)
    np.testing.assert_allclose(w.T @ w / len(w), np.linalg.inv(covariance), atol=0.5)
