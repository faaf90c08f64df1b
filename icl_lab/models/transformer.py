"""The transformer stack of von Oswald et al. 2022: attention over context tokens only, residual, optional MLP."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array
from jax.nn.initializers import Initializer, variance_scaling, zeros
from jax.typing import ArrayLike

from icl_lab.attention import PATTERNS
from icl_lab.models.inspection import Intervention, Trace, intervened

Params = dict[str, Any]


class Transformer(nn.Module):
    """Stack of attention blocks e <- e + damping * sum_h pattern_h(e) (e_ctx W_v W_p), then an optional MLP block.

    Row-vector convention: q = e W_q, k = e W_k, v = e W_v, update = (pattern v) W_p. Keys and values come from the N
    context tokens only, queries from all N + 1 tokens (the last token is the query). No biases in the attention.
    von Oswald et al. 2022, section 2 and appendix A.12; initialisation as in the released code: truncated normal with
    variance init_scale / layers / fan_in.

    Attributes:
      layers: L, number of blocks applied.
      looped: one set of weights applied L times (the paper's "recurrent"), or one set for each layer.
      heads: H.
      key_size: K, key and value size of a head; None means the token width E.
      attention: ``linear`` or ``softmax``.
      parametrisation: ``separate`` (w_q, w_k, w_v (S, H, E, K), w_p (S, H, K, E)) or ``merged`` (w_kq = W_q W_k^T and
        w_pv = W_v W_p, both (S, H, E, E)); S is the number of weight sets, 1 when looped.
      mlp_width: hidden width of the MLP, 0 for none.
      token_clip: tokens are clipped to [-token_clip, token_clip] after every residual add; 0 means off.
      damping: factor on the attention update (lambda of appendix A.6).
      updated_channels: only this many last channels receive the attention update; 0 means all.
      init_scale: scale of the initialisation.
    """

    layers: int = 1
    looped: bool = False
    heads: int = 1
    key_size: int | None = None
    attention: str = "softmax"
    parametrisation: str = "separate"
    mlp_width: int = 0
    token_clip: float = 0.0
    damping: float = 1.0
    updated_channels: int = 0
    init_scale: float = 0.002

    @nn.compact
    def __call__(
        self, tokens: Array, intervention: Intervention | None = None, step: ArrayLike = 0
    ) -> tuple[Array, Trace]:
        """Applies the stack to one prompt.

        Args:
          tokens: (N + 1, E), the query last.
          intervention: what to replace on the way, or None.
          step: the training step, which decides whether the intervention acts.

        Returns:
          (N + 1, E) tokens of the last layer, and the trace.

        Raises:
          ValueError: for settings outside their range, or fewer than two tokens.
        """
        self._check(tokens)
        params = self._parameters(tokens.shape[-1])
        attention, head_output, residual = [], [], [intervened(tokens, "residual", 0, intervention, step)]
        for layer in range(self.layers):
            weights = {name: stack[0 if self.looped else layer] for name, stack in params.items()}
            tokens = residual[-1]
            context = tokens[:-1]
            queries, keys, values, projection = self._project(weights, tokens, context)
            patterns = jnp.stack([PATTERNS[self.attention](q, k) for q, k in zip(queries, keys)])
            patterns = intervened(patterns, "attention", layer, intervention, step)
            heads = jnp.stack([pattern @ v @ p for pattern, v, p in zip(patterns, values, projection)])
            heads = intervened(heads, "head_output", layer, intervention, step)
            update = self.damping * heads.sum(0)
            if self.updated_channels:
                update = update.at[:, : -self.updated_channels].set(0)
            tokens = self._clip(tokens + update)
            if self.mlp_width:
                hidden = jax.nn.gelu(tokens @ weights["mlp_in"] + weights["mlp_in_bias"][None])
                tokens = self._clip(tokens + hidden @ weights["mlp_out"] + weights["mlp_out_bias"][None])
            attention.append(patterns)
            head_output.append(heads)
            residual.append(intervened(tokens, "residual", layer + 1, intervention, step))
        trace = Trace(jnp.stack(attention), jnp.stack(head_output), jnp.stack(residual))
        return residual[-1], trace

    def _project(self, weights: Params, tokens: Array, context: Array) -> tuple[list[Array], ...]:
        """Queries, keys, values and output projection of every head of one layer."""
        if self.parametrisation == "merged":
            queries = [tokens @ w for w in weights["w_kq"]]
            return queries, [context] * self.heads, [context] * self.heads, list(weights["w_pv"])
        q, k, v = ([e @ w for w in weights[name]] for e, name in ((tokens, "w_q"), (context, "w_k"), (context, "w_v")))
        return q, k, v, list(weights["w_p"])

    def _clip(self, tokens: Array) -> Array:
        return jnp.clip(tokens, -self.token_clip, self.token_clip) if self.token_clip else tokens

    def _parameters(self, width: int) -> Params:
        """All weights, stacked over the S weight sets."""
        sets, h, e, k = 1 if self.looped else self.layers, self.heads, width, self.key_size or width
        scale = self.init_scale / self.layers
        if self.parametrisation == "separate":
            projection = _initialiser(scale, in_axis=-2, batch_axis=(0, 1))
            params = {name: self.param(name, projection, (sets, h, e, k)) for name in ("w_q", "w_k", "w_v")}
            params["w_p"] = self.param("w_p", _initialiser(scale, in_axis=(1, 2), batch_axis=(0,)), (sets, h, k, e))
        else:
            merged = _initialiser(scale, in_axis=-2, batch_axis=(0, 1))
            params = {name: self.param(name, merged, (sets, h, e, e)) for name in ("w_kq", "w_pv")}
        if self.mlp_width:
            dense = _initialiser(scale, in_axis=-2, batch_axis=(0,))
            params["mlp_in"] = self.param("mlp_in", dense, (sets, e, self.mlp_width))
            params["mlp_out"] = self.param("mlp_out", dense, (sets, self.mlp_width, e))
            params["mlp_in_bias"] = self.param("mlp_in_bias", zeros, (sets, self.mlp_width))
            params["mlp_out_bias"] = self.param("mlp_out_bias", zeros, (sets, e))
        return params

    def _check(self, tokens: Array) -> None:
        if tokens.ndim != 2 or tokens.shape[0] < 2:
            raise ValueError(f"tokens must be (N + 1, E) with at least one context token, got shape {tokens.shape}")
        for name in ("layers", "heads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.attention not in PATTERNS:
            raise ValueError(f"attention must be one of {sorted(PATTERNS)}, got {self.attention!r}")
        if self.parametrisation not in ("separate", "merged"):
            raise ValueError(f"parametrisation must be 'separate' or 'merged', got {self.parametrisation!r}")
        if self.token_clip < 0 or self.mlp_width < 0 or not 0 <= self.updated_channels <= tokens.shape[-1]:
            raise ValueError("token_clip, mlp_width and updated_channels must not be negative (nor exceed the width)")


class LinearSelfAttention(Transformer):
    """The same stack with linear self-attention (LSA): von Oswald et al. 2022, eq. 2."""

    attention: str = "linear"


def _initialiser(scale: float, in_axis: int | tuple[int, ...], batch_axis: tuple[int, ...]) -> Initializer:
    return variance_scaling(scale, "fan_in", "truncated_normal", in_axis=in_axis, out_axis=-1, batch_axis=batch_axis)


def folded_weights(params: Params) -> tuple[Array, Array]:
    """The gauge-invariant products of every head: A = W_q W_k^T and B = W_v W_p.

    ``{"params": ...}`` of ``network.init`` in either parametrisation -> A, B, both (S, H, E, E). A linear head updates
    tokens by (e A e_ctx^T) e_ctx B (von Oswald et al. 2022, A.4: the maps of Fig. 9).
    """
    weights = params["params"]
    if "w_kq" in weights:
        return weights["w_kq"], weights["w_pv"]
    return weights["w_q"] @ weights["w_k"].swapaxes(-1, -2), weights["w_v"] @ weights["w_p"]
