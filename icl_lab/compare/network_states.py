"""States of a network for every query of a task, and the metrics of implicit fine-tuning that compare them."""

from typing import NamedTuple

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
)
from icl_lab.models.language import LanguageModel
from icl_lab.models.language_capture import captured
from icl_lab.models.transformer import Params
from icl_lab.prompts.encoding import EncodedTask

SETTINGS = ("zero_shot", "in_context")
POSITIONS = ("paper", "code")
RESOLUTION = 1e-5
"""Updates below this share of the state that they move are taken for rounding, which is 1e-6 in float32."""


class NetworkStates(NamedTuple):
    """States of a network on the I queries of a task.

    Q tokens of the longest query (with the label of the position ``code``), D tokens of the demonstrations, A
    candidates; the network has L layers, H heads of K channels, width E and V tokens.

    Attributes:
      output: (I, L, E) attention block's output at the token that is read, behind its projection.
      query_scores: (I, L, H, Q) its scores to the query's tokens before softmax, zero behind the last; the token that
        begins the prompt is not one, so zero-shot has as many as in context.
      demonstration_scores: (I, L, D) its scores to the demonstrations' tokens, those of ``EncodedTask.matched``, summed
        over heads; D = 0 in the setting ``zero_shot``.
      queries: (I, L, H, K) its attention query.
      logits: (I, V) of the token behind the query.
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
    network: LanguageModel, params: Params, task: EncodedTask, setting: str, *, position: str = "paper"
) -> NetworkStates:
    """States at the last token of every query. Dai et al. 2022, section 4, and released code.

    A fine-tuned network is read in the setting ``zero_shot``, by the same compiled function as the network that it was
    tuned from (``jax.jit`` of this, called with other params): two programs round differently, and a rounding error has
    a direction. For many networks of one shape use ``jax.lax.map``, with the untuned network among them.

    Args:
      network: the module.
      params: the pytree of ``network.init``.
      task: one task; ``vmap`` takes stacked ones.
      setting: ``zero_shot`` or ``in_context``.
      position: ``paper`` reads the last token of the query, which predicts the answer; ``code`` puts the first
        candidate behind it and reads that, as released. What is predicted is read at the former in both.

    Raises:
      ValueError: for another setting or position, or more tokens than the network takes.
    """
    for name, value, allowed in (("setting", setting, SETTINGS), ("position", position, POSITIONS)):
        if value not in allowed:
            raise ValueError(f"{name} must be one of {allowed}, got {value!r}")
    prompts, begins = (task.in_context, task.context) if setting == "in_context" else (task.zero_shot, 1)
    one_more = int(position == "code")
    places = jnp.asarray(task.matched)[:, 0] if setting == "in_context" else jnp.zeros(0, jnp.int32)
    candidates = jnp.asarray(task.candidates)

    def of_query(tokens: Array, length: Array) -> NetworkStates:
        asks = begins + length - 1
        if one_more:
            tokens = jnp.pad(tokens, (0, 1)).at[asks + 1].set(candidates[0])
        found = captured(network, params, tokens, asks + one_more)
        logits = captured(network, params, tokens, asks).logits
        own = jnp.arange(tokens.shape[0] - begins) < length + one_more
        return NetworkStates(
            output=found.output,
            query_scores=jnp.where(own[None, None], found.scores[:, :, begins:], 0),
            demonstration_scores=found.scores[:, :, places].sum(1),
            queries=found.queries[:, asks + one_more],
            logits=logits,
            candidate_logits=logits[candidates],
            predictions=jnp.argmax(logits[candidates]),
        )

    return jax.vmap(of_query)(jnp.asarray(prompts), jnp.asarray(task.query_lengths))


def similarities(
    key: Array,
    zero_shot: NetworkStates,
    in_context: NetworkStates,
    finetuned: NetworkStates,
    training_queries: Array,
    matched: Array,
    *,
    baseline: str = "gaussian",
    released: bool = False,
) -> dict[str, Array]:
    """Every similarity of in-context learning and fine-tuning, by query and layer.

    ``sim_aou`` (normalised), ``sim_aou_raw``, its ``floor`` and ``random`` baseline; ``sim_am_before`` and ``_after``,
    and of differences ``sim_am_delta``; ``kendall`` of attention to the training tokens, and ``kendall_random`` against
    uniform numbers; the sizes of both updates, ``in_context_ratio`` |u_ICL| / |h_ZSL| and ``finetuned_ratio``. An
    update below ``RESOLUTION`` is taken for rounding, and metrics that need its direction are NaN (with rotary
    positions, demonstrations change no score to the query in the first layer). Kendall needs two training tokens, and
    is left out where there are fewer. See ``icl_lab.compare.implicit_finetuning``.

    Args:
      key: for the two random baselines.
      zero_shot: states of the network, without demonstrations.
      in_context: with them.
      finetuned: states of the fine-tuned network, without; from the same compiled function as ``zero_shot``.
      training_queries: (N, S, L, H, K) ``Finetuned.queries``.
      matched: (D, 3) of the task.
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
    found = {
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
    if len(matched) < 2:
        return found
    of_tokens = training_queries[matched[:, 1], matched[:, 2]].swapaxes(0, 1)[None]  # (1, L, D, H, K)
    learned = in_context.demonstration_scores
    noise = jax.random.uniform(ranks_key, learned.shape, learned.dtype)
    return found | {
        "kendall": kendall(learned, finetuned_token_scores(of_tokens, finetuned.queries), released=released),
        "kendall_random": kendall(learned, noise, released=released),
    }


def _ratio(state: Array, other: Array) -> Array:
    return jnp.linalg.norm(other - state, axis=-1) / jnp.linalg.norm(state, axis=-1)
