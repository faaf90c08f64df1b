"""What holds for every exported layout: a new one without an example here fails."""

import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icl_lab.prompts import Prompt, layouts

DRAW = np.random.default_rng(0).standard_normal
N, D = 3, 4
LAYOUTS = {
    "alternating_layout": (layouts.alternating_layout(), 1),
    "causal_layout": (layouts.causal_layout(), 2),
    "content_layout": (layouts.content_layout(), D),
    "item_label_layout": (layouts.item_label_layout(9), D),
    "joint_layout": (layouts.joint_layout(), 2),
    "separate_layout": (layouts.separate_layout(4), 1),
}
OF_LOGITS = {"content_layout", "item_label_layout"}  # the network's output is the prediction


def prompt_of(outputs):
    shapes = ((N, D), (N, outputs), (D,))
    return Prompt(*(jnp.asarray(DRAW(shape), jnp.float32) for shape in shapes))


def test_every_exported_layout_has_an_example():
    own = {name: made for name, made in vars(layouts).items() if getattr(made, "__module__", "") == layouts.__name__}
    makers = {name for name, made in own.items() if typing.get_type_hints(made).get("return") is layouts.Layout}
    assert makers == LAYOUTS.keys()


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_number_of_the_prompt_is_in_the_tokens_and_the_query_in_the_last_alone(name):
    layout, outputs = LAYOUTS[name]
    moved = jax.jit(jax.jacobian(layout.encode))(prompt_of(outputs))  # (T, E, ...)
    for part in (moved.x, moved.y, moved.x_query):
        assert np.all(np.any(part, axis=(0, 1)))
    assert not np.any(moved.x_query[:-1])
    assert not np.any(moved.x[-1])
    assert not np.any(moved.y[-1])


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_read_out_takes_nothing_from_the_prompt_and_only_the_last_token(name):
    layout, outputs = LAYOUTS[name]
    prompt = prompt_of(outputs)
    shape = (7,) if name in OF_LOGITS else jax.eval_shape(layout.encode, prompt).shape
    last = jnp.asarray(DRAW(shape), jnp.float32)
    by_tokens, by_prompt = jax.jit(jax.jacobian(layout.decode, argnums=(0, 1)))(last, prompt)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(by_prompt))
    if name in OF_LOGITS:
        assert np.array_equal(by_tokens, jnp.eye(7))
    elif layout.prefixes:  # each by its own query, of the last N + 1 tokens
        read = np.count_nonzero(by_tokens, axis=(1, 3))
        assert np.array_equal(read, outputs * np.eye(N + 1, 2 * N + 1, N, int))
    else:
        assert not np.any(by_tokens[:, :-1])
        assert np.all(np.count_nonzero(by_tokens[:, -1], axis=1) == 1)  # a channel for each output


@pytest.mark.parametrize("name", [name for name, (layout, _) in LAYOUTS.items() if layout.encode_tasks])
def test_tokens_of_tasks_on_the_last_axis_are_those_of_every_task(name):
    layout, outputs = LAYOUTS[name]
    tasks = [prompt_of(outputs) for _ in range(3)]
    stacked = jax.tree.map(lambda *parts: jnp.stack(parts, axis=-1), *tasks)
    tokens = np.stack([layout.encode(task) for task in tasks], axis=-1)
    np.testing.assert_array_equal(layout.encode_tasks(stacked), tokens)
