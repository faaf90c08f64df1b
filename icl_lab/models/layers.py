"""What the layers of a stack are made of: their weights, the pattern of a head, MLP and LayerNorm."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from icl_lab.models.attention import Attention, seen_pattern

Params = dict[str, Any]
LAYER_NORM_EPSILON = 1e-5


def layer_weights(weights: Params, layer: int) -> Params:
    """Weights of one layer by name, from stacks of all weight sets or from ``<name>_<layer>``."""
    of_layer = {name.removesuffix(f"_{layer}"): value for name, value in weights.items() if name.endswith(f"_{layer}")}
    stacked = ("w_", "mlp_")
    return of_layer or {name: stack[layer] for name, stack in weights.items() if name.startswith(stacked)}


def pattern_of(kind: Attention, queries: Array, keys: Array, seen: Array | None) -> Array:
    """(T, N) the pattern of one head; (T, 0) where there is no key."""
    if not len(keys):
        return jnp.zeros((len(queries), 0), queries.dtype)
    return kind.pattern(queries, keys) if seen is None else seen_pattern(kind, queries, keys, seen)


def padded(heads: list[Array], widest: int) -> Array:
    """Arrays of the heads of a layer as one, with zeros for heads that it does not have."""
    return jnp.stack(heads + [jnp.zeros_like(heads[0])] * (widest - len(heads)))


def mlp(tokens: Array, weights: Params, name: str = "mlp") -> Array:
    """What an MLP block adds to tokens (T, E): GELU (tanh) between two affine maps."""
    hidden = jax.nn.gelu(tokens @ weights[f"{name}_in"] + weights[f"{name}_in_bias"][None])
    return hidden @ weights[f"{name}_out"] + weights[f"{name}_out_bias"][None]


def layer_norm(tokens: Array, norm: tuple[Array, Array] | None) -> Array:
    """Tokens (T, E) of mean 0 and variance 1 over their channels, scaled and shifted; as they are for None."""
    if norm is None:
        return tokens
    centred = tokens - tokens.mean(-1, keepdims=True)
    unit = centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + LAYER_NORM_EPSILON)
    return unit * norm[0][None] + norm[1][None]


def folded_weights(params: Params) -> tuple[Array, Array]:
    """The gauge-invariant products of every head: A = W_q W_k^T and B = W_v W_p.

    ``{"params": ...}`` of ``network.init`` in any parametrisation -> A, B, both (S, H, E, E); where layers have other
    numbers of heads, H is the largest, and heads that a layer does not have are zeros. A linear head updates
    tokens by (e A e_ctx^T) e_ctx B (von Oswald et al. 2022, A.4: the maps of Fig. 9).
    """
    weights = params["params"]
    if not {"w_q", "w_kq"} & weights.keys():  # layers of their own shapes; heads of zeros add nothing
        layers = sum(name.removeprefix("w_q_").removeprefix("w_kq_").isdigit() for name in weights)
        products = [folded_weights({"params": layer_weights(weights, layer)}) for layer in range(layers)]
        widest = max(len(a) for a, _ in products)
        a, b = (jnp.stack([padded(list(heads), widest) for heads in part]) for part in zip(*products))
        return a, b
    a = weights["w_kq"] if "w_kq" in weights else weights["w_q"] @ weights["w_k"].swapaxes(-1, -2)
    return a, weights["w_pv"] if "w_pv" in weights else weights["w_v"] @ weights["w_p"]
