"""Learners compared by what they predict, and by how the prediction moves with the query."""

import chex
import jax
import jax.numpy as jnp
from jax import Array

from icl_lab.prompts.prompt import BatchLearner, Learner, Prompt, Sample


def compare(a: Learner, b: Learner, samples: Sample) -> dict[str, Array]:
    """Distance between two learners on the same tasks: the three metrics of von Oswald et al. 2022, section 4.

    With f, g the predictions (O,) and s_f, s_g their sensitivities d prediction / d x_query (O, D), means over tasks of
    ``prediction_difference`` |f - g|, ``sensitivity_cosine`` s_f.s_g / ((|s_f| + 1e-8)(|s_g| + 1e-8)) and
    ``sensitivity_difference`` |s_f - s_g|; all norms are Euclidean over outputs (and inputs).

    Args:
      a: first learner.
      b: second learner.
      samples: B tasks, every leaf with a leading batch axis.

    Returns:
      Scalars by the three names above.

    Raises:
      AssertionError: if the samples are not batched, or a learner does not predict (O,).
    """
    return compare_batches(jax.vmap(a), jax.vmap(b), samples)


def compare_batches(a: BatchLearner, b: BatchLearner, samples: Sample) -> dict[str, Array]:
    """``compare`` for learners that take a whole batch of prompts at once (``icl_lab.models.batched_predictions``).

    Args:
      a: first learner, B prompts -> (B, O); what it predicts for one task must not depend on the others.
      b: second learner.
      samples: B tasks.

    Returns:
      As ``compare``.

    Raises:
      AssertionError: as ``compare``.
    """
    chex.assert_rank(samples.prompt.x, 3)
    (f, s_f), (g, s_g) = (_values_and_sensitivities(learner, samples) for learner in (a, b))
    cosine = jnp.sum(s_f * s_g, axis=(1, 2)) / ((_norm(s_f, (1, 2)) + 1e-8) * (_norm(s_g, (1, 2)) + 1e-8))
    return {
        "prediction_difference": _norm(f - g, 1).mean(),
        "sensitivity_cosine": cosine.mean(),
        "sensitivity_difference": _norm(s_f - s_g, (1, 2)).mean(),
    }


def task_losses(learner: Learner, samples: Sample) -> Array:
    """Loss of every task, 0.5 |target - prediction|^2 summed over outputs: (B,). The released code's convention.

    Raises:
      AssertionError: if the samples are not batched, or the learner does not predict (O,).
    """
    chex.assert_rank(samples.prompt.x, 3)

    def one(sample: Sample) -> Array:
        prediction = learner(sample.prompt)
        chex.assert_equal_shape([prediction, sample.target])
        return 0.5 * jnp.sum((sample.target - prediction) ** 2)

    return jax.vmap(one)(samples)


def mean_loss(learner: Learner, samples: Sample) -> Array:
    """Mean of ``task_losses`` over the B tasks, a scalar (von Oswald et al. 2022, eq. 5, with its 1/2)."""
    return jnp.mean(task_losses(learner, samples))


def _values_and_sensitivities(learner: BatchLearner, samples: Sample) -> tuple[Array, Array]:
    """Predictions (B, O) and their Jacobians (B, O, D) with respect to each task's own query, in one forward pass."""
    prompt = samples.prompt
    predictions, pull = jax.vjp(lambda query: learner(Prompt(prompt.x, prompt.y, query)), prompt.x_query)
    chex.assert_equal_shape([predictions, samples.target])
    units = jnp.eye(predictions.shape[1], dtype=predictions.dtype)[:, None, :]
    (rows,) = jax.vmap(pull)(jnp.broadcast_to(units, (units.shape[0], *predictions.shape)))  # (O, B, D)
    return predictions, rows.swapaxes(0, 1)


def _norm(values: Array, axis: int | tuple[int, ...]) -> Array:
    return jnp.sqrt(jnp.sum(values**2, axis=axis))
