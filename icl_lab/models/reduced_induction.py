"""The reduced induction-head model of Reddy 2023: two or three scalars in place of the attention of two layers."""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array
from jax.nn.initializers import constant
from jax.typing import ArrayLike

from icl_lab.models.classifier import classifier, classifier_parameters
from icl_lab.models.inspection import Intervention, Trace, check_intervention, intervened
from icl_lab.prompts.prompt import Prompt


class ReducedInduction(nn.Module):
    """Layer 1 copies into a buffer, layer 2 looks the target up in the buffers, a classifier answers.

    A token is its content c_j, an item or a label, beside a buffer of the same width, empty at first:

        q1_ij = softmax_{j <= i} beta_1 [j = i-1],                                 buf_i = sum_j q1_ij c_j,
        q2_Tj = softmax_{j <= T} (alpha c_T . buf_j + beta_2 [j is a label]),      w = sum_j q2_Tj c_j,

    and ``classifier`` reads (c_T, w). Only the target's row of layer 2 is computed; w overwrites the target's buffer.
    beta_1, alpha, beta_2 and the classifier stand for the network's progress measures ILA1, TILA2, TLA2 and CLA.
    Reddy 2023, equations 4-6, in a reconstruction consistent with what its readers report: a working definition.

    The first token has none before it, and its buffer is its own content. So where the match is the first pair, layer 2
    attends to its item as much as to its label, however large beta_1 and alpha: at B = 1 TILA2 is at most 1 - 1/(2N).

    Attributes:
      labels: L, of the logits.
      hidden: width of the classifier's layers.
      classifier_layers: its hidden layers.
      target_label_attention: beta_2 is a parameter; False leaves it out, at zero (the two-parameter model).
      start: initial value of the scalars.
    """

    labels: int
    hidden: int = 128
    classifier_layers: int = 3
    target_label_attention: bool = True
    start: float = 0.0

    @nn.compact
    def __call__(
        self, tokens: Array, intervention: Intervention | None = None, step: ArrayLike = 0
    ) -> tuple[Array, Trace]:
        """Applies the model to the tokens of one prompt.

        Args:
          tokens: (T, D) of ``content_layout``, the target item last.
          intervention: what to replace on the way, or None.
          step: the training step, which decides whether the intervention acts.

        Returns:
          (L,) logits, and the trace: attention (2, 1, T, T), of layer 2 the last row only; head_output (2, 1, T, 2D);
          residual (3, T, 2D), content and buffer.

        Raises:
          ValueError: for sizes below 1, tokens whose number is not odd, or an intervention that does not fit.
        """
        check_intervention(intervention, 2)
        count, width = tokens.shape
        if count % 2 == 0:
            raise ValueError(f"tokens must be pairs and a target, an odd number, got {count}")
        weights = self._weights(width)
        start = intervened(jnp.concatenate([tokens, jnp.zeros_like(tokens)], 1), "residual", 0, intervention, step)

        first = previous_token_pattern(weights["beta_1"], count)[None]
        first = intervened(first, "attention", 0, intervention, step)
        copied = intervened(_in_buffer(first @ start[:, :width]), "head_output", 0, intervention, step)
        stream = intervened(start + copied[0], "residual", 1, intervention, step)

        scores = weights["alpha"] * stream[:, width:] @ stream[-1, :width] + weights.get("beta_2", 0.0) * _labels(count)
        second = jnp.zeros_like(first).at[0, -1].set(jax.nn.softmax(scores))
        second = intervened(second, "attention", 1, intervention, step)
        found = intervened(_in_buffer(second @ stream[:, :width]), "head_output", 1, intervention, step)
        end = stream.at[-1, width:].set(0.0).at[-1].add(found[0, -1])
        end = intervened(end, "residual", 2, intervention, step)
        trace = Trace(jnp.stack([first, second]), jnp.stack([copied, found]), jnp.stack([start, stream, end]))
        return classifier(weights, end[-1]), trace

    def _weights(self, width: int) -> dict[str, Array]:
        names = ("beta_1", "alpha", "beta_2") if self.target_label_attention else ("beta_1", "alpha")
        weights = {name: self.param(name, constant(self.start), ()) for name in names}
        return weights | classifier_parameters(self, 2 * width, self.hidden, self.classifier_layers, self.labels)


def previous_token_pattern(beta_1: Array, tokens: int) -> Array:
    """(T, T) attention of layer 1: causal, beta_1 the logit of the previous token, zero that of the others."""
    place = jnp.arange(tokens)
    scores = beta_1 * (place[:, None] == place[None] + 1)
    return jax.nn.softmax(jnp.where(place[:, None] >= place[None], scores, -jnp.inf), axis=1)


def reduced_logits(network: ReducedInduction, params: dict, prompts: Prompt) -> Array:
    """``vmap(learner(network, params, content_layout()))``: B prompts -> (B, L), the same to rounding.

    The overlaps c_T . c_j do not depend on the parameters, and c_T . buf_i = sum_j q1_ij c_T . c_j with a pattern q1
    that is the same for all prompts: no buffer is formed.

    Args:
      network: the model.
      params: the pytree of ``network.init``.
      prompts: x (B, N, D), y (B, N, D), x_query (B, D).
    """
    weights = params["params"]
    batch, n, _ = prompts.x.shape
    target = prompts.x_query
    pairs = jnp.stack([jnp.einsum("bnd,bd->bn", contents, target) for contents in (prompts.x, prompts.y)], axis=2)
    overlaps = jnp.concatenate([pairs.reshape(batch, 2 * n), jnp.sum(target**2, axis=1, keepdims=True)], axis=1)
    scores = weights["alpha"] * overlaps @ previous_token_pattern(weights["beta_1"], 2 * n + 1).T
    scores = scores + weights.get("beta_2", 0.0) * _labels(2 * n + 1)[None]
    seen = jax.nn.softmax(scores, axis=1)
    items, labels = jnp.moveaxis(seen[:, :-1].reshape(batch, n, 2), 2, 0)
    read = jnp.einsum("bn,bnd->bd", items, prompts.x) + jnp.einsum("bn,bnd->bd", labels, prompts.y)
    read = read + seen[:, -1:] * target
    return classifier(weights, jnp.concatenate([target, read], axis=1))


def _labels(tokens: int) -> Array:
    """(T,) 1 at labels, 0 at items."""
    return (jnp.arange(tokens) % 2).astype(float)


def _in_buffer(contents: Array) -> Array:
    """(1, T, 2D) what a head adds to the stream: (1, T, D) contents, in the buffer."""
    return jnp.concatenate([jnp.zeros_like(contents), contents], axis=2)
