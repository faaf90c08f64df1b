"""A new attention: ReLU attention, max(0, q.k), in both forms, used by a two-layer Transformer.

An attention is one entry of ``ATTENTIONS``, in two forms. ``learner`` and ``traced`` use its pattern for one task;
``batch_learner``, and so training, uses the same function of the scores of many tasks (blocks, T, N, tasks), in which
axis 2 is the keys. Both must predict the same, which is shown here and checked in every network that uses the entry.
An entry without the second form predicts task by task, and ``batch_learner`` refuses it by name.
"""

import jax
import jax.numpy as jnp
from jax import Array

from icl_lab.fast import batch_learner
from icl_lab.models import Transformer, learner
from icl_lab.models.attention import ATTENTIONS, Attention, linear_pattern
from icl_lab.prompts import linear_regression


def relu_pattern(queries: Array, keys: Array) -> Array:
    """Pattern of ReLU attention: the positive part of the scores. (T, K), (N, K) -> (T, N)."""
    return jax.nn.relu(linear_pattern(queries, keys))


RELU = Attention(relu_pattern, of_scores=jax.nn.relu)
"""Its rows do not sum to one (``normalised``), its scores are not divided by sqrt(K) (``scaled``), and it is not the
scores themselves (``gram``): all three stay False."""


def main(batch: int = 16) -> dict[str, float | str]:
    """Enters the attention; returns how far its forms are apart, and what is said where one is missing."""
    ATTENTIONS["relu"] = RELU  # in the library: a line of the dict in icl_lab/models/attention.py
    ATTENTIONS["relu_plain"] = RELU._replace(of_scores=None)
    prompts = linear_regression(context_length=5, input_size=2)(jax.random.key(0), batch).prompt
    network, without = (
        Transformer(layers=2, attention=name, averaged=True, init_scale=10.0) for name in ("relu", "relu_plain")
    )
    params = network.init(jax.random.key(1), jnp.zeros((6, 3)))  # tokens (T, E) = (N + 1, D + 1)

    plain = jax.jit(jax.vmap(learner(network, params)))(prompts)
    batched = jax.jit(lambda prompts: batch_learner(network, params)(prompts))(prompts)
    alone = jax.jit(jax.vmap(learner(without, params)))(prompts)  # the plain form needs no other
    try:
        batch_learner(without, params)(prompts)
        refused = ""
    except ValueError as error:
        refused = str(error)
    return {
        "largest prediction": float(jnp.abs(plain).max()),
        "forms differ by": float(jnp.abs(plain - batched).max()),
        "plain form alone differs by": float(jnp.abs(plain - alone).max()),
        "refused": refused,
    }


if __name__ == "__main__":
    found = main()
    print(f"largest prediction {found['largest prediction']:.2f}, forms differ by {found['forms differ by']:.0e}")
    print(f"without the form for batches: {found['refused']}")
