"""The compiled programs of this paper's analyses; each has the same shapes for all tasks, so it is compiled once.

A fine-tuned network is the few weights that moved, beside those of the network that it was.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from icl_lab.compare import (
    NetworkStates,
    Patch,
    attention_update_similarity,
    jensen_shannon,
    label_directions,
    matched_update,
    network_states,
    order_sensitivity,
    similarities,
    top_overlap,
    update_similarity,
)
from icl_lab.models import LanguageModel
from icl_lab.models.layers import Params
from icl_lab.prompts.encoding import EncodedTask
from icl_lab.solvers.finetuning import TUNED, finetune

T = TypeVar("T")
Weights = Mapping[str, Any]
"""Arrays by name, of the host or a device."""


class Jobs(NamedTuple):
    """F fine-tunings on N examples of S tokens; a rate of zero leaves an example out."""

    examples: NDArray  # (F, N, S)
    lengths: NDArray  # (F, N)
    rates: NDArray  # (F, N)


class Tuned(NamedTuple):
    """F fine-tuned networks: the weights that moved, by name (F, ..), and the attention queries of the training tokens
    (F, N, S, L, H, K)."""

    weights: Weights
    queries: Array


def rows(tree: T, index) -> T:
    """``leaf[index]`` of every leaf; None adds a leading axis, an integer takes one off."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def chunks(tree: T, size: int) -> Iterator[tuple[T, int]]:
    """Parts of one size, the last one filled up with its first row, and how many rows of each are not filling."""
    count = len(jax.tree.leaves(tree)[0])
    for start in range(0, count, size):
        valid = min(size, count - start)
        yield rows(tree, np.r_[start : start + valid, np.full(size - valid, start)]), valid


def finetuned(
    network: LanguageModel, params: Params, jobs: Jobs, size: int, objective: str = "all", sequential: bool = True
) -> Iterator[tuple[Tuned, int]]:
    """Fine-tunes one network: in parts of one size, and how many jobs of each are not filling.

    The parts are on the host, where taking one job out of them compiles nothing.
    """
    for part, valid in chunks(jobs, size):
        yield jax.device_get(_finetuned(network, params, part, objective, sequential)), valid


@partial(jax.jit, static_argnames=("network", "objective", "sequential"))
def _finetuned(network: LanguageModel, params: Params, jobs: Jobs, objective: str, sequential: bool) -> Tuned:
    def one(job: Jobs) -> Tuned:
        tuned = finetune(network, params, *map(jnp.asarray, job), objective=objective, sequential=sequential)
        return Tuned({name: tuned.params["params"][name] for name in TUNED}, tuned.queries)

    return jax.vmap(one)(jobs)


def own_weights(params: Params) -> Weights:
    """What fine-tuning moves, of a network that was not tuned: (1, ..) by name."""
    return {name: np.asarray(params["params"][name])[None] for name in TUNED}


def with_weights(params: Params, weights: Weights) -> Params:
    """A network with these weights in place of its own."""
    return params | {"params": {**params["params"], **weights}}


@partial(jax.jit, static_argnames=("network", "setting", "position", "at_once"))
def states(
    network: LanguageModel,
    params: Params,
    weights: Weights,
    task: EncodedTask,
    setting: str,
    position: str,
    at_once: int,
    patch: Patch | None = None,
) -> NetworkStates:
    """``network_states`` of F networks that have these weights, (F, ..) by name, in place of their own: (F, I, ..)."""
    return jax.lax.map(
        lambda one: network_states(
            network, with_weights(params, one), task, setting, position=position, patch=patch, at_once=at_once
        ),
        weights,
    )


@partial(jax.jit, static_argnames="network")
def at_size(
    network: LanguageModel, params: Params, weights: Weights, task: EncodedTask, sizes: Array
) -> tuple[Weights, Array]:
    """``matched_update`` of one fine-tuned network: its weights, and the sizes (L,) that they reach."""
    update = matched_update(network, params, with_weights(params, weights), task, sizes)
    return {name: update.params["params"][name] for name in TUNED}, update.sizes


@partial(jax.jit, static_argnames=("baseline", "top"))
def compared(
    key: Array,
    params: Params,
    zero_shot: NetworkStates,
    in_context: NetworkStates,
    tuned: NetworkStates,
    queries: Array,
    task: EncodedTask,
    baseline: str,
    top: int,
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Of one fine-tuned network: ``similarities``, (I, L) by name; and of answers (I,), by name of the pair, the
    divergence of labels ``shannon_`` and the overlap ``overlap_`` of the ``top`` likeliest tokens.

    Kendall's correlation has no value in the first layer: queries there do not depend on what is fine-tuned.
    """
    weights, places = params["params"], jnp.asarray(task.matched)
    directions = label_directions(weights["embedding"], weights["norm_scale"], jnp.asarray(task.candidates))
    sims = similarities(key, zero_shot, in_context, tuned, queries, places, directions=directions, baseline=baseline)
    sims |= {name: sims[name].at[:, 0].set(jnp.nan) for name in ("kendall", "kendall_random")}
    pairs = {
        "in_context_tuned": (in_context, tuned),
        "zero_shot_tuned": (zero_shot, tuned),
        "zero_shot_in_context": (zero_shot, in_context),
    }
    divergent = {}
    for name, (a, b) in pairs.items():
        labels = (unrepeated(state.candidate_logits, task.candidates) for state in (a, b))
        divergent[f"shannon_{name}"] = jensen_shannon(*labels)
        divergent[f"overlap_{name}"] = top_overlap(a.logits, b.logits, top)
    return sims, divergent


@jax.jit
def updates_compared(zero_shot: NetworkStates, one: NetworkStates, other: NetworkStates) -> dict[str, Array]:
    """(I, L) cosines of what two fine-tunings of a network change, in attention ``scores`` and ``outputs``."""
    states = zero_shot, one, other
    return {
        "scores": attention_update_similarity(*(state.query_scores for state in states)),
        "outputs": update_similarity(*(state.output for state in states), normalised=False),
    }


@jax.jit
def right_log_probabilities(logits: Array, task: EncodedTask) -> Array:
    """(.., I) log-probability of the right label among the candidates, from their logits (.., I, A)."""
    among = jax.nn.log_softmax(unrepeated(logits, task.candidates), axis=-1)
    return among[..., jnp.arange(len(task.targets)), jnp.asarray(task.targets)]


@jax.jit
def sensitivity(logits: Array, task: EncodedTask) -> dict[str, Array]:
    """``order_sensitivity`` of (P, I, A) logits of the candidates, of which some may be repeated."""
    return order_sensitivity(unrepeated(logits, task.candidates), jnp.asarray(task.targets))


def unrepeated(logits: Array, candidates: ArrayLike) -> Array:
    """Logits (.., A) with those of repeated candidates put so low that they have no probability."""
    answers = jnp.asarray(candidates)
    repeated = (answers == answers[0]) & (jnp.arange(answers.size) > 0)
    return jnp.where(jnp.expand_dims(repeated, range(logits.ndim - 1)), -1e9, logits)
