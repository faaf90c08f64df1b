"""The induction-head network on a whole batch of prompts: the form that training uses."""

import jax
import jax.numpy as jnp
from jax import Array

from icl_lab.models.classifier import classifier
from icl_lab.models.induction import InductionNetwork
from icl_lab.prompts.prompt import Prompt


def induction_logits(network: InductionNetwork, params: dict, prompts: Prompt) -> Array:
    """``vmap(learner(network, params, item_label_layout(network.slots)))``: B prompts -> (B, L), the same to rounding.

    Of the second layer only the last token's query is needed, and there all its products act on one vector a prompt:
    with tokens U, A = W_q1 W_k1^T, first pattern p, u the last token, v = u + (p_T U) W_v1 and q = v W_q2 W_k2^T,
    token j scores u_j.q + sum_i p_ji u_i.(q W_v1^T), and with the second pattern p' the last token becomes
    v + (p' U + (p' p) U W_v1) W_v2. So U A U^T is the only product of all tokens with a matrix.

    Args:
      network: a network of two layers.
      params: the pytree of ``network.init``.
      prompts: x (B, N, D), y (B, N, D), x_query (B, D), offset (B,) or None.

    Raises:
      ValueError: for another number of layers, or fewer slots than tokens.
    """
    if network.layers != 2:
        raise ValueError(f"the form for batches is of two layers, got layers={network.layers}")
    weights = params["params"]
    tokens = _tokens(network.slots, prompts)
    causal = jnp.tril(jnp.ones((tokens.shape[1],) * 2, bool))[None]
    folded = weights["w_q"][0] @ weights["w_k"][0].T
    scores = jnp.einsum("bie,bje->bij", tokens @ folded, tokens)
    first = jax.nn.softmax(jnp.where(causal, scores, -jnp.inf), axis=-1)
    last = tokens[:, -1] + jnp.einsum("bi,bie->be", first[:, -1], tokens) @ weights["w_v"][0]
    query = last @ weights["w_q"][1] @ weights["w_k"][1].T
    directions = jnp.stack([query, query @ weights["w_v"][0].T], axis=1)
    own, gathered = jnp.moveaxis(jnp.einsum("bje,bke->bkj", tokens, directions), 1, 0)
    second = jax.nn.softmax(own + jnp.einsum("bji,bi->bj", first, gathered), axis=-1)
    passed = jnp.einsum("bj,bji->bi", second, first)
    read, copied = jnp.moveaxis(jnp.einsum("bkj,bje->bke", jnp.stack([second, passed], axis=1), tokens), 1, 0)
    return classifier(weights, last + (read + copied @ weights["w_v"][0]) @ weights["w_v"][1])


def _tokens(slots: int, prompts: Prompt) -> Array:
    """(B, T, P + D) tokens of ``item_label_layout``."""
    batch, n, d = prompts.x.shape
    if slots < 2 * n + 1:
        raise ValueError(f"slots must be at least 2N + 1 = {2 * n + 1}, got {slots}")
    content = jnp.stack([prompts.x, prompts.y], axis=2).reshape(batch, 2 * n, d)
    content = jnp.concatenate([content, prompts.x_query[:, None]], axis=1)
    offset = jnp.zeros(batch, jnp.int32) if prompts.offset is None else prompts.offset
    place = offset[:, None] + jnp.arange(2 * n + 1)[None]
    return jnp.concatenate([jax.nn.one_hot(place, slots, dtype=content.dtype), content], axis=2)
