"""``diversity.implied_prior``: its recursions against drawn roll-outs, its claims on records made by hand."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from toys import inside

from experiments.diversity import implied_prior as binary
from experiments.diversity.implied_prior import FITTED, MOMENT, SHARES
from experiments.diversity.implied_prior_shown import CLAIMS, constant_moment, true_moment
from icl_lab.compare import implied_prior
from icl_lab.lab.flags import to_json
from icl_lab.lab.record import Record
from icl_lab.lab.trainings import collected

CONFIG, MEMBERS, SIGMAS = binary.PRESETS["lab"], 4, 4.5
STUB = Record("diversity.implied_prior", "lab", to_json(CONFIG), {}, {})


def best(by_size, prompts):
    """The best linear attention for every number of examples, by hand."""
    (_, t, d), noise = prompts.x.shape, CONFIG.noise_variance
    c, query = 1 / (t + d + 1 + noise), prompts.x_query
    mean = c * np.einsum("bti,btj,bi->bj", prompts.x, prompts.y, query)
    size = np.mean(query**2, axis=1, keepdims=True) if by_size else 1.0
    return mean, noise + d * (1 - t * c) * size * np.ones_like(mean)


@pytest.mark.parametrize(("by_size", "moment"), [(False, constant_moment), (True, true_moment)])
def test_second_moments_of_roll_outs_follow_their_recursion(by_size, moment):
    r = 40_000
    found = implied_prior(functools.partial(best, by_size), binary.sampler(CONFIG, 16), jax.random.key(5), r)
    squares = np.sum(np.cumsum(found.y[..., None] * found.x, axis=1) ** 2, axis=2)
    off = (squares.mean(axis=0) - moment(STUB)) / (squares.std(axis=0) / np.sqrt(r))
    assert np.all(np.abs(off) < SIGMAS)
    wrong = true_moment if moment is constant_moment else constant_moment
    assert np.all(np.abs(squares.mean(axis=0) / wrong(STUB) - 1) > 0.2)


def test_the_true_moment_is_that_of_drawn_prompts():
    prompts = binary.sampler(CONFIG, 16)(jax.random.key(6), 40_000).prompt
    squares = np.sum(np.cumsum(np.asarray(prompts.y * prompts.x, np.float64), axis=1) ** 2, axis=2)
    off = (squares.mean(axis=0) - true_moment(STUB)) / (squares.std(axis=0) / 200)
    assert np.all(np.abs(off) < SIGMAS)


def test_networks_see_the_first_examples_alone_and_say_their_own_errors():
    config = binary.PRESETS["smoke"]
    cut, whole = (binary.sampler(config, t)(jax.random.key(0), 5).prompt for t in (2, 6))
    assert np.array_equal(cut.x[:, :2], whole.x[:, :2])
    assert not cut.x[:, 2:].any()
    assert not cut.y[:, 2:].any()
    start = binary.trainings(config)["trained"].init(jax.random.key(1), None)
    params = jax.tree.map(lambda leaf: np.stack([leaf * (i + 1) for i in range(6)]), start)
    short = dataclasses.replace(cut, x=np.asarray(cut.x[:, :2]), y=np.asarray(cut.y[:, :2]))
    short = dataclasses.replace(short, x_query=np.asarray(cut.x_query))
    left = np.arange(1.0, 7)
    mean, variance = binary.network(params, left, 0.5, True, short)
    own = jax.tree.map(lambda leaf: leaf[2], params)
    np.testing.assert_allclose(mean, binary.predictions(own, cut), rtol=1e-5)
    np.testing.assert_allclose(variance[:, 0], 0.5 + 3 * np.mean(np.square(short.x_query), axis=1), rtol=1e-5)
    np.testing.assert_allclose(binary.network(params, left, 0.5, False, short)[1], np.full((5, 1), 3.5))


@functools.cache
def record(spread=1.0, share=0.02, moment=1.0):
    """Covariances, shares and moments as the closed forms say, or off by a factor."""
    members = 1 + 0.001 * np.linspace(-1, 1, MEMBERS)
    said = {"ridge": (1.05, 0.5), "ridge_noise_only": (0.23, 0.3), "constant": (0.6, 2.4), "by_size": (0.6, 2.1)}
    pieces = []
    for name, (variance, noise) in said.items():
        noise = noise * (0.6 if spread > 1 and name == "by_size" else spread)
        pieces += [(FITTED.at(learner=name), {"variance": variance * spread**3 * members, "noise": noise * members})]
    curves = dict.fromkeys(binary.LINEAR, true_moment(STUB)) | {"constant": constant_moment(STUB)}
    pieces += [(MOMENT.at(learner=name), moment * members[:, None] * curve) for name, curve in curves.items()]
    for name, off in (("dmmse", share), ("dmmse_noise_only", 0.7)):
        signs = np.resize([1.0, -1.0], CONFIG.tasks)
        pieces += [(SHARES.at(learner=name), np.tile((1 + off * signs) / CONFIG.tasks, (MEMBERS, 1)))]
    metrics, arrays, _ = collected(pieces)
    return dataclasses.replace(STUB, metrics=metrics, arrays=arrays)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id.rsplit(".", 1)[1])
def test_claims_hold_on_closed_forms_and_not_on_their_controls_or_on_others(claim):
    assert inside(claim, claim.statistic, record())
    assert not inside(claim, claim.control, record())
    assert not inside(claim, claim.statistic, record(1.1, 0.2, 0.9))
