"""The transformer stack of von Oswald et al. 2022, with the attention of Zhang, Frei and Bartlett as options."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array
from jax.nn.initializers import Initializer, ones, variance_scaling, zeros
from jax.typing import ArrayLike

from icl_lab.models.attention import ATTENTIONS
from icl_lab.models.inspection import Intervention, Trace, check_intervention, intervened, keeps_share

Params = dict[str, Any]
NORM = {"scale": ones, "offset": zeros}
LAYER_NORM_EPSILON = 1e-5
PARAMETRISATIONS = {"separate": ("w_q", "w_k", "w_v"), "merged": ("w_kq", "w_pv"), "key_query": ("w_q", "w_k", "w_pv")}


class Transformer(nn.Module):
    """Stack of attention blocks e <- e + damping * sum_h pattern_h(e) (e_ctx W_v W_p), then an optional MLP block.

    Row-vector convention: q = e W_q, k = e W_k, v = e W_v, update = (pattern v) W_p. The last token is the query: keys
    and values come from the other (context) tokens, queries from all. No biases in the attention. Before the stack
    tokens may be embedded, e <- e W, and pass an MLP block of their own (section 4.1). von Oswald et al. 2022,
    section 2 and appendix A.12; initialisation as in the released code: truncated normal with variance
    init_scale / layers / fan_in.

    The linear layer of other papers is this one with options, on joint tokens:

    =============================  =================  =============  ============  ===================
    paper                          parametrisation    query_as_key   averaged      layout
    =============================  =================  =============  ============  ===================
    von Oswald et al. 2022         separate           no             no            ``joint_layout()``
    Ahn et al. 2023                merged             no             yes           ``joint_layout()``
    Zhang, Frei & Bartlett 2023    merged             yes            yes           ``joint_layout(sign=1)``
    Zhang et al. 2025, merged      merged             no             yes           ``joint_layout(sign=1)``
    Zhang et al. 2025, separate    key_query          no             yes           ``joint_layout(sign=1)``
    =============================  =================  =============  ============  ===================

    The last four write tokens as columns: w_kq = W_KQ^T (Q^T of Ahn et al.) and w_pv = W_PV^T (P^T).

    Attributes:
      layers: L, number of blocks applied.
      looped: one set of weights applied L times (the paper's "recurrent"), or one set for each layer.
      heads: H.
      key_size: K, key and value size of a head; None means the token width E.
      attention: a name in ``ATTENTIONS`` (``linear``, ``softmax``), for all layers or one a layer (L,).
      parametrisation: ``separate`` (w_q, w_k, w_v (S, H, E, K), w_p (S, H, K, E)), ``merged`` (w_kq = W_q W_k^T and
        w_pv = W_v W_p, both (S, H, E, E)) or ``key_query`` (w_q, w_k and w_pv); S is the number of weight sets, 1 when
        looped.
      query_as_key: the query token is a key and a value too.
      averaged: sums over tokens are divided by the number of context tokens T - 1, which is N of the prompt at
        hand for joint tokens: at test time its length M.
      embedding: width E of the linear embedding of the tokens, 0 for none.
      embedding_mlp: hidden width of the MLP block on embedded tokens, before the first layer; 0 for none.
      mlp_width: hidden width of the MLP of every block, after its attention; 0 for none.
      layer_norm: LayerNorm (scale, offset, eps 1e-5) of what attention reads, queries, keys and values; the residual
        stream is not normalised. A looped stack has one, applied at every pass; a stack with own weights has one before
        every layer but the first (the released code; Fig. 14).
      token_clip: tokens are clipped to [-token_clip, token_clip] after every residual add; 0 means off.
      damping: factor on the attention update (lambda of appendix A.6).
      updated_channels: only this many last channels receive the attention update; 0 means all.
      init_scale: scale of the initialisation.
    """

    layers: int = 1
    looped: bool = False
    heads: int = 1
    key_size: int | None = None
    attention: str | tuple[str, ...] = "softmax"
    parametrisation: str = "separate"
    query_as_key: bool = False
    averaged: bool = False
    embedding: int = 0
    embedding_mlp: int = 0
    mlp_width: int = 0
    layer_norm: bool = False
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
          tokens: (T, E), the query last; (T, any) with an embedding.
          intervention: what to replace on the way, or None.
          step: the training step, which decides whether the intervention acts.

        Returns:
          (T, E) tokens of the last layer, and the trace, whose residual stream starts behind the embedding.

        Raises:
          ValueError: for settings outside their range, fewer than two tokens, an intervention that does not fit
            (``check_intervention``), or one that keeps a share of attention where the rows of a layer's pattern do not
            sum to one.
        """
        self.check(tokens.shape)
        check_intervention(intervention, self.layers)
        kinds = [ATTENTIONS[name] for name in self.attentions()]
        if keeps_share(intervention) and not all(kind.normalised for kind in kinds):
            raise ValueError(f"a share is of attention whose rows sum to one, which is not so of {self.attention!r}")
        tokens = self._embed(tokens)
        params, norms = self._parameters(tokens.shape[-1]), self._norms(tokens.shape[-1])
        attention, head_output, residual = [], [], [intervened(tokens, "residual", 0, intervention, step)]
        for layer, kind in enumerate(kinds):
            weights = {name: stack[0 if self.looped else layer] for name, stack in params.items()}
            tokens = residual[-1]
            queries, keys, values, projection = self._project(weights, layer_norm(tokens, norms[layer]))
            patterns = jnp.stack([kind.pattern(q, k) for q, k in zip(queries, keys)])
            patterns = patterns / (tokens.shape[0] - 1) if self.averaged else patterns
            patterns = intervened(patterns, "attention", layer, intervention, step)
            heads = jnp.stack([pattern @ v @ p for pattern, v, p in zip(patterns, values, projection)])
            heads = intervened(heads, "head_output", layer, intervention, step)
            update = self.damping * heads.sum(0)
            if self.updated_channels:
                update = update.at[:, : -self.updated_channels].set(0)
            tokens = self._clip(tokens + update)
            if self.mlp_width:
                tokens = self._clip(tokens + mlp(tokens, weights))
            attention.append(patterns)
            head_output.append(heads)
            residual.append(intervened(tokens, "residual", layer + 1, intervention, step))
        trace = Trace(jnp.stack(attention), jnp.stack(head_output), jnp.stack(residual))
        return residual[-1], trace

    def attentions(self) -> tuple[str, ...]:
        """(L,) the attention of every layer."""
        return (self.attention,) * self.layers if isinstance(self.attention, str) else tuple(self.attention)

    def _embed(self, tokens: Array) -> Array:
        """Tokens behind the embedding and its MLP."""
        if self.embedding:
            dense = _initialiser(self.init_scale / self.layers, in_axis=-2, batch_axis=())
            tokens = tokens @ self.param("embedding", dense, (tokens.shape[-1], self.embedding))
        if self.embedding_mlp:
            weights = self._mlp_parameters("embedding_mlp", (), tokens.shape[-1], self.embedding_mlp)
            tokens = self._clip(tokens + mlp(tokens, weights, "embedding_mlp"))
        return tokens

    def _norms(self, width: int) -> list[tuple[Array, Array] | None]:
        """Scale and offset of the LayerNorm before each layer, None where there is none."""
        if not self.layer_norm:
            return [None] * self.layers
        sets = 1 if self.looped else self.layers - 1
        scale, offset = (self.param(f"norm_{name}", start, (sets, width)) for name, start in NORM.items())
        norms: list[tuple[Array, Array] | None] = [(scale[i], offset[i]) for i in range(sets)]
        return norms * self.layers if self.looped else [None, *norms]

    def _project(self, weights: Params, tokens: Array) -> tuple[list[Array], ...]:
        """Queries, keys, values and output projection of every head of one layer."""
        context = tokens if self.query_as_key else tokens[:-1]
        if self.parametrisation == "merged":
            queries, keys = [tokens @ w for w in weights["w_kq"]], [context] * self.heads
        else:
            queries, keys = ([e @ w for w in weights[name]] for e, name in ((tokens, "w_q"), (context, "w_k")))
        if self.parametrisation == "separate":
            return queries, keys, [context @ w for w in weights["w_v"]], list(weights["w_p"])
        return queries, keys, [context] * self.heads, list(weights["w_pv"])

    def _clip(self, tokens: Array) -> Array:
        return jnp.clip(tokens, -self.token_clip, self.token_clip) if self.token_clip else tokens

    def _parameters(self, width: int) -> Params:
        """All weights, stacked over the S weight sets."""
        sets, h, e, k = 1 if self.looped else self.layers, self.heads, width, self.key_size or width
        scale = self.init_scale / self.layers
        each = _initialiser(scale, in_axis=-2, batch_axis=(0, 1))
        shapes = {"w_q": (sets, h, e, k), "w_k": (sets, h, e, k), "w_v": (sets, h, e, k)}
        shapes |= {"w_kq": (sets, h, e, e), "w_pv": (sets, h, e, e)}
        params = {name: self.param(name, each, shapes[name]) for name in PARAMETRISATIONS[self.parametrisation]}
        if self.parametrisation == "separate":
            params["w_p"] = self.param("w_p", _initialiser(scale, in_axis=(1, 2), batch_axis=(0,)), (sets, h, k, e))
        return params | (self._mlp_parameters("mlp", (sets,), e, self.mlp_width) if self.mlp_width else {})

    def _mlp_parameters(self, name: str, sets: tuple[int, ...], width: int, hidden: int) -> Params:
        """Weights and biases of an MLP block, stacked over ``sets``."""
        dense = _initialiser(self.init_scale / self.layers, in_axis=-2, batch_axis=tuple(range(len(sets))))
        return {
            f"{name}_in": self.param(f"{name}_in", dense, (*sets, width, hidden)),
            f"{name}_out": self.param(f"{name}_out", dense, (*sets, hidden, width)),
            f"{name}_in_bias": self.param(f"{name}_in_bias", zeros, (*sets, hidden)),
            f"{name}_out_bias": self.param(f"{name}_out_bias", zeros, (*sets, width)),
        }

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuses attributes outside their range, and tokens of this shape that are no prompt."""
        if len(shape) != 2 or shape[0] < 2:
            raise ValueError(f"tokens must be (T, E) with at least one context token, got shape {shape}")
        for name in ("layers", "heads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        kinds = self.attentions()
        if not set(kinds) <= set(ATTENTIONS) or len(kinds) != self.layers:
            raise ValueError(
                f"attention must be one of {sorted(ATTENTIONS)}, or one for each of {self.layers} layers, "
                f"got {self.attention!r}"
            )
        if self.looped and len(set(kinds)) > 1:
            raise ValueError(f"a looped stack has one attention, got {self.attention!r}")
        if self.layer_norm and self.layers == 1 and not self.looped:
            raise ValueError("layer_norm acts before every layer but the first: one layer must be looped to have one")
        if self.averaged and (means := [name for name in kinds if ATTENTIONS[name].normalised]):
            raise ValueError(f"averaged divides sums over tokens; {means[0]} attention averages already")
        if self.parametrisation not in PARAMETRISATIONS:
            raise ValueError(f"parametrisation must be one of {sorted(PARAMETRISATIONS)}, got {self.parametrisation!r}")
        sizes = (self.token_clip, self.mlp_width, self.embedding, self.embedding_mlp, self.updated_channels)
        if min(sizes) < 0 or self.updated_channels > (self.embedding or shape[-1]):
            raise ValueError(
                "token_clip, mlp_width, embedding, embedding_mlp and updated_channels must not be negative, "
                "nor updated_channels exceed the width"
            )


class LinearSelfAttention(Transformer):
    """The same stack with linear self-attention (LSA): von Oswald et al. 2022, eq. 2."""

    attention: str | tuple[str, ...] = "linear"


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


def _initialiser(scale: float, in_axis: int | tuple[int, ...], batch_axis: tuple[int, ...]) -> Initializer:
    return variance_scaling(scale, "fan_in", "truncated_normal", in_axis=in_axis, out_axis=-1, batch_axis=batch_axis)


def folded_weights(params: Params) -> tuple[Array, Array]:
    """The gauge-invariant products of every head: A = W_q W_k^T and B = W_v W_p.

    ``{"params": ...}`` of ``network.init`` in any parametrisation -> A, B, both (S, H, E, E). A linear head updates
    tokens by (e A e_ctx^T) e_ctx B (von Oswald et al. 2022, A.4: the maps of Fig. 9).
    """
    weights = params["params"]
    a = weights["w_kq"] if "w_kq" in weights else weights["w_q"] @ weights["w_k"].swapaxes(-1, -2)
    return a, weights["w_pv"] if "w_pv" in weights else weights["w_v"] @ weights["w_p"]
