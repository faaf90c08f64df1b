"""The loss by which a learner is measured, where it is another one than the squared error."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from icl_lab.prompts.prompt import Members, Prompt, Sample, all_answers, all_inputs
from icl_lab.prompts.tracing import is_traced

Objective = Callable[[Array, Sample], Array]
"""``(predictions (B, ...), samples) -> (B,)`` losses, as ``icl_lab.train`` takes it."""
TOLERANCE = 1e-2
"""Relative difference of a loss of all prefixes and the mean of those of each; rounding, also of bfloat16, is less."""


def objective_of(members: Members) -> Objective | None:
    """The objective of what ``icl_lab.train`` returns; None for squared errors, and where members do not say."""
    said: Any = getattr(members, "objective", None)  # no part of the protocol, which a user's own class may follow
    return None if said is None else said()


def check_objective(objective: Any) -> None:
    """Raises ValueError for what is no function; None stands for another objective."""
    if objective is not None and not callable(objective):
        raise ValueError(f"objective must be a function (predictions, samples) -> (B,) losses, got {objective!r}")


def losses_by(objective: Objective, predictions: Array, samples: Sample) -> Array:
    """(B,) losses by an objective; ValueError where it gives something else."""
    losses = objective(predictions, samples)
    if np.shape(losses) != (count := samples.prompt.x.shape[:1]):
        raise ValueError(f"objective must give one loss a task, {count}; got {np.shape(losses)}")
    return losses


def takes(objective: Objective, predictions: Array, samples: Sample) -> bool:
    """Whether an objective gives a loss a task for predictions of this shape."""
    try:
        jax.eval_shape(lambda *given: losses_by(objective, *given), predictions, samples)
    except (ValueError, TypeError, LookupError):
        return False
    return True


def losses_by_prefix(objective: Objective, predictions: Array, samples: Sample, *, together: bool) -> Array:
    """(B, N + 1) losses of predictions (B, N + 1, ...), each by the objective, as of a prompt that ends there.

    Args:
      objective: of one prediction, which it is given with the prompt of k examples, or of those from every prefix
        (``together``), which it is given one at a time, with a prompt of no examples.
      predictions: (B, N + 1, ...).
      samples: B tasks. What generated them is not passed on: what it says of the query is not true of another input.
      together: which of the two.

    Raises:
      ValueError: where the objective cannot be asked so.
    """
    prompt, inputs, answers = samples.prompt, jax.vmap(all_inputs)(samples.prompt), jax.vmap(all_answers)(samples)

    def losses(k: int) -> Array:
        shown = 0 if together else k
        cut = Prompt(prompt.x[:, :shown], prompt.y[:, :shown], inputs[:, k])
        one = predictions[:, k : k + 1] if together else predictions[:, k]
        try:
            return losses_by(objective, one, Sample(cut, answers[:, k], {}))
        except (TypeError, LookupError) as error:
            raise ValueError(
                f"objective must take predictions {one.shape} after {k} examples, with their answers as target and no "
                f"latent; it raised {type(error).__name__}: {error}"
            ) from error

    return jnp.stack([losses(k) for k in range(predictions.shape[1])], axis=1)


def check_average(whole: Any, parts: Any, present: Any) -> None:
    """ValueError where the losses of all prefixes are neither the means nor the sums of those of each.

    Args:
      whole: (..., B) by the objective of all prefixes.
      parts: (..., B, N + 1) by the objective of each.
      present: (B, N + 1) True for the prefixes that there are.
    """
    if any(map(is_traced, (whole, parts, present))):
        return
    whole, parts, present = map(np.asarray, (whole, parts, present))
    total = np.where(present, parts, 0).sum(-1)
    for expected in (total / np.sum(present, -1), total):
        if np.allclose(whole, expected, rtol=TOLERANCE, atol=1e-6, equal_nan=True):
            return
    raise ValueError(
        f"objective must be a mean over the prefixes, as every_prefix is, or of one prediction; it gives "
        f"{np.mean(whole):.3g} for all prefixes, and {np.mean(total / np.sum(present, -1)):.3g} as their mean"
    )
