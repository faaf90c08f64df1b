"""The induction head by hand: attend to the previous token, then to the label after the target's item."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from icl_lab.prompts.tracing import check_number, check_sizes


def induction_head_weights(
    label_vectors: Array, *, slots: int, input_size: int, hidden: int = 128, sharpness: float = 25.0
) -> dict:
    """Weights of a two-layer ``InductionNetwork`` that answers with the label of the context item like the target.

    Layer 1: every token attends to the slot before its own (scores s, else 0) and writes what stands there into its
    position channels, where the previous slot's one-hot takes its own away: a label token holds its item there. Layer
    2: the target's content (times s) is matched with what the position channels hold less the token's own content, and
    s times the attended content is added to the target's. Classifier: hidden unit k is the ReLU of the content along
    the dual vector of label k, and is passed on as it is; the biases are zero. It has never seen a class. The attention
    maps are those of Reddy 2023, Fig. 3, after the transition; the weights are ours.

    The first token sees only itself and copies its own item: without taking the own content away it would match a
    target of its class as well as its label does, and often better. Of more labels than channels the dual vectors are
    those of the least-squares fit.

    Args:
      label_vectors: (L, D).
      slots: P >= D, channels of the one-hot position.
      input_size: D.
      hidden: width of the classifier's layers, at least L.
      sharpness: s.

    Returns:
      The pytree of ``InductionNetwork(labels=L, slots=P, hidden=hidden).init``.

    Raises:
      ValueError: for label vectors of another width, fewer slots than channels, fewer hidden units than labels.
    """
    slots, input_size, hidden = check_sizes(slots=slots, input_size=input_size, hidden=hidden)
    check_number("label_vectors", label_vectors)
    check_number("sharpness", sharpness, above=0, scalar=True)
    if np.ndim(label_vectors) != 2 or label_vectors.shape[1] != input_size:
        raise ValueError(f"label_vectors must be (L, input_size={input_size}), got shape {np.shape(label_vectors)}")
    labels = label_vectors.shape[0]
    if slots < input_size:
        raise ValueError(f"slots must be at least input_size={input_size}, whose copy they hold, got {slots}")
    if hidden < labels:
        raise ValueError(f"hidden must be at least the {labels} labels, got {hidden}")
    empty = jnp.zeros((slots + input_size,) * 2)
    slot, channel = jnp.arange(slots), jnp.arange(input_size)
    content = slots + channel
    match = empty.at[channel, channel].set(1.0).at[content, channel].set(-1.0)
    previous = empty.at[slot[1:], slot[:-1]].set(sharpness)
    copy = empty.at[content, channel].set(1.0).at[slot[:-1], slot[1:]].set(-1.0)
    through = jnp.eye(hidden) * (jnp.arange(hidden) < labels)[:, None]
    weights = {
        "w_q": jnp.stack([previous, empty.at[content, channel].set(sharpness)]),
        "w_k": jnp.stack([empty.at[slot, slot].set(1.0), match]),
        "w_v": jnp.stack([copy, empty.at[content, content].set(sharpness)]),
        "mlp_0": jnp.zeros((slots + input_size, hidden)).at[slots:, :labels].set(jnp.linalg.pinv(label_vectors)),
        "mlp_1": through,
        "mlp_2": through,
        "mlp_bias": jnp.zeros(3),
        "read_out": jnp.eye(hidden, labels),
    }
    return {"params": weights}
