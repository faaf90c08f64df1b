"""Settings of the binaries of this paper, and how they train and measure a network."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments import training
from experiments.settings import Members, member_keys
from icl_lab.compare import interpolate
from icl_lab.constructions import gd_plus_plus_weights
from icl_lab.lab.constraints import as_long_as, at_most, holds, multiple_of, once
from icl_lab.lab.flags import setting
from icl_lab.models import LinearSelfAttention, Transformer, folded_weights
from icl_lab.prompts import BatchLearner, Sampler, input_variance, linear_regression
from icl_lab.prompts.layouts import Layout
from icl_lab.training import Model
from icl_lab.training.plans import Training


@dataclasses.dataclass(frozen=True)
class Task(Members):
    """The task distribution and how a member is measured; the defaults are those of the released code."""

    context_length: int = setting(10, "N, context pairs in a prompt", at_least=1)
    input_size: int = setting(10, "D, dimension of the inputs", at_least=1)
    input_range: float = setting(1.0, "r, inputs are U(-r/2, r/2): 2 in the paper's text, 1 in its figures", above=0)
    eval_tasks: int = setting(10_000, "tasks that measure a member, the same at every measurement", at_least=1)
    adam_b2: float = setting(
        0.98, "Adam's b2: 0.98 in the code, 0.999 in the text", at_least=0, at_most=0.9999, argument=False
    )
    init_scale: float = setting(0.002, "weights start with variance init_scale / layers / fan_in", above=0)


@dataclasses.dataclass(frozen=True)
class Schedule(Task):
    """How a network is trained, whatever it is trained on."""

    steps: int = setting(5000, "training steps, a multiple of measure_every", at_least=1)
    measure_every: int = setting(100, "steps between measurements", at_least=1)
    learning_rate: float = setting(1e-3, "Adam's learning rate", above=0)
    gradient_clip: float = setting(
        1e-3, "clip of the gradient's norm: 0.001 in the code for K <= 2, 10 in the text", above=0
    )


@dataclasses.dataclass(frozen=True)
class Setting(Schedule):
    """The training setting of one network."""

    batch: int = setting(2048, "fresh tasks in a training step", at_least=1)


SCHEDULE = (multiple_of("steps", "measure_every"),)
DECAYS = (*SCHEDULE, at_most("decay_steps", "steps"))  # a longer decay would start at a lower rate


@dataclasses.dataclass(frozen=True)
class Networks(Task):
    """Several networks in one figure, one value per network in every tuple."""

    networks: tuple[str, ...] = setting(("looped_2", "free_5"), "looped_K or free_K: K layers, shared or own weights")
    only: str = setting("all", "the one network to run, or all")
    heads: tuple[int, ...] = setting((1, 1), "heads of each network", at_least=1)
    mlp_widths: tuple[int, ...] = setting((0, 0), "hidden width of the MLPs of each network, 0 for none", at_least=0)
    batches: tuple[int, ...] = setting((2048, 2048), "batch of each network", at_least=1)
    steps: tuple[int, ...] = setting((5000, 50_000), "training steps of each network", at_least=1)
    measurements: tuple[int, ...] = setting((50, 50), "measurements during the training of each network", at_least=1)
    learning_rates: tuple[float, ...] = setting((1e-3, 5e-4), "learning rate: 1e-3 for K <= 3, else 5e-4", above=0)
    gradient_clips: tuple[float, ...] = setting((1e-3, 10.0), "gradient clip: 0.001 for K <= 2, else 10", above=0)
    token_clips: tuple[float, ...] = setting(
        (0.0, 10.0), "token clip: 10 for K > 3 (text: K > 2), 0 is off", at_least=0
    )
    tuning_contexts: int = setting(100_000, "contexts on which GD and GD++ are tuned, and as many held out", at_least=2)
    tuning_steps: int = setting(30_000, "Adam steps that tune GD++ where tokens are clipped", at_least=1)
    tuning_batch: int = setting(512, "tasks in a step that tunes GD++", at_least=1)


NETWORKS = (
    as_long_as("networks", "heads", "mlp_widths", "batches", "steps", "measurements", "learning_rates",
               "gradient_clips", "token_clips"),
    once("networks"),
    holds("looped_K or free_K with K >= 1 layers", "networks",
          when=lambda c: all(re.fullmatch(r"(looped|free)_[1-9]\d*", name) for name in c.networks)),
    holds("steps that are a multiple of the measurements of each network", "steps", "measurements",
          when=lambda c: not any(steps % times for steps, times in zip(c.steps, c.measurements))),
    holds("all, or one of --networks", "only", "networks", when=lambda c: c.only in ("all", *c.networks)),
)  # fmt: skip


def chosen_of(config: Mapping[str, Any]) -> list[str]:
    """The networks to run, by a configuration's plain mapping."""
    return [name for name in config["networks"] if config["only"] in ("all", name)]


