"""Fine-tuned networks made equal in the size of what they change, layer by layer: controls that can be compared.

A similarity depends on the size of an update as well as on its direction (normalised SimAOU grows with it). So a
control (noise in place of the update, another objective, another task) is compared with fine-tuning at equal sizes
(this lab).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from icl_lab.models.language import OUTSIDE, LanguageModel, block, embedded
from icl_lab.models.layers import Params
from icl_lab.prompts.encoding import EncodedTask
from icl_lab.solvers.finetuning import TUNED

PROBING, GROWING, HALVINGS = -2, -1, 14
LEAST, FIRST, LARGEST = 2.0**-24, 2.0**-4, 2.0**20
AGREEMENT = 1e-3
"""Relative difference up to which two sizes are called matched: 2^-14 of the scale, and rounding."""


class MatchedUpdate(NamedTuple):
    """A network whose changes have given sizes. L layers.

    Attributes:
      params: the pytree of ``network.init``.
      scales: (L,) by which each layer's change of weights was multiplied; 0 where what the layers below changed is
        already larger than asked for.
      sizes: (L,) reached, those asked for to ``AGREEMENT`` where a scale exists.
    """

    params: Params
    scales: Array
    sizes: Array


def relative_sizes(zero_shot: Array, other: Array) -> Array:
    """(L,) root mean square over queries of |h - h_ZSL|, over that of |h_ZSL|; states are (I, L, E)."""
    return jnp.sqrt(_squares(other - zero_shot) / _squares(zero_shot))


def matched_update(
    network: LanguageModel, before: Params, after: Params, task: EncodedTask, sizes: Array
) -> MatchedUpdate:
    """Scales the change of each layer's keys and values until attention outputs change as much as asked for.

    Sequentially from the first layer: the change of a layer's output at the last token of the queries (setting
    ``zero_shot``, ``relative_sizes``) depends on the layers below, which are fixed by then, and on the scale of its own
    weights. The scale is the first on a doubling grid at which the size is reached, refined by bisection.

    Args:
      network: the module.
      before: the pytree of ``network.init``.
      after: it with other ``TUNED`` weights.
      task: whose queries are read.
      sizes: (L,) not negative.
    """
    weights = before["params"]
    tokens, at = jnp.asarray(task.zero_shot), jnp.asarray(task.query_lengths)
    everyone = jnp.arange(len(tokens))
    layers = {name: stack for name, stack in weights.items() if name not in OUTSIDE}
    changes = {name: (after["params"][name] - weights[name]).astype(weights[name].dtype) for name in TUNED}

    def of_layer(streams: tuple[Array, Array], one: tuple) -> tuple[tuple[Array, Array], tuple]:
        rows, plain = streams
        layer, change, goal = one
        scaled = lambda scale: layer | {name: layer[name] + scale * change[name] for name in TUNED}  # noqa: E731
        plain, attended = block(network, layer, plain)
        zero_shot = attended.output[everyone, at]

        def size(scale: Array) -> Array:
            moved = block(network, scaled(scale), rows)[1].output[everyone, at]
            return relative_sizes(zero_shot, moved)

        scale = _solved(size, goal)
        rows, attended = block(network, scaled(scale), rows)
        reached = relative_sizes(zero_shot, attended.output[everyone, at])
        return (rows, plain), ({name: scaled(scale)[name] for name in TUNED}, scale, reached)

    start = embedded(network, weights, tokens)
    goals = jnp.asarray(sizes, start.dtype)  # no other type may enter the scan, as float64 would where it is JAX's own
    _, (moved, scales, reached) = jax.lax.scan(of_layer, (start, start), (layers, changes, goals))
    return MatchedUpdate(before | {"params": weights | moved}, scales, reached)


def _solved(size: Callable[[Array], Array], goal: Array) -> Array:
    """The least scale on a doubling grid with this size, by bisection; 0 where the size is larger without any.

    One loop, so that ``size`` is compiled once: it probes 0, then halves or doubles the upper end, then halves what is
    between both ends.
    """

    def step(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        low, high, turn = state
        probing, growing = turn == PROBING, turn == GROWING
        tried = jnp.where(probing, 0, jnp.where(growing, high, (low + high) / 2))
        enough = size(tried) >= goal
        grows, shrinks = growing & ~enough, growing & enough & (low == 0) & (high > LEAST)
        done = jnp.where(probing & enough, HALVINGS, turn + jnp.where((grows & (high < LARGEST)) | shrinks, 0, 1))
        high_now = jnp.where(grows, 2 * high, jnp.where(shrinks, high / 2, jnp.where(enough, tried, high)))
        return jnp.where(enough, low, tried), high_now, done

    start = jnp.zeros((), goal.dtype), jnp.full((), FIRST, goal.dtype), jnp.full((), PROBING)
    return jax.lax.while_loop(lambda state: state[2] < HALVINGS, step, start)[1]


def _squares(states: Array) -> Array:
    return jnp.square(states).sum(-1).mean(0)
