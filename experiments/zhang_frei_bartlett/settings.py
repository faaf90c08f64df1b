"""What the binaries of this paper are set by: the law of the prompts and the training of one linear attention layer."""

import dataclasses

import numpy as np

from experiments.settings import Members
from icl_lab.lab.flags import setting


@dataclasses.dataclass(frozen=True)
class Law(Members):
    """The law of the prompts: inputs N(0, Lambda), tasks N(0, I), no noise."""

    context_length: int = setting(20, "N, labelled examples in a training prompt", at_least=1)
    spectrum: tuple[float, ...] = setting((2.0, 1.5, 1.0, 0.6, 0.3), "eigenvalues of the covariance Lambda", above=0)


@dataclasses.dataclass(frozen=True)
class Task(Law):
    """The law of the prompts, and on how many a member is measured."""

    eval_tasks: int = setting(10_000, "prompts that measure a member, the same at every measurement", at_least=1)


@dataclasses.dataclass(frozen=True)
class Setting(Task):
    """How one layer of linear self-attention is trained by Adam from the paper's initialisation (Assumption 3.3)."""

    steps: int = setting(6000, "training steps, a multiple of measure_every", at_least=1)
    measure_every: int = setting(200, "steps between measurements", at_least=1)
    learning_rate: float = setting(0.01, "Adam's learning rate at the start; it falls to zero as a cosine", above=0)
    batch: int = setting(256, "fresh prompts in a training step", at_least=1)
    init_scale: float = setting(0.1, "sigma of the initialisation u = sigma, U11 = sigma Theta Theta^T", above=0)


def covariance(config: Law) -> np.ndarray:
    """(D, D) Lambda, diagonal: everything here is equivariant under rotations."""
    return np.diag(np.asarray(config.spectrum, np.float64))
