"""Kaczmarz holds every claim of ``correlated.online``, and its controls do not; the layer is its recurrence."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from toys import inside

from experiments.correlated import online as binary
from experiments.correlated.online import ERROR, KEYS, LEARNED, NAMED, TAIL
from experiments.correlated.online_shown import CLAIMS
from icl_lab.lab.flags import to_json
from icl_lab.lab.record import Record
from icl_lab.lab.trainings import collected
from icl_lab.models import delta_rule

CONFIG = binary.PRESETS["lab"]
MEMBERS = 2
ERRORS = {0.0: 0.8**20, 0.5: 0.0283, 0.8: 0.1377}  # of Kaczmarz, the closed form and means of drawn contexts


@functools.cache
def record():
    """Members that are Kaczmarz."""
    pieces = [
        (NAMED.at(who=who), np.full(MEMBERS, float(who != "untrained"))) for who in ("built", "untrained", "trained")
    ]
    for c, error in ERRORS.items():
        for kind in binary.KINDS:
            at = {"kind": kind, "at": f"{c:g}"}
            each = {"error": error, "kaczmarz": error, "hasty": 1.26 * error}
            pieces += [(ERROR.at(**at), {name: np.full(MEMBERS, value) for name, value in each.items()})]
            learned = {"rate": 1.0, "momentum": 0.0}
            pieces += [(LEARNED.at(**at), {name: np.full(MEMBERS, value) for name, value in learned.items()})]
            pieces += [(KEYS.at(**at), np.tile(np.eye(5), (MEMBERS, 1, 1)))]
        pieces += [(TAIL.at(at=f"{c:g}"), {"as_they_are": np.full(MEMBERS, 0.3), "normalised": np.full(MEMBERS, 0.04)})]
    metrics, arrays, _ = collected(pieces)
    return Record("correlated.online", "lab", to_json(CONFIG), metrics, arrays)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id.rsplit(".", 1)[1])
def test_kaczmarz_holds_and_the_control_fails(claim):
    assert inside(claim, claim.statistic, record())
    assert claim.control is None or not inside(claim, claim.control, record())


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
