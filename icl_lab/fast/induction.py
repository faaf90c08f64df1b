"""The induction-head network on a whole batch of prompts: the form that training uses."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from icl_lab.fast.agreement import check_forms, ours
from icl_lab.models.classifier import classifier
from icl_lab.models.induction import InductionNetwork
from icl_lab.models.inspection import Intervention, check_intervention, intervened
from icl_lab.models.learner import learner
from icl_lab.prompts.layouts import content_layout, item_label_layout
from icl_lab.prompts.prompt import Prompt


def induction_logits(
    network: InductionNetwork,
    params: dict,
    prompts: Prompt,
    intervention: Intervention | None = None,
    step: ArrayLike = 0,
) -> Array:
    """``vmap(learner(network, params, item_label_layout(network.slots)))``: B prompts -> (B, L), the same to rounding.

    Of the second layer only the last token's query is needed, and there all its products act on one vector a prompt:
    with tokens U, A = W_q1 W_k1^T, first pattern p, u the last token, v = u + (p_T U) W_v1 and q = v W_q2 W_k2^T,
    token j scores u_j.q + sum_i p_ji u_i.(q W_v1^T), and with the second pattern p' the last token becomes
    v + (p' U + (p' p) U W_v1) W_v2. So U A U^T is the only product of all tokens with a matrix, and of U only contents
    are multiplied on a CPU: positions pick rows of A. Tokens are data: no gradient flows to them, and gradients are by
    reverse mode only.

    Args:
      network: a network of two layers.
      params: the pytree of ``network.init``.
      prompts: x (B, N, D), y (B, N, D), x_query (B, D), offset (B,) or None.
      intervention: what replaces attention patterns, or keeps their shares, in all prompts alike; None: nothing.
      step: training step, by which an intervention acts or not.

    Raises:
      ValueError: for a network of a class of your own whose plain form disagrees, another number of layers, fewer slots
        than tokens, an intervention that does not fit, or one on anything but attention.
    """
    if network.layers != 2:
        raise ValueError(f"the form for batches is of two layers, got layers={network.layers}")
    check_intervention(intervention, network.layers)
    if intervention is not None and (others := _replaced(intervention) - {"attention"}):
        raise ValueError(f"the form for batches lets an intervention replace attention alone, not {sorted(others)}")

    if not ours(type(network)):
        layout = item_label_layout(network.slots)
        check_forms(
            type(network).__name__, (type(network), repr(network)), network, layout, prompts,
            lambda params, prompt: learner(network, params, layout)(prompt),
            lambda params, prompts: _logits(network, params, prompts, None, 0), 3,
        )  # fmt: skip
    return _logits(network, params, prompts, intervention, step)


def _logits(
    network: InductionNetwork, params: dict, prompts: Prompt, intervention: Intervention | None, step: ArrayLike
) -> Array:
    def clamped(patterns: Array, layer: int) -> Array:
        return jax.vmap(lambda pattern: intervened(pattern[None], "attention", layer, intervention, step)[0])(patterns)

    weights = params["params"]
    content, slot = _contents(network.slots, jax.lax.stop_gradient(prompts))
    tokens = jnp.concatenate([jax.nn.one_hot(slot, network.slots, dtype=content.dtype), content], axis=2)
    causal = jnp.tril(jnp.ones((tokens.shape[1],) * 2, bool))[None]
    folded = weights["w_q"][0] @ weights["w_k"][0].T
    # the gradient of picked rows is a sum in no certain order on a GPU, and not the same bits twice
    rows = _rows(folded, content, slot) if jax.default_backend() == "cpu" else tokens @ folded
    first = jax.nn.softmax(jnp.where(causal, _along(rows, tokens), -jnp.inf), axis=-1)
    if intervention is not None:
        first = clamped(first, 0)
    last = tokens[:, -1] + _read(first[:, -1:], tokens)[:, 0] @ weights["w_v"][0]
    query = last @ weights["w_q"][1] @ weights["w_k"][1].T
    directions = jnp.stack([query, query @ weights["w_v"][0].T], axis=1)
    along = _along(directions, tokens)
    second = jax.nn.softmax(along[:, 0] + jnp.einsum("bji,bi->bj", first, along[:, 1]), axis=-1)
    if intervention is not None:  # it acts row by row, and of the rows the last token's counts
        second = clamped(jnp.broadcast_to(second[:, None], first.shape), 1)[:, -1]
    passed = jnp.einsum("bj,bji->bi", second, first)
    read = _read(jnp.stack([second, passed], axis=1), tokens)
    return classifier(weights, last + (read[:, 0] + read[:, 1] @ weights["w_v"][0]) @ weights["w_v"][1])


def _replaced(intervention: Intervention) -> set[str]:
    """Fields of a trace that it replaces."""
    return set(intervention.replace).union(*map(_replaced, intervention.also))


def _rows(matrix: Array, content: Array, slot: Array) -> Array:
    """U_b A of every prompt: (E, E), and what tokens are made of, (B, T, D) and (B, T) -> (B, T, E)."""
    slots = len(matrix) - content.shape[2]
    # a slot that there is not is a position of zeros, as it is in tokens
    of_position = jnp.asarray(matrix[:slots]).at[slot].get(mode="fill", fill_value=0, wrap_negative_indices=False)
    return (content.reshape(-1, content.shape[2]) @ matrix[slots:]).reshape(of_position.shape) + of_position


@jax.custom_vjp
def _along(directions: Array, tokens: Array) -> Array:
    """(B, K, E), (B, T, E) -> (B, K, T) inner products."""
    return jnp.einsum("bke,bje->bkj", directions, tokens)


@jax.custom_vjp
def _read(weights: Array, tokens: Array) -> Array:
    """(B, K, T), (B, T, E) -> (B, K, E) weighted sums of the tokens."""
    return jnp.einsum("bkj,bje->bke", weights, tokens)


_along.defvjp(lambda x, tokens: (_along(x, tokens), tokens), lambda tokens, slope: (_read(slope, tokens), None))
_read.defvjp(lambda x, tokens: (_read(x, tokens), tokens), lambda tokens, slope: (_along(slope, tokens), None))


def _contents(slots: int, prompts: Prompt) -> tuple[Array, Array]:
    """(B, T, D) contents and (B, T) slots of the tokens of ``item_label_layout``."""
    content = jax.vmap(content_layout().encode)(prompts)
    batch, tokens, _ = content.shape
    if slots < tokens:
        raise ValueError(f"slots must be at least 2N + 1 = {tokens}, got {slots}")
    offset = jnp.zeros(batch, jnp.int32) if prompts.offset is None else prompts.offset
    return content, offset[:, None] + jnp.arange(tokens)[None]
