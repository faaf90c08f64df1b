import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from linear_tasks import linear_tasks

from icl_lab.constructions import copy_then_gradient_descent_weights
from icl_lab.models import Transformer, learner, traced
from icl_lab.prompts.layouts import separate_layout
from icl_lab.solvers import gradient_descent

KEY = jax.random.key(0)


def built(n, d, *, eta=1.0, attention="softmax", spare=0):
    """The network, its hand-built weights and the layout."""
    size = 2 * n + 2 + spare
    weights = copy_then_gradient_descent_weights(
        eta, context_length=n, input_size=d, position_size=size, attention=attention
    )
    network = Transformer(layers=2, attention=(attention, "linear"))
    return network, weights, separate_layout(size, "one_hot")


def prompts_of(n, d, seed=0):
    return linear_tasks(n, d, batch=5, largest=0.5, seed=seed).prompt


@pytest.mark.parametrize("attention", ["softmax", "linear"])
@pytest.mark.parametrize(("n", "d", "spare"), [(1, 1, 0), (1, 4, 2), (3, 2, 1), (6, 5, 0)])
@given(eta=st.floats(0.1, 30.0), seed=st.integers(0, 2**30))
def test_copying_and_then_one_layer_is_one_step_of_gradient_descent(attention, n, d, spare, eta, seed):
    with jax.enable_x64(True):
        prompts = prompts_of(n, d, seed)
        found, step = both(n, d, attention, spare)(eta, prompts)
        np.testing.assert_allclose(found, step, rtol=1e-12, atol=1e-12)


@functools.cache
def both(n, d, attention, spare):
    """Predictions of the hand-built network and of the gradient step, compiled once for each size."""

    @jax.jit
    def predictions(eta, prompts):
        network, weights, layout = built(n, d, eta=eta, attention=attention, spare=spare)
        step = jax.vmap(gradient_descent(eta, 1))(prompts)
        return jax.vmap(learner(network, weights, layout))(prompts), step

    return predictions


def test_the_first_layer_moves_y_to_x_and_leaves_the_content_alone():
    with jax.enable_x64(True):
        network, weights, layout = built(3, 2)
        prompt = jax.tree.map(lambda leaf: np.asarray(leaf)[0], prompts_of(3, 2))
        before, after, _ = np.asarray(jax.jit(traced(network, weights, layout))(prompt)[1].residual)
        slot = 2 + 6  # D content channels, then the positions of the 2N context tokens
        assert np.array_equal(after[0:6:2, slot], prompt.y[:, 0])
        assert np.array_equal(np.delete(after, slot, axis=1), np.delete(before, slot, axis=1))


def test_the_hand_built_network_is_the_pytree_of_init():
    network, weights, layout = built(4, 3)
    prompt = jax.tree.map(lambda leaf: np.asarray(leaf)[0], prompts_of(4, 3))
    learned = jax.eval_shape(lambda: network.init(KEY, layout.encode(prompt)))
    assert jax.tree.map(jnp.shape, learned) == jax.tree.map(jnp.shape, weights)
    assert jax.tree.map(lambda leaf: leaf.dtype, learned) == jax.tree.map(lambda leaf: leaf.dtype, weights)


def test_without_its_first_layer_it_is_not_gradient_descent():
    network, weights, layout = built(4, 3)
    prompts = prompts_of(4, 3)
    blind = {"params": weights["params"] | {"w_v": weights["params"]["w_v"].at[0].set(0)}}
    assert np.all(jax.jit(jax.vmap(learner(network, blind, layout)))(prompts) == 0)
