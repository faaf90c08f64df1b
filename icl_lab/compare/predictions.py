"""Learners compared by what they predict, and by how the prediction moves with the query."""

import chex
import jax
import jax.numpy as jnp
from jax import Array

from icl_lab.prompts.prompt import Learner, Prompt, Sample, check_prompt


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
    chex.assert_rank(samples.prompt.x, 3)

    def one(prompt: Prompt) -> dict[str, Array]:
        f, s_f = _value_and_sensitivity(a, prompt)
        g, s_g = _value_and_sensitivity(b, prompt)
        return {
            "prediction_difference": _norm(f - g),
            "sensitivity_cosine": jnp.sum(s_f * s_g) / ((_norm(s_f) + 1e-8) * (_norm(s_g) + 1e-8)),
            "sensitivity_difference": _norm(s_f - s_g),
        }

    return jax.tree.map(jnp.mean, jax.vmap(one)(samples.prompt))


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


def _value_and_sensitivity(learner: Learner, prompt: Prompt) -> tuple[Array, Array]:
    """Prediction (O,) and its Jacobian (O, D) with respect to the query, in one pass through the learner."""
    _, d, o = check_prompt(prompt)

    def predict(x_query: Array) -> tuple[Array, Array]:
        prediction = learner(prompt.replace(x_query=x_query))  # type: ignore[attr-defined]
        chex.assert_shape(prediction, (o,))
        return prediction, prediction

    jacobian = jax.jacrev if o < d else jax.jacfwd  # whichever needs fewer products
    sensitivity, prediction = jacobian(predict, has_aux=True)(prompt.x_query)
    return prediction, sensitivity


def _norm(values: Array) -> Array:
    return jnp.sqrt(jnp.sum(values**2))
