import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from icl_lab.compare.implicit_finetuning import (
    attention_similarity,
    attention_update_similarity,
    finetuned_token_scores,
    kendall,
    orthogonal_noise_floor,
    random_update_similarity,
    update_similarity,
    update_similarity_floor,
)

RNG = np.random.default_rng(0)
TIGHT = {"rtol": 0, "atol": 1e-12}
Z = np.asarray([2.0, 0.0, 0.0])
similarity = jax.jit(update_similarity, static_argnames=("normalised", "released"))
random_similarity = jax.jit(random_update_similarity, static_argnames=("baseline", "normalised"))
noise_floor = jax.jit(orthogonal_noise_floor)
rank_correlation = jax.jit(kendall, static_argnames="released")
floor = jax.jit(update_similarity_floor, static_argnames="normalised")


def unit(vector):
    return vector / np.linalg.norm(vector, axis=-1, keepdims=True)


def test_update_similarity_on_hand_made_states(x64):
    u = np.asarray([[0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0]])
    v = np.asarray([[0.0, 3.0, 0.0], [0.0, 0.0, 2.0], [0.0, -1.0, 0.0], [2.0, 0.0, 0.0]])
    z = np.tile(Z, (4, 1))
    np.testing.assert_allclose(similarity(z, z + u, z + v, normalised=False), [1, 0, -1, np.sqrt(0.5)], **TIGHT)
    a, b = unit(z + u) - unit(z), unit(z + v) - unit(z)
    with np.errstate(invalid="ignore"):  # the last v is along z: normalised, it is no update
        expected = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    np.testing.assert_allclose(similarity(z, z + u, z + v), expected, **TIGHT)
    assert np.isnan(expected[3])


@pytest.mark.parametrize("normalised", [False, True])
def test_no_update_has_no_direction(normalised, x64):
    states = np.stack([Z, Z + 1, Z])
    assert np.isnan(similarity(*states, normalised=normalised))
    assert similarity(*states, normalised=normalised, released=True) == 0
    assert similarity(0 * Z, Z + 1, Z, normalised=normalised, released=True) > 0
    other = np.stack([Z, Z + 1, Z + RNG.normal(size=3)])
    read = [similarity(*other, normalised=normalised, released=released) for released in (False, True)]
    np.testing.assert_allclose(*read, **TIGHT)


@pytest.mark.parametrize("normalised", [False, True])
def test_the_floor_is_the_similarity_of_updates_with_nothing_in_common(normalised, x64):
    basis, _ = np.linalg.qr(RNG.normal(size=(6, 6)))
    z, r, s = 1.7 * basis[:3]
    along, across = RNG.normal(size=(2, 40, 1)), RNG.normal(size=(2, 40, 1))
    states = np.broadcast_to(z, (40, 6)), z + along[0] * z + across[0] * r, z + along[1] * z + across[1] * s
    np.testing.assert_allclose(
        floor(*states, normalised=normalised), similarity(*states, normalised=normalised), **TIGHT
    )
    if normalised:
        c, d = (unit(state) @ unit(z) for state in states[1:])
        np.testing.assert_allclose(floor(*states), np.sqrt((1 - c) * (1 - d)) / 2, **TIGHT)
    # what the parts across have in common is what is above the floor
    tied = (*states[:2], z + along[1] * z + across[1] * (0.6 * r + 0.8 * s))
    above = similarity(*tied, normalised=normalised) - floor(*tied, normalised=normalised)
    np.testing.assert_array_equal(np.sign(above), np.sign(across[0] * across[1])[:, 0])


def test_orthogonal_updates_are_similar_when_normalised(x64):
    np.testing.assert_allclose(noise_floor(np.sqrt([3, 0]), np.sqrt([3, 1])), [0.25, 0], **TIGHT)
    np.testing.assert_allclose(noise_floor(*np.full((2, 2), 1e8)), 0.5, rtol=1e-6)
    rho, other = np.asarray([0.3, 2.0]), np.asarray([0.3, 0.7])
    states = (np.tile(Z, (2, 1)), Z + 2 * np.outer(rho, [0, 1, 0]), Z + 2 * np.outer(other, [0, 0, 1]))
    np.testing.assert_allclose(similarity(*states), noise_floor(rho, other), **TIGHT)
    np.testing.assert_allclose(similarity(*states, normalised=False), [0, 0], **TIGHT)


