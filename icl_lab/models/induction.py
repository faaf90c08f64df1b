"""The induction-head network of Reddy 2023: two layers of attention alone, then a deep classifier on the last token."""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array
from jax.nn.initializers import normal
from jax.typing import ArrayLike

from icl_lab.models.classifier import classifier, classifier_parameters
from icl_lab.models.inspection import Intervention, Trace, check_intervention, intervened


class InductionNetwork(nn.Module):
    """Causal softmax attention z <- z + pattern(z W_q, z W_k) z W_v, layer by layer, then ``classifier`` (last token).

    One head, a token sees itself and those before it; no 1/sqrt(E), no LayerNorm, no output projection, no bias in the
    attention. Row-vector convention: the paper's Q, K, V are W_q^T, W_k^T, W_v^T. Reddy 2023, section 2 and eqs. 2, 3;
    initialisation as in the released code: attention N(0, 1/D) with D = E - P the content's width, not the token's.

    Attributes:
      labels: L, of the logits.
      slots: P, channels of the one-hot position, the first ones of a token.
      hidden: width of the classifier's layers.
      layers: attention layers.
      classifier_layers: its hidden layers.
    """

    labels: int
    slots: int
    hidden: int = 128
    layers: int = 2
    classifier_layers: int = 3

    @nn.compact
    def __call__(
        self, tokens: Array, intervention: Intervention | None = None, step: ArrayLike = 0
    ) -> tuple[Array, Trace]:
        """Applies the network to the tokens of one prompt.

        Args:
          tokens: (T, E) of ``item_label_layout``, the target item last.
          intervention: what to replace on the way, or None.
          step: the training step, which decides whether the intervention acts.

        Returns:
          (L,) logits, and the trace (attention (layers, 1, T, T)).

        Raises:
          ValueError: for sizes below 1, tokens without content channels, or an intervention that does not fit.
        """
        check_intervention(intervention, self.layers)
        weights = self._weights(tokens.shape[-1])
        causal = jnp.tril(jnp.ones((tokens.shape[0],) * 2, bool))
        attention, head_output, residual = [], [], [intervened(tokens, "residual", 0, intervention, step)]
        for layer in range(self.layers):
            tokens = residual[-1]
            queries, keys, values = (tokens @ weights[name][layer] for name in ("w_q", "w_k", "w_v"))
            pattern = jax.nn.softmax(jnp.where(causal, queries @ keys.T, -jnp.inf), axis=-1)[None]
            pattern = intervened(pattern, "attention", layer, intervention, step)
            head = intervened(pattern @ values, "head_output", layer, intervention, step)
            attention.append(pattern)
            head_output.append(head)
            residual.append(intervened(tokens + head[0], "residual", layer + 1, intervention, step))
        trace = Trace(jnp.stack(attention), jnp.stack(head_output), jnp.stack(residual))
        return classifier(weights, residual[-1][-1]), trace

    def _weights(self, width: int) -> dict[str, Array]:
        """All weights for tokens of this width; those of the attention are stacked over layers."""
        if min(self.slots, self.layers) < 1 or width <= self.slots:
            raise ValueError(
                "slots and layers must be at least 1, and tokens wider than slots; "
                f"got slots={self.slots}, layers={self.layers}, tokens of width {width}"
            )
        start, shape = normal((width - self.slots) ** -0.5), (self.layers, width, width)
        weights = {name: self.param(name, start, shape) for name in ("w_q", "w_k", "w_v")}
        return weights | classifier_parameters(self, width, self.hidden, self.classifier_layers, self.labels)
