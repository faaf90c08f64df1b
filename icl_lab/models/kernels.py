"""Networks read as kernel machines: the features of an embedding, and a layer of attention as kernel smoothing."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from jax import Array

from icl_lab.models.inspection import Trace
from icl_lab.models.layers import Params, folded_weights, mlp
from icl_lab.models.learner import traced
from icl_lab.models.transformer import Transformer
from icl_lab.prompts.prompt import Prompt


def embedding_features(weights: Mapping[str, Array]) -> Callable[[Array], Array]:
    """The feature map m(x) = e + MLP(e), e = x W, of an embedding and its MLP block (von Oswald et al. 2022, 4.1).

    Args:
      weights: ``embedding`` (D, F) and, for an MLP block of hidden width H, ``embedding_mlp_in`` (F, H),
        ``embedding_mlp_out`` (H, F), ``embedding_mlp_in_bias`` (H,), ``embedding_mlp_out_bias`` (F,): as in the
        parameters of a ``Transformer``, but of inputs alone.

    Returns:
      ``(D,) -> (F,)``.
    """

    def features(x: Array) -> Array:
        embedded = x[None] @ weights["embedding"]
        return (embedded + mlp(embedded, dict(weights), "embedding_mlp") if len(weights) > 1 else embedded)[0]

    return features


class KernelForm(NamedTuple):
    """A prediction written as sum_hi k_h(q, i) v_h(i) + offset.

    Attributes:
      kernel: (H, N) k_h(q, i), what head h gives context token i on behalf of the query.
      values: (H, N, O) v_h(i), what the token adds to the prediction for it.
      offset: (O,) what the query token predicts without a context.
    """

    kernel: Array
    values: Array
    offset: Array

    def prediction(self) -> Array:
        """(O,) the sum."""
        return (self.kernel[:, :, None] * self.values).sum((0, 1)) + self.offset


def kernel_form(network: Transformer, params: Params) -> Callable[[Prompt], KernelForm]:
    """One attention layer on joint tokens, after any embedding, as kernel smoothing (von Oswald et al. 2022, A.8).

    With h the tokens that the layer reads, A_h = W_q W_k^T and B_h = W_v W_p: k_h(q, i) = h_q A_h h_i^T for linear
    attention, its softmax for softmax attention; v_h(i) = -damping (h_i B_h) and the offset -h_q, both in the label's
    channels. In Prop. 2 the kernel is m(x_q).m(x_i), the values are (eta/N) y_i and the offset is zero; of a trained
    layer, whose tokens embed x and y together, the kernel sees labels and the values are functions of both.

    Args:
      network: a stack of one layer, without MLP after its attention, LayerNorm, token clip or ``updated_channels``.
      params: the pytree of ``network.init``.

    Returns:
      ``Prompt -> KernelForm``, unbatched; its ``prediction()`` is that of ``learner(network, params)``.

    Raises:
      ValueError: for any other network.
    """
    more = any(network.by_layer("mlp_width")) or network.layer_norm or network.token_clip or network.updated_channels
    if network.layers != 1 or more:
        raise ValueError("kernel_form needs one layer, without mlp_width, layer_norm, token_clip and updated_channels")
    run, output = traced(network, params), folded_weights(params)[1][0]  # (H, E, E)

    def form(prompt: Prompt) -> KernelForm:
        trace: Trace = run(prompt)[1]
        tokens, o = trace.residual[0], prompt.y.shape[1]
        context = tokens if network.query_as_key else tokens[:-1]
        values = -network.damping * context @ output[:, :, -o:]
        return KernelForm(trace.attention[0, :, -1], values, -tokens[-1, -o:])

    return form