def test_random_baselines():
    z, u = np.zeros((400, 64)) + Z[0], np.tile(RNG.normal(size=64), (400, 1))
    for offset in (0.0, 5.0):
        learned = z + u + offset
        gauss, uniform = (
            np.asarray(random_similarity(jax.random.key(1), z, learned, baseline=name, normalised=False))
            for name in ("gaussian", "uniform")
        )
        assert abs(gauss.mean()) < 4 * gauss.std() / 20
        expected = np.sqrt(3 / 4) * (u + offset)[0].sum() / np.linalg.norm((u + offset)[0]) / 8
        assert abs(uniform.mean() - expected) < 4 * uniform.std() / 20 + 0.01  # a bias of O(1 / 64)
    assert expected > 0.8  # an update with a mean is similar to uniform noise


def test_attention_similarities(x64):
    zero, context, tuned = RNG.normal(size=(3, 5, 2, 4, 6))  # examples, layers, heads, tokens
    before = attention_similarity(context, zero)
    by_head = [[[unit(m) @ unit(n) for m, n in zip(*heads)] for heads in zip(*layers)] for layers in zip(context, zero)]
    np.testing.assert_allclose(before, np.mean(by_head, 2), **TIGHT)
    change = attention_update_similarity(zero, context, tuned)
    np.testing.assert_allclose(change, attention_similarity(context - zero, tuned - zero), **TIGHT)
    scaled = zero + 0.01 * (tuned - zero)
    np.testing.assert_allclose(attention_update_similarity(zero, context, scaled), change, rtol=1e-9)
    padded = [np.pad(m, ((0, 0), (0, 0), (0, 0), (3, 0))) for m in (context, zero)]
    np.testing.assert_allclose(attention_similarity(*padded), before, **TIGHT)
    assert np.isnan(attention_update_similarity(zero, context, zero)).all()
    np.testing.assert_array_equal(attention_update_similarity(zero, context, zero, released=True), 0)
    np.testing.assert_array_equal(attention_similarity(context, 0 * zero, released=True), 0)


def test_kendall_is_that_of_scipy_and_of_counting(x64):
    a, b = RNG.normal(size=(2, 3, 12))
    tied_a, tied_b = np.round(a), np.round(b)
    for x, y in ((a, b), (tied_a, tied_b)):
        expected = [scipy.stats.kendalltau(*pair).statistic for pair in zip(x, y)]
        np.testing.assert_allclose(rank_correlation(x, y, released=True), expected, **TIGHT)
    counted = [
        sum(np.sign((x[i] - x[j]) * (y[i] - y[j])) for i in range(12) for j in range(i)) / 66
        for x, y in zip(tied_a, tied_b)
    ]
    np.testing.assert_allclose(rank_correlation(tied_a, tied_b), counted, **TIGHT)
    np.testing.assert_allclose(rank_correlation(a, b), rank_correlation(a, b, released=True), **TIGHT)
    np.testing.assert_allclose(rank_correlation(a, np.exp(a)), [1, 1, 1], **TIGHT)
    np.testing.assert_allclose(rank_correlation(a, -a), [-1, -1, -1], **TIGHT)
    assert np.isnan(rank_correlation(np.ones((3, 12)), a, released=True)).all()


def test_scores_of_training_tokens_sum_over_heads(x64):
    training, query = RNG.normal(size=(7, 4, 3)), RNG.normal(size=(4, 3))
    np.testing.assert_allclose(
        finetuned_token_scores(training, query), training.reshape(7, 12) @ query.ravel(), **TIGHT
    )


ONE, HEADS = jnp.ones(3), jnp.ones((2, 3))
REFUSED = {
    "zero_shot, in_context, finetuned must": lambda: update_similarity(ONE, ONE, jnp.ones(4)),
    "zero_shot, in_context": lambda: update_similarity_floor(ONE, HEADS, ONE),
    "baseline": lambda: random_update_similarity(jax.random.key(0), ONE, ONE, baseline="normal"),
    r"\(\.\.\., H, T\)": lambda: attention_similarity(ONE, ONE),
    "finetuned must": lambda: attention_update_similarity(HEADS, HEADS, HEADS[:1]),
    "training_queries": lambda: finetuned_token_scores(HEADS, HEADS),
    "at least 2": lambda: kendall(ONE[:1], ONE[:1]),
    "a, b must": lambda: kendall(ONE, ONE[:2]),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what):
    with pytest.raises(ValueError, match=what):
        REFUSED[what]()
