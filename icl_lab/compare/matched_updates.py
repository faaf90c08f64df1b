"""Fine-tuned networks made equal in the size of what they change, layer by layer: controls that can be compared.

A similarity depends on the size of an update as well as on its direction (normalised SimAOU grows with it). So a control
(noise in place of the update, another objective, another task) is compared with fine-tuning at equal sizes (this lab).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from icl_lab.models.language import LanguageModel, block, embedded, of_layer
from icl_lab.models.transformer import Params
from icl_lab.prompts.encoding import EncodedTask
from icl_lab.solvers.finetuning import TUNED

DOUBLINGS, HALVINGS = 24, 14
SMALLEST = 2.0**-4
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
    rows = plain = embedded(network, weights, tokens)
    scales, reached, moved = [], [], {name: [] for name in TUNED}
    for layer in range(network.layers):
        own = of_layer(weights, layer)
        change = {name: after["params"][name][layer] - own[name] for name in TUNED}

        def scaled(scale: Array, own: Params = own, change: Params = change) -> Params:
            return own | {name: own[name] + scale * change[name] for name in TUNED}

        def output(weights: Params, rows: Array) -> Array:
            return block(network, weights, rows)[1].output[everyone, at]

        zero_shot = output(own, plain)

        def size(scale: Array, rows: Array = rows, zero_shot: Array = zero_shot, scaled=scaled) -> Array:
            return relative_sizes(zero_shot[:, None], output(scaled(scale), rows)[:, None])[0]

        scale = _solved(size, sizes[layer])
        scales.append(scale)
        reached.append(size(scale))
        for name in TUNED:
            moved[name].append(scaled(scale)[name])
        rows, plain = block(network, scaled(scale), rows)[0], block(network, own, plain)[0]
    found = before | {"params": weights | {name: jnp.stack(parts) for name, parts in moved.items()}}
    return MatchedUpdate(found, jnp.stack(scales), jnp.stack(reached))


def _solved(size: Callable[[Array], Array], asked: Array) -> Array:
    """The least scale on a doubling grid with this size, by bisection; 0 where the size is larger without any."""
    high = jax.lax.while_loop(
        lambda high: (size(high) < asked) & (high < SMALLEST * 2.0**DOUBLINGS), lambda high: 2 * high, SMALLEST
    )
    low = jnp.where(high > SMALLEST, high / 2, 0)

    def halved(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = (ends[0] + ends[1]) / 2
        enough = size(middle) >= asked
        return jnp.where(enough, ends[0], middle), jnp.where(enough, middle, ends[1])

    ends = jax.lax.fori_loop(0, HALVINGS, halved, (low, jnp.asarray(high)))
    return jnp.where(size(jnp.zeros(())) >= asked, 0, ends[1])


def _squares(states: Array) -> Array:
    return jnp.square(states).sum(-1).mean(0)
