"""How the binaries of this paper train and measure a network."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.typing import ArrayLike

from experiments.von_oswald.settings import Setting, Task, member_keys, sampler
from icl_lab.compare import compare_batches
from icl_lab.constructions import gd_plus_plus_weights
from icl_lab.experiment import Session
from icl_lab.layouts import Layout, joint_layout
from icl_lab.models import Transformer, batched_predictions, folded_weights
from icl_lab.prompts import BatchLearner, Prompt, Sample, Sampler
from icl_lab.training import Fit


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


def model(network: Transformer, config: Task, layout: Layout | None = None) -> Model:
    """A network on prompts of this configuration's sizes, in a layout (None: joint tokens)."""
    empty = Prompt(
        jnp.zeros((config.context_length, config.input_size)),
        jnp.zeros((config.context_length, 1)),
        jnp.zeros((config.input_size,)),
    )
    init = lambda key: dict(network.init(key, (layout or joint_layout()).encode(empty)))  # noqa: E731
    return Model(init, partial(_predict, network, layout), network.layers)


def _predict(network: Transformer, layout: Layout | None, params: dict, prompts: Prompt) -> Array:
    return batched_predictions(network, params, prompts, layout)


def optimizer(config: Setting) -> optax.GradientTransformation:
    """Adam after a clip of the global norm (section 0, facts 7 to 9)."""
    return optax.chain(
        optax.clip_by_global_norm(config.gradient_clip), optax.adam(config.learning_rate, b2=config.adam_b2)
    )


def squared_error(predictions: Array, samples: Sample) -> Array:
    """(B,) half the squared error of every task, the loss of the released code."""
    return 0.5 * jnp.sum((predictions - samples.target) ** 2, axis=1)


Objective = Callable[[Array, Sample], Array]
"""``(predictions (B, O), samples) -> (B,)`` losses."""


def train(
    session: Session,
    stage: str,
    config: Setting,
    trained: Model,
    *,
    keys: Array | None = None,
    law: Callable[[Any], Sampler] | None = None,
    training_law: Callable[[Any], Sampler] | None = None,
    settings: Any = None,
    objective: Objective = squared_error,
    references: Mapping[str, BatchLearner] | None = None,
    variants: Callable[[dict], Mapping[str, BatchLearner]] | None = None,
    extra: Callable[[dict, Sample], dict[str, Array]] | None = None,
    optimiser: optax.GradientTransformation | None = None,
    measured: bool = True,
) -> Fit:
    """Trains the members of one model and measures each against the references on its own evaluation tasks.

    Args:
      session: where it runs.
      stage: name of the checkpoint and of the progress bar.
      config: the setting.
      trained: what is trained.
      keys: (M,) member keys; None means ``member_keys(config)``.
      law: ``setting -> sampler`` of the tasks; None means the configuration's.
      training_law: the same for the tasks of training, where they are drawn otherwise (a fixed set).
      settings: pytree whose leading axis is the member; a grid is just more members.
      objective: the loss of every task.
      references: learners to compare with, by name.
      variants: ``params -> learners`` made from the parameters, whose losses are measured too.
      extra: ``(params, evaluation tasks) -> {name: array}``, measured beside.
      optimiser: None means that of the configuration.
      measured: False measures the training loss only.

    Returns:
      A ``Fit`` whose metrics are ``loss``, ``<variant>_loss``, and for each reference ``<reference>_loss`` and
      ``<reference>_<comparison>``.
    """
    keys = member_keys(config) if keys is None else keys
    law = law or (lambda _: sampler(config))
    training = training_law or law

    def mean_loss(learner: BatchLearner, samples: Sample) -> Array:
        return objective(learner(samples.prompt), samples).mean()

    def loss(params: dict, key: Array, setting: Any) -> Array:
        return mean_loss(trained.learner(params), training(setting)(key, config.batch))

    def measure(params: dict, key: Array, setting: Any) -> dict[str, Array]:
        samples = law(setting)(key, config.eval_tasks)
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
        optimiser or optimizer(config),
        keys,
        settings,
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


def paired_losses(
    learners: Callable[[Any], Mapping[str, BatchLearner]],
    law: Callable[[Array], Sampler],
    params: Any,
    keys: Array,
    tasks: int,
    settings: ArrayLike = 0.0,
    chunk: int = 10_000,
    objective: Objective = squared_error,
) -> dict[str, np.ndarray]:
    """Mean losses of several learners on the same fresh tasks, for each member at each setting of the law.

    Args:
      learners: ``params of a member -> {name: learner}``.
      law: ``setting -> sampler``.
      params: parameters with leading member axis.
      keys: (M,) keys, apart from those of training; every setting sees the same draws.
      tasks: tasks for each member; drawn in chunks.
      settings: (S,) settings of the law, or a scalar.
      chunk: tasks held in memory at once.
      objective: the loss of every task.

    Returns:
      (M, S) mean losses by name; (M,) for a scalar setting.
    """
    chunks = max(1, tasks // chunk)

    def at(params: Any, key: Array, value: Array) -> dict[str, Array]:
        def part(k: Array) -> dict[str, Array]:
            samples = law(value)(k, min(chunk, tasks))
            return {
                name: objective(learner(samples.prompt), samples).mean() for name, learner in learners(params).items()
            }

        return jax.tree.map(jnp.mean, jax.lax.map(part, jax.random.split(key, chunks)))

    @jax.jit
    def evaluate(params: Any, keys: Array, values: Array) -> dict[str, Array]:
        return jax.lax.map(lambda pk: jax.lax.map(lambda value: at(pk[0], pk[1], value), values), (params, keys))

    found = evaluate(params, keys, jnp.atleast_1d(jnp.asarray(settings, float)))
    return {name: np.asarray(v if np.ndim(settings) else v[:, 0]) for name, v in found.items()}


def constructed(config: Task, learning_rates, gammas=0.0) -> dict:
    """Hand-built GD or GD++ weights in float32, for any network of one head without MLP."""
    weights = gd_plus_plus_weights(
        learning_rates, gammas, context_length=config.context_length, input_size=config.input_size
    )
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), weights)


def strengths(params: dict, input_size: int) -> dict[str, Array]:
    """GD++ strengths read off one-head weights: ``gamma`` and ``eta_over_n``, (S,) each (Fig. 9 and 13).

    With A scaled to mean input diagonal 1, B has -gamma on the inputs and -eta/N on the label.
    """
    a, b = (w[:, 0] for w in folded_weights(params))
    diagonal = lambda m: jnp.diagonal(m[:, :input_size, :input_size], axis1=1, axis2=2).mean(axis=1)  # noqa: E731
    scale = diagonal(a)
    return {"gamma": -scale * diagonal(b), "eta_over_n": -scale * b[:, input_size, input_size]}
