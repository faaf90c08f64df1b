"""The deep classifier of Reddy 2023 on the last token: ReLU layers with one bias each, and a read-out without."""

import jax
from flax import linen as nn
from jax import Array
from jax.nn.initializers import normal


def classifier_parameters(module: nn.Module, width: int, hidden: int, layers: int, labels: int) -> dict[str, Array]:
    """Declares the parameters of the classifier in a module, from its ``nn.compact`` call.

    Entries start as in the released code (Reddy 2023, section 2): hidden weights N(0, 2 / fan-in), each scalar bias and
    the read-out N(0, 1 / hidden).

    Args:
      module: whose parameters they are.
      width: E, of what is classified.
      hidden: width of the hidden layers.
      layers: hidden layers.
      labels: L.

    Returns:
      ``mlp_0`` (E, hidden), ``mlp_1`` .. (hidden, hidden), ``mlp_bias`` (layers,), ``read_out`` (hidden, L).

    Raises:
      ValueError: for sizes below 1.
    """
    sizes = {"width": width, "hidden": hidden, "classifier_layers": layers, "labels": labels}
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")
    weights = {}
    for layer in range(layers):
        inputs = hidden if layer else width
        weights[f"mlp_{layer}"] = module.param(f"mlp_{layer}", normal((2 / inputs) ** 0.5), (inputs, hidden))
    weights["mlp_bias"] = module.param("mlp_bias", normal(hidden**-0.5), (layers,))
    weights["read_out"] = module.param("read_out", normal(hidden**-0.5), (hidden, labels))
    return weights


def classifier(weights: dict[str, Array], rows: Array) -> Array:
    """Logits h_k W_out with h_k = ReLU(h_{k-1} W_k + b_k), b_k a scalar (Reddy 2023, section 2).

    Args:
      weights: with at least the names that ``classifier_parameters`` declares.
      rows: (..., E).

    Returns:
      (..., L).
    """
    for layer, bias in enumerate(weights["mlp_bias"]):
        rows = jax.nn.relu(rows @ weights[f"mlp_{layer}"] + bias)
    return rows @ weights["read_out"]
