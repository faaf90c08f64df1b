"""How the binaries train and measure a learner."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from jax import Array
from jax.typing import ArrayLike

from icl_lab.lab.flags import arguments
from icl_lab.prompts import BatchLearner, Prompt, Sampler
from icl_lab.prompts.layouts import Layout
from icl_lab.training import Training, effort, training
from icl_lab.training.model import Model, model_of
from icl_lab.training.plans import Objective, squared_error


def model(network: nn.Module, context_length: int, input_size: int, layout: Layout | None = None) -> Model:
    """A network on prompts of N pairs in D dimensions, in a layout (None: joint tokens)."""
    shapes = (context_length, input_size), (context_length, 1), (input_size,)
    return model_of(network, jax.eval_shape(lambda: Prompt(*map(jnp.zeros, shapes))), layout)


def always(sampler: Sampler) -> Callable[..., Sampler]:
    """The same sampler whatever the setting, as ``planned`` and ``paired_losses`` take it."""
    return lambda *_: sampler


def falling_adam(steps: int) -> Callable[[Any], optax.GradientTransformation]:
    """``config -> Adam``, whose learning rate falls from the configuration's to zero as a cosine over the steps."""
    return lambda config: optax.adam(optax.cosine_decay_schedule(config.learning_rate, steps))


def planned(
    config: Any,
    network_model: Model,
    *,
    keys: Array,
    sampler_of: Callable[[Any, Any], Sampler],
    optimizer: Callable[[Any], optax.GradientTransformation],
    training_sampler_of: Callable[[Any, Any], Sampler] | None = None,
    settings: Any = None,
    **options: Any,
) -> Training:
    """The training of the members of one model, each measured against references on its own evaluation tasks.

    Args:
      config: the setting: ``batch`` (fresh tasks in a step), ``eval_tasks`` (that measure a member), ``steps``,
        ``measure_every``, and what ``sampler_of`` and ``optimizer`` read off it: they get it with its real numbers as
        arguments of the program (``flags.arguments``).
      network_model: what is trained.
      keys: (M,) member keys.
      sampler_of: ``(config, setting of the member) -> sampler`` of the tasks.
      optimizer: ``config -> transformation``.
      training_sampler_of: the same for the tasks of training, where they are drawn otherwise (a fixed set).
      settings: pytree whose leading axis is the member; a grid is just more members.
      options: as ``icl_lab.training.training`` takes them: ``objective``, ``references``, ``variants``, ``extra``,
        ``measured``.

    Returns:
      The training, with the metrics of ``icl_lab.training.training``.
    """

    def of_member(of: Callable[[Any, Any], Sampler]) -> Callable[[tuple], Sampler]:
        return lambda setting: of(*setting)

    return training(
        network_model,
        of_member(sampler_of),
        training_sampler=of_member(training_sampler_of or sampler_of),
        optimizer=lambda setting: optimizer(setting[0]),
        keys=keys,
        settings=(arguments(config, keys.shape[0]), settings),
        steps=config.steps,
        batch=config.batch,
        eval_tasks=config.eval_tasks,
        measure_every=config.measure_every,
        **options,
    )


def warmed_up(config: Any) -> optax.Schedule:
    """A linear rise from 0 to ``learning_rate`` over ``warm_up`` steps, then constant; with ``decay`` a cosine to 0."""
    rise = optax.linear_schedule(0.0, config.learning_rate, max(config.warm_up, 1))
    after = optax.constant_schedule(config.learning_rate)
    if config.decay:
        after = optax.cosine_decay_schedule(config.learning_rate, config.steps - config.warm_up)
    return optax.join_schedules([rise, after], [config.warm_up]) if config.warm_up else after


def mean_in_chunks(
    means: Callable[[Array, int], dict[str, Array]], key: Array, tasks: int, chunk: int = 10_000
) -> dict[str, Array]:
    """The mean over exactly this many fresh tasks, of which no more than a chunk is held in memory at once.

    Args:
      means: ``(key, size) -> {name: array}`` of means over ``size`` fresh tasks.
      key: of all draws.
      tasks: how many tasks count, all alike; a remainder is a chunk of its own, smaller and weighted by its size.
      chunk: tasks held in memory at once.
    """
    chunk = min(chunk, tasks)
    whole, rest = divmod(tasks, chunk)
    keys = jax.random.split(key, whole + (rest > 0))
    average = jax.tree.map(lambda values: values.mean(0), jax.lax.map(lambda k: means(k, chunk), keys[:whole]))
    if not rest:
        return average
    return jax.tree.map(lambda mean, last: mean + rest / tasks * (last - mean), average, means(keys[whole], rest))


FEW_TASKS = 100_000
"""Fewer are not worth an optimised program: compiled with little effort it takes five times as long, but three learners
of one layer at N = D = 10 compile in .4 s of CPU instead of 2.1, which 400,000 tasks make up for (two cores)."""


def paired_losses(
    learners: Callable[[Any], Mapping[str, BatchLearner]],
    sampler_of: Callable[[Array], Sampler],
    params: Any,
    keys: Array,
    tasks: int,
    settings: ArrayLike = 0.0,
    chunk: int = 10_000,
    objective: Objective = squared_error,
) -> dict[str, np.ndarray]:
    """Mean losses of several learners on the same fresh tasks, for each member at each setting of the sampler.

    Args:
      learners: ``params of a member -> {name: learner}``.
      sampler_of: ``setting -> sampler``.
      params: parameters with leading member axis.
      keys: (M,) keys, apart from those of training; every setting sees the same draws.
      tasks: tasks for each member, all of which count; drawn in chunks.
      settings: (S,) settings of the sampler, or a scalar.
      chunk: tasks held in memory at once.
      objective: the loss of every task.

    Returns:
      (M, S) mean losses by name; (M,) for a scalar setting.
    """

    def at(params: Any, key: Array, value: Array) -> dict[str, Array]:
        def means(k: Array, size: int) -> dict[str, Array]:
            samples = sampler_of(value)(k, size)
            return {
                name: objective(learner(samples.prompt), samples).mean() for name, learner in learners(params).items()
            }

        return mean_in_chunks(means, key, tasks, chunk)

    few = tasks * keys.size * np.size(settings) < FEW_TASKS

    @partial(jax.jit, compiler_options=effort.of("little" if few else "some"))
    def evaluate(params: Any, keys: Array, values: Array) -> dict[str, Array]:
        return jax.lax.map(lambda pk: jax.lax.map(lambda value: at(pk[0], pk[1], value), values), (params, keys))

    losses = jax.device_get(evaluate(params, keys, np.atleast_1d(np.asarray(settings, float))))
    return {name: v if np.ndim(settings) else v[:, 0] for name, v in losses.items()}
