"""GPT-2 on token ids: the language model of Dai et al. 2022, with and without momentum."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import Array
from jax.nn.initializers import Initializer, constant, normal, ones, zeros
from jax.typing import ArrayLike

from icl_lab.models.attention import momentum_pattern, recent_pattern
from icl_lab.models.gpt import SPREAD
from icl_lab.models.gpt_block import Attended, gpt_block, traced_blocks
from icl_lab.models.inspection import Intervention, Trace, keeps_share
from icl_lab.models.layers import Params, layer_norm
from icl_lab.prompts.tracing import is_traced


class LanguageModel(nn.Module):
    """GPT-2 with tied embeddings: blocks of causal softmax attention and an MLP, all with biases (``gpt_block``).

    The MLP is four times as wide; after a last LayerNorm the next token's logits are products with the rows of the
    embedding (Radford et al. 2019). Options: rotary positions (Su et al. 2021) or sinusoids (Vaswani et al. 2017) in
    place of learned ones, and a fixed mixer of earlier values beside attention (Dai et al. 2022, momentum-based
    attention, and the local mixers that it is judged against). Weights start at N(0, spread^2), those that write to the
    residual stream at N(0, spread^2 / 2L), biases at 0.

    Row-vector convention. Parameters: embedding (V, E), position (P, E); stacked over layers w_q, w_k, w_v, w_p
    (L, E, E), of which head h has the h-th E/H columns (rows of w_p), their biases q_bias .. p_bias (L, E), norms
    attention_ and mlp_scale and _offset (L, E), mlp_in (L, E, 4E) and mlp_out (L, 4E, E) with biases; norm_scale and
    norm_offset (E,); eta (L, H) where it is learned.

    Attributes:
      vocabulary: V, number of tokens.
      layers: L.
      heads: H, a divisor of the width.
      width: E, of the residual stream.
      positions: rows of the table of learned absolute position embeddings, 0 for none. A longer prompt is refused.
      start: row of that table at which a prompt begins.
      rotary: base of rotary positions, 0 for none. Channels i and i + K/2 of a head's queries and keys are turned by
        t rotary^(-2i/K) at token t, so that scores depend on distances alone.
      sinusoidal: base of fixed sinusoids that are added to the embeddings (``sinusoids``), 0 for none; their root mean
        square is 2^-1/2 of that of the embeddings at the start.
      scaled: embeddings (of tokens and positions) start with standard deviation E^-1/2 and are multiplied by E^1/2 on
        the way in; else they start at ``spread``.
      spread: standard deviation of the initial weights.
      mixer: ``none``, ``momentum`` (``momentum_pattern`` is added to every head's attention pattern) or ``recent``
        (``recent_pattern`` is).
      eta: momentum's coefficient in [0, 1).
      learned_eta: one coefficient a head, the sigmoid of the parameter ``eta``, which starts where it gives ``eta``.
      normalised: momentum's weights sum to one.
      window: how many values the recent mixer averages; 1 is a shift by one token.
    """

    vocabulary: int = 50257
    layers: int = 12
    heads: int = 12
    width: int = 768
    positions: int = 1024
    start: int = 0
    rotary: float = 0.0
    sinusoidal: float = 0.0
    scaled: bool = False
    spread: float = SPREAD
    mixer: str = "none"
    eta: float = 0.0
    learned_eta: bool = False
    normalised: bool = False
    window: int = 1

    @nn.compact
    def __call__(
        self, tokens: Array, intervention: Intervention | None = None, step: ArrayLike = 0
    ) -> tuple[Array, Trace]:
        """Applies the network to one prompt.

        Args:
          tokens: (T,) ids.
          intervention: what to replace on the way, or None; of ``head_output`` all tokens of a head.
          step: the training step, which decides whether the intervention acts.

        Returns:
          (T, V) logits of the next token; and the trace (attention (L, H, T, T), the mixer's weights included), whose
          residual stream starts after the embeddings.

        Raises:
          ValueError: for attributes outside their range, tokens that are no ids (T,), more tokens than positions, or an
            intervention that keeps a share of attention where a mixer adds to it.
        """
        self.check(tokens, 1)
        if self.mixer != "none" and keeps_share(intervention):
            raise ValueError(f"a share is of attention whose rows sum to one; mixer={self.mixer!r} adds to them")
        weights = self._weights()
        blocks = [functools.partial(block, self, of_layer(weights, layer)) for layer in range(self.layers)]
        rows, trace = traced_blocks(blocks, embedded(self, weights, tokens[None])[0], intervention, step)
        return unembedded(weights, rows), trace

    def rotated(self, channels: Array) -> Array:
        """Queries or keys (.., T, H, K) of tokens 0 .. T - 1 as they enter the scores."""
        if not self.rotary:
            return channels
        tokens, _, size = channels.shape[-3:]
        angles = np.arange(tokens)[:, None] * self.rotary ** (-np.arange(0, size, 2) / size)[None]  # (T, K / 2)
        shape = (1,) * (channels.ndim - 3) + (tokens, 1, size // 2)
        cosine, sine = (jnp.asarray(part, channels.dtype).reshape(shape) for part in (np.cos(angles), np.sin(angles)))
        first, second = jnp.split(channels, 2, axis=-1)
        return jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)

    def _weights(self) -> Params:
        """All weights; those of the blocks are stacked over layers."""
        n, e, v = self.layers, self.width, self.vocabulary
        dense, writing = normal(self.spread), normal(self.spread / (2 * n) ** 0.5)
        embedding = normal(e**-0.5) if self.scaled else dense
        shapes: dict[str, tuple[Initializer, tuple[int, ...]]] = {
            "embedding": (embedding, (v, e)),
            "norm_scale": (ones, (e,)),
            "norm_offset": (zeros, (e,)),
            "w_p": (writing, (n, e, e)),
            "mlp_in": (dense, (n, e, 4 * e)),
            "mlp_in_bias": (zeros, (n, 4 * e)),
            "mlp_out": (writing, (n, 4 * e, e)),
        }
        shapes |= dict.fromkeys(("w_q", "w_k", "w_v"), (dense, (n, e, e)))
        shapes |= {f"{name}_scale": (ones, (n, e)) for name in ("attention", "mlp")}
        biases = ("q_bias", "k_bias", "v_bias", "p_bias", "mlp_out_bias", "attention_offset", "mlp_offset")
        shapes |= dict.fromkeys(biases, (zeros, (n, e)))
        if self.positions:
            shapes["position"] = (embedding, (self.positions, e))
        if self.learned_eta:
            shapes["eta"] = (constant(np.log(self.eta / (1 - self.eta))), (n, self.heads))
        return {name: self.param(name, start, shape) for name, (start, shape) in shapes.items()}

    def check(self, tokens: Array, rank: int) -> None:
        """Refuses attributes outside their range, and tokens that are no ids of ``rank`` axes or too many."""
        sizes = (self.vocabulary, self.layers, self.heads, self.width, self.window)
        if min(sizes) < 1 or self.width % self.heads or self.positions < 0:
            raise ValueError(
                "vocabulary, layers, heads, width and window must be at least 1, heads must divide width, positions "
                f"must not be negative; got vocabulary={self.vocabulary}, layers={self.layers}, heads={self.heads}, "
                f"width={self.width}, window={self.window}, positions={self.positions}"
            )
        if self.rotary and (self.rotary <= 1 or (self.width // self.heads) % 2):
            raise ValueError(
                "rotary must be 0 or a base above 1, and then the channels of a head even; "
                f"got rotary={self.rotary}, width={self.width}, heads={self.heads}"
            )
        if self.sinusoidal and (self.sinusoidal <= 1 or self.width % 2):
            raise ValueError(
                "sinusoidal must be 0 or a base above 1, and then the width even; "
                f"got sinusoidal={self.sinusoidal}, width={self.width}"
            )
        if self.start and not 0 <= self.start < self.positions:
            raise ValueError(f"start must be a row of the positions={self.positions} or 0, got {self.start}")
        if self.mixer not in MIXERS:
            raise ValueError(f"mixer must be one of {tuple(MIXERS)}, got {self.mixer!r}")
        if not 0 <= self.eta < 1 or (self.learned_eta and (self.mixer != "momentum" or not self.eta)):
            raise ValueError(
                "eta must be in [0, 1), and to be learned above 0 and of mixer='momentum'; "
                f"got eta={self.eta}, learned_eta={self.learned_eta}, mixer={self.mixer!r}"
            )
        if tokens.ndim != rank or not tokens.shape[-1] or not jnp.issubdtype(tokens.dtype, jnp.integer):
            shape = "(B, T)" if rank == 2 else "(T,)"
            raise ValueError(f"tokens must be integers {shape} with T at least 1, got {tokens.dtype} {tokens.shape}")
        if self.positions and tokens.shape[-1] > self.positions - self.start:
            raise ValueError(
                f"a prompt of {tokens.shape[-1]} tokens is {tokens.shape[-1] - self.positions + self.start} longer "
                f"than the context of the network, positions={self.positions} from start={self.start}"
            )
        if not is_traced(tokens):
            ids = np.asarray(tokens)
            strange = ids[(ids < 0) | (ids >= self.vocabulary)]
            if strange.size:
                raise ValueError(f"tokens must be in [0, {self.vocabulary}), the vocabulary; got {strange[0]}")


def language_logits(network: LanguageModel, params: Params, tokens: Array, beside: Array | None = None) -> Array:
    """``vmap`` of the network on a batch of prompts, the same to rounding: the form for training and evaluation.

    Returns:
      (B, T, V) logits of the next token.

    The other arguments and errors are those of ``last_residual``.
    """
    return unembedded(params["params"], last_residual(network, params, tokens, beside))


def last_residual(
    network: LanguageModel, params: Params, tokens: Array, beside: Array | None = None, starts: Array | None = None
) -> Array:
    """The residual stream after the last block, of which ``unembedded`` makes logits: where not all are wanted.

    Faster on a CPU than ``vmap`` of the network: the tokens of all prompts are the rows of one matrix.

    Args:
      network: the module.
      params: the pytree of ``network.init``.
      tokens: (B, T) ids.
      beside: (L, H, T, T) what is added to the patterns instead of the network's own mixer, None for that: networks
        whose mixers differ are members of one program.
      starts: (B,) row of the table of positions at which each prompt begins, None for the network's ``start``.

    Returns:
      (B, T, E).

    Raises:
      ValueError: as the module.
    """
    network.check(tokens, 2)
    weights = params["params"]
    rows = embedded(network, weights, tokens, starts)
    for layer in range(network.layers):
        rows = block(network, of_layer(weights, layer), rows, None if beside is None else beside[layer])[0]
    return rows


def block(
    network: LanguageModel, own: Params, rows: Array, beside: Array | None = None, **options: Any
) -> tuple[Array, Attended]:
    """``gpt_block`` of one layer (B, T, E), with the options of that function and this network's projections.

    ``beside`` (H, T, T) is added to the patterns instead of what the network's own mixer adds.
    """
    if "projections" not in options:
        joint, bias = (jnp.concatenate([own[name.format(part)] for part in "qkv"], -1) for name in ("w_{}", "{}_bias"))
        options["projections"] = [(joint, bias)]
    beside = MIXERS[network.mixer](network, own, rows.shape[1]) if beside is None else beside
    return gpt_block(own, rows, network.heads, **{"rotated": network.rotated, "beside": beside} | options)


def _momentum(network: LanguageModel, weights: Params, tokens: int) -> Array:
    of_head = lambda eta: momentum_pattern(tokens, eta, normalised=network.normalised)  # noqa: E731
    return jax.vmap(of_head)(jax.nn.sigmoid(weights["eta"])) if network.learned_eta else of_head(network.eta)[None]


MIXERS: dict[str, Callable[[LanguageModel, Params, int], Array | None]] = {
    "none": lambda network, weights, tokens: None,
    "momentum": _momentum,
    "recent": lambda network, weights, tokens: recent_pattern(tokens, network.window)[None],
}
"""What a mixer adds to the pattern of every head of a layer: (H, T, T), or (1, T, T) where it is the same."""


def embedded(network: LanguageModel, weights: Params, tokens: Array, starts: Array | None = None) -> Array:
    """(B, T) ids -> (B, T, E), the start of the residual stream.

    ``starts`` (B,) are the rows of the table of positions at which the prompts begin, None for the network's own.
    """
    rows, size = weights["embedding"][tokens], network.width**-0.5 if network.scaled else network.spread
    if network.positions:
        span = slice(network.start, network.start + tokens.shape[1])
        drawn = None if starts is None else starts[:, None] + jnp.arange(tokens.shape[1])[None]
        rows = rows + (weights["position"][None, span] if drawn is None else weights["position"][drawn])
    if network.sinusoidal:
        rows = rows + size * sinusoids(tokens.shape[1], network.width, network.sinusoidal)[None]
    return rows * network.width**0.5 if network.scaled else rows


def sinusoids(tokens: int, width: int, base: float) -> Array:
    """(T, E) sinusoids of token t = 0 .. T - 1: sin(t base^(-2i/E)) for the first E/2 channels i, then the cosines.

    Vaswani et al. 2017, section 3.5, where the base is 10,000. Their mean square is 1/2: embeddings of standard
    deviation 1, as ``scaled`` makes them, are larger by a factor of 2^1/2 and neither drowns the other (fairseq, which
    Dai et al. use, scales embeddings in this way and adds sinusoids as they are).
    """
    angles = np.arange(tokens)[:, None] * base ** (-np.arange(0, width, 2) / width)[None]
    return jnp.asarray(np.concatenate([np.sin(angles), np.cos(angles)], axis=1), jnp.float32)


def unembedded(weights: Params, rows: Array) -> Array:
    """Logits (.., V) of a residual stream (.., E): the last LayerNorm, then the rows of the embedding."""
    flat = layer_norm(rows.reshape(-1, rows.shape[-1]), (weights["norm_scale"], weights["norm_offset"]))
    return (flat @ weights["embedding"].T).reshape(*rows.shape[:-1], -1)


OUTSIDE = ("embedding", "position", "norm_scale", "norm_offset")
"""Parameters that no block has; the others are stacked over layers."""


def of_layer(weights: Params, layer: int) -> Params:
    """The weights of one block."""
    return {name: stack[layer] for name, stack in weights.items() if name not in OUTSIDE}
