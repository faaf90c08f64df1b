"""Layers at the closed forms hold every claim of ``depth.looped``, and its controls do not."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from toys import inside

from experiments.depth import looped as binary
from experiments.depth.looped import ERROR, LOOPS, WEIGHTS
from experiments.depth.looped_shown import CLAIMS
from icl_lab.lab.flags import to_json
from icl_lab.lab.record import Record
from icl_lab.lab.trainings import collected
from icl_lab.solvers import gd_plus_plus, gradient_descent
from icl_lab.theory import depth_error, gram_spectrum

CONFIG = binary.PRESETS["lab"]
MEMBERS = 2
SHORT = dataclasses.replace(CONFIG, members=MEMBERS)


@functools.cache
def record(factor=1.0):
    """Members whose rates are ``factor`` times the best ones, and errors that are exact."""
    pieces = [piece for layers in CONFIG.depths for piece in descents(layers)]
    long = gram_spectrum(CONFIG.context_length, CONFIG.input_size, 2 * max(CONFIG.loops))
    for name in CONFIG.networks:
        kind, layers = name.split("_")
        best, inverse = binary.optima(CONFIG, int(layers)), np.linalg.inv(binary.root(CONFIG, name))
        rates = factor * best.rates["looped" if kind == "looped" else "free"]
        errors = {"trained": depth_error(rates, best.spectrum), **best.errors}
        if kind == "inputs":
            errors["gd++"] = binary.gd_plus_plus(CONFIG, int(layers))[2]
            errors["trained"] = factor * errors["gd++"]
        a = (rates[:1] if kind == "looped" else rates[::-1])[:, None, None] * inverse @ inverse
        pieces += [(WEIGHTS.at(network=name), np.tile(a, (MEMBERS, 1, 1, 1)))]
        pieces += [(ERROR.at(network=name), {key: np.full(MEMBERS, value) for key, value in errors.items()})]
        if kind == "looped":
            each = {
                key: np.tile([depth_error(np.full(k, one), long) for k in CONFIG.loops], (MEMBERS, 1))
                for key, one in (("trained", rates[0]), ("looped", rates[0] / factor))
            }
            pieces += [(LOOPS.at(network=name), each)]
    metrics, arrays, _ = collected(pieces)
    return Record("depth.looped", "lab", to_json(CONFIG), metrics, arrays)


@functools.cache
def descents(layers):
    return list(binary._descents(SHORT, layers))


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id.rsplit(".", 1)[1])
def test_the_closed_form_holds_and_the_control_fails(claim):
    found = record()
    assert inside(claim, claim.statistic, found)
    assert not inside(claim, claim.control, found)


def test_layers_of_another_scale_break_the_claims():
    broken = {claim.id.rsplit(".", 1)[1] for claim in CLAIMS if not inside(claim, claim.statistic, record(0.9))}
    expected = {"looped_2_rate", "looped_3_error", "free_2_rates", "free_3_error", "turned_2_rates", "equal_2_error"}
    assert expected | {"inputs_2_error", "loops_1", "loops_5"} <= broken


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
        rates, gammas, _ = binary.gd_plus_plus(CONFIG, int(layers))
        expected["gd++"] = gd_plus_plus(rates, gammas / CONFIG.context_length)
    for key, (built, weights) in binary.solvers(CONFIG, name).items():
        model = binary.model(CONFIG, f"{built}_{layers}" if "b" not in weights["params"] else name)
        found = model.learner(weights)(prompts)
        np.testing.assert_allclose(found, jax.vmap(expected[key])(white), rtol=1e-4, atol=1e-4)
    one = {"params": {"a": np.float32(best.rates["looped"][:1, None, None] * side @ side)}}
    looped = binary.model(CONFIG, f"looped_{layers}").learner(one)(prompts)
    np.testing.assert_allclose(looped, jax.vmap(expected["looped"])(white), rtol=1e-4, atol=1e-4)


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
