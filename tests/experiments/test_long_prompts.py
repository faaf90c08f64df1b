"""``long_prompts.softmax_heads``: its network is the head of the formula, signs of heads, a centred step."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from toys import inside, measured_at_lab

from experiments.long_prompts import softmax_heads as binary
from experiments.long_prompts.softmax_heads import ERROR, EXACT, LOGITS, RATE
from experiments.long_prompts.softmax_heads_shown import CLAIMS, centred
from icl_lab.lab.flags import to_json
from icl_lab.lab.record import Record
from icl_lab.theory import softmax_optimum, softmax_risk

CONFIG, MEMBERS = binary.PRESETS["lab"], 2


def test_the_network_is_softmax_attention_over_the_examples():
    config = dataclasses.replace(CONFIG, context_length=6, input_size=2, init_scale=1.0)
    network = binary.network(config, 2)
    params = network.init(jax.random.key(0))
    params = jax.tree.map(lambda w: w.at[..., :-1, -1].set(0).at[..., -1, :-1].set(0), params)
    prompts = binary.sampler(config, 6)(jax.random.key(1), 5).prompt
    logits, rates = binary.weights(params)
    scores = np.einsum("bi,hij,bnj->bhn", prompts.x_query, logits, prompts.x)
    shares = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    expected = np.einsum("h,bhn,bnk->bk", rates, shares, prompts.y)
    np.testing.assert_allclose(network.learner(params)(prompts), expected, rtol=1e-4, atol=1e-5)


@functools.cache
def record():
    """A head of the best scale and two heads that make a centred step; errors are exact."""
    n, d = CONFIG.context_length, CONFIG.input_size
    scale, rate, _ = softmax_optimum(n, d)
    lengths = binary.tested(CONFIG)
    exact = np.array([softmax_risk(m, d, scale, rate) for m in lengths])
    facts = {"scale": scale, "rate": rate, "long": 0.3505}
    stub = Record("long_prompts.softmax_heads", "lab", to_json(CONFIG), facts, {})
    pieces = [("facts", facts), (EXACT.at(of="error"), exact)]
    two = np.array([centred(stub, m) for m in lengths])
    pieces += [(ERROR.at(heads=h), np.tile(of, (MEMBERS, 1))) for h, of in ((1, exact), (2, two))]
    pieces += [(LOGITS.at(heads=1), np.tile(scale * np.eye(d), (MEMBERS, 1, 1, 1)))]
    pieces += [(RATE.at(heads=1), np.full((MEMBERS, 1), rate))]
    pieces += [(RATE.at(heads=2), np.tile([9.0, -9.0], (MEMBERS, 1)))]
    return measured_at_lab(binary, pieces)


def test_members_whose_heads_have_one_sign_are_counted_and_left_out():
    found = record()
    name = next(name for name in found.arrays if "heads_2" in name and "rate" in name)
    mixed = dataclasses.replace(found, arrays=found.arrays | {name: np.array([[9.0, -9.0], [4.0, 5.0]])})
    by_name = {claim.id.rsplit(".", 1)[1]: claim for claim in CLAIMS}
    assert by_name["opposite"].statistic(mixed).tolist() == [1, 0]
    assert np.isnan(by_name["two_heads"].statistic(mixed)).tolist() == [False, True]


def test_a_head_of_turned_signs_is_the_same_head():
    found = record()
    names = [name for name in found.arrays if "heads_1" in name and ("rate" in name or "logits" in name)]
    turned = dataclasses.replace(found, arrays=found.arrays | {name: -found.arrays[name] for name in names})
    wrong = dataclasses.replace(found, arrays=found.arrays | {names[0]: -found.arrays[names[0]]})
    claims = [claim for claim in CLAIMS if claim.id.endswith((".scale", ".rate", ".identity"))]
    assert all(inside(claim, claim.statistic, turned) for claim in claims)
    assert not all(inside(claim, claim.statistic, wrong) for claim in claims)


def test_a_centred_step_is_that_of_monte_carlo():
    rng, (n, d) = np.random.default_rng(0), (12, 3)
    found = Record("", "lab", {"context_length": 12, "input_size": 3}, {}, {})
    assert centred(found) == pytest.approx((d + 1) / (n + d), rel=1e-12)
    x, query = rng.standard_normal((40_000, 7, d)), rng.standard_normal((40_000, d))
    x = x - x.mean(axis=1, keepdims=True)
    step = n / (n + d) / 7 * np.einsum("bni,bnj,bj->bi", x, x, query)
    errors = np.sum((step - query) ** 2, axis=1) / d
    assert abs(errors.mean() - centred(found, 7)) < 4 * errors.std() / 200
