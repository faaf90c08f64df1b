"""How the binaries of this paper train and measure a network."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from experiments import training
from experiments.settings import member_keys
from experiments.training import Model
from experiments.von_oswald.settings import Networks, Setting, Task, sampler, unpack
from icl_lab.compare import interpolate
from icl_lab.constructions import gd_plus_plus_weights
from icl_lab.lab.session import Session
from icl_lab.models import Transformer, folded_weights
from icl_lab.prompts import BatchLearner, Sampler
from icl_lab.prompts.layouts import Layout
from icl_lab.training.fitting import Fit


def model(network: Transformer, config: Task, layout: Layout | None = None) -> Model:
    """A network on prompts of this configuration's sizes, in a layout (None: joint tokens)."""
    return training.model(network, config.context_length, config.input_size, layout)


def models(config: Networks) -> dict[str, Model]:
    """What is trained where several networks are, by the network's name, which names its training too."""
    return {name: model(network, one) for name, (network, one) in unpack(config).items()}


def optimizer(config: Setting) -> optax.GradientTransformation:
    """Adam after a clip of the gradient's global norm, as in the released code."""
    return optax.chain(
        optax.clip_by_global_norm(config.gradient_clip), optax.adam(config.learning_rate, b2=config.adam_b2)
    )


def train(
    session: Session,
    stage: str,
    config: Setting,
    trained: Model,
    *,
    keys: Array | None = None,
    law: Callable[[Any, Any], Sampler] | None = None,
    optimiser: Callable[[Any], optax.GradientTransformation] | None = None,
    **options,
) -> Fit:
    """``experiments.training.train``, by default with the configuration's keys, tasks and optimizer."""
    return training.train(
        session,
        stage,
        config,
        trained,
        keys=member_keys(config) if keys is None else keys,
        law=law or (lambda now, _: sampler(now)),
        optimiser=optimiser or optimizer,
        **options,
    )


def constructed(config: Task, learning_rates, gammas=0.0) -> dict:
    """Hand-built GD or GD++ weights in float32, for any network of one head without MLP."""
    weights = gd_plus_plus_weights(
        learning_rates, gammas, context_length=config.context_length, input_size=config.input_size
    )
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), weights)


def interpolated(built: Model, weights: dict, config: Task) -> Callable[[dict], BatchLearner]:
    """``params -> learner``: the mean of trained one-head weights and constructed ones (Fig. 2 and 3)."""
    return lambda params: built.learner(interpolate(params, weights, input_size=config.input_size))


def strengths(params: dict, input_size: int) -> dict[str, Array]:
    """GD++ strengths read off one-head weights: ``gamma`` and ``eta_over_n``, (S,) each (Fig. 9 and 13).

    With A scaled to mean input diagonal 1, B has -gamma on the inputs and -eta/N on the label.
    """
    a, b = (w[:, 0] for w in folded_weights(params))
    diagonal = lambda m: jnp.diagonal(m[:, :input_size, :input_size], axis1=1, axis2=2).mean(axis=1)  # noqa: E731
    scale = diagonal(a)
    return {"gamma": -scale * diagonal(b), "eta_over_n": -scale * b[:, input_size, input_size]}
