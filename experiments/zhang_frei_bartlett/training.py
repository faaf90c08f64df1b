"""How the binaries of this paper train their one layer of linear self-attention."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from experiments import training
from experiments.settings import member_keys
from experiments.training import Model, squared_error
from experiments.zhang_frei_bartlett.settings import Setting, covariance
from icl_lab.constructions import linear_attention_blocks, linear_attention_weights
from icl_lab.fast import batched_predictions
from icl_lab.lab.session import Session
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts import Prompt, Sampler, gaussian_regression
from icl_lab.prompts.layouts import joint_layout
from icl_lab.training.fitting import Fit

NETWORK = LinearSelfAttention(parametrisation="merged", query_as_key=True, averaged=True)
LAYOUT = joint_layout(sign=1)


def initial_weights(key: Array, input_size: int, init_scale: float) -> dict:
    """The paper's initialisation: u = sigma, U11 = sigma M M^T / |M M^T|_F with M Gaussian, u12 = u21 = 0."""
    m = jax.random.normal(key, (input_size, input_size))
    square = m @ m.T
    return linear_attention_weights(init_scale * square / jnp.linalg.norm(square), init_scale)


def predictions(params: dict, prompts: Prompt) -> Array:
    """(B, 1) predictions of the layer on prompts of any length M, by which its attention is divided."""
    return batched_predictions(NETWORK, params, prompts, LAYOUT)


def lsa(input_size: int, init_scale: float) -> Model:
    """The paper's layer from the paper's initialisation."""
    return Model(lambda key: initial_weights(key, input_size, init_scale), predictions)


def product(params: dict) -> Array:
    """(..., D, D) A = u U11 + u12 u21^T: the part of a prediction that is linear in the task is h^T A x_q."""
    return block_product(linear_attention_blocks(params))


def block_product(blocks: Mapping[str, Any]) -> Any:
    """The same of blocks u (...), u11 (..., D, D), u12 and u21 (..., D)."""
    outer = blocks["u12"][..., :, None] * blocks["u21"][..., None, :]
    return blocks["u"][..., None, None] * blocks["u11"] + outer


def train_lsa(
    session: Session,
    stage: str,
    config: Setting,
    *,
    law: Callable[[Any, Any], Sampler] | None = None,
    keys: Array | None = None,
    **options,
) -> Fit:
    """Trains the layer; by default by Adam with a cosine on the law of the configuration.

    Args:
      session: where it runs.
      stage: name of the checkpoint and of the progress bar.
      config: the setting.
      law: ``setting -> sampler``; None means Gaussian inputs with the configuration's covariance and length.
      keys: (M,) member keys; None means those of the configuration.
      **options: of ``experiments.training.train``.

    Returns:
      A ``Fit``; its losses are half mean squared errors.
    """

    def optimiser(now: Setting) -> optax.GradientTransformation:
        return optax.adam(optax.cosine_decay_schedule(now.learning_rate, config.steps))

    n = config.context_length
    return training.train(
        session,
        stage,
        config,
        lsa(len(config.spectrum), config.init_scale),
        keys=member_keys(config) if keys is None else keys,
        law=law or (lambda now, _: gaussian_regression(context_length=n, covariance=covariance(now))),
        optimiser=optimiser,
        objective=squared_error,
        **options,
    )
