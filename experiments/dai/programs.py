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
    jensen_shannon,
    network_states,
    order_sensitivity,
    similarities,
    top_overlap,
)
from icl_lab.lab.dry_run import tried_once
from icl_lab.models import LanguageModel
from icl_lab.models.language import block, embedded, of_layer, unembedded
from icl_lab.models.transformer import Params
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
    """These rows of every leaf."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def chunks(tree: T, size: int) -> Iterator[tuple[T, int]]:
    """Parts of one size, the last one filled up with its first row, and how many rows of each are not filling."""
    count = len(jax.tree.leaves(tree)[0])
    for start in range(0, count, size):
        own = min(size, count - start)
        yield rows(tree, np.r_[start : start + own, np.full(size - own, start)]), own


def finetuned(
    network: LanguageModel, params: Params, jobs: Jobs, size: int, objective: str = "all", sequential: bool = True
) -> Iterator[tuple[Tuned, int]]:
    """Fine-tunes one network: in parts of one size, and how many jobs of each are not filling.

    The parts are on the host, where taking one job out of them compiles nothing.
    """
    for part, own in chunks(jobs, size):
        yield jax.device_get(_finetuned(network, params, part, objective, sequential)), own


@tried_once
@partial(jax.jit, static_argnames=("network", "objective", "sequential"))
def _finetuned(network: LanguageModel, params: Params, jobs: Jobs, objective: str, sequential: bool) -> Tuned:
    def one(job: Jobs) -> Tuned:
        found = finetune(network, params, *map(jnp.asarray, job), objective=objective, sequential=sequential)
        return Tuned({name: found.params["params"][name] for name in TUNED}, found.queries)

    return jax.vmap(one)(jobs)


def own_weights(params: Params) -> Weights:
    """What fine-tuning moves, of a network that was not tuned: (1, ..) by name."""
    return {name: np.asarray(params["params"][name])[None] for name in TUNED}


def with_weights(params: Params, weights: Weights) -> Params:
    """A network with these weights in place of its own."""
    return params | {"params": {**params["params"], **weights}}


def answers(
    network: LanguageModel, params: Params, weights: Weights, prompts: tuple[NDArray, NDArray], candidates: NDArray,
    size: int,
) -> NDArray:  # fmt: skip
    """(F, B, A) logits of the candidates, of F fine-tuned networks, in parts of one size.

    Args:
      network: the module.
      params: its params.
      weights: in place of its own, with a leading axis F.
      prompts: tokens (B, T), and (B,) the place of the last one of each.
      candidates: (A,).
      size: prompts at once.
    """
    found = [
        np.asarray(_answers(network, params, weights, *part, candidates))[:, :own]
        for part, own in chunks(prompts, size)
    ]
    return np.concatenate(found, axis=1)


@tried_once
@partial(jax.jit, static_argnames="network")
def _answers(
    network: LanguageModel, params: Params, weights: Weights, tokens: Array, at: Array, candidates: Array
) -> Array:
    def of_network(own: Weights) -> Array:
        all_weights = with_weights(params, own)["params"]
        stream = embedded(network, all_weights, tokens)
        for layer in range(network.layers):
            stream, _ = block(network, of_layer(all_weights, layer), stream)
        return unembedded(all_weights, stream[jnp.arange(at.size), at])[:, candidates]  # one token's logits, not all

    return jax.lax.map(of_network, weights)


@tried_once
@partial(jax.jit, static_argnames=("network", "setting", "position"))
def states(
    network: LanguageModel, params: Params, weights: Weights, task: EncodedTask, setting: str, position: str
) -> NetworkStates:
    """``network_states`` of one network, which may be fine-tuned."""
    return network_states(network, with_weights(params, weights), task, setting, position=position)


@partial(jax.jit, static_argnames=("baseline", "top"))
def compared(
    key: Array,
    zero_shot: NetworkStates,
    in_context: NetworkStates,
    tuned: NetworkStates,
    queries: Array,
    task: EncodedTask,
    baseline: str,
    top: int,
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Of one fine-tuned network: ``similarities``, (I, L) by name; and of answers (I,), by name of the pair, the
    divergence of labels ``shannon_`` and the overlap ``overlap_`` of the ``top`` likeliest tokens."""
    found = similarities(key, zero_shot, in_context, tuned, queries, jnp.asarray(task.matched), baseline=baseline)
    pairs = {
        "in_context_tuned": (in_context, tuned), "zero_shot_tuned": (zero_shot, tuned),
        "zero_shot_in_context": (zero_shot, in_context),
    }  # fmt: skip
    answered = {}
    for name, (a, b) in pairs.items():
        labels = (once(state.candidate_logits, task.candidates) for state in (a, b))
        answered[f"shannon_{name}"] = jensen_shannon(*labels)
        answered[f"overlap_{name}"] = top_overlap(a.logits, b.logits, top)
    return found, answered


@jax.jit
def sensitivity(logits: Array, task: EncodedTask) -> dict[str, Array]:
    """``order_sensitivity`` of (P, I, A) logits of the candidates, of which some may be repeated."""
    return order_sensitivity(once(logits, task.candidates), jnp.asarray(task.targets))


def once(logits: Array, candidates: ArrayLike) -> Array:
    """Logits (.., A) with those of repeated candidates put so low that they have no probability."""
    answers = jnp.asarray(candidates)
    repeated = (answers == answers[0]) & (jnp.arange(answers.size) > 0)
    return jnp.where(jnp.expand_dims(repeated, range(logits.ndim - 1)), -1e9, logits)
