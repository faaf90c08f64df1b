"""A loss over a batch, one part of the batch after the other."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import optax
from jax import Array
from optax.microbatching import AccumulationType

Tree = Any


def in_microbatches(loss: Callable[[Tree, Tree], Array], size: int) -> Callable[[Tree, Tree], Array]:
    """The mean of a loss over parts of ``size`` examples: same value and gradient to rounding as over the whole batch.

    For losses that are means over examples. The gradient of each part is taken right after its loss, before the next
    part, so that what the backward pass needs stays in the cache: four prompts of 105 tokens at a time, a small
    language model takes three quarters of the CPU time that 48 at once take. Without differentiation only losses are
    computed.

    Args:
      loss: ``(params, batch) -> ()``.
      size: examples of a part; it divides those of a batch.

    Returns:
      ``(params, batch) -> ()``, of reverse-mode gradients with respect to params alone: the batch is a constant. It
      raises ValueError for a batch that ``size`` does not divide.
    """
    over = functools.partial(optax.microbatch, argnums=1, microbatch_size=size, accumulator=AccumulationType.MEAN)
    mean = jax.custom_vjp(over(loss))
    scaled = lambda gradient, slope: (jax.tree.map(lambda leaf: leaf * slope, gradient), None)  # noqa: E731
    mean.defvjp(over(jax.value_and_grad(loss)), scaled)
    return mean