def unpack(config: Networks) -> dict[str, tuple[LinearSelfAttention, Setting]]:
    """Module and training setting of each network to run, by name."""
    networks = {}
    for name in chosen_of(vars(config)):
        i, (kind, layers) = config.networks.index(name), name.split("_")
        network = LinearSelfAttention(
            layers=int(layers),
            looped=kind == "looped",
            heads=config.heads[i],
            mlp_width=config.mlp_widths[i],
            token_clip=config.token_clips[i],
            init_scale=config.init_scale,
        )
        one = setting_of(
            config,
            batch=config.batches[i],
            steps=config.steps[i],
            measure_every=config.steps[i] // config.measurements[i],
            learning_rate=config.learning_rates[i],
            gradient_clip=config.gradient_clips[i],
        )
        networks[name] = network, one
    return networks


def setting_of(config: Task, **changes) -> Setting:
    """The training setting that a configuration has, with changes."""
    names = {field.name for field in dataclasses.fields(Setting)}
    return Setting(**({name: value for name, value in vars(config).items() if name in names} | changes))


def sampler(config: Task, **changes) -> Sampler:
    """The task distribution of training, with changes (a shifted input range, corrupted labels ...)."""
    options = {
        "context_length": config.context_length,
        "input_size": config.input_size,
        "input_range": config.input_range,
    }
    return linear_regression(**(options | changes))


def training_tasks(config: Task, _: Any) -> Sampler:
    """The task distribution of training, the same whatever the setting of a member."""
    return sampler(config)


def law_sizes(config: Task) -> dict[str, Any]:
    """The task distribution as the closed forms take it."""
    return {
        "context_length": config.context_length,
        "input_size": config.input_size,
        "input_variance": input_variance("uniform", config.input_range),
    }


def model(network: Transformer, config: Task, layout: Layout | None = None) -> Model:
    """A network on prompts of this configuration's sizes, in a layout (None: joint tokens)."""
    return training.model(network, config.context_length, config.input_size, layout)


def looped(config: Task, layers: int, **changes) -> LinearSelfAttention:
    """A layer of linear self-attention, by default with one head, applied as often as this."""
    return LinearSelfAttention(layers=layers, looped=True, init_scale=config.init_scale, **changes)


def one_layer(config: Task, **changes) -> Model:
    """One layer of linear self-attention: with one head and no MLP it can be a step of gradient descent."""
    return model(looped(config, 1, **changes), config)


def optimizer(config: Setting, decay_steps: int = 0) -> optax.GradientTransformation:
    """Adam after a clip of the gradient's global norm, as in the released code.

    Over the last ``decay_steps`` the learning rate falls linearly to zero; the released code keeps it constant (0).
    """
    rate: Any = config.learning_rate
    if decay_steps:
        rate = lambda step: config.learning_rate * jnp.minimum(1.0, (config.steps - step) / decay_steps)  # noqa: E731
    return optax.chain(optax.clip_by_global_norm(config.gradient_clip), optax.adam(rate, b2=config.adam_b2))


def planned(
    config: Setting,
    network_model: Model,
    *,
    stream: int = 0,
    members: int | None = None,
    sampler_of: Callable[[Any, Any], Sampler] = training_tasks,
    optimizer: Callable[[Any], optax.GradientTransformation] = optimizer,
    **options: Any,
) -> Training:
    """``experiments.training.planned``, by default with the tasks and the optimizer of the released code.

    ``stream`` tells apart the keys of the trainings of one figure, ``members`` are as many as the configuration has.
    """
    options = {"keys": member_keys(config, stream, members)} | options
    return training.planned(config, network_model, sampler_of=sampler_of, optimizer=optimizer, **options)


def constructed(config: Task, learning_rates, gammas=0.0) -> dict:
    """Hand-built GD or GD++ weights in float32, for any network of one head without MLP."""
    weights = gd_plus_plus_weights(
        learning_rates, gammas, context_length=config.context_length, input_size=config.input_size
    )
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), weights)


def interpolated(built: Model, weights: dict, config: Task) -> Callable[[dict], BatchLearner]:
    """``params -> learner``: the mean of trained one-head weights and constructed ones (Fig. 2 and 3)."""
    return lambda params: built.learner(interpolate(params, weights, input_size=config.input_size))


def decoupled(built: Model, config: Task) -> Callable[[dict], BatchLearner]:
    """``params -> learner``: one-head weights without their label couplings.

    Zero become the label row and column of A and what B carries between inputs and label, none of which GD++ has.
    """
    x = np.arange(config.input_size + 1) < config.input_size
    attend, write = (pairs.outer(x, x)[None, None] for pairs in (np.logical_and, np.equal))

    def learner(params: dict) -> BatchLearner:
        a, b = folded_weights(params)
        identity = jnp.broadcast_to(jnp.eye(config.input_size + 1), a.shape)
        return built.learner({"params": {"w_q": a * attend, "w_k": identity, "w_v": identity, "w_p": b * write}})

    return learner


def strengths(params: dict, input_size: int) -> dict[str, Array]:
    """GD++ strengths read off one-head weights: ``gamma`` and ``eta_over_n``, (S,) each (Fig. 9 and 13).

    With A scaled to mean input diagonal 1, B has -gamma on the inputs and -eta/N on the label.
    """
    a, b = (w[:, 0] for w in folded_weights(params))
    diagonal = lambda m: jnp.diagonal(m[:, :input_size, :input_size], axis1=1, axis2=2).mean(axis=1)  # noqa: E731
    scale = diagonal(a)
    return {"gamma": -scale * diagonal(b), "eta_over_n": -scale * b[:, input_size, input_size]}
