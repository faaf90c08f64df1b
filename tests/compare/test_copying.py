import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icl_lab.compare.copying import copy_shares, copying_sensitivities, mean_attention
from icl_lab.constructions import copy_then_gradient_descent_weights
from icl_lab.models import Transformer
from icl_lab.prompts import linear_regression
from icl_lab.prompts.layouts import separate_layout

N, D = 4, 3
PROMPTS = jax.jit(linear_regression(context_length=N, input_size=D), static_argnums=1)(jax.random.key(0), 6).prompt
LAYOUT = separate_layout(2 * N + 2, "one_hot")
NETWORK = Transformer(layers=2, attention=("softmax", "linear"))


def measured(of, network, params, prompts, layout, **options):
    """What a function of (network, params, prompts, layout) says, as one program."""
    return jax.jit(lambda params, prompts: of(network, params, prompts, layout, **options))(params, prompts)


@functools.cache
def hand_built(attention="softmax"):
    return copy_then_gradient_descent_weights(
        1.0, context_length=N, input_size=D, position_size=2 * N + 2, attention=attention
    )


def random_params(network, layout, scale=0.5):
    tokens = layout.encode(jax.tree.map(lambda leaf: leaf[0], PROMPTS))
    leaves, tree = jax.tree.flatten(jax.eval_shape(network.init, jax.random.key(1), tokens))

    @jax.jit
    def draw():
        keys = jax.random.split(jax.random.key(2), len(leaves))
        return tree.unflatten([scale * jax.random.normal(k, leaf.shape) for k, leaf in zip(keys, leaves)])

    return draw()


@pytest.mark.parametrize("released", [False, True])
@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_sensitivities_are_the_norms_of_the_mean_derivatives(attention, released, x64):
    # by central differences, token by token and channel by channel
    network, layout = Transformer(layers=2, attention=(attention, "linear")), separate_layout(4)
    prompts = jax.tree.map(lambda leaf: leaf.astype(float), PROMPTS)
    params = random_params(network, layout)
    tokens = np.array(jax.vmap(layout.encode)(prompts))
    sums = jax.jit(jax.vmap(lambda e: network.apply(params, e)[1].residual[1].sum(-1)))
    g = np.zeros((2 * N - 1, 2 * N, D))
    for j in range(2 * N):
        for c in range(D):
            step = np.zeros_like(tokens)
            step[:, j, c] = 1e-5
            g[:, j, c] = ((sums(tokens + step) - sums(tokens - step)) / 2e-5).mean(0)[: 2 * N - 1]
    size = np.sqrt((g**2).sum(-1))
    others = [[j for j in range(2 * N) if j != k and (released or j != k + 1)] for k in range(2 * N - 1)]
    expected = {
        "own": np.mean([size[k, k] for k in range(2 * N - 1)]),
        "next": np.mean([size[k, k + 1] for k in range(2 * N - 1)]),
        "other": np.mean([size[k, others[k]].sum() / (2 * N - 1 if released else 2 * N - 2) for k in range(2 * N - 1)]),
    }
    found = measured(copying_sensitivities, network, params, prompts, layout, released=released)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-7, err_msg=name)


def test_the_released_other_counts_the_next_token_too():
    # Among k = 0, .., 2N - 2 the N x-tokens copy the next, the N - 1 y-tokens their own: e_kD counts twice.
    mended = measured(copying_sensitivities, NETWORK, hand_built(), PROMPTS, LAYOUT)
    own = (N * np.sqrt(D) + (N - 1) * np.sqrt(D + 3)) / (2 * N - 1)
    expected = {"own": own, "next": N / (2 * N - 1), "other": 0.0}
    for name, value in expected.items():
        np.testing.assert_allclose(mended[name], value, atol=1e-6, err_msg=name)
    released = measured(copying_sensitivities, NETWORK, hand_built(), PROMPTS, LAYOUT, released=True)
    np.testing.assert_allclose(released["other"], N / (2 * N - 1) ** 2, atol=1e-6)


@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_the_hand_built_layer_is_a_copy_head(attention):
    network = Transformer(layers=2, attention=(attention, "linear"))
    shares = measured(copy_shares, network, hand_built(attention), PROMPTS, LAYOUT)
    np.testing.assert_allclose(shares["labels"], [1.0])
    np.testing.assert_allclose(shares["inputs"], [0.0], atol=1e-7)
    attention_map = measured(mean_attention, network, hand_built(attention), PROMPTS, LAYOUT)[0]
    expected = np.zeros((2 * N, 2 * N))
    expected[np.arange(2 * N), np.arange(2 * N) // 2 * 2 + 1] = 1
    np.testing.assert_allclose(attention_map[:-1], expected, atol=1e-7)


def test_shares_are_of_the_next_token_one_a_head_and_chance_without_weights():
    network = Transformer(layers=2, heads=2, attention=("softmax", "linear"))
    params = random_params(network, LAYOUT)
    pattern = np.asarray(measured(mean_attention, network, params, PROMPTS, LAYOUT))
    shares = measured(copy_shares, network, params, PROMPTS, LAYOUT)
    np.testing.assert_allclose(shares["labels"], pattern[:, range(0, 2 * N, 2), range(1, 2 * N, 2)].mean(1), rtol=1e-5)
    inputs = pattern[:, range(1, 2 * N - 1, 2), range(2, 2 * N, 2)].mean(1)
    np.testing.assert_allclose(shares["inputs"], inputs, rtol=1e-5)
    chance = measured(copy_shares, network, jax.tree.map(jnp.zeros_like, params), PROMPTS, LAYOUT)
    np.testing.assert_allclose(chance["labels"], [1 / (2 * N)] * 2, rtol=1e-6)


def test_one_context_pair_leaves_no_other_token():
    prompts = linear_regression(context_length=1, input_size=D)(jax.random.key(0), 2).prompt
    with pytest.raises(ValueError, match="at least two context pairs, got 1"):
        copying_sensitivities(NETWORK, hand_built(), prompts, LAYOUT)
