"""Linear self-attention with a mixer of earlier values in every layer, for whole batches of regression prompts."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from experiments.dai import mixers
from icl_lab.models import LinearSelfAttention, folded_weights
from icl_lab.prompts import BatchLearner, Prompt


class MixedNetwork(NamedTuple):
    """What is trained.

    Attributes:
      init: ``(key, logit) -> params`` of ``LinearSelfAttention``, and ``eta`` (L,) that starts at the logit.
      learner: ``(params, setting of a member) -> learner`` of a batch of prompts.
    """

    init: Callable[[Array, Array], dict]
    learner: Callable[[dict, dict], BatchLearner]


def mixed_network(
    layers: int, context_length: int, input_size: int, init_scale: float, *, alternating: bool = False
) -> MixedNetwork:
    """Linear self-attention of one head on joint tokens (separate weights) or alternating ones (merged weights).

    Merged weights leave the plateaus of a small start many times sooner.
    """
    network = LinearSelfAttention(
        layers=layers, init_scale=init_scale, parametrisation="merged" if alternating else "separate"
    )
    tokens = 2 * context_length + 1 if alternating else context_length + 1
    encode = alternating_tokens if alternating else joint_tokens

    def init(key: Array, logit: Array) -> dict:
        weights = network.init(key, jnp.zeros((tokens, input_size + 1)))["params"]
        return {"params": weights | {"eta": jnp.full((layers,), logit)}}

    def learner(params: dict, setting: dict) -> BatchLearner:
        return partial(_predict, params, mixers.mixing(setting, params["params"]["eta"]), encode)

    return MixedNetwork(init, learner)


def _predict(params: dict, mixing: Array, encode: Callable[[Prompt], Array], prompts: Prompt) -> Array:
    return mixed_predictions(params, mixing, encode(prompts))


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


def joint_tokens(prompts: Prompt) -> Array:
    """(x_1, y_1), .., (x_N, y_N), (x_q, 0): (B, N + 1, D + 1)."""
    context = jnp.concatenate([prompts.x, prompts.y], axis=2)
    return jnp.concatenate([context, _query(prompts)], axis=1)


def alternating_tokens(prompts: Prompt) -> Array:
    """(x_1, 0), (0, y_1), .., (0, y_N), (x_q, 0), without positions: (B, 2N + 1, D + 1)."""
    batch, n, size = prompts.x.shape
    inputs = jnp.concatenate([prompts.x, jnp.zeros_like(prompts.y)], axis=2)
    labels = jnp.concatenate([jnp.zeros_like(prompts.x), prompts.y], axis=2)
    context = jnp.stack([inputs, labels], axis=2).reshape(batch, 2 * n, size + 1)
    return jnp.concatenate([context, _query(prompts)], axis=1)


def _query(prompts: Prompt) -> Array:
    empty = jnp.zeros((prompts.x_query.shape[0], 1), prompts.x_query.dtype)
    return jnp.concatenate([prompts.x_query, empty], axis=1)[:, None]
