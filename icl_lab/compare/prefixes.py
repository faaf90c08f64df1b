"""Loss against the number of examples: what a learner predicts from every prefix of its context."""

import jax
import jax.numpy as jnp
from jax import Array

from icl_lab.compare.predictions import check_samples
from icl_lab.prompts.prompt import Learner, Members, Prompt, Sample, ShapeError, all_answers, all_inputs, one_prompt


def from_every_prefix(learner: Learner) -> Learner:
    """The learner asked for x_(k+1) after the first k examples, k = 0 .. N, with x_(N+1) the query.

    One that predicts from every prefix itself (``GPT`` with ``alternating_layout(prefixes=True)``, ``Transformer`` with
    ``causal_layout()``) stays as it is; any other is asked N + 1 times, on prompts that are cut off.

    Returns:
      ``Prompt -> (N + 1, O)``.

    Raises:
      ValueError: when it predicts, for a padded context, or a learner that predicts something else than (O,) or
        (N + 1, O) values, as labels of classes.
    """

    def predict(prompt: Prompt) -> Array:
        n, o = prompt.y.shape
        predicted = jax.eval_shape(learner, prompt).shape
        if predicted == (n + 1, o):
            return learner(prompt)
        if predicted != (o,) or prompt.length is not None:
            fault = "with a padded context (length)" if predicted == (o,) else f"of shape {predicted}"
            raise ValueError(f"learner: a prediction {fault}; allowed is ({o},) or, from every prefix, ({n + 1}, {o})")
        queries = all_inputs(prompt)
        return jnp.stack([learner(Prompt(prompt.x[:k], prompt.y[:k], queries[k])) for k in range(n + 1)])

    return predict


def prefix_losses(learner: Learner | Members, samples: Sample) -> Array:
    """Mean loss after k = 0 .. N examples, 0.5 |y_(k+1) - prediction|^2 summed over outputs, with y_(N+1) the target.

    The curve of Garg et al. 2022, figure 2, whose errors are twice this over D. k = 0 is what the learner says without
    an example: 0 for solvers. Where labels are noisy, so are all answers but the last (half the noise's variance more).
    Of padded contexts (``Prompt.length``) the mean is over those that have k examples; NaN where none has.

    Args:
      learner: any, of one prompt, or what ``icl_lab.train`` returns.
      samples: B tasks.

    Returns:
      (N + 1,), of M members (M, N + 1).

    Raises:
      ValueError: as ``from_every_prefix``, or for targets that are no values (B, O).
    """
    if isinstance(learner, Members):
        return learner.over_members(lambda one: prefix_losses(one_prompt(one), samples))
    check_samples(samples)
    if samples.target.ndim != 2:
        raise ShapeError(f"samples must have values (B, O) as target, got {samples}")
    errors = jax.vmap(from_every_prefix(learner))(samples.prompt) - jax.vmap(all_answers)(samples)
    length = samples.prompt.length
    present = None if length is None else jnp.arange(errors.shape[1])[None] <= length[:, None]
    return 0.5 * jnp.sum(errors**2, axis=2).mean(0, where=present)
