"""Progress measures of an induction head: how much of each of its parts a network has (Reddy 2023)."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from icl_lab.prompts.naming import sizes
from icl_lab.prompts.prompt import ShapeError


def progress_measures(attention: Array, logits: Array, labels: Array, match: Array) -> dict[str, Array]:
    """The four progress measures on one prompt of item-label pairs. Reddy 2023, Figs. 4 and 5.

    Their names are the paper's; the forms are working definitions, reconstructed from reports of the full text. Tokens
    are x_1, l_1, .., x_N, l_N, target; attention is averaged over heads.

        ila1   mean over i of the first layer's attention from l_i to x_i (uniform causal: mean of 1 / 2i)
        tila2  the last layer's from the target to the labels of items of its class (uniform: B / (2N + 1))
        tla2   the last layer's from the target to all labels (uniform: N / (2N + 1))
        cla    1 where the label with the largest logit is one of the context's (chance: labels in the context / L)
        cla_mass  probability of the context's labels

    Args:
      attention: (L, H, 2N + 1, 2N + 1) patterns, rows are queries (``Trace.attention``).
      logits: (L,) one a label: the prediction.
      labels: (N,) ids of the context's labels.
      match: (N,) where the context's item has the target's class.

    Returns:
      Scalars by name.

    Raises:
      ShapeError: for shapes that do not belong to one prompt.
    """
    n = len(labels) if np.ndim(labels) == 1 else 0
    tokens = (2 * n + 1, 2 * n + 1)
    ranks = [np.ndim(part) for part in (attention, logits, labels, match)]
    if ranks != [4, 1, 1, 1] or n != len(match) or attention.shape[2:] != tokens:
        got = ", ".join(sizes(part) for part in (attention, logits, labels, match))
        raise ShapeError(
            f"attention, logits, labels and match must be (L, H, 2N + 1, 2N + 1), (L,), (N,) and (N,), got {got}"
        )
    first, last = attention[0].mean(0), attention[-1].mean(0)
    to_labels = last[-1, 1::2]  # (N,)
    in_context = (jnp.arange(logits.shape[0])[:, None] == labels[None]).any(1)
    return {
        "ila1": jnp.diagonal(first, -1)[::2].mean(),
        "tila2": jnp.where(match, to_labels, 0).sum(),
        "tla2": to_labels.sum(),
        "cla": in_context[logits.argmax()].astype(logits.dtype),
        "cla_mass": jnp.where(in_context, jax.nn.softmax(logits), 0).sum(),
    }
