"""The descents that linear layers with momentum are compared with, as learners of a batch of regression prompts.

Inputs are uniform on [-1/2, 1/2], as in ``momentum_regression``. N context pairs, D inputs.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from icl_lab.prompts import BatchLearner, Prompt
from icl_lab.solvers import gradient_descent, oracle
from icl_lab.solvers.heavy_ball import heavy_ball, tune_heavy_ball
from icl_lab.theory import one_step_optimum

VARIANCE = 1 / 12
"""Variance of one component of an input."""


def best_step(context_length: int, input_size: int) -> tuple[BatchLearner, float]:
    """One step of gradient descent with the learning rate that has the least loss, and that loss."""
    rate, loss = one_step_optimum(context_length=context_length, input_size=input_size, input_variance=VARIANCE)
    return jax.vmap(gradient_descent(float(rate), 1)), float(loss)


def best_heavy_balls(
    key: Array, steps: Sequence[int], contexts: int, *, context_length: int, input_size: int
) -> tuple[dict[str, BatchLearner], dict[str, Any]]:
    """Gradient descent with momentum, its learning rate and momentum tuned for each number of steps.

    Args:
      key: of the contexts.
      steps: K, numbers of steps.
      contexts: how many contexts it is tuned on.
      context_length: N.
      input_size: D.

    Returns:
      The learners, and what was tuned with its loss, by ``heavy_ball_<K>``.
    """
    spectrum = oracle.context_eigenvalues(key, contexts, context_length=context_length, input_size=input_size)
    learners: dict[str, BatchLearner] = {}
    settings: dict[str, Any] = {}
    for count in steps:
        tuned = tune_heavy_ball(spectrum, count, context_length=context_length, input_variance=VARIANCE)
        learners[f"heavy_ball_{count}"] = jax.vmap(heavy_ball(tuned.learning_rate, tuned.momentum, count))
        settings[f"heavy_ball_{count}"] = dataclasses.asdict(tuned)
    return learners, settings


def pass_over_demonstrations(mixing: Array, input_size: int) -> BatchLearner:
    """The literal reading of the analogy: gradients at zero of one demonstration after another, summed with momentum.

    The pair i is in N + 1 - i of the updates, with the powers of the mixer's column after it: its weight is the sum
    of that column of the Toeplitz matrix. Without momentum all weights are equal: one plain step.

    Args:
      mixing: (T, N) the mixer of a member.
      input_size: D.
    """
    weights = mixing.sum(0)  # (N,)
    weights = jnp.where(weights.sum() > 0, weights, jnp.ones(mixing.shape[1]))
    square = weights.sum() ** 2 + (input_size - 0.2) * (weights**2).sum()
    weights = weights * weights.sum() / square / VARIANCE

    def predict(prompts: Prompt) -> Array:
        return jnp.einsum("n,bno,bnd,bd->bo", weights, prompts.y, prompts.x, prompts.x_query)

    return predict
