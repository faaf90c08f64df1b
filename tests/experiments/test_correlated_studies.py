"""Correlated prompts: laws of one effective length, the online layer and its recurrence."""

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest

from experiments.binaries import GALLERY
from experiments.correlated import effective_length
from experiments.correlated import online as binary
from experiments.correlated.effective_length import NAMED, PRODUCT
from experiments.zhang_frei_bartlett.common import product
from icl_lab.constructions import linear_attention_weights
from icl_lab.lab import records
from icl_lab.models import delta_rule

CONFIG = binary.PRESETS["lab"]


@pytest.mark.parametrize("momentum", [0.0, 0.3])
def test_the_layer_is_the_recurrence_on_normalised_keys(momentum):
    config = binary.Config(input_size=3, context_length=6)
    sample = binary.sampler(config, 0.5)(jax.random.key(0), 4)
    maps = np.random.default_rng(0).normal(size=(2, 3, 3)).astype(np.float32)
    params = {"w_q": maps[0], "w_k": maps[1], "rate": 0.7, "momentum": momentum}
    said = binary.online(params, sample.prompt)
    for x, y, query, one in zip(sample.prompt.x, sample.prompt.y, sample.prompt.x_query, said):
        keys = np.asarray(x @ maps[1].T, float)
        sizes = np.linalg.norm(keys, axis=1, keepdims=True)
        queries = np.tile(np.asarray(query @ maps[0].T, float), (6, 1))
        exact = delta_rule(queries, keys / sizes, y / sizes, rates=0.7, momentum=momentum)[0][-1]
        np.testing.assert_allclose(one, exact, rtol=1e-4, atol=1e-5)


def test_the_thousandth_with_most_of_the_error():
    config = dataclasses.replace(CONFIG, drawn=4000)
    found = binary.tails(config, binary.sampler(config, 0.8), binary.member_keys(config, 1, 2))
    assert (found["normalised"] > 0.011).all()  # of squares of normal numbers
    assert (found["normalised"] < 0.1).all()


def test_laws_of_one_effective_length():
    config, closed_form = effective_length.PRESETS["lab"], effective_length.closed_form
    laws = effective_length.laws(config)
    assert [laws[f"equal_{n}"].correlation == 0 for n in (10, 20, 40)] == [True, False, False]
    errors = [closed_form(config, laws[f"equal_{n}"])[1] for n in (10, 20, 40)]
    np.testing.assert_allclose(errors, 6 / 16, rtol=1e-8)
    noisy = [closed_form(config, laws[f"noisy_{n}"])[1] for n in (10, 20, 40)]
    np.testing.assert_allclose(noisy, [1 - 1 / (1.6 + 1 / n) for n in (10, 20, 40)], rtol=1e-8)
    assert closed_form(config, effective_length.Law(20, 0.0))[0][0, 0] == pytest.approx(20 / 26)


def test_the_name_of_one_layer_and_its_rate_follow_from_its_weights():
    """Symmetrised, it is a step of gradient descent at the mean diagonal of A: no claim counts the name or the rate."""
    record = records.load(GALLERY / "correlated" / "effective_length" / "lab")
    for c in ("0", "0.5", "0.8"):
        rates = np.diagonal(PRODUCT(record, at=c), axis1=1, axis2=2).mean(axis=1)
        np.testing.assert_allclose(NAMED(record, at=c, of="learning_rate"), rates, rtol=1e-4)
        assert (NAMED(record, at=c, of="named") == 1).all()
    config = dataclasses.replace(effective_length.PRESETS["lab"], members=1, spectrum=(1.0,) * 3, context_length=6)
    square = np.eye(3, dtype=np.float32) + 0.04 * np.random.default_rng(0).normal(size=(1, 3, 3)).astype(np.float32)
    params = jax.vmap(lambda one: linear_attention_weights(one, 0.6))(square)
    found = effective_length.identification(config, effective_length.Law(6, 0.5), params)
    assert found["named"] == [1]
    np.testing.assert_allclose(found["learning_rate"], np.trace(product(params)[0]) / 3, rtol=1e-4)


def test_built_layers_are_called_normalised_lms():
    config = dataclasses.replace(CONFIG, members=2, input_size=3, context_length=6)
    params = jax.vmap(partial(binary.built, config))(np.linspace(0.7, 1.1, 2))
    assert binary.named(config, binary.sampler(config, 0.8), params, partial(partial, binary.online)).tolist() == [1, 1]
    record = records.load(GALLERY / "correlated" / "online" / "lab")
    assert (binary.NAMED(record, who="built") == 1).all()  # ten rates at D = 5


@pytest.mark.parametrize("kind", ["delta", "momentum"])
def test_layers_before_training_are_those_that_training_starts_from(kind):
    params = binary.untrained(CONFIG, kind)
    assert set(params) == {"w_q", "w_k", "rate"} | ({"momentum"} if kind == "momentum" else set())
    assert all(len(leaf) == CONFIG.members for leaf in params.values())
    one = binary.layer(CONFIG, kind).init(binary.member_keys(CONFIG, 910)[3])
    for name, leaf in params.items():
        np.testing.assert_array_equal(leaf[3], one[name])
