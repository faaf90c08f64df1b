"""The nonlinear transformer of Garg et al. 2022 and of Zhang, Frei & Bartlett 2023: GPT-2 on alternating tokens."""

import functools
from typing import Any

import jax
from flax import linen as nn
from jax import Array
from jax.nn.initializers import normal, ones, zeros
from jax.typing import ArrayLike

from icl_lab.models.gpt_block import Attended, gpt_block, traced_blocks
from icl_lab.models.inspection import Intervention, Trace
from icl_lab.models.layers import Params, layer_norm
from icl_lab.prompts.layouts import alternating_layout
from icl_lab.prompts.prompt import Prompt

SPREAD = 0.02
"""Standard deviation of GPT-2's initial weights."""


class GPT(nn.Module):
    """GPT-2 between a linear read-in of the tokens and a linear read-out to one number a token.

    Blocks are ``gpt_block``, the MLP four times as wide; a last LayerNorm before the read-out. Weights start at
    N(0, spread^2), those that write to the residual stream at N(0, spread^2 / 2L), biases at 0 (Garg et al. 2022, A.1).

    Row-vector convention; w_qkv (L, E, 3E) holds W_q, W_k, W_v side by side, head h its h-th E/H columns; w_p (L, E, E)
    head h its h-th E/H rows.

    Attributes:
      layers: L.
      heads: H, a divisor of the width.
      width: E, of the residual stream.
      positions: rows of the table of learned absolute position embeddings, 0 for none. A longer prompt is refused; a
        table longer than the prompts of training has rows that never get a gradient, as in the authors' test beyond
        their training length.
      spread: standard deviation of the initial weights, .02 in GPT-2. That keeps the size of activations at a width
        of 2500; in a narrow network products start near 0 and grow slowly, and 1 / sqrt(width) learns sooner.
    """

    layers: int = 12
    heads: int = 8
    width: int = 256
    positions: int = 0
    spread: float = SPREAD

    @nn.compact
    def __call__(
        self, tokens: Array, intervention: Intervention | None = None, step: ArrayLike = 0
    ) -> tuple[Array, Trace]:
        """Applies the network to the tokens of one prompt.

        Args:
          tokens: (T, any).
          intervention: what to replace on the way, or None; of ``head_output`` all tokens of a head.
          step: the training step, which decides whether the intervention acts.

        Returns:
          (T, 1) read-outs, each of the tokens up to its own; and the trace (attention (L, H, T, T)), whose residual
          stream starts after read-in and positions.

        Raises:
          ValueError: for sizes below 1, heads that do not divide the width, a negative spread, or more tokens than
            positions.
        """
        self._check(tokens)
        weights = self._weights(tokens.shape[-1])
        tokens = tokens @ weights["read_in"] + weights["read_in_bias"][None]
        if self.positions:
            tokens = tokens + weights["position"][: tokens.shape[0]]
        blocks = [functools.partial(_block, self, weights, layer) for layer in range(self.layers)]
        rows, trace = traced_blocks(blocks, tokens, intervention, step)
        return _read_out(weights, rows), trace

    def _weights(self, inputs: int) -> Params:
        """All weights; those of the blocks are stacked over layers."""
        n, e = self.layers, self.width
        dense, writing = normal(self.spread), normal(self.spread / (2 * n) ** 0.5)
        shapes = {
            "read_in": (dense, (inputs, e)),
            "read_in_bias": (zeros, (e,)),
            "attention_scale": (ones, (n, e)),
            "attention_offset": (zeros, (n, e)),
            "w_qkv": (dense, (n, e, 3 * e)),
            "qkv_bias": (zeros, (n, 3 * e)),
            "w_p": (writing, (n, e, e)),
            "p_bias": (zeros, (n, e)),
            "mlp_scale": (ones, (n, e)),
            "mlp_offset": (zeros, (n, e)),
            "mlp_in": (dense, (n, e, 4 * e)),
            "mlp_in_bias": (zeros, (n, 4 * e)),
            "mlp_out": (writing, (n, 4 * e, e)),
            "mlp_out_bias": (zeros, (n, e)),
            "norm_scale": (ones, (e,)),
            "norm_offset": (zeros, (e,)),
            "read_out": (dense, (e, 1)),
            "read_out_bias": (zeros, (1,)),
        }
        if self.positions:
            shapes["position"] = (dense, (self.positions, e))
        return {name: self.param(name, start, shape) for name, (start, shape) in shapes.items()}

    def _check(self, tokens: Array) -> None:
        if min(self.layers, self.heads, self.width) < 1 or self.width % self.heads or self.positions < 0:
            raise ValueError(
                "layers, heads and width must be at least 1, heads must divide width, positions must not be negative; "
                f"got layers={self.layers}, heads={self.heads}, width={self.width}, positions={self.positions}"
            )
        if not 0 <= self.spread < float("inf"):
            raise ValueError(f"spread must be a finite number, at least 0, got {self.spread}")
        if self.positions and tokens.shape[-2] > self.positions:
            raise ValueError(
                f"positions must be at least the {tokens.shape[-2]} tokens of a prompt, got {self.positions}"
            )


def prefix_predictions(network: GPT, params: Params, prompts: Prompt) -> Array:
    """What the network predicts at x_{k+1} from the first k examples, k = 0 .. N, of a whole batch of prompts.

    The network is causal: one pass over x_1, y_1, .., x_N, y_N, x_q answers every prefix. The same numbers to rounding
    as ``vmap`` of the network on ``alternating_layout``, read at every other token, but faster on a CPU:
    tokens of all prompts are the rows of one matrix, and in the last layer only the inputs' tokens are queries and pass
    the MLP.

    Args:
      network: the module.
      params: the pytree of ``network.init``.
      prompts: x (B, N, D), y (B, N, 1), x_query (B, D).

    Returns:
      (B, N + 1, 1); the last is the prediction for the query.

    Raises:
      ValueError: for more tokens than positions, or more than one output.
    """
    tokens = jax.vmap(alternating_layout().encode)(prompts)
    network._check(tokens)
    (b, t, d), weights = tokens.shape, params["params"]
    rows = (tokens.reshape(b * t, d) @ weights["read_in"] + weights["read_in_bias"][None]).reshape(b, t, -1)
    if network.positions:
        rows = rows + weights["position"][None, :t]
    for layer in range(network.layers):
        rows, _ = _block(network, weights, layer, rows, stride=2 if layer == network.layers - 1 else 1)
    return _read_out(weights, rows.reshape(-1, network.width)).reshape(b, -1, 1)


def _block(network: GPT, weights: Params, layer: int, rows: Array, **options: Any) -> tuple[Array, Attended]:
    """``gpt_block`` of one layer."""
    names = ("w_", "qkv_", "p_", "attention_", "mlp_")
    params = {name: stack[layer] for name, stack in weights.items() if name.startswith(names)}
    return gpt_block(params, rows, network.heads, [(params["w_qkv"], params["qkv_bias"])], **options)


def _read_out(weights: Params, rows: Array) -> Array:
    rows = layer_norm(rows, (weights["norm_scale"], weights["norm_offset"]))
    return rows @ weights["read_out"] + weights["read_out_bias"][None]
