"""Correlated prompts: laws of one effective length, the online layer and its recurrence."""

import dataclasses

import jax
import numpy as np
import pytest

from experiments.correlated import effective_length
from experiments.correlated import online as binary
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
