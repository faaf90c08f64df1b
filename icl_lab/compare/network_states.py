"""States of a network for every query of a task, and the metrics of implicit fine-tuning that compare them."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from icl_lab.compare.implicit_finetuning import (
    attention_similarity,
    attention_update_similarity,
    finetuned_token_scores,
    kendall,
    random_update_similarity,
    update_similarity,
    update_similarity_floor,
    within_span,
)
from icl_lab.models.language import MIXERS, OUTSIDE, LanguageModel, block, embedded, unembedded
from icl_lab.models.layers import Params
from icl_lab.prompts.encoding import EncodedTask

SETTINGS = ("zero_shot", "in_context")
POSITIONS = ("paper", "code")
RESOLUTION = 1e-5
"""Updates below this share of the state that they move are taken for rounding, which is 1e-6 in float32."""


class Patch(NamedTuple):
    """Attention outputs to put in place of a network's own at the token that is read, layer by layer.

    Attributes:
      outputs: (I, L, E) one for every query, after the projection and its bias.
      layers: (L,) bool, the layers where that is done.
    """

    outputs: Array
    layers: Array


class NetworkStates(NamedTuple):
    """States of a network on the I queries of a task.

    Q tokens of the longest query (with the label of the position ``code``), D tokens of the demonstrations, A
    candidates; the network has L layers, H heads of K channels, width E and V tokens.

    Attributes:
      output: (I, L, E) attention block's output at the token that is read, after its projection.
      query_scores: (I, L, H, Q) its scores to the query's tokens before softmax, zero after the last; the token that
        begins the prompt is not one, so zero-shot has as many as in context.
      demonstration_scores: (I, L, D) its scores to the demonstrations' tokens, those of ``EncodedTask.matched``, summed
        over heads; D = 0 in the setting ``zero_shot``.
      queries: (I, L, H, K) its attention query.
      logits: (I, V) of the token after the query.
      candidate_logits: (I, A) of them, those of the candidates.
      predictions: (I,) the candidate of the largest.
    """

    output: Array
    query_scores: Array
    demonstration_scores: Array
    queries: Array
    logits: Array
    candidate_logits: Array
    predictions: Array


def network_states(
    network: LanguageModel,
    params: Params,
    task: EncodedTask,
    setting: str,
    *,
    position: str = "paper",
    patch: Patch | None = None,
    at_once: int | None = None,
) -> NetworkStates:
    """States at the last token of every query. Dai et al. 2022, section 4, and released code.

    All queries of a task stand after one context, which is read once: after a context of C tokens I queries of Q
    tokens cost C + I Q tokens and not I (C + Q).

    A fine-tuned network is read in the setting ``zero_shot``, by the same compiled function as the network that it was
    tuned from (``jax.jit`` of this, called with other params): two programs round differently, and a rounding error has
    a direction. For many networks of one shape use ``jax.lax.map``, with the untuned network among them.

    Args:
      network: the module.
      params: the pytree of ``network.init``.
      task: one task; ``vmap`` takes stacked ones.
      setting: ``zero_shot`` or ``in_context``.
      position: ``paper`` reads the last token of the query, which predicts the answer; ``code`` puts the first
        candidate after it and reads that, as released. What is predicted is read at the former in both.
      patch: attention outputs to put in place of those at the token that is read.
      at_once: queries in one batch, None for all.

    Raises:
      ValueError: for another setting or position, or more tokens than the network takes.
    """
    for name, value, allowed in (("setting", setting, SETTINGS), ("position", position, POSITIONS)):
        if value not in allowed:
            raise ValueError(f"{name} must be one of {allowed}, got {value!r}")
    prompts, begins = (task.in_context, task.context) if setting == "in_context" else (task.zero_shot, 1)
    tokens, lengths, candidates = jnp.asarray(prompts), jnp.asarray(task.query_lengths), jnp.asarray(task.candidates)
    one_more = int(position == "code")
    if one_more:
        asked_at = begins + lengths
        tokens = jnp.pad(tokens, ((0, 0), (0, 1))).at[jnp.arange(len(tokens)), asked_at].set(candidates[0])
    network.check(tokens, 2)
    weights = params["params"]
    layers = {name: stack for name, stack in weights.items() if name not in OUTSIDE}
    stream = embedded(network, weights, tokens)

    def of_context(rows: Array, layer: Params) -> tuple[Array, tuple[Array, Array]]:
        rows, attended = block(network, layer, rows)
        return rows, (attended.keys[0], attended.values[0])

    _, shared = jax.lax.scan(of_context, stream[:1, :begins], layers)  # a loop: one block is compiled, not L
    places = jnp.asarray(task.matched)[:, 0] if setting == "in_context" else jnp.zeros(0, jnp.int32)

    def of_query(query: tuple[Array, Array, Array | None]) -> tuple[Array, ...]:
        rows, length, put = query
        at = length - 1 + one_more

        def of_layer(rows: Array, one: tuple) -> tuple[Array, tuple[Array, ...]]:
            layer, before, output, chosen = one
            touched = None if patch is None else partial(_put, at, output, chosen, layer["p_bias"])
            rows, attended = block(network, layer, rows, **_behind(network, layer, before, rows), touched=touched)
            channels = attended.queries[0, at]
            scores = jnp.einsum("hk,shk->hs", channels, attended.keys[0]) * channels.shape[-1] ** -0.5
            return rows, (attended.output[0, at], channels, scores)

        chosen = None if patch is None else patch.layers
        rows, states = jax.lax.scan(of_layer, rows[None], (layers, shared, put, chosen))
        return *states, unembedded(weights, rows[0, length - 1])

    queries = (stream[:, begins:], lengths, None if patch is None else patch.outputs)
    whole = at_once is None or at_once >= len(lengths)
    output, channels, scores, logits = (
        jax.vmap(of_query)(queries) if whole else jax.lax.map(of_query, queries, batch_size=at_once)
    )
    own_tokens = jnp.arange(scores.shape[-1] - begins)[None] < lengths[:, None] + one_more  # (I, Q)
    return NetworkStates(
        output=output,
        query_scores=jnp.where(own_tokens[:, None, None], scores[..., begins:], 0),
        demonstration_scores=scores[..., places].sum(2),
        queries=channels,
        logits=logits,
        candidate_logits=logits[:, candidates],
        predictions=jnp.argmax(logits[:, candidates], axis=1),
    )


def _behind(network: LanguageModel, layer: Params, before: tuple[Array, Array], rows: Array) -> dict[str, Any]:
    """Options of ``block`` for tokens that stand after a context of which keys and values are known."""
    begins, own_tokens = before[0].shape[0], rows.shape[1]
    beside = MIXERS[network.mixer](network, layer, begins + own_tokens)

    def rotated(channels: Array) -> Array:
        return network.rotated(jnp.pad(channels, ((0, 0), (begins, 0), (0, 0), (0, 0))))[:, begins:]

    return {"before": before, "rotated": rotated, "beside": None if beside is None else beside[:, begins:]}


def _put(at: Array, output: Array, chosen: Array, bias: Array, value: Array, name: str) -> Array:
    """Heads' outputs (1, H, Q, E) with what makes the block's output at a token ``output``, where it is chosen."""
    if name != "head_output":
        return value
    return value.at[0, 0, at].add(jnp.where(chosen, output - value[0, :, at].sum(0) - bias, 0))


def similarities(
    key: Array,
    zero_shot: NetworkStates,
    in_context: NetworkStates,
    finetuned: NetworkStates,
    training_queries: Array,
    matched: Array,
    *,
    directions: Array | None = None,
    baseline: str = "gaussian",
    released: bool = False,
) -> dict[str, Array]:
    """Every similarity of in-context learning and fine-tuning, by query and layer.

    ``sim_aou`` (normalised), ``sim_aou_raw``, its ``floor`` and ``random`` baseline; ``sim_am_before`` and ``_after``,
    and of differences ``sim_am_delta``; ``kendall`` of attention to the training tokens, and ``kendall_random`` against
    uniform numbers; the sizes of both updates, ``in_context_ratio`` |u_ICL| / |h_ZSL| and ``finetuned_ratio``. With
    ``directions``, SimAOU (raw) of the parts of both updates in their span and outside, ``sim_aou_inside`` and
    ``sim_aou_outside``, and the share of the square of an update that lies inside, ``in_context_inside`` and
    ``finetuned_inside``. An update below ``RESOLUTION`` is taken for rounding, and metrics that need its direction are
    NaN (with rotary positions, demonstrations change no score to the query in the first layer). Kendall needs two
    training tokens, and is left out where there are fewer; in the first layer fine-tuning of keys and values does not
    change it, because queries there depend on neither. See ``icl_lab.compare.implicit_finetuning``.

    Args:
      key: for the two random baselines.
      zero_shot: states of the network, without demonstrations.
      in_context: with them.
      finetuned: states of the fine-tuned network, without; from the same compiled function as ``zero_shot``.
      training_queries: (N, S, L, H, K) ``Finetuned.queries``.
      matched: (D, 3) of the task.
      directions: (A, E) that span a part of the residual stream, such as ``label_directions``.
      baseline: of ``random``: ``gaussian``, or the code's ``uniform``.
      released: as the released code: 1e-20 is added to denominators, every update counts that is not zero, the
        similarity of a zero update is 0, and Kendall's correlation is tau-b.

    Returns:
      Arrays (I, L) by name.

    Raises:
      ValueError: for another baseline, or states that do not fit.
    """
    outputs = (zero_shot.output, in_context.output, finetuned.output)
    scores = (zero_shot.query_scores, in_context.query_scores, finetuned.query_scores)
    context, tuned = (_ratio(outputs[0], other) for other in outputs[1:])
    least, none = (0.0, 0.0) if released else (RESOLUTION, jnp.nan)
    moved = (context > least) & (tuned > least)
    turned = jnp.all(jnp.stack([_ratio(scores[0], other) > least for other in scores[1:]]), axis=(0, -1))
    random_key, ranks_key = jax.random.split(key)
    random = random_update_similarity(random_key, *outputs[:2], baseline=baseline)
    metrics = {
        "sim_aou": jnp.where(moved, update_similarity(*outputs, released=released), none),
        "sim_aou_raw": jnp.where(moved, update_similarity(*outputs, normalised=False, released=released), none),
        "floor": jnp.where(moved, update_similarity_floor(*outputs), none),
        "random": jnp.where(context > least, random, none),
        "sim_am_before": attention_similarity(scores[1], scores[0], released=released),
        "sim_am_after": attention_similarity(scores[1], scores[2], released=released),
        "sim_am_delta": jnp.where(turned, attention_update_similarity(*scores, released=released), none),
        "in_context_ratio": context,
        "finetuned_ratio": tuned,
    }
    if directions is not None:
        updates = [other - outputs[0] for other in outputs[1:]]
        inside = [within_span(update, directions) for update in updates]
        zero = jnp.zeros_like(outputs[0])
        outside = [update - part for update, part in zip(updates, inside)]
        for name, parts in (("inside", inside), ("outside", outside)):
            metrics[f"sim_aou_{name}"] = jnp.where(moved, update_similarity(zero, *parts, normalised=False), none)
        for name, update, part in zip(("in_context", "finetuned"), updates, inside):
            share = jnp.square(part).sum(-1) / jnp.square(update).sum(-1)
            metrics[f"{name}_inside"] = jnp.where(moved, share, none)
    if len(matched) < 2:
        return metrics
    of_tokens = training_queries[matched[:, 1], matched[:, 2]].swapaxes(0, 1)[None]  # (1, L, D, H, K)
    learned = in_context.demonstration_scores
    noise = jax.random.uniform(ranks_key, learned.shape, learned.dtype)
    return metrics | {
        "kendall": kendall(learned, finetuned_token_scores(of_tokens, finetuned.queries), released=released),
        "kendall_random": kendall(learned, noise, released=released),
    }


def _ratio(state: Array, other: Array) -> Array:
    return jnp.linalg.norm(other - state, axis=-1) / jnp.linalg.norm(state, axis=-1)
