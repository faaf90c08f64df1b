"""Learners compared by what they predict, and by how the prediction moves with the query."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import Array

from icl_lab.compare.asked import answered, asked_one, check_members, check_samples, name_of
from icl_lab.compare.distributions import jensen_shannon
from icl_lab.compare.objectives import Objective, check_objective, losses_by, objective_of
from icl_lab.prompts.prompt import BatchLearner, Learner, Members, Prompt, Sample, ShapeError


def compare(a: Learner | Members, b: Learner | Members, samples: Sample) -> dict[str, Array]:
    """Distance between two learners on the same tasks, for values by the metrics of von Oswald et al. 2022, section 4.

    *Values*, where the target is (O,) numbers. With f, g the predictions (O,) and s_f, s_g their sensitivities
    d prediction / d x_query (O, D), means over tasks of ``prediction_difference`` |f - g|, ``sensitivity_cosine``
    s_f.s_g / ((|s_f| + 1e-8)(|s_g| + 1e-8)) and ``sensitivity_difference`` |s_f - s_g|; all norms are Euclidean over
    outputs (and inputs). A query that is not continuous (token ids) has no sensitivities.

    *Logits* (L,), where the target is an integer label. ``agreement``, the share of tasks in which the likeliest label
    is the same, and ``jensen_shannon``, the mean divergence in nats. Logits are defined up to a constant, and have no
    sensitivities here.

    Where both learners predict from every prefix of the context, (N + 1, O) or (N + 1, L), metrics of predictions are
    (N + 1,), and sensitivities are those of the last prediction: the others do not see the query.

    Args:
      a: first learner, or what ``icl_lab.train`` returns: all its members.
      b: second learner, or members.
      samples: B tasks, every leaf with a leading batch axis.

    Returns:
      The metrics by name, scalars but for prefixes; of M members with a leading axis (M,), and (M, M') where both are
      members.

    Raises:
      ValueError: if the samples are no batch of tasks, a learner does not take one prompt, or the predictions are not
        as above and of one shape (``ShapeError``).
      TypeError: if a learner is not written in JAX.
    """
    first, second = (
        one if isinstance(one, Members) else jax.vmap(asked_one(name, one)) for name, one in (("a", a), ("b", b))
    )
    return compare_batches(first, second, samples)


def compare_batches(a: BatchLearner | Members, b: BatchLearner | Members, samples: Sample) -> dict[str, Array]:
    """``compare`` for learners that take a whole batch of prompts at once (``icl_lab.fast.batch_learner``).

    Args:
      a: first learner, B prompts -> B predictions; what it predicts for one task must not depend on the others.
      b: second learner.
      samples: B tasks.

    Returns:
      As ``compare``.

    Raises:
      ValueError: as ``compare``.
    """
    check_samples(samples)
    for learner in (a, b):
        check_members(learner, samples)
    if isinstance(a, Members):
        return a.over_members(lambda one: compare_batches(one, b, samples))
    if isinstance(b, Members):
        return b.over_members(lambda one: compare_batches(a, one, samples))
    logits = jnp.issubdtype(samples.target.dtype, jnp.integer)
    if logits and samples.target.ndim != 1:
        raise ShapeError(f"whole numbers as target are labels (B,), got {samples.target.shape}; values are floats")
    if logits or not jnp.issubdtype(samples.prompt.x_query.dtype, jnp.floating):
        f, g = (_checked(learner, samples.prompt, samples.target) for learner in (a, b))
        _check_same(a, f, b, g)
        if logits:
            agreement = (f.argmax(-1) == g.argmax(-1)).mean(0, f.dtype)
            return {"agreement": agreement, "jensen_shannon": jensen_shannon(f, g).mean(0)}
        return {"prediction_difference": _norm(f - g, -1).mean(0)}
    (f, s_f), (g, s_g) = (_values_and_sensitivities(learner, samples) for learner in (a, b))
    _check_same(a, f, b, g)
    cosine = jnp.sum(s_f * s_g, axis=(1, 2)) / ((_norm(s_f, (1, 2)) + 1e-8) * (_norm(s_g, (1, 2)) + 1e-8))
    return {
        "prediction_difference": _norm(f - g, -1).mean(0),
        "sensitivity_cosine": cosine.mean(),
        "sensitivity_difference": _norm(s_f - s_g, (1, 2)).mean(),
    }


def task_losses(learner: Learner | Members, samples: Sample, objective: Objective | None = None) -> Array:
    """Loss of every task, 0.5 |target - prediction|^2 summed over outputs: (B,). The released code's convention.

    Args:
      learner: any, of one prompt, or what ``icl_lab.train`` returns.
      samples: B tasks.
      objective: another loss, ``(predictions (B, ...), samples) -> (B,)`` as ``icl_lab.train`` takes it. None: of
        members that of their training, of any other learner the squared error.

    Returns:
      (B,), of M members (M, B).

    Raises:
      ValueError: if the samples are no batch of tasks, the learner is none or does not predict (O,) (``ShapeError``),
        or the objective does not give (B,) losses.
      TypeError: if a learner is not written in JAX.
    """
    check_samples(samples)
    check_objective(objective)
    check_members(learner, samples)
    if isinstance(learner, Members):
        objective = objective or objective_of(learner)
        return learner.over_members(lambda one: _losses(one, samples, objective))
    return _losses(jax.vmap(asked_one("learner", learner)), samples, objective)


def _losses(learner: BatchLearner, samples: Sample, objective: Objective | None) -> Array:
    """(B,) losses of a learner of B prompts."""
    predictions = answered(learner, samples.prompt)
    if objective is not None:
        return losses_by(objective, predictions, samples)
    if predictions.shape != samples.target.shape:
        predicted, target = predictions.shape[1:], samples.target.shape[1:]
        fault = f"learner {name_of(learner)} predicts {predicted} for one task; expected is {target}"
        if predicted == (samples.prompt.x.shape[1] + 1, *target):
            raise ShapeError(
                f"{fault}, the shape of its target; of predictions from every prefix allowed are prefix_losses, and "
                "objective=every_prefix, which takes any other learner as from_every_prefix(learner)"
            )
        raise ShapeError(f"{fault}, the shape of its target")
    return 0.5 * jnp.sum((samples.target - predictions) ** 2, axis=tuple(range(1, predictions.ndim)))


def mean_loss(learner: Learner | Members, samples: Sample, objective: Objective | None = None) -> Array:
    """Mean of ``task_losses`` over the B tasks, a scalar; of members (M,) (von Oswald et al. 2022, eq. 5 with its 1/2).

    Args:
      learner: any, of one prompt, or what ``icl_lab.train`` returns.
      samples: B tasks.
      objective: as ``task_losses``.

    Raises:
      ValueError: as ``task_losses``.
      TypeError: as ``task_losses``.
    """
    return jnp.mean(task_losses(learner, samples, objective), axis=-1)


def _values_and_sensitivities(learner: BatchLearner, samples: Sample) -> tuple[Array, Array]:
    """Predictions and, of the last (B, O), Jacobians (B, O, D) by each task's own query, in one forward pass."""

    def last_and_all(query: Array) -> tuple[Array, Array]:
        values = _checked(learner, replace(samples.prompt, x_query=query), samples.target)
        return (values if values.ndim == 2 else values[:, -1]), values

    last, pull, predictions = jax.vjp(last_and_all, samples.prompt.x_query, has_aux=True)
    units = jnp.eye(last.shape[1], dtype=last.dtype)[:, None, :]
    (rows,) = jax.vmap(pull)(jnp.broadcast_to(units, (units.shape[0], *last.shape)))  # (O, B, D)
    return predictions, rows.swapaxes(0, 1)


def _checked(learner: BatchLearner, prompts: Prompt, target: Array) -> Array:
    """What a learner predicts: (B, O) or (B, N + 1, O) for targets (B, O), or likewise logits for labels (B,)."""
    predictions = answered(learner, prompts)
    outputs = () if jnp.issubdtype(target.dtype, jnp.integer) else target.shape[1:]
    tasks, prefixes, last = len(target), prompts.x.shape[1] + 1, outputs or predictions.shape[-1:]
    if predictions.shape[-1:] == (1,) and not outputs:
        raise ShapeError(f"{name_of(learner)} predicts one logit; expected are those of two labels or more")
    if predictions.shape not in ((tasks, *last), (tasks, prefixes, *last)):
        fault = f"{name_of(learner)} predicts {predictions.shape} for {tasks} tasks"
        size = ", ".join(map(str, outputs)) or "L"
        raise ShapeError(f"{fault}; expected is ({tasks}, {size}) or, from every prefix, ({tasks}, {prefixes}, {size})")
    return predictions


def _check_same(a: BatchLearner, f: Array, b: BatchLearner, g: Array) -> None:
    """Refuses predictions of two shapes."""
    if f.shape != g.shape:
        hint = ", as from_every_prefix(learner) has that of predictions from every prefix" * (f.ndim != g.ndim)
        fault = f"{name_of(a)} predicts {f.shape} and {name_of(b)} {g.shape}"
        raise ShapeError(f"{fault}; allowed is one shape for both{hint}")


def _norm(values: Array, axis: int | tuple[int, ...]) -> Array:
    squares = jnp.sum(values**2, axis=axis)
    zero = squares == 0  # where the gradient is to be 0; NaN stays NaN
    return jnp.where(zero, 0, jnp.sqrt(jnp.where(zero, 1, squares)))
