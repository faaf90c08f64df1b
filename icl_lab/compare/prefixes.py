"""Loss against the number of examples: what a learner predicts from every prefix of its context."""

import jax
import jax.numpy as jnp
from jax import Array

from icl_lab.compare.asked import asked_one, check_members, check_samples, name_of
from icl_lab.compare.objectives import (
    Objective,
    check_average,
    check_objective,
    losses_by_prefix,
    objective_of,
    takes,
)
from icl_lab.prompts.naming import called
from icl_lab.prompts.prompt import Learner, Members, Prompt, Sample, ShapeError, all_answers, all_inputs, one_prompt


def from_every_prefix(learner: Learner) -> Learner:
    """The learner asked for x_(k+1) after the first k examples, k = 0 .. N, with x_(N+1) the query.

    One that predicts from every prefix itself (``GPT`` with ``alternating_layout(prefixes=True)``, ``Transformer`` with
    ``causal_layout()``) stays as it is; any other is asked N + 1 times, on prompts that are cut off.

    Returns:
      ``Prompt -> (N + 1, O)``.

    Raises:
      ValueError: for what is no learner; when it predicts, for a padded context, a learner that takes no shorter
        context, or one that predicts something else than (O,) or (N + 1, O) values, as labels of classes.
    """
    return called(_from_every_prefix(asked_one("learner", learner)), f"from_every_prefix({name_of(learner)})")


def _from_every_prefix(learner: Learner) -> Learner:
    """``from_every_prefix`` of a learner that is checked."""

    def predict(prompt: Prompt) -> Array:
        n, o = prompt.y.shape
        predicted = jax.eval_shape(learner, prompt).shape
        if predicted not in ((o,), (n + 1, o)):
            raise ShapeError(f"learner: a prediction of shape {predicted}; allowed is {_allowed(n, o)}")
        return _at_every_prefix(learner, prompt)

    return predict


def _allowed(n: int, o: int | str) -> str:
    return f"({o},) or, from every prefix, ({n + 1}, {o})"


def _at_every_prefix(learner: Learner, prompt: Prompt) -> Array:
    """(N + 1, ...) what a learner predicts from every prefix, or for every prompt that is cut off, of any outputs."""
    n, o = prompt.y.shape
    predicted = jax.eval_shape(learner, prompt).shape
    if len(predicted) == 2 and predicted[0] == n + 1:
        return learner(prompt)
    if len(predicted) != 1 or prompt.length is not None:
        fault = "with a padded context (length)" if len(predicted) == 1 else f"of shape {predicted}"
        raise ShapeError(f"learner: a prediction {fault}; allowed is {_allowed(n, o)}")
    queries = all_inputs(prompt)

    def after(k: int) -> Array:
        cut = Prompt(prompt.x[:k], prompt.y[:k], queries[k])
        try:
            return learner(cut)
        except ShapeError as error:
            raise ShapeError(
                f"learner {name_of(learner)} takes prompts of {n} examples and not of {k}, as networks of fixed length "
                "do; allowed is one that takes any number, or predicts from every prefix"
            ) from error

    return jnp.stack([after(k) for k in range(n + 1)])


def prefix_losses(learner: Learner | Members, samples: Sample, objective: Objective | None = None) -> Array:
    """Mean loss after k = 0 .. N examples, 0.5 |y_(k+1) - prediction|^2 summed over outputs, with y_(N+1) the target.

    The curve of Garg et al. 2022, figure 2, whose errors are twice this over D. k = 0 is what the learner says without
    an example: 0 for solvers. Where labels are noisy, so are all answers but the last (half the noise's variance more).
    Of padded contexts (``Prompt.length``) the mean is over those that have k examples; NaN where none has.

    Args:
      learner: any, of one prompt, or what ``icl_lab.train`` returns.
      samples: B tasks.
      objective: another loss, ``(predictions, samples) -> (B,)`` as ``icl_lab.train`` takes it, of one prediction or of
        those from every prefix, over which it is then a mean or a sum: it is asked for each prefix, as of a task that
        ends there, without ``latent``. None: of members that of their training, of any other learner the squared error.

    Returns:
      (N + 1,), of M members (M, N + 1).

    Raises:
      ValueError: as ``from_every_prefix``, for targets that are no values (B, O), or an objective that cannot be asked
        so.
      TypeError: if a learner is not written in JAX.
    """
    check_samples(samples)
    if samples.target.ndim != 2:
        raise ShapeError(f"samples must have values (B, O) as target, got {samples}")
    check_objective(objective)
    check_members(learner, samples)
    n, length = samples.prompt.x.shape[1], samples.prompt.length
    present = jnp.broadcast_to(
        jnp.arange(n + 1)[None] <= (n if length is None else length[:, None]), (len(samples.target), n + 1)
    )
    if isinstance(learner, Members):
        objective = objective or objective_of(learner)
        whole, parts = learner.over_members(lambda one: _losses(one_prompt(one), samples, objective))
    else:
        whole, parts = _losses(asked_one("learner", learner), samples, objective)
    if whole is not None:
        check_average(whole, parts, present)
    return parts.mean(-2, where=None if length is None else present)


def _losses(learner: Learner, samples: Sample, objective: Objective | None) -> tuple[Array | None, Array]:
    """(B,) losses of all prefixes by an objective of them, None for any other; and (B, N + 1) those of each."""
    if objective is None:
        errors = jax.vmap(_from_every_prefix(learner))(samples.prompt) - jax.vmap(all_answers)(samples)
        return None, 0.5 * jnp.sum(errors**2, axis=2)
    itself = jax.eval_shape(jax.vmap(learner), samples.prompt).ndim == 3
    predictions = jax.vmap(lambda prompt: _at_every_prefix(learner, prompt))(samples.prompt)
    together = takes(objective, predictions, samples)
    if not itself:  # an objective that takes both is asked with what the learner predicts
        together = together and not takes(objective, predictions[:, -1], samples)
    parts = losses_by_prefix(objective, predictions, samples, together=together)
    return (objective(predictions, samples) if together else None), parts
