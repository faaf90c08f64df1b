"""How the induction-head network is clamped: what is held, what is given, and the form of the network that trains."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from experiments.reddy.settings import Data
from icl_lab.models import Intervention
from icl_lab.models.classifier import classifier
from icl_lab.models.inspection import intervened
from icl_lab.prompts import Prompt
from icl_lab.prompts.layouts import item_label_layout
from icl_lab.training.clamping import combined, frozen, kept_share, pinned_attention

ATTENTION = ("w_q", "w_k")
"""What makes the attention patterns; the values and the classifier make the answer of what is attended to."""

Window = tuple[int, int]
"""First step at which a clamp acts, and first at which it no longer does."""

OFF: Window = (0, 0)


def uniform(tokens: int) -> Array:
    """(1, T, T) causal attention to all tokens alike, that of a network that has learned nothing."""
    causal = jnp.tril(jnp.ones((tokens, tokens)))
    return (causal / causal.sum(1, keepdims=True))[None]


def previous(tokens: int) -> Array:
    """(1, T, T) every token attends to the one before it (the first to itself): the first layer's perfect pattern."""
    return jnp.eye(tokens, k=-1).at[0, 0].set(1)[None]


def clamps(config: Data, windows: Mapping[str, Window], classifier_names: tuple[str, ...]) -> Intervention:
    """What one member is clamped by; what ``windows`` does not name never acts.

    Names are ``ila1_held`` (first layer's attention uniform), ``tila2_held`` (the target's attention in the second
    uniform), ``tla2_held`` (the labels get the share of the target's attention that they have when it is uniform; how
    they divide it is free), ``cla_held`` (the classifier's parameters frozen) and ``ila1_given`` (labels attend to
    their item in the first layer; other tokens are free, else items could carry the label before them).
    """
    tokens = 2 * config.context_length + 1
    target = jnp.arange(tokens) == tokens - 1
    labels = jnp.arange(tokens) % 2 == 1

    def window(name: str) -> dict[str, Any]:
        start, stop = windows.get(name, OFF)
        return {"start": start, "stop": stop}

    return combined(
        pinned_attention(uniform(tokens), 0, layers=2, **window("ila1_held")),
        pinned_attention(previous(tokens), 0, layers=2, rows=labels, **window("ila1_given")),
        pinned_attention(uniform(tokens), 1, layers=2, rows=target, **window("tila2_held")),
        kept_share(config.context_length / tokens, target[:, None] & labels[None], 1, layers=2, **window("tla2_held")),
        frozen(classifier_names, **window("cla_held")),
    )


Run = Callable[[dict, Prompt, Intervention | None, ArrayLike], tuple[Array, None]]


def fast_run(slots: int) -> Run:
    """The logits of ``traced`` under interventions on attention, as ``induction_logits`` computes them; no trace.

    Products of weights are folded, and of the second layer only the target's query is computed, at whose row alone an
    intervention acts: a third of the time of the whole network.
    """
    encode = item_label_layout(slots).encode

    def run(
        params: dict, prompt: Prompt, intervention: Intervention | None = None, step: ArrayLike = 0
    ) -> tuple[Array, None]:
        weights, tokens = params["params"], encode(prompt)
        causal = jnp.tril(jnp.ones((tokens.shape[0],) * 2, bool))
        scores = tokens @ (weights["w_q"][0] @ weights["w_k"][0].T) @ tokens.T
        first = jax.nn.softmax(jnp.where(causal, scores, -jnp.inf), axis=-1)[None]
        gathered = intervened(first, "attention", 0, intervention, step)[0] @ tokens  # (T, E)
        last = tokens[-1] + gathered[-1] @ weights["w_v"][0]
        query = last @ weights["w_q"][1] @ weights["w_k"][1].T
        second = jax.nn.softmax(tokens @ query + gathered @ (weights["w_v"][0] @ query))[None, None]
        pattern = intervened(second, "attention", 1, _last_row(intervention), step)[0, 0]
        read = pattern @ tokens + (pattern @ gathered) @ weights["w_v"][0]
        return classifier(weights, last + read @ weights["w_v"][1]), None

    return run


def _last_row(intervention: Intervention | None) -> Intervention | None:
    """What an intervention does to the attention of the last token."""
    if intervention is None:
        return None

    def cut(array: Array) -> Array:
        return array[:, :, -1:]

    return dataclasses.replace(
        intervention,
        replace={name: cut(array) for name, array in intervention.replace.items()},
        mask={name: cut(array) for name, array in intervention.mask.items()},
        share=None if intervention.share is None else cut(intervention.share),
        group=None if intervention.group is None else cut(intervention.group),
        also=tuple(part for part in map(_last_row, intervention.also) if part is not None),
    )
