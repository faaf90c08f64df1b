"""The logarithmic loss of predictions that are logits."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from icl_lab.prompts.prompt import ShapeError
from icl_lab.prompts.tracing import check_number


def logistic_losses(logits: Array, probability: ArrayLike) -> Array:
    """Cross-entropy of predicted logits with the probability of the label +1, summed over outputs, in nats.

    p log(1 + exp(-f)) + (1 - p) log(1 + exp(f)): the expectation over the label where its probability p is known, the
    logistic loss log(1 + exp(-y f)) of a drawn label y where p = (1 + y) / 2.

    Args:
      logits: (..., O).
      probability: p, (..., O).

    Returns:
      (...,).

    Raises:
      ShapeError: if the shapes differ.
      ValueError: for a probability that is none (a label -1), where it is known: not inside ``jit`` or ``vmap``.
    """
    check_number("logits", logits)
    check_number("probability", probability)
    probability = jnp.asarray(probability)
    if np.shape(logits) != probability.shape:
        raise ShapeError(f"logits {np.shape(logits)} and probability {probability.shape} must have one shape")
    with contextlib.suppress(jax.errors.TracerBoolConversionError):
        if jnp.any((probability < 0) | (probability > 1)):
            raise ValueError("probability must lie between 0 and 1; of labels y it is (1 + y) / 2")
    return (jax.nn.softplus(logits) - probability * logits).sum(-1)
