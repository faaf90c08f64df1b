"""Linear self-attention with a mixer of earlier values in every layer, for whole batches of regression prompts."""

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from experiments.dai import mixers
from icl_lab.models import LinearSelfAttention, folded_weights
from icl_lab.prompts import BatchLearner, Prompt
from icl_lab.prompts.layouts import joint_layout


@dataclasses.dataclass(frozen=True)
class MixedNetwork:
    """Layers of one head on joint tokens (separate weights) or alternating ones (merged weights), N pairs in D inputs.

    Merged weights leave the plateaus of a small start many times sooner.
    """

    layers: int
    context_length: int
    input_size: int
    init_scale: float
    alternating: bool = False

    @property
    def tokens(self) -> int:
        """T; all but the last are keys."""
        return (1 + self.alternating) * self.context_length + 1

    def init(self, key: Array, logit: Array) -> dict:
        """Params of ``LinearSelfAttention``, and ``eta`` (L,) that starts at the logit."""
        parametrisation = "merged" if self.alternating else "separate"
        network = LinearSelfAttention(layers=self.layers, init_scale=self.init_scale, parametrisation=parametrisation)
        weights = network.init(key, jnp.zeros((self.tokens, self.input_size + 1)))["params"]
        return {"params": weights | {"eta": jnp.full((self.layers,), logit)}}

    def learner(self, params: dict, setting: dict) -> BatchLearner:
        """Of a batch of prompts, for the setting of a member (``mixers.settings``)."""
        mixing = mixers.mixing(setting, params["params"]["eta"])
        encode = alternating_tokens if self.alternating else joint_tokens
        return lambda prompts: mixed_predictions(params, mixing, encode(prompts))


def mixed_predictions(params: dict, mixing: Array, tokens: Array) -> Array:
    """Minus the label channel of the query after the stack: (B, T, E) tokens, (L, T, N) mixers -> (B, 1).

    Layer l adds (pattern_l + mixing_l) values to the tokens, the raw scores of linear attention its pattern (von Oswald
    et al. 2022, eq. 2; the first N tokens are keys). Of the last layer only the query's row is computed.
    """
    a, b = (weights[:, 0] for weights in folded_weights(params))
    for layer in range(a.shape[0]):
        context, rows, mixed = tokens[:, :-1], tokens, mixing[layer]
        if layer == a.shape[0] - 1:
            rows, mixed = tokens[:, -1:], mixed[-1:]
        pattern = jnp.einsum("bte,ef,bnf->btn", rows, a[layer], context) + mixed[None]
        tokens = rows + jnp.einsum("btn,bne,ef->btf", pattern, context, b[layer])
    return -tokens[:, -1, -1:]


joint_tokens = jax.vmap(joint_layout().encode)
"""(x_1, y_1), .., (x_N, y_N), (x_q, 0): (B, N + 1, D + 1)."""


def alternating_tokens(prompts: Prompt) -> Array:
    """(x_1, 0), (0, y_1), .., (0, y_N), (x_q, 0), without positions: (B, 2N + 1, D + 1)."""
    joint = joint_tokens(prompts)
    context, of_label = joint[:, :-1], jnp.arange(joint.shape[2]) == prompts.x.shape[2]
    pairs = jnp.stack([jnp.where(of_label, 0, context), jnp.where(of_label, context, 0)], axis=2)
    return jnp.concatenate([pairs.reshape(len(joint), -1, joint.shape[2]), joint[:, -1:]], axis=1)
