"""The transformer stack of von Oswald et al. 2022, with the attention of Zhang, Frei and Bartlett as options."""

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import Array
from jax.nn.initializers import Initializer, ones, variance_scaling, zeros
from jax.typing import ArrayLike

from icl_lab.models.attention import ATTENTIONS
from icl_lab.models.inspection import Intervention, Trace, check_intervention, intervened, keeps_share
from icl_lab.models.layers import Params, layer_norm, layer_weights, mlp, padded, pattern_of
from icl_lab.prompts.tracing import check_number

NORM = {"scale": ones, "offset": zeros}
PARAMETRISATIONS = {"separate": ("w_q", "w_k", "w_v"), "merged": ("w_kq", "w_pv"), "key_query": ("w_q", "w_k", "w_pv")}
BY_LAYER = ("heads", "key_size", "mlp_width")
"""Sizes that a ``Transformer`` may have by layer."""


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
      heads: H, for all layers or one number a layer (L,).
      key_size: K, key and value size of a head, for all layers or one a layer; None means the token width E.
      attention: a name in ``ATTENTIONS`` (``linear``, ``softmax``), for all layers or one a layer (L,).
      parametrisation: ``separate`` (w_q, w_k, w_v (S, H, E, K), w_p (S, H, K, E)), ``merged`` (w_kq = W_q W_k^T and
        w_pv = W_v W_p, both (S, H, E, E)) or ``key_query`` (w_q, w_k and w_pv); S is the number of weight sets, 1 when
        looped. Where ``heads``, ``key_size`` or ``mlp_width`` are given by layer, layer l has weights of its own
        shapes, (H, E, K) and so on, named ``w_q_<l>``.
      query_as_key: the query token is a key and a value too.
      averaged: sums over tokens are divided by the number of context tokens T - 1, which is N of the prompt at
        hand for joint tokens: at test time its length M. Of a token that sees fewer it is their number.
      causal: tokens are those of ``causal_layout``, N examples and N + 1 queries: example j sees the first j examples,
        query k the first k.
      embedding: width E of the linear embedding of the tokens, 0 for none.
      embedding_mlp: hidden width of the MLP block on embedded tokens, before the first layer; 0 for none.
      mlp_width: hidden width of the MLP of every block, after its attention, or one a layer; 0 for none.
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
    heads: int | tuple[int, ...] = 1
    key_size: int | tuple[int | None, ...] | None = None
    attention: str | tuple[str, ...] = "softmax"
    parametrisation: str = "separate"
    query_as_key: bool = False
    averaged: bool = False
    causal: bool = False
    embedding: int = 0
    embedding_mlp: int = 0
    mlp_width: int | tuple[int, ...] = 0
    layer_norm: bool = False
    token_clip: float = 0.0
    damping: float = 1.0
    updated_channels: int = 0
    init_scale: float = 0.002

    @nn.compact
    def __call__(
        self,
        tokens: Array,
        intervention: Intervention | None = None,
        step: ArrayLike = 0,
        length: Array | None = None,
    ) -> tuple[Array, Trace]:
        """Applies the stack to one prompt.

        Args:
          tokens: (T, E), the query last; (T, any) with an embedding. A query without context sees nothing: attention
            adds 0.
          intervention: what to replace on the way, or None.
          step: the training step, which decides whether the intervention acts.
          length: () how many of the context tokens are seen, of a padded context; None means all.

        Returns:
          (T, E) tokens of the last layer, and the trace, whose residual stream starts after the embedding. Heads that
          a layer does not have, where another one has more, are zeros.

        Raises:
          ValueError: for settings outside their range, tokens that are no prompt, an intervention that does not fit
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
        seen, widest = self.seen(len(tokens), length), max(self.by_layer("heads"))
        attention, head_output, residual = [], [], [intervened(tokens, "residual", 0, intervention, step)]
        for layer, kind in enumerate(kinds):
            weights, tokens = layer_weights(params, 0 if self.looped else layer), residual[-1]
            queries, keys, values, projection = self._project(weights, layer_norm(tokens, norms[layer]))
            maps = [pattern_of(kind, q, k, seen) for q, k in zip(queries, keys)]
            maps = [pattern / self.counts(len(tokens), seen) for pattern in maps] if self.averaged else maps
            patterns = padded(maps, widest)
            patterns = intervened(patterns, "attention", layer, intervention, step)
            heads = padded([pattern @ v @ p for pattern, v, p in zip(patterns, values, projection)], widest)
            heads = intervened(heads, "head_output", layer, intervention, step)
            update = self.damping * heads.sum(0)
            if self.updated_channels:
                update = update.at[:, : -self.updated_channels].set(0)
            tokens = self._clip(tokens + update)
            if self.by_layer("mlp_width")[layer]:
                tokens = self._clip(tokens + mlp(tokens, weights))
            attention.append(patterns)
            head_output.append(heads)
            residual.append(intervened(tokens, "residual", layer + 1, intervention, step))
        trace = Trace(jnp.stack(attention), jnp.stack(head_output), jnp.stack(residual))
        return residual[-1], trace

    def attentions(self) -> tuple[str, ...]:
        """(L,) the attention of every layer; ValueError where there is none."""
        if isinstance(self.layers, bool) or not isinstance(self.layers, int | np.integer) or self.layers < 1:
            raise ValueError(f"layers must be an int of at least 1, got {self.layers!r}")
        return self.by_layer("attention")

    def by_layer(self, name: str) -> tuple:
        """(L,) an attribute that is given for all layers or for each."""
        value = getattr(self, name)
        return value if isinstance(value, tuple) else (value,) * self.layers

    def examples(self, tokens: int) -> int:
        """N, the context tokens among T: they come first, and are the keys; after them come queries."""
        return tokens // 2 if self.causal else tokens - 1

    def seen(self, tokens: int, length: Array | None = None) -> Array | None:
        """(T, N) which keys each token sees, with the query as a key (T, T); None: all see all."""
        if not self.causal and length is None:
            return None
        n = self.examples(tokens)
        rows = jnp.concatenate([jnp.arange(1, n + 1), jnp.arange(tokens - n)]) if self.causal else jnp.full(tokens, n)
        limits = rows if length is None else jnp.minimum(rows, length)
        seen = jnp.arange(n)[None] < limits[:, None]
        if not self.query_as_key:
            return seen
        own = jnp.arange(tokens)[:, None] == jnp.arange(n, tokens)[None] if self.causal else jnp.ones((tokens, 1), bool)
        return jnp.concatenate([seen, own], axis=1)

    def counts(self, tokens: int, seen: Array | None) -> int | Array:
        """What ``averaged`` divides by: the context tokens that are seen, at least 1; (T, 1) where tokens differ."""
        n = self.examples(tokens)
        return max(n, 1) if seen is None else jnp.maximum(seen[:, :n].sum(1, keepdims=True), 1)

    def _embed(self, tokens: Array) -> Array:
        """Tokens after the embedding and its MLP."""
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
        context = tokens if self.query_as_key else tokens[: self.examples(len(tokens))]
        heads = len(weights[PARAMETRISATIONS[self.parametrisation][0]])
        if self.parametrisation == "merged":
            queries, keys = [tokens @ w for w in weights["w_kq"]], [context] * heads
        else:
            queries, keys = ([e @ w for w in weights[name]] for e, name in ((tokens, "w_q"), (context, "w_k")))
        if self.parametrisation == "separate":
            return queries, keys, [context @ w for w in weights["w_v"]], list(weights["w_p"])
        return queries, keys, [context] * heads, list(weights["w_pv"])

    def _clip(self, tokens: Array) -> Array:
        return jnp.clip(tokens, -self.token_clip, self.token_clip) if self.token_clip else tokens

    def _parameters(self, width: int) -> Params:
        """All weights, stacked over the S weight sets, or by layer where layers have shapes of their own."""
        if not self._uneven():
            sets = (1 if self.looped else self.layers,)
            return self._layer_parameters("", sets, width, *(self.by_layer(name)[0] for name in BY_LAYER))
        layers = zip(*(self.by_layer(name) for name in BY_LAYER))
        params = [self._layer_parameters(f"_{layer}", (), width, *sizes) for layer, sizes in enumerate(layers)]
        return {name: value for part in params for name, value in part.items()}

    def _layer_parameters(
        self, suffix: str, sets: tuple[int, ...], e: int, h: int, key_size: int | None, hidden: int
    ) -> Params:
        """Weights (S, H, E, K) ..., or (H, E, K) ... of one layer; ``suffix`` ends their names."""
        k, scale, stacked = key_size or e, self.init_scale / self.layers, tuple(range(len(sets)))
        initialiser = _initialiser(scale, in_axis=-2, batch_axis=(*stacked, len(sets)))
        shapes = dict.fromkeys(("w_q", "w_k", "w_v"), (*sets, h, e, k)) | dict.fromkeys(
            ("w_kq", "w_pv"), (*sets, h, e, e)
        )
        names = PARAMETRISATIONS[self.parametrisation]
        params = {name + suffix: self.param(name + suffix, initialiser, shapes[name]) for name in names}
        if self.parametrisation == "separate":
            into = _initialiser(scale, in_axis=(len(sets), len(sets) + 1), batch_axis=stacked)
            params[f"w_p{suffix}"] = self.param(f"w_p{suffix}", into, (*sets, h, k, e))
        return params | (self._mlp_parameters("mlp", sets, e, hidden, suffix) if hidden else {})

    def _mlp_parameters(self, name: str, sets: tuple[int, ...], width: int, hidden: int, suffix: str = "") -> Params:
        """Weights and biases of an MLP block, stacked over ``sets``."""
        dense = _initialiser(self.init_scale / self.layers, in_axis=-2, batch_axis=tuple(range(len(sets))))
        shapes = {"in": (width, hidden), "out": (hidden, width), "in_bias": (hidden,), "out_bias": (width,)}
        return {
            f"{name}_{part}{suffix}": self.param(
                f"{name}_{part}{suffix}", zeros if part.endswith("bias") else dense, (*sets, *shape)
            )
            for part, shape in shapes.items()
        }

    def _uneven(self) -> bool:
        """Whether sizes are given by layer."""
        return any(isinstance(getattr(self, name), tuple) for name in BY_LAYER)

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuses attributes outside their range, and tokens of this shape that are no prompt."""
        if len(shape) != 2 or shape[0] < 1 or (self.causal and shape[0] % 2 == 0):
            parity = ", an odd number of causal_layout()" if self.causal else ""
            raise ValueError(f"tokens must be (T, E) with T at least 1{parity}, got shape {shape}")
        kinds = self.attentions()
        for name, least in (("heads", 1), ("key_size", 1), ("mlp_width", 0)):
            check_number(name, 1 if getattr(self, name) is None else [size or 0 for size in self.by_layer(name)])
            given = [1 if size is None else size for size in self.by_layer(name)]
            if len(given) != self.layers or min(given) < least:
                many = isinstance(getattr(self, name), tuple)
                allowed = f"{self.layers} numbers (one a layer) of at least {least}" if many else f"at least {least}"
                raise ValueError(f"{name} must be {allowed}, got {getattr(self, name)}")
        if self.looped and self._uneven():
            raise ValueError("a looped stack has one set of weights: heads, key_size and mlp_width are one number each")
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
        for name in ("token_clip", "embedding", "embedding_mlp", "updated_channels"):
            check_number(name, getattr(self, name), at_least=0)
        if self.updated_channels > (width := self.embedding or shape[-1]):
            raise ValueError(f"updated_channels must be at most the width {width}, got {self.updated_channels}")


class LinearSelfAttention(Transformer):
    """The same stack with linear self-attention (LSA): von Oswald et al. 2022, eq. 2."""

    attention: str | tuple[str, ...] = "linear"


def _initialiser(scale: float, in_axis: int | tuple[int, ...], batch_axis: tuple[int, ...]) -> Initializer:
    return variance_scaling(scale, "fan_in", "truncated_normal", in_axis=in_axis, out_axis=-1, batch_axis=batch_axis)
