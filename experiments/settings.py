"""Settings of the binaries of every paper: the seed, the members, and checks of a training schedule."""

import dataclasses
from functools import partial
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from icl_lab.lab.flags import FlagError, setting


@dataclasses.dataclass(frozen=True)
class Members:
    """Who is trained."""

    seed: int = setting(0, "seed of every random draw", at_least=0, at_most=2**32 - 1)
    members: int = setting(10, "independent trainings, each with its own start, data and evaluation tasks", at_least=1)


class Scheduled(Protocol):
    """A configuration with a training schedule."""

    @property
    def steps(self) -> int:
        """Training steps."""

    @property
    def measure_every(self) -> int:
        """Steps between measurements."""


def check(config: Scheduled, flag: str = "steps") -> None:
    """Raises FlagError where the steps of a training, given by this flag, do not fit its measurements."""
    steps = getattr(config, flag)
    if steps % config.measure_every:
        raise FlagError(f"--{flag}={steps}: allowed is a multiple of --measure_every={config.measure_every}")
    if (decay := getattr(config, "decay_steps", 0)) > steps and flag == "steps":  # it would start at a lower rate
        raise FlagError(f"--decay_steps={decay}: allowed is at most --steps={steps}")


def check_each_once(name: str, values: tuple) -> None:
    """Raises FlagError where a value is given twice: stages are named by it."""
    if len(set(values)) != len(values):
        raise FlagError(f"--{name}={','.join(map(str, values))}: allowed is each value once")


def member_keys(config: Members, stage: int = 0, members: int | None = None) -> Array:
    """(M,) typed keys, one a member; stages of one experiment have different keys."""
    return _member_keys(np.uint32(config.seed), np.uint32(stage), members or config.members)


@partial(jax.jit, static_argnums=2)
def _member_keys(seed: Array, stage: Array, members: int) -> Array:
    key = jax.random.fold_in(jax.random.key(seed), stage)
    return jax.vmap(lambda m: jax.random.fold_in(key, m))(jnp.arange(members))
