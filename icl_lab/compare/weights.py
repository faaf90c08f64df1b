"""Networks compared by their weights, modulo everything that leaves the learner the same, and averaged as such."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from icl_lab.compare import symmetries
from icl_lab.models import folded_weights

Params = dict[str, Any]

ATTENTION = {"w_q", "w_k", "w_v", "w_p", "w_kq", "w_pv"}
"""The parameters that ``folded_weights`` reads; a network with any other is not its A and B alone."""


def align_weights(
    params_a: Params,
    params_b: Params,
    *,
    layers: int,
    looped: bool,
    input_size: int,
    attention: str = "linear",
    constant_direction: ArrayLike | None = None,
) -> dict[str, Any]:
    """Distance between the weights of two attention stacks on joint tokens, modulo the symmetries of their function.

    *Linear attention.* With G = sum_j e_j e_j^T over the context, a layer moves every token by
    sum_ijk e[i] T[i, j, k, m] G[j, k], where T = sum_h A_h[i, j] B_h[k, m] over the folded weights A = W_q W_k^T and
    B = W_v W_p. G is symmetric, so the layer is S = (T + T with j, k swapped) / 2 on the entries (i, m) that can reach
    the prediction (``symmetries.reachable``). S is blind to scale gauges (A c, B / c), to any invertible mixing of the
    heads, to their order and to their number. Distance 0 means the same learner. One layer: the converse holds too.
    Deeper, generic weights are locally identified by S (N >= 2), but not all are: layers of plain GD commute, so
    exchanging two learning rates leaves the learner alone and not the distance.

    *Softmax attention.* Heads are matched in the best order, as (A_h / sqrt(K), B_h) on the reachable entries. A
    direction c with c . e_j equal for all context tokens at every layer adds two symmetries, A_h + u c^T (a shift of
    all logits of a query) and B_h + c v_h^T with sum_h v_h = 0; both are projected out.

    von Oswald et al. 2022, section 3 (Proposition 1) and A.4, A.9; works inside jit and vmap.

    Args:
      params_a: parameters of the first network, either parametrisation.
      params_b: parameters of the second, to which the distance is relative; its H may differ for linear attention.
      layers: L.
      looped: whether one weight set is applied L times.
      input_size: D; the other E - D channels are outputs.
      attention: ``linear`` or ``softmax``.
      constant_direction: c (E,), softmax attention only.

    Returns:
      ``distance`` (S,): per weight set |S_a - S_b| / |S_b| in the Frobenius norm; for softmax attention the root mean
      square of the relative distances of A and of B. ``canonical_a`` and ``canonical_b``: pairs (A, B), each
      (S, H, E, E), with unreachable entries 0. Linear: one head is scaled so that the first D diagonal entries of A
      have mean 1; several are the singular pairs of T seen as an (ij) x (km) matrix, largest first, the singular value
      shared equally, trace of A not negative. Softmax: A / sqrt(K) and B, a in the head order of b.

    Raises:
      ValueError: for sizes that do not fit, parameters beside those of attention (an MLP, an embedding, a layer norm),
        an unknown attention, a direction with linear attention, or more than 8 softmax heads.
    """
    if attention not in ("linear", "softmax"):
        raise ValueError(f"attention must be 'linear' or 'softmax', got {attention!r}")
    if attention == "linear" and constant_direction is not None:
        raise ValueError("constant_direction is a symmetry of softmax attention only")
    (a_a, b_a), (a_b, b_b) = _folded(params_a), _folded(params_b)
    sets, heads, width, _ = a_b.shape
    if a_a.shape[0] != sets or a_a.shape[-1] != width or sets != (1 if looped else layers):
        raise ValueError(f"weights {a_a.shape} and {a_b.shape} do not fit layers={layers}, looped={looped}")
    rows, columns = symmetries.reachable(layers=layers, looped=looped, input_size=input_size, width=width)
    mask = lambda a, b: (a * rows[:, None, :, None], b * columns[:, None, None, :])  # noqa: E731
    pair_a, pair_b = mask(a_a, b_a), mask(a_b, b_b)
    if attention == "linear":
        distance = jax.lax.map(lambda pairs: symmetries.linear_distance(*pairs), (pair_a, pair_b))
        canonical = jax.vmap(lambda a, b: symmetries.canonical(a, b, input_size))
        return {"distance": distance, "canonical_a": canonical(*pair_a), "canonical_b": canonical(*pair_b)}
    if a_a.shape[1] != heads or heads > 8:
        raise ValueError(f"softmax heads must be equally many and at most 8, got {a_a.shape[1]} and {heads}")
    pair_a = symmetries.logits_and_values(*pair_a, _key_size(params_a), constant_direction)
    pair_b = symmetries.logits_and_values(*pair_b, _key_size(params_b), constant_direction)
    distance, pair_a = jax.vmap(symmetries.match_heads)(pair_a, pair_b)
    return {"distance": distance, "canonical_a": pair_a, "canonical_b": pair_b}


def interpolate(params_a: Params, params_b: Params, *, input_size: int, weight: ArrayLike = 0.5) -> Params:
    """One-head LSA weights between two others, (1 - weight) a + weight b in the common scale gauge.

    With beta the mean of the first D diagonal entries of A: A' = A / beta and B' = B beta for each, then A_I and B_I
    are the averages, written as W_q = A_I, W_k = W_v = I, W_p = B_I. Where training has not yet aligned A, beta is near
    0 and the result is huge, as published (von Oswald et al. 2022, section 3; here for each weight set by itself).

    Args:
      params_a: one-head parameters, either parametrisation.
      params_b: likewise, of the same number of weight sets S and width E.
      input_size: D.
      weight: 0 gives (the function of) a, 1 gives b.

    Returns:
      ``{"params": {"w_q", "w_k", "w_v", "w_p"}}``, each (S, 1, E, E), for ``parametrisation="separate"``, key size E.

    Raises:
      ValueError: for several heads, shapes that differ, parameters beside those of attention, or D outside 1..E.
    """
    pairs = [_folded(params) for params in (params_a, params_b)]
    shape = pairs[0][0].shape
    if shape[1] != 1 or pairs[1][0].shape != shape or not 1 <= input_size <= shape[-1]:
        raise ValueError(f"need one head, equal shapes, 1 <= D <= E; got {[a.shape for a, _ in pairs]}, D={input_size}")
    (a_a, b_a), (a_b, b_b) = (symmetries.unit_scale(a, b, input_size) for a, b in pairs)
    a = (1 - weight) * a_a + weight * a_b
    b = (1 - weight) * b_a + weight * b_b
    identity = jnp.broadcast_to(jnp.eye(shape[-1], dtype=a.dtype), shape)
    return {"params": {"w_q": a, "w_k": identity, "w_v": identity, "w_p": b}}


def _folded(params: Params) -> tuple[Array, Array]:
    """A and B (S, H, E, E) of an attention-only network."""
    if others := sorted(set(params["params"]) - ATTENTION):
        raise ValueError(f"such a normal form is of attention alone; the network also has {', '.join(others)}")
    return folded_weights(params)


def _key_size(params: Params) -> int:
    """K, by which softmax attention scales its logits."""
    weights = params["params"]
    return (weights["w_kq"] if "w_kq" in weights else weights["w_k"]).shape[-1]
