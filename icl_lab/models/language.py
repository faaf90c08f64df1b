"""GPT-2 on token ids: the language model of Dai et al. 2022, with and without momentum."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import struct
from jax import Array
from jax.nn.initializers import Initializer, constant, normal, ones, zeros
from jax.typing import ArrayLike

from icl_lab.attention import momentum_pattern, recent_pattern
from icl_lab.models.gpt import SPREAD
from icl_lab.models.inspection import Intervention, Trace, intervened, keeps_share
from icl_lab.models.transformer import Params, layer_norm, mlp

MIXERS = ("none", "momentum", "recent")


class LanguageModel(nn.Module):
    """GPT-2 with tied embeddings: pre-LayerNorm blocks of causal softmax attention and an MLP, all with biases.

    Blocks e <- e + attention(norm(e)), e <- e + MLP(norm(e)); the MLP is four times as wide, with GELU (tanh); a last
    LayerNorm, and the next token's logits are products with the rows of the embedding (Radford et al. 2019). Options:
    rotary positions (Su et al. 2021), and a fixed mixer of earlier values beside attention (Dai et al. 2022,
    momentum-based attention, and the local mixers that it is judged against). Weights start at N(0, spread^2), those
    that write to the residual stream at N(0, spread^2 / 2L), biases at 0.

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
      rotary: base of rotary positions, 0 for none. Channels i and i + K/2 of a head's queries and keys are turned by
        t rotary^(-2i/K) at token t, so that scores depend on distances alone.
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
    rotary: float = 0.0
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
          residual stream starts behind the embeddings.

        Raises:
          ValueError: for attributes outside their range, tokens that are no ids (T,), more tokens than positions, or an
            intervention that keeps a share of attention where a mixer adds to it.
        """
        self.check(tokens, 1)
        if self.mixer != "none" and keeps_share(intervention):
            raise ValueError(f"a share is of attention whose rows sum to one; mixer={self.mixer!r} adds to them")
        weights, causal = self._weights(), _causal(tokens.shape[0])
        rows = embedded(self, weights, tokens[None])[0]
        attention, head_output, residual = [], [], [intervened(rows, "residual", 0, intervention, step)]
        for layer in range(self.layers):
            own, rows = of_layer(weights, layer), residual[-1]
            read = layer_norm(rows, (own["attention_scale"], own["attention_offset"]))
            q, k, v = (
                (read @ own[f"w_{name}"] + own[f"{name}_bias"][None]).reshape(-1, self.heads, self.width // self.heads)
                for name in "qkv"
            )
            scores = jnp.einsum("thk,shk->hts", self.rotated(q), self.rotated(k)) * q.shape[-1] ** -0.5
            patterns = jax.nn.softmax(jnp.where(causal[None], scores, -jnp.inf), axis=-1)
            patterns = patterns + mixing(self, own, tokens.shape[0])
            patterns = intervened(patterns, "attention", layer, intervention, step)
            projection = own["w_p"].reshape(self.heads, -1, self.width)
            heads = jnp.einsum("hts,shk,hke->hte", patterns, v, projection)
            heads = intervened(heads, "head_output", layer, intervention, step)
            rows = rows + heads.sum(0) + own["p_bias"][None]
            rows = rows + mlp(layer_norm(rows, (own["mlp_scale"], own["mlp_offset"])), own)
            attention.append(patterns)
            head_output.append(heads)
            residual.append(intervened(rows, "residual", layer + 1, intervention, step))
        trace = Trace(jnp.stack(attention), jnp.stack(head_output), jnp.stack(residual))
        return unembedded(weights, residual[-1]), trace

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
        if self.mixer not in MIXERS:
            raise ValueError(f"mixer must be one of {MIXERS}, got {self.mixer!r}")
        if not 0 <= self.eta < 1 or (self.learned_eta and (self.mixer != "momentum" or not self.eta)):
            raise ValueError(
                "eta must be in [0, 1), and to be learned above 0 and of mixer='momentum'; "
                f"got eta={self.eta}, learned_eta={self.learned_eta}, mixer={self.mixer!r}"
            )
        if tokens.ndim != rank or not tokens.shape[-1] or not jnp.issubdtype(tokens.dtype, jnp.integer):
            shape = "(B, T)" if rank == 2 else "(T,)"
            raise ValueError(f"tokens must be integers {shape} with T at least 1, got {tokens.dtype} {tokens.shape}")
        if self.positions and tokens.shape[-1] > self.positions:
            raise ValueError(
                f"a prompt of {tokens.shape[-1]} tokens is {tokens.shape[-1] - self.positions} longer than the context "
                f"of the network, positions={self.positions}"
            )
        if not isinstance(tokens, jax.core.Tracer):
            ids = np.asarray(tokens)
            strange = ids[(ids < 0) | (ids >= self.vocabulary)]
            if strange.size:
                raise ValueError(f"tokens must be in [0, {self.vocabulary}), the vocabulary; got {strange[0]}")


def language_logits(network: LanguageModel, params: Params, tokens: Array, beside: Array | None = None) -> Array:
    """``vmap`` of the network on a batch of prompts, the same to rounding: the form for training and evaluation.

    Faster on a CPU: the tokens of all prompts are the rows of one matrix.

    Args:
      network: the module.
      params: the pytree of ``network.init``.
      tokens: (B, T) ids.
      beside: (L, H, T, T) what is added to the patterns instead of the network's own mixer, None for that: networks
        whose mixers differ are members of one program.

    Returns:
      (B, T, V) logits of the next token.

    Raises:
      ValueError: as the module.
    """
    network.check(tokens, 2)
    weights = params["params"]
    rows = embedded(network, weights, tokens)
    for layer in range(network.layers):
        rows = block(network, of_layer(weights, layer), rows, None if beside is None else beside[layer])[0]
    return unembedded(weights, rows)


@struct.dataclass
class Attended:
    """What an attention block computed for a batch of prompts.

    Attributes:
      queries, keys: (B, T, H, K) as they enter the scores, behind the rotation.
      values: (B, T, H, K) before the output projection.
      output: (B, T, E) what the block adds to the residual stream, its bias included.
    """

    queries: Array
    keys: Array
    values: Array
    output: Array


def block(network: LanguageModel, own: Params, rows: Array, beside: Array | None = None) -> tuple[Array, Attended]:
    """One block on the residual stream (B, T, E) of whole prompts: the stream behind it, and what attention did.

    ``beside`` (H, T, T) is added to the patterns instead of what the network's own mixer adds.
    """
    (b, t, e), h = rows.shape, network.heads
    flat = rows.reshape(b * t, e)
    read = layer_norm(flat, (own["attention_scale"], own["attention_offset"]))
    joint = jnp.concatenate([own["w_q"], own["w_k"], own["w_v"]], axis=1)
    bias = jnp.concatenate([own["q_bias"], own["k_bias"], own["v_bias"]])
    parts = (read @ joint + bias[None]).reshape(b, t, 3, h, e // h)
    q, k, v = network.rotated(parts[:, :, 0]), network.rotated(parts[:, :, 1]), parts[:, :, 2]
    scores = jnp.einsum("bthk,bshk->bhts", q, k) * (e // h) ** -0.5
    pattern = jax.nn.softmax(jnp.where(_causal(t)[None, None], scores, -jnp.inf), axis=-1)
    pattern = pattern + (mixing(network, own, t) if beside is None else beside)[None]
    mixed = jnp.einsum("bhts,bshk->bthk", pattern, v).reshape(b * t, e)
    output = mixed @ own["w_p"] + own["p_bias"][None]
    flat = flat + output
    flat = flat + mlp(layer_norm(flat, (own["mlp_scale"], own["mlp_offset"])), own)
    return flat.reshape(b, t, e), Attended(q, k, v, output.reshape(b, t, e))


def mixing(network: LanguageModel, own: Params, tokens: int) -> Array:
    """What the mixer adds to the pattern of every head of a layer: (H, T, T), or (1, T, T) where it is the same."""
    if network.mixer == "recent":
        return recent_pattern(tokens, network.window)[None]
    if network.mixer == "none":
        return jnp.zeros((1, 1, 1))
    if not network.learned_eta:
        return momentum_pattern(tokens, network.eta, normalised=network.normalised)[None]
    of_head = lambda eta: momentum_pattern(tokens, jax.nn.sigmoid(eta), normalised=network.normalised)  # noqa: E731
    return jax.vmap(of_head)(own["eta"])


def embedded(network: LanguageModel, weights: Params, tokens: Array) -> Array:
    """(B, T) ids -> (B, T, E), the start of the residual stream."""
    rows = weights["embedding"][tokens]
    if network.positions:
        rows = rows + weights["position"][None, : tokens.shape[1]]
    return rows * network.width**0.5 if network.scaled else rows


def unembedded(weights: Params, rows: Array) -> Array:
    """Logits (.., V) of a residual stream (.., E): the last LayerNorm, then the rows of the embedding."""
    flat = layer_norm(rows.reshape(-1, rows.shape[-1]), (weights["norm_scale"], weights["norm_offset"]))
    return (flat @ weights["embedding"].T).reshape(*rows.shape[:-1], -1)


def _causal(t: int) -> Array:
    """(T, T) True where a token may look."""
    return jnp.tril(jnp.ones((t, t), bool))


OUTSIDE = ("embedding", "position", "norm_scale", "norm_offset")
"""Parameters that no block has; the others are stacked over layers."""


def of_layer(weights: Params, layer: int) -> Params:
    """The weights of one block."""
    return {name: stack[layer] for name, stack in weights.items() if name not in OUTSIDE}
