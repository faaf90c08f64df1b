"""The block of GPT-2, once: in the plain form with its trace, on whole batches, and under weights being fine-tuned."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jax.typing import ArrayLike

from icl_lab.models.inspection import Intervention, Trace, check_intervention, intervened
from icl_lab.models.layers import Params, layer_norm, mlp


@struct.dataclass
class Attended:
    """What an attention block computed for a batch of prompts, of whose T tokens Q are asked.

    Attributes:
      queries, keys: (B, Q, H, K) and (B, T, H, K) as they enter the scores, after the rotation; keys and values of a
        context that was read ``before`` come first.
      values: (B, T, H, K) before the output projection.
      output: (B, Q, E) what the block adds to the residual stream, its bias included.
    """

    queries: Array
    keys: Array
    values: Array
    output: Array


def gpt_block(
    own: Params,
    rows: Array,
    heads: int,
    projections: Sequence[tuple[Array, Array]],
    *,
    rotated: Callable[[Array], Array] = lambda channels: channels,
    beside: Array | None = None,
    before: tuple[Array, Array] | None = None,
    stride: int = 1,
    touched: Callable[[Array, str], Array] | None = None,
) -> tuple[Array, Attended]:
    """One block on the residual stream of whole prompts: e <- e + attention(norm(e)), e <- e + MLP(norm(e)).

    Causal softmax attention and an MLP with GELU, all with biases (Radford et al. 2019). Tokens are rows of one matrix.

    Args:
      own: the weights of this layer, as in ``GPT`` and ``LanguageModel``.
      rows: (B, T, E).
      heads: H.
      projections: (E, n E) weights and (n E,) biases which side by side make queries, keys and values: in one product
        (n = 3), or in several where only some are batched.
      rotated: how queries and keys (B, T, H, K) enter the scores.
      beside: (H, T, T) or (1, T, T), added to the patterns of all prompts.
      before: keys, as they enter the scores, and values (C, H, K) of a context that all prompts stand after; what is
        added ``beside`` is then (H, T, C + T).
      stride: only every ``stride``-th token is asked and kept.
      touched: ``(value, name)`` -> what to put in place of ``attention`` (B, H, Q, T), ``head_output`` (B, H, Q, E).

    Returns:
      (B, Q, E) the stream after the block, and what attention did.
    """
    (b, t, e), flat = rows.shape, rows.reshape(-1, rows.shape[2])
    read = layer_norm(flat, (own["attention_scale"], own["attention_offset"]))
    products = [jnp.split(read @ w + bias[None], w.shape[1] // e, axis=1) for w, bias in projections]
    q, k, v = (part.reshape(b, t, heads, e // heads) for parts in products for part in parts)
    q, k = rotated(q)[:, ::stride], rotated(k)
    if before is not None:
        shared = (jnp.broadcast_to(old[None], (b, *old.shape)) for old in before)
        k, v = (jnp.concatenate(parts, axis=1) for parts in zip(shared, (k, v)))
    scores = jnp.einsum("bthk,bshk->bhts", q, k) * (e // heads) ** -0.5
    causal = jnp.tril(jnp.ones((t, k.shape[1]), bool), k.shape[1] - t)
    pattern = jax.nn.softmax(jnp.where(causal[None, None, ::stride], scores, -jnp.inf), axis=-1)
    pattern = pattern if beside is None else pattern + beside[None]
    pattern = touched(pattern, "attention") if touched else pattern
    mixed = jnp.einsum("bhts,bshk->bthk", pattern, v)
    if touched:
        head_output = jnp.einsum("bthk,hke->bhte", mixed, own["w_p"].reshape(heads, -1, e))
        output = touched(head_output, "head_output").sum(1).reshape(-1, e) + own["p_bias"][None]
    else:
        output = mixed.reshape(-1, e) @ own["w_p"] + own["p_bias"][None]
    flat = rows[:, ::stride].reshape(-1, e) + output
    flat = flat + mlp(layer_norm(flat, (own["mlp_scale"], own["mlp_offset"])), own)
    return flat.reshape(b, -1, e), Attended(q, k, v, output.reshape(b, -1, e))


def traced_blocks(
    blocks: Sequence[Callable], rows: Array, intervention: Intervention | None, step: ArrayLike
) -> tuple[Array, Trace]:
    """The residual stream (T, E) of one prompt after all blocks, each ``gpt_block`` of a layer; and the trace."""
    check_intervention(intervention, len(blocks))
    fields: dict[str, list[Array]] = {"attention": [], "head_output": []}

    def touched(value: Array, name: str) -> Array:
        fields[name].append(intervened(value[0], name, len(fields[name]), intervention, step))
        return fields[name][-1][None]

    residual = [intervened(rows, "residual", 0, intervention, step)]
    for layer, block in enumerate(blocks):
        after, _ = block(residual[-1][None], touched=touched)
        residual.append(intervened(after[0], "residual", layer + 1, intervention, step))
    return residual[-1], Trace(*(jnp.stack(part) for part in (*fields.values(), residual)))
