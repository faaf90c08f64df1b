"""Controls are given the size of what fine-tuning changes, layer by layer."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icl_lab.compare.matched_updates import AGREEMENT, matched_update, relative_sizes
from icl_lab.compare.network_states import network_states, similarities
from icl_lab.models.language import LanguageModel
from icl_lab.prompts.encoding import encode_task
from icl_lab.solvers.finetuning import TUNED, finetune, random_update, untrained

NETWORK = LanguageModel(vocabulary=12, layers=3, heads=2, width=8, positions=0, rotary=100.0, scaled=True)
TASK = encode_task([([5, 6], 3), ([7], 4)], [[11, 5, 6], [8], [9, 7]], [0] * 3, [3, 4], begin=1, end=2, pad=0)
DEVICE = jax.tree.map(jnp.asarray, TASK)


@pytest.fixture(scope="module")
def params():
    shapes, rng = jax.eval_shape(lambda: untrained(jax.random.key(0), NETWORK)), np.random.default_rng(0)
    return jax.tree.map(lambda leaf: jnp.asarray(0.7 * rng.normal(size=leaf.shape), jnp.float32), shapes)


@pytest.fixture(scope="module")
def tuned(params):
    return jax.jit(partial(finetune, NETWORK))(params, TASK.examples, TASK.example_lengths, np.float32(0.1))


read = jax.jit(lambda params, setting: network_states(NETWORK, params, TASK, setting), static_argnums=1)
match = jax.jit(lambda before, after, sizes: matched_update(NETWORK, before, after, DEVICE, sizes))
compared = jax.jit(similarities)


def sizes(params, other):
    return np.asarray(relative_sizes(read(params, "zero_shot").output, read(other, "zero_shot").output))


def test_relative_sizes_by_hand(x64):
    zero, other = np.random.default_rng(0).normal(size=(2, 5, 3, 4))
    change = np.sqrt(((other - zero) ** 2).sum(2).mean(0) / (zero**2).sum(2).mean(0))
    np.testing.assert_allclose(relative_sizes(zero, other), change, rtol=1e-12)


@pytest.mark.parametrize("share", [1.0, 0.3])
def test_noise_changes_states_as_much_as_fine_tuning(params, tuned, share):
    noisy = random_update(jax.random.key(1), params, tuned.params)
    asked = share * sizes(params, tuned.params)
    assert (np.abs(sizes(params, noisy) / asked - 1) > 0.1).any()  # it would show if nothing were matched
    found = match(params, noisy, asked)
    matched = np.asarray(found.scales) > 0
    assert matched[0]
    np.testing.assert_allclose(found.sizes[matched], asked[matched], rtol=AGREEMENT)
    assert (np.asarray(found.sizes)[~matched] >= asked[~matched]).all()
    np.testing.assert_allclose(sizes(params, found.params), found.sizes, rtol=1e-3)  # by the path of the metrics
    for name in TUNED:
        change = noisy["params"][name] - params["params"][name]
        moved = found.params["params"][name] - params["params"][name]
        expected = jax.vmap(jnp.multiply)(found.scales, change)
        np.testing.assert_allclose(moved, expected, rtol=1e-3, atol=1e-5)
    assert set(params["params"]) - set(TUNED)
    for name in set(params["params"]) - set(TUNED):
        np.testing.assert_array_equal(found.params["params"][name], params["params"][name])


@pytest.mark.parametrize("larger", [1e2, 1e3])
def test_a_change_that_is_far_too_large_is_matched_as_well(params, tuned, larger):
    change = lambda name: larger * (tuned.params["params"][name] - params["params"][name])  # noqa: E731
    far = params | {"params": params["params"] | {name: params["params"][name] + change(name) for name in TUNED}}
    asked = sizes(params, tuned.params)
    found = match(params, far, asked)
    np.testing.assert_allclose(found.sizes, asked, rtol=AGREEMENT)
    np.testing.assert_allclose(found.scales, 1 / larger, rtol=2 * AGREEMENT)


def test_a_control_that_is_the_fine_tuning_stays_it(params, tuned):
    found = match(params, tuned.params, sizes(params, tuned.params))
    np.testing.assert_allclose(found.scales, 1, rtol=AGREEMENT)
    zero_shot, context = read(params, "zero_shot"), read(params, "in_context")
    of = lambda one: compared(  # noqa: E731
        jax.random.key(0), zero_shot, context, read(one, "zero_shot"), tuned.queries, TASK.matched
    )
    for name in ("sim_aou", "sim_aou_raw", "sim_am_after", "finetuned_ratio"):
        np.testing.assert_allclose(of(found.params)[name], of(tuned.params)[name], rtol=3e-3, atol=3e-3)


def test_where_lower_layers_change_too_much_the_layer_is_left_alone(params, tuned):
    asked = sizes(params, tuned.params) * np.array([1, 1e-4, 1])
    found = match(params, tuned.params, asked)
    assert found.scales[1] == 0
    assert found.sizes[1] > 10 * asked[1]
    np.testing.assert_allclose(found.sizes[0], asked[0], rtol=AGREEMENT)
