"""A training as a value: the arguments of ``fit``, not called yet; and the training of a network on a sampler."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from jax import Array

from icl_lab.compare import compare_batches
from icl_lab.compare.objectives import Objective
from icl_lab.prompts import BatchLearner, Sample, Sampler
from icl_lab.prompts.layouts import Layout
from icl_lab.prompts.naming import sizes
from icl_lab.prompts.prompt import ShapeError, check_sampler, check_shapes
from icl_lab.prompts.tracing import check_seed, check_sizes, whole
from icl_lab.training.building import built, of_setting, zero_prompt
from icl_lab.training.fitting import Fit, Metrics, Tree, check_keys, fit
from icl_lab.training.measuring import asked, check_extra, check_learners, each_once, of_batches
from icl_lab.training.model import Model
from icl_lab.training.optimizers import Optimizer, check_rate
from icl_lab.training.prefixes import every_prefix
from icl_lab.training.starts import from_parameters

LEARNING_RATE = 1e-3
"""Of the default optimizer, where none is given."""


@dataclasses.dataclass(frozen=True)
class Training:
    """The arguments of ``fit``, in its order and by its names; nothing is trained until it is carried out.

    Attributes:
      learner: ``params -> learner``, what final parameters predict; None where they predict nothing of a prompt.
      sampler: ``setting of a member -> sampler``, the task distribution on which it is measured; None: there is none.
      kept: whether a record keeps the final parameters (those that are nested dicts).
      model: what ``training`` trains; None for a loss of one's own.
    """

    init: Callable[[Array, Tree], Tree]
    loss: Callable[[Tree, Array, Tree], Array]
    optimizer: Optimizer
    keys: Array
    settings: Tree = None
    _: dataclasses.KW_ONLY
    steps: int
    measure: Callable[[Tree, Array, Tree], Metrics] | None = None
    measure_every: int | None = None
    members_at_once: int | None = None
    schedule: Callable[[Tree, Array], Tree] | None = None
    measure_schedule: Callable[[Tree, Array], Tree] | None = None
    until: Callable[[dict], bool] | None = None
    learner: Callable[[Tree], BatchLearner] | None = None
    sampler: Callable[[Tree], Sampler] | None = None
    kept: bool = True
    model: Model | None = None

    def carried_out(self, by: Callable[..., Fit] = fit, **options: Any) -> Fit:
        """Trains, by ``fit`` or what has its arguments; ``options`` are those that are no part of a training."""
        names = ("measure", "measure_every", "members_at_once", "schedule", "measure_schedule", "until")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        return by(self.init, self.loss, self.optimizer, self.keys, self.settings, steps=self.steps, **given, **options)


def squared_error(predictions: Array, samples: Sample) -> Array:
    """(B,) half the squared error of every task, the loss of the released code of von Oswald et al. 2022.

    Raises:
      ShapeError: for predictions or targets that are not (B, O): (B,) would be broadcast to every pair of tasks.
    """
    predicted, target = predictions.shape, samples.target.shape
    if predicted != target or len(target) != 2:
        wrong = "sampler must give a target" if len(target) != 2 else "network must predict"
        got = f"got predictions {predicted} where targets are {target}"
        raise ShapeError(f"{wrong} (B, O), numbers for each of B prompts at once; {got} (objective= takes any other)")
    return 0.5 * jnp.sum((predictions - samples.target) ** 2, axis=1)


def training(
    network: nn.Module | Model,
    sampler: Sampler | Callable[[Any], Sampler],
    *,
    members: int | None = None,
    steps: int = 2000,
    batch: int = 256,
    learning_rate: float | optax.Schedule | None = None,
    optimizer: Optimizer | None = None,
    layout: Layout | None = None,
    seed: int | None = None,
    keys: Array | None = None,
    settings: Any = None,
    training_sampler: Sampler | Callable[[Any], Sampler] | None = None,
    objective: Objective = squared_error,
    references: Mapping[str, BatchLearner] | None = None,
    variants: Callable[[dict], Mapping[str, BatchLearner]] | None = None,
    extra: Callable[[dict, Sample], dict[str, Array]] | None = None,
    eval_tasks: int = 2000,
    measure_every: int | None = None,
    measured: bool = True,
    until: Callable[[dict], bool] | None = None,
    schedule: Callable[[Any, Array], Any] | None = None,
    start: Any = None,
    dtype: Any = None,
) -> Training:
    """The training of independent members of one network on fresh tasks, all in one program; nothing is trained yet.

    Every step draws ``batch`` fresh tasks for each member; every measurement takes a member's own ``eval_tasks``, which
    are the same each time and apart from those of training.

    Args:
      network: a ``Transformer`` or another module that ``models.learner`` takes, or a ``Model``.
      sampler: the task distribution, ``(key, batch) -> Sample``; with ``settings``, ``setting -> sampler``.
      members: M, how many are trained, each with its own start and data; they differ in nothing else. 10 where neither
        they nor ``keys`` are given.
      steps: training steps.
      batch: tasks in a step.
      learning_rate: of Adam after a clip of the global norm of the gradient at 10, the default optimizer; a number, or
        a schedule ``step -> rate``, whose argument beside ``settings`` must be named ``step`` or ``count``; 1e-3 where
        none is given.
      optimizer: another one, or ``setting -> optimizer``.
      layout: how prompts become tokens; None means joint tokens. A ``Model`` brings its own.
      seed: of all draws, from 0, where none is given, to 2^32 - 1.
      keys: (M,) member keys in place of ``members`` and ``seed``.
      settings: pytree whose leading axis is the member, for what differs between members (noise, rates).
      training_sampler: the task distribution of training, where it is another one than that of the measurements.
      objective: the loss of every task.
      references: learners of B prompts, by name, that every member is compared with (``compare_batches``).
      variants: ``params -> learners`` made from the parameters, whose losses are measured too.
      extra: ``(params, evaluation tasks) -> {name: array}``, measured beside.
      eval_tasks: tasks that measure a member.
      measure_every: steps between measurements, the last of which is after all ``steps``; None: about twenty
        measurements.
      measured: False measures the training loss only.
      until: ``what was measured (M, ...) by name -> whether training ends here``, for all members, ahead of ``steps``.
      schedule: ``(setting, step) -> setting`` that the training sampler takes at this step, for a curriculum. It needs
        ``settings``, whose values the measurements keep, or a ``training_sampler``, which is then a function of what
        the schedule makes of None.
      start: parameters to start from, instead of new ones: what ``train`` has returned (members from members), or
        parameters of one network (for all) or (M, ...).
      dtype: in which predictions are computed, as ``jax.numpy.bfloat16``; parameters and losses keep their own.

    Returns:
      The training: ``learner`` is what the network's parameters predict, ``sampler`` that of the measurements. Metrics
      are ``train_loss``, ``loss``, ``<variant>_loss``, for each reference ``<reference>_loss`` and
      ``<reference>_<comparison>``, and what ``extra`` names, each (M, R, ...). There are no comparisons by another
      ``objective`` than squared errors where targets are real numbers: predictions may then be logits, and whether
      their distances mean something is for ``extra`` to say.

    Raises:
      ValueError: for sizes below 1, a learning rate beside an optimizer, a reference or variant without a name or with
        that of another metric, a reference that does not answer B prompts with B predictions, or as the network does, a
        layout beside a ``Model``, a sampler that gives no ``Sample``,
        another number of tasks, or the same ones whatever its key (``prompts.same_tasks`` says that it is meant), a
        seed outside its range, ``members`` or ``seed`` beside ``keys``, a schedule that nothing depends on, parameters
        of another network, or an optimizer that ``fit`` refuses.
    """
    if keys is not None and (members, seed) != (None, None):
        raise ValueError(f"keys are given in place of members ({members}) and seed ({seed}), not beside them")
    members, seed = 10 if members is None else members, check_seed(0 if seed is None else seed)
    members, steps, batch, eval_tasks = check_sizes(members=members, steps=steps, batch=batch, eval_tasks=eval_tasks)
    if references is not None:
        check_learners(references)
    if not isinstance(measured, bool):
        raise ValueError(f"measured must be True or False, got {measured!r}")
    if optimizer is not None and learning_rate is not None:
        raise ValueError(f"learning_rate={learning_rate} is of the default optimizer; an optimizer has its own")
    rate = LEARNING_RATE if learning_rate is None else learning_rate
    check_rate(rate, settings)
    if not all(map(_has_members, jax.tree.leaves(settings))):
        raise ValueError("settings must be arrays with a leading axis of members (jnp.array([0.0, 0.5]), not a list)")
    if keys is not None:
        check_keys(keys)
    else:
        keys = jax.random.split(jax.random.key(seed), members)
    functions = {"until": until, "schedule": schedule, "extra": extra, "variants": variants}
    for name, function in {"objective": objective, **{k: v for k, v in functions.items() if v is not None}}.items():
        if not callable(function):
            raise ValueError(f"{name} must be a function, got {function!r}")
    if schedule is not None and settings is None and training_sampler is None:
        raise ValueError(
            "schedule: no sampler depends on what it gives; allowed is one beside settings or with a "
            "training_sampler that is a function of it"
        )
    tasks_of, training_of = of_setting(sampler, settings), of_setting(training_sampler or sampler, settings, schedule)
    model = built(network, sampler, settings, layout, eval_tasks, dtype)
    # only checked, and asked nothing that it was asked before
    name, check = ("sampler", check_shapes) if training_sampler is None else ("training_sampler", check_sampler)
    zero_prompt(name, training_of, settings, batch, schedule, check=check)
    optimizer = optimizer or optax.chain(optax.clip_by_global_norm(10.0), optax.adam(rate))
    of_values = objective in (squared_error, every_prefix)  # by any other loss numbers may be logits

    losses_of = asked("objective", "(predictions, samples) -> (B,) losses", objective)
    variants_of = asked("variants", "params -> {name: learner of B prompts}", variants or (lambda params: {}))
    extra_of = asked("extra", "(params, samples) -> {name: array}", extra or (lambda params, samples: {}))

    def mean_loss(learner: BatchLearner, samples: Sample) -> Array:
        losses = losses_of(learner(samples.prompt), samples)
        if getattr(losses, "shape", None) != (tasks := samples.prompt.x.shape[:1]):
            raise ValueError(f"objective must give one loss a task, {tasks}; got {sizes(losses)}")
        return losses.mean()

    def loss(params: dict, key: Array, setting: Any) -> Array:
        return mean_loss(model.learner(params), training_of(setting)(key, batch))

    def measure(params: dict, key: Array, setting: Any) -> dict[str, Array]:
        samples = tasks_of(setting)(key, eval_tasks)
        metrics = [{"loss": mean_loss(model.learner(params), samples)}]
        for name, given in (references or {}).items():
            reference = of_batches(f"references[{name!r}]", given)
            if of_values or jnp.issubdtype(samples.target.dtype, jnp.integer):
                compared = compare_batches(model.learner(params), reference, samples)
                metrics += [{f"{name}_{metric}": value} for metric, value in compared.items()]
            metrics += [{f"{name}_loss": mean_loss(reference, samples)}]
        check_learners(learners := variants_of(params), "variants")
        for name, given in learners.items():
            metrics += [{f"{name}_loss": mean_loss(of_batches(f"variants: {name!r}", given), samples)}]
        return each_once([*metrics, check_extra(extra_of(params, samples))])

    planned = Training(
        lambda key, _: model.init(key),
        loss,
        optimizer,
        keys,
        settings,
        steps=steps,
        measure_every=_about_twentieth(steps) if measure_every is None else whole("measure_every", measure_every),
        measure=measure if measured else None,
        members_at_once=members_at_once(batch, model.layers),
        schedule=schedule and asked("schedule", "(setting, step) -> setting", schedule),
        until=until,
        learner=model.learner,
        sampler=tasks_of,
        model=model,
    )
    return planned if start is None else from_parameters(planned, start)


def members_at_once(batch: int, layers: int) -> int | None:
    """All members together on an accelerator; on a CPU as many as fill its caches.

    That is about 8192 tasks for one or two layers, 1024 for more, whose gradient keeps every layer's matrices.
    """
    tasks = 8192 if layers <= 2 else 1024
    return max(1, tasks // batch) if jax.default_backend() == "cpu" else None


def _has_members(leaf: Any) -> bool:
    """Whether a leaf of settings is an array of numbers, or of PRNG keys, with an axis of members."""
    return np.ndim(leaf) > 0 and (isinstance(leaf, jax.Array) or np.asarray(leaf).dtype.kind not in "USO")


def _about_twentieth(steps: int) -> int:
    """Steps between twenty measurements, or between fewer that divide all steps, but not fewer than five."""
    twentieth = -(-steps // 20)
    return next((every for every in range(twentieth, steps // 5 + 1) if steps % every == 0), twentieth)
