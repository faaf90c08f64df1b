"""What the study of in-context learning as fine-tuning reads from a language model (Dai et al. 2022)."""

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jax.typing import ArrayLike

from icl_lab.models.language import LanguageModel, block, embedded, of_layer, unembedded
from icl_lab.models.layers import Params
from icl_lab.prompts.tracing import is_traced


@struct.dataclass
class Capture:
    """What a network computed for one token of a prompt. L layers, H heads, T tokens, K channels of a head.

    Attributes:
      logits: (V,) of the token that follows.
      output: (L, E) the attention block's output, after the projection and its bias, before it is added to the
        residual stream (SimAOU).
      scores: (L, H, T) q.k / sqrt(K) to all tokens, later ones too, before softmax (SimAM).
      queries: (L, T, H, K) of all tokens, as they enter the scores, after a rotation (attention to training tokens).
      keys: (L, T, H, K) likewise.
      values: (L, T, H, K) of all tokens.
      residual: (L + 1, E) residual stream: after the embeddings, then after each block.
    """

    logits: Array
    output: Array
    scores: Array
    queries: Array
    keys: Array
    values: Array
    residual: Array


def captured(network: LanguageModel, params: Params, tokens: Array, at: ArrayLike) -> Capture:
    """What the metrics of implicit fine-tuning read at token ``at`` (Dai et al. 2022, section 4, and released code).

    The network is causal: what comes after ``at``, padding or text, changes nothing but its own scores, queries, keys
    and values.

    Args:
      network: the module.
      params: the pytree of ``network.init``.
      tokens: (T,) ids.
      at: index of the token that is read; it may be traced, and is then not checked.

    Raises:
      ValueError: as the module, or for an index outside the prompt.
    """
    network.check(tokens, 1)
    if not is_traced(at) and at not in range(tokens.shape[0]):
        raise ValueError(f"at must be in [0, {tokens.shape[0]}), a token of the prompt, got {at}")
    weights = params["params"]
    stream = [embedded(network, weights, tokens[None])]
    attended = []
    for layer in range(network.layers):
        rows, parts = block(network, of_layer(weights, layer), stream[-1])
        stream.append(rows)
        attended.append(jax.tree.map(lambda leaf: leaf[0], parts))
    residual = jnp.stack([rows[0, at] for rows in stream])
    scores = [jnp.einsum("hk,shk->hs", parts.queries[at], parts.keys) for parts in attended]
    return Capture(
        logits=unembedded(weights, residual[-1]),
        output=jnp.stack([parts.output[at] for parts in attended]),
        scores=jnp.stack(scores) * (network.width // network.heads) ** -0.5,
        queries=jnp.stack([parts.queries for parts in attended]),
        keys=jnp.stack([parts.keys for parts in attended]),
        values=jnp.stack([parts.values for parts in attended]),
        residual=residual,
    )


def local_logits(network: LanguageModel, params: Params, tokens: Array) -> Array:
    """Logits after every block, of which the l-th moves block l alone: layer-causal gradient descent.

    The last norm and the embedding read the residual stream after each block. Each block reads a constant, and the
    read-out is constant too: the gradient of a loss of layer l is zero for every parameter outside block l (Deutch et
    al. 2024, layer-causal GD; their code reads after the whole block, attention and MLP).

    Args:
      network: the module.
      params: the pytree of ``network.init``.
      tokens: (T,) ids.

    Returns:
      (L, T, V); the last are those of the network.

    Raises:
      ValueError: as the module.
    """
    network.check(tokens, 1)
    weights = params["params"]
    frozen = jax.lax.stop_gradient(weights)
    rows, logits = embedded(network, frozen, tokens[None]), []
    for layer in range(network.layers):
        rows, _ = block(network, of_layer(weights, layer), jax.lax.stop_gradient(rows))
        logits.append(unembedded(frozen, rows[0]))
    return jnp.stack(logits)
