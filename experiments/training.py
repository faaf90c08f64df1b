"""How the binaries train and measure a learner."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.typing import ArrayLike

from experiments.settings import Scheduled
from icl_lab.compare import compare_batches
from icl_lab.fast import batched_predictions
from icl_lab.lab.flags import arguments
from icl_lab.lab.session import Session
from icl_lab.models import Transformer
from icl_lab.prompts import BatchLearner, Prompt, Sample, Sampler
from icl_lab.prompts.layouts import Layout, joint_layout
from icl_lab.training.fitting import Fit


class Training(Scheduled, Protocol):
    """A configuration with what a training is set by."""

    @property
    def batch(self) -> int:
        """Fresh tasks in a training step."""

    @property
    def eval_tasks(self) -> int:
        """Tasks that measure a member."""


class Model(NamedTuple):
    """What is trained: parameters, and the learner that they are.

    Attributes:
      init: ``key -> params``.
      predict: ``(params, B prompts) -> (B, O)``.
      layers: how deep it is, which decides how many members are vectorised together.
    """

    init: Callable[[Array], dict]
    predict: Callable[[dict, Prompt], Array]
    layers: int = 1

    def learner(self, params: dict) -> BatchLearner:
        """The learner that these parameters are, for a whole batch of prompts."""
        return partial(self.predict, params)


def model(network: Transformer, context_length: int, input_size: int, layout: Layout | None = None) -> Model:
    """A network on prompts of N pairs in D dimensions, in a layout (None: joint tokens)."""
    empty = Prompt(
        jnp.zeros((context_length, input_size)),
        jnp.zeros((context_length, 1)),
        jnp.zeros((input_size,)),
    )
    init = lambda key: dict(network.init(key, (layout or joint_layout()).encode(empty)))  # noqa: E731
    return Model(init, partial(_predict, network, layout), network.layers)


class Learnt(Protocol):
    """What parameters make a learner."""

    def learner(self, params: dict) -> BatchLearner:
        """The learner that these parameters are, for a whole batch of prompts."""


def learners_of(models: Callable[[Any], Mapping[str, Learnt]]) -> Callable[[Any], dict[str, Callable]]:
    """What the final parameters of every training predict (``Experiment.learners``).

    Args:
      models: ``config -> {stage: model}``.
    """
    return lambda config: {stage: model.learner for stage, model in models(config).items()}


def _predict(network: Transformer, layout: Layout | None, params: dict, prompts: Prompt) -> Array:
    return batched_predictions(network, params, prompts, layout)


def squared_error(predictions: Array, samples: Sample) -> Array:
    """(B,) half the squared error of every task, the loss of the released code.

    Raises:
      AssertionError: for predictions that are not (B, O): (B,) would be broadcast to every pair of tasks.
    """
    chex.assert_equal_shape([predictions, samples.target])
    return 0.5 * jnp.sum((predictions - samples.target) ** 2, axis=1)


def always(sampler: Sampler) -> Callable[..., Sampler]:
    """The same sampler whatever the setting, as ``train`` and ``paired_losses`` take it."""
    return lambda *_: sampler


Objective = Callable[[Array, Sample], Array]
"""``(predictions (B, O), samples) -> (B,)`` losses."""


def train(
    session: Session,
    stage: str,
    config: Training,
    trained: Model,
    *,
    keys: Array,
    sampler_of: Callable[[Any, Any], Sampler],
    optimizer: Callable[[Any], optax.GradientTransformation],
    training_sampler_of: Callable[[Any, Any], Sampler] | None = None,
    settings: Any = None,
    objective: Objective = squared_error,
    references: Mapping[str, BatchLearner] | None = None,
    variants: Callable[[dict], Mapping[str, BatchLearner]] | None = None,
    extra: Callable[[dict, Sample], dict[str, Array]] | None = None,
    measured: bool = True,
) -> Fit:
    """Trains the members of one model and measures each against the references on its own evaluation tasks.

    Args:
      session: where it runs.
      stage: name of the checkpoint and of the progress bar.
      config: the setting: ``batch``, ``eval_tasks``, ``steps``, ``measure_every``, and what ``sampler_of`` and
        ``optimizer`` read off it: they get it with its real numbers as arguments of the program (``flags.arguments``).
      trained: what is trained.
      keys: (M,) member keys.
      sampler_of: ``(config, setting of the member) -> sampler`` of the tasks.
      optimizer: ``config -> transformation``.
      training_sampler_of: the same for the tasks of training, where they are drawn otherwise (a fixed set).
      settings: pytree whose leading axis is the member; a grid is just more members.
      objective: the loss of every task.
      references: learners to compare with, by name.
      variants: ``params -> learners`` made from the parameters, whose losses are measured too.
      extra: ``(params, evaluation tasks) -> {name: array}``, measured beside.
      measured: False measures the training loss only.

    Returns:
      A ``Fit`` whose metrics are ``train_loss`` (of ``fit``), ``loss``, ``<variant>_loss``, for each reference
      ``<reference>_loss`` and ``<reference>_<comparison>``, and what ``extra`` names.
    """
    training = training_sampler_of or sampler_of

    def mean_loss(learner: BatchLearner, samples: Sample) -> Array:
        return objective(learner(samples.prompt), samples).mean()

    def loss(params: dict, key: Array, setting: tuple) -> Array:
        return mean_loss(trained.learner(params), training(*setting)(key, config.batch))

    def measure(params: dict, key: Array, setting: tuple) -> dict[str, Array]:
        samples = sampler_of(*setting)(key, config.eval_tasks)
        found = {"loss": mean_loss(trained.learner(params), samples)}
        for name, reference in (references or {}).items():
            found[f"{name}_loss"] = mean_loss(reference, samples)
            compared = compare_batches(trained.learner(params), reference, samples)
            found |= {f"{name}_{metric}": value for metric, value in compared.items()}
        for name, variant in (variants(params) if variants else {}).items():
            found[f"{name}_loss"] = mean_loss(variant, samples)
        return found | (extra(params, samples) if extra is not None else {})

    return session.fit(
        stage,
        lambda key, _: trained.init(key),
        loss,
        lambda setting: optimizer(setting[0]),
        keys,
        (arguments(config, keys.shape[0]), settings),
        steps=config.steps,
        measure_every=config.measure_every,
        measure=measure if measured else None,
        members_at_once=members_at_once(config.batch, trained.layers),
    )


def members_at_once(batch: int, layers: int) -> int | None:
    """All members together on an accelerator; on a CPU as many as fill its caches.

    That is about 8192 tasks for one or two layers, 1024 for more, whose gradient keeps every layer's matrices.
    """
    tasks = 8192 if layers <= 2 else 1024
    return max(1, tasks // batch) if jax.default_backend() == "cpu" else None


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
    found = jax.tree.map(lambda values: values.mean(0), jax.lax.map(lambda k: means(k, chunk), keys[:whole]))
    if not rest:
        return found
    return jax.tree.map(lambda mean, last: mean + rest / tasks * (last - mean), found, means(keys[whole], rest))


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

    @jax.jit
    def evaluate(params: Any, keys: Array, values: Array) -> dict[str, Array]:
        return jax.lax.map(lambda pk: jax.lax.map(lambda value: at(pk[0], pk[1], value), values), (params, keys))

    found = evaluate(params, keys, jnp.atleast_1d(jnp.asarray(settings, float)))
    return {name: np.asarray(v if np.ndim(settings) else v[:, 0]) for name, v in found.items()}
