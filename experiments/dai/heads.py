"""The output of a network's attention heads, compared with the relaxed form of Dai et al. 2022."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from icl_lab.compare.dual_form import relaxation_distance, relaxed_decomposition, softmax_decomposition, update_rank
from icl_lab.models import LanguageModel, captured
from icl_lab.models.layers import Params

RESOLUTION = 1e-5
"""Singular values below this share of the largest are rounding of float32."""


class Pair(NamedTuple):
    """One question with and without its context, the query in the same positions.

    Attributes:
      in_context: (T,) the token that begins, demonstrations, query.
      zero_shot: (Q,) the query alone.
      demonstrations: (T,) True for the tokens of the demonstrations.
    """

    in_context: Array
    zero_shot: Array
    demonstrations: Array


def in_place(params: Params, start: int) -> Params:
    """The network for a run without the first tokens, what is left being in the positions ``start`` and on.

    Rotary positions need nothing: scores depend on distances alone.
    """
    weights = params["params"]
    if "position" not in weights:
        return params
    return params | {"params": weights | {"position": jnp.roll(weights["position"], -start, axis=0)}}


@partial(jax.jit, static_argnames="network")
def head_metrics(network: LanguageModel, params: Params, without: Params, pair: Pair) -> dict[str, Array]:
    """Of one question, (L, H) by name.

    ``relative_error``, ``cosine`` and ``scaled_error`` of relaxed attention from the head's output at the last token;
    with ``demonstrations_`` of what both take from the demonstrations; ``mean_cosine`` of the plain mean of values.
    ``mass`` on the demonstrations; ``rank`` of dW_ICL and its ``stable_rank`` |dW|_F^2 / |dW|_2^2;
    ``relaxed_identity``, ``softmax_identity`` and ``zero_shot_identity``, relative errors: of W_ZSL + dW_ICL from
    relaxed attention, of the exact form from the head, and of the latter with the zero-shot part taken from the run of
    the query alone.

    Args:
      network: the module.
      params: its params.
      without: those of the run of the query alone, ``in_place``.
      pair: the question.
    """
    full = captured(network, params, pair.in_context, pair.in_context.size - 1)
    bare = captured(network, without, pair.zero_shot, pair.zero_shot.size - 1)
    runs = [tuple(leaf.swapaxes(1, 2) for leaf in (run.queries, run.keys, run.values)) for run in (full, bare)]
    context = jnp.arange(pair.in_context.size) < pair.in_context.size - pair.zero_shot.size
    return jax.vmap(jax.vmap(partial(_head, pair.demonstrations, context)))(*runs)  # over layers, then heads


def _head(shown: Array, context: Array, full: tuple[Array, ...], bare: tuple[Array, ...]) -> dict[str, Array]:
    """Of one head, from its queries, keys and values in both runs; the last token's query is the last row."""
    (queries, keys, values), (own_queries, own_keys, own_values) = full, bare
    query, size = queries[-1:], queries.shape[-1]
    attend = lambda q, k: jax.nn.softmax(q @ k.T * size**-0.5, axis=-1)  # noqa: E731
    real, alone = attend(query, keys) @ values, attend(own_queries[-1:], own_keys) @ own_values
    parts = softmax_decomposition(query, keys, values, shown)
    of_context = softmax_decomposition(query, keys, values, context)
    w_zsl, dw_icl = relaxed_decomposition(keys, values, shown)
    relaxed = (query @ keys.T) @ values
    singular = jnp.linalg.svd(dw_icl, compute_uv=False)
    whole = relaxation_distance(real, relaxed)
    learned = relaxation_distance(parts.demonstrations, query @ dw_icl)
    return {name: value[0] for name, value in whole.items()} | {
        **{f"demonstrations_{name}": value[0] for name, value in learned.items()},
        "mean_cosine": relaxation_distance(real, values.mean(0, keepdims=True))["cosine"][0],
        "mass": parts.mass[0],
        "rank": update_rank(dw_icl, RESOLUTION),
        "stable_rank": jnp.square(singular).sum() / jnp.square(singular[0]),
        "relaxed_identity": _error(relaxed, query @ (w_zsl + dw_icl)),
        "softmax_identity": _error(real, parts.output()),
        "zero_shot_identity": _error(real, of_context._replace(zero_shot=alone).output()),
    }


def _error(true: Array, other: Array) -> Array:
    return jnp.linalg.norm(other - true) / jnp.linalg.norm(true)
