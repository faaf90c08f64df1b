"""Identities of Dai et al. 2022 to float64 rounding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icl_lab.compare.dual_form import (
    dual_form,
    fine_tuning_update,
    recorded_descent,
    relaxation_distance,
    relaxed_decomposition,
    softmax_decomposition,
    update_rank,
)

TIGHT = {"rtol": 0, "atol": 1e-11}
descend = jax.jit(recorded_descent, static_argnums=0)


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def squared(outputs, targets):
    return 0.5 * ((outputs - targets) ** 2).sum()


def cross_entropy(outputs, targets):
    return (jax.nn.softmax(targets, axis=-1) * -jax.nn.log_softmax(outputs, axis=-1)).sum()


def coupled(outputs, targets):
    return jnp.logaddexp(0.0, (outputs * targets).sum()) + (outputs.mean(0) ** 2).sum()


@pytest.mark.parametrize(("loss", "steps", "batch"), [(squared, 7, 1), (cross_entropy, 7, 1), (coupled, 4, 3)])
def test_a_layer_after_descent_is_linear_attention_to_its_training_set(loss, steps, batch, x64):
    w0, x, y, q = normal(0, 5, 3), normal(1, steps, batch, 5), normal(2, steps, batch, 3), normal(3, 6, 5)
    rates = np.linspace(0.3, 0.1, steps)
    weights, errors = descend(loss, w0, x, y, rates)
    gradient, by_hand = jax.jit(jax.grad(lambda w, inputs, targets: loss(inputs @ w, targets))), np.asarray(w0)
    for s in range(steps):
        by_hand = by_hand - rates[s] * np.asarray(gradient(by_hand, x[s], y[s]))
    np.testing.assert_allclose(weights, by_hand, **TIGHT)
    np.testing.assert_allclose(dual_form(w0, x, errors, q), q @ by_hand, **TIGHT)
    order = np.random.default_rng(4).permutation(steps)  # attention has no order: the errors carry it
    np.testing.assert_allclose(dual_form(w0, x[order], errors[order], q), q @ by_hand, **TIGHT)


def test_errors_are_those_of_their_step(x64):
    weights, x, y = normal(0, 5, 3), normal(1, 7, 1, 5), normal(2, 7, 1, 3)
    _, errors = descend(squared, weights, x, y, 0.2)
    for inputs, targets, error in zip(x, y, errors):
        np.testing.assert_allclose(error, 0.2 * (targets - inputs @ weights), **TIGHT)
        weights = weights + inputs.T @ error


@pytest.mark.parametrize(("count", "rank"), [(0, 0), (2, 2), (9, 4)])
def test_relaxed_attention_is_the_zero_shot_matrix_and_an_update_of_low_rank(count, rank, x64):
    # a token that begins the prompt, the demonstrations, the query's own tokens
    demonstrations = (np.arange(13) > 0) & (np.arange(13) <= count)
    keys, values, q = normal(0, 13, 4), normal(1, 13, 5), normal(2, 6, 4)
    w_zsl, dw_icl = (np.asarray(part) for part in relaxed_decomposition(keys, values, demonstrations))
    np.testing.assert_allclose(q @ (w_zsl + dw_icl), q @ keys.T @ values, **TIGHT)
    alone = ~demonstrations
    np.testing.assert_allclose(q @ w_zsl, q @ keys[alone].T @ values[alone], **TIGHT)
    assert update_rank(dw_icl) == rank  # generic tokens reach the bound


def attended(queries, keys, visible):
    scores = np.where(visible, queries @ keys.T / keys.shape[1] ** 0.5, -np.inf)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def parts_and_output(*arguments):
    parts = softmax_decomposition(*arguments)
    return parts, parts.output()


@pytest.mark.parametrize("causal", [False, True])
def test_a_softmax_head_is_a_mixture_of_zero_shot_and_demonstrations(causal, x64):
    demonstrations = np.asarray([False, True, True, True, False, True])
    values, q = normal(1, 6, 3), normal(2, 6, 4)
    visible = np.tril(np.ones((6, 6), bool)) if causal else np.ones((6, 6), bool)
    decompose = jax.jit(parts_and_output)
    for scale in (1.0, 2000.0):  # the second would overflow without care
        keys = scale * normal(0, 6, 4)
        parts, output = decompose(q, keys, values, demonstrations, visible if causal else None)
        pattern = attended(q, keys, visible)
        np.testing.assert_allclose(output, pattern @ values, **TIGHT)
        np.testing.assert_allclose(parts.mass, pattern[:, demonstrations].sum(1), **TIGHT)
        for part, own in ((parts.zero_shot, ~demonstrations), (parts.demonstrations, demonstrations)):
            alone = attended(q[1:], keys[own], visible[1:, own]) @ values[own]
            np.testing.assert_allclose(part[1:], alone, **TIGHT)
        if causal:  # the first token sees no demonstration
            assert parts.mass[0] == 0
            np.testing.assert_array_equal(parts.demonstrations[0], 0)


def test_fine_tuning_of_keys_and_values_in_the_same_form(x64):
    x, w_k, w_v, dw_k, dw_v = (normal(i, *s) for i, s in enumerate([(7, 6), (6, 4), (6, 3), (6, 4), (6, 3)]))
    q = normal(9, 5, 4)
    update = fine_tuning_update(x, w_k, w_v, dw_k, dw_v)
    w_zsl, _ = relaxed_decomposition(x @ w_k, x @ w_v, np.zeros(7, bool))
    tuned = q @ (x @ (w_k + dw_k)).T @ (x @ (w_v + dw_v))
    np.testing.assert_allclose(q @ (w_zsl + update["total"]), tuned, **TIGHT)
    only_values = fine_tuning_update(x, w_k, w_v, 0 * dw_k, dw_v)
    np.testing.assert_array_equal(only_values["total"], update["values"])
    only_keys = fine_tuning_update(x, w_k, w_v, dw_k, 0 * dw_v)
    np.testing.assert_array_equal(only_keys["total"], update["keys"])


def test_distance_of_the_relaxed_form(x64):
    softmax = jnp.asarray([[3.0, 4.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    relaxed = jnp.asarray([[30.0, 40.0], [1.0, 1.0], [-1.0, 0.0], [0.0, 0.0]])
    distance = jax.jit(relaxation_distance)
    found = distance(softmax, relaxed)
    half = np.sqrt(0.5)
    np.testing.assert_allclose(found["relative_error"], [9, 1, 2, 1], **TIGHT)
    np.testing.assert_allclose(found["cosine"], [1, half, -1, np.nan], **TIGHT)
    np.testing.assert_allclose(found["scaled_error"], [0, half, 0, np.nan], rtol=0, atol=1e-7)
    q, keys, values = normal(0, 4, 4), normal(1, 6, 4), normal(2, 6, 2)
    weak = 1e-4 * q  # softmax of small scores is a mean plus linear attention to centred keys
    centred = weak @ keys.T @ (values - values.mean(0))
    apart = distance((attended(weak, keys, True) - 1 / 6) @ values, centred / 12)
    assert apart["relative_error"].max() < 1e-3


TOKENS, MASK = jnp.ones((4, 3)), jnp.ones(4, bool)
REFUSED = {
    "inputs": lambda: recorded_descent(squared, jnp.ones((2, 1)), TOKENS[None], jnp.ones((1, 4, 1)), 0.1),
    "targets": lambda: recorded_descent(squared, jnp.ones((3, 1)), TOKENS[None], jnp.ones((1, 3, 1)), 0.1),
    "learning_rate": lambda: recorded_descent(squared, jnp.ones((3, 1)), TOKENS[None], jnp.ones((1, 4, 1)), np.ones(2)),
    "errors": lambda: dual_form(jnp.ones((3, 1)), TOKENS, jnp.ones((3, 1)), TOKENS),
    "w0": lambda: dual_form(jnp.ones((3, 2)), TOKENS, jnp.ones((4, 1)), TOKENS),
    "keys and values": lambda: relaxed_decomposition(TOKENS, TOKENS[:3], MASK),
    "demonstrations": lambda: relaxed_decomposition(TOKENS, TOKENS, jnp.arange(4)),
    "queries": lambda: softmax_decomposition(TOKENS[:, :2], TOKENS, TOKENS, MASK),
    "visible must be": lambda: softmax_decomposition(TOKENS, TOKENS, TOKENS, MASK, MASK[None]),
    "visible must leave": lambda: softmax_decomposition(TOKENS, TOKENS, TOKENS, MASK, jnp.zeros((4, 4), bool)),
    "tolerance": lambda: update_rank(TOKENS, 1.0),
    "update": lambda: update_rank(jnp.ones(3)),
    "dw_k and dw_v": lambda: fine_tuning_update(TOKENS, TOKENS.T, TOKENS.T, TOKENS, TOKENS.T),
    "x must be": lambda: fine_tuning_update(TOKENS, TOKENS, TOKENS, TOKENS, TOKENS),
    "one shape": lambda: relaxation_distance(TOKENS, TOKENS[:2]),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what):
    with pytest.raises(ValueError, match=what):
        REFUSED[what]()
