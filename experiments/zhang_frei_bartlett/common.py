"""What the binaries of this paper share: settings, and the layer of linear self-attention that they train."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments import training
from experiments.settings import Members
from icl_lab.constructions import linear_attention_blocks, linear_attention_weights
from icl_lab.fast import batch_learner
from icl_lab.lab import setting
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts import Prompt, Sampler, gaussian_regression
from icl_lab.prompts.layouts import joint_layout
from icl_lab.training import Model
from icl_lab.training.plans import Training

NETWORK = LinearSelfAttention(parametrisation="merged", query_as_key=True, averaged=True)
LAYOUT = joint_layout(sign=1)


@dataclasses.dataclass(frozen=True)
class Tasks(Members):
    """The task distribution: inputs N(0, Lambda), task vectors N(0, I), no noise."""

    context_length: int = setting(20, "N, labelled examples in a training prompt", at_least=1)
    spectrum: tuple[float, ...] = setting((2.0, 1.5, 1.0, 0.6, 0.3), "eigenvalues of the covariance Lambda", above=0)


@dataclasses.dataclass(frozen=True)
class Setting(Tasks):
    """How one layer of linear self-attention is trained by Adam from the paper's initialisation (Assumption 3.3)."""

    eval_tasks: int = setting(10_000, "prompts that measure a member, the same at every measurement", at_least=1)
    steps: int = setting(6000, "training steps, a multiple of measure_every", at_least=1)
    measure_every: int = setting(200, "steps between measurements", at_least=1)
    learning_rate: float = setting(0.01, "Adam's learning rate at the start; it falls to zero as a cosine", above=0)
    batch: int = setting(256, "fresh prompts in a training step", at_least=1)
    init_scale: float = setting(0.1, "sigma of the initialisation u = sigma, U11 = sigma Theta Theta^T", above=0)


def covariance(config: Tasks) -> np.ndarray:
    """(D, D) Lambda, diagonal. Losses, their flow and SGD are equivariant under rotations; Adam is not, as it divides
    every entry of the gradient by its own size: what it ends at belongs to these coordinates.
    """
    return np.diag(np.asarray(config.spectrum, np.float64))


def initial_weights(key: Array, input_size: int, init_scale: float) -> dict:
    """The paper's initialisation: u = sigma, U11 = sigma M M^T / |M M^T|_F with M Gaussian, u12 = u21 = 0."""
    m = jax.random.normal(key, (input_size, input_size))
    square = m @ m.T
    return linear_attention_weights(init_scale * square / jnp.linalg.norm(square), init_scale)


def predictions(params: dict, prompts: Prompt) -> Array:
    """(B, 1) predictions of the layer on prompts of any length M, by which its attention is divided."""
    return batch_learner(NETWORK, params, LAYOUT)(prompts)


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


def planned(config: Setting, keys: Array, *, sampler: Sampler | None = None, measured: bool = True) -> Training:
    """The training of the layer by Adam, whose learning rate falls to zero as a cosine, on half mean squared errors.

    Its tasks are those of the sampler, None: of the configuration. Not ``measured``, only the training loss is.
    """

    def tasks(now: Setting, _: None) -> Sampler:
        return sampler or gaussian_regression(context_length=config.context_length, covariance=covariance(now))

    return training.planned(
        config, lsa(len(config.spectrum), config.init_scale), keys=keys, sampler_of=tasks,
        optimizer=training.falling_adam(config.steps), measured=measured,
    )  # fmt: skip
