"""How a prompt becomes tokens, and how the answer is read off the last layer."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from icl_lab.prompts.prompt import Prompt, check_prompt


class Layout(NamedTuple):
    """A way to write prompts as tokens.

    Attributes:
      encode: ``Prompt -> (T, E)`` tokens; the query is the last token.
      decode: ``((T, E) tokens of the last layer, Prompt) -> (O,)`` prediction; it reads the last token only.
    """

    encode: Callable[[Prompt], Array]
    decode: Callable[[Array, Prompt], Array]


def joint_layout(w0: Array | None = None) -> Layout:
    """Joint tokens e_j = (x_j, y_j), query token (x_q, -W0 x_q), prediction = minus its y-block.

    von Oswald et al. 2022, section 2 and Proposition 1. ``E = D + O``, ``T = N + 1``.

    Args:
      w0: (D, O) initial weights of the gradient descent that the tokens carry; None means W0 = 0 (the paper's setting),
        where the query token is (x_q, 0).
    """

    def encode(prompt: Prompt) -> Array:
        _, _, o = check_prompt(prompt)
        start = jnp.zeros((o,), prompt.y.dtype) if w0 is None else -prompt.x_query @ w0
        context = jnp.concatenate([prompt.x, prompt.y], axis=1)  # (N, D + O)
        query = jnp.concatenate([prompt.x_query, start])  # (D + O,)
        return jnp.concatenate([context, query[None]], axis=0)

    def decode(tokens: Array, prompt: Prompt) -> Array:
        return -tokens[-1, -prompt.y.shape[1] :]  # behind an embedding too, its last channels are the label's

    return Layout(encode, decode)
