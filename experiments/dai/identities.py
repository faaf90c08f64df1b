"""Errors of the identities of Dai et al. 2022: the dual form of descent, fine-tuning in the form of attention."""

from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax import Array

from icl_lab.compare.dual_form import dual_form, fine_tuning_update, recorded_descent
from icl_lab.models import LanguageModel
from icl_lab.models.language import embedded, of_layer
from icl_lab.models.layers import Params, layer_norm
from icl_lab.solvers.finetuning import finetune

PRECISIONS = ("float32", "float64")


def descent_error(key: Array, steps: int, inputs: int, outputs: int, precision: str) -> float:
    """Largest relative error of the dual form on new inputs, after sequential descent on a cross-entropy loss.

    Args:
      key: for the layer and the data.
      steps: of one example each.
      inputs: D.
      outputs: O, classes.
      precision: one of ``PRECISIONS``.
    """
    with jax.enable_x64(precision == "float64"):
        parts = jax.random.split(key, 4)
        draw = lambda key, *shape: jax.random.normal(key, shape, precision)  # noqa: E731
        w0, x, new = draw(parts[0], inputs, outputs), draw(parts[1], steps, 1, inputs), draw(parts[2], 32, inputs)
        targets = jax.random.randint(parts[3], (steps, 1), 0, outputs)
        loss = lambda logits, target: optax.softmax_cross_entropy_with_integer_labels(logits, target).sum()  # noqa: E731
        trained, errors = recorded_descent(loss, w0, x, targets, 0.1)
        direct, dual = new @ trained, dual_form(w0, x, errors, new)
        return float(jnp.abs(dual - direct).max() / jnp.abs(direct).max())


@partial(jax.jit, static_argnums=0)
def finetuning_terms(
    network: LanguageModel, params: Params, examples: Array, lengths: Array, learning_rate: float
) -> dict[str, Array]:
    """dW_FT of the first layer's relaxed heads on the first example, after fine-tuning on all: (H,) by name.

    ``finetuning_identity``, the relative error of its three terms from what the changed weights give; and the share of
    its norm that each of them has, ``values_share``, ``keys_share`` and ``both_share``. Positions are left aside: a
    rotation of the keys turns all terms alike.

    Args:
      network: the module.
      params: its params.
      examples: (N, S) as in ``finetune``.
      lengths: (N,).
      learning_rate: of it.
    """
    tuned = finetune(network, params, examples, lengths, learning_rate).params
    before, after = (of_layer(one["params"], 0) for one in (params, tuned))
    text = embedded(network, params["params"], examples[:1])[0]
    read = layer_norm(text, (before["attention_scale"], before["attention_offset"]))
    x = jnp.concatenate([read, jnp.ones((len(read), 1))], axis=1)  # a bias is a row of the weights

    def heads(weights: Params, name: str) -> Array:
        """(H, E + 1, K)."""
        joint = jnp.concatenate([weights[f"w_{name}"], weights[f"{name}_bias"][None]])
        return joint.reshape(len(joint), network.heads, -1).swapaxes(0, 1)

    def one(w_k: Array, w_v: Array, new_k: Array, new_v: Array) -> dict[str, Array]:
        terms = fine_tuning_update(x, w_k, w_v, new_k - w_k, new_v - w_v)
        true = (x @ new_k).T @ (x @ new_v) - (x @ w_k).T @ (x @ w_v)
        size = jnp.linalg.norm(terms["total"])
        shares = {f"{name}_share": jnp.linalg.norm(terms[name]) / size for name in ("values", "keys", "both")}
        # relative to what is subtracted: dW_FT is a small difference of large matrices
        scale = jnp.linalg.norm((x @ w_k).T @ (x @ w_v))
        return shares | {"finetuning_identity": jnp.linalg.norm(terms["total"] - true) / scale}

    return jax.vmap(one)(*(heads(weights, name) for weights in (before, after) for name in "kv"))
