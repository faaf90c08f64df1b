"""Settings of the binaries of every paper: the seed and the members."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from icl_lab.lab.flags import setting


@dataclasses.dataclass(frozen=True)
class Members:
    """Who is trained."""

    seed: int = setting(0, "seed of every random draw", at_least=0, at_most=2**32 - 1)
    members: int = setting(10, "independent trainings, each with its own start, data and evaluation tasks", at_least=1)


def member_keys(config: Members, stream: int = 0, members: int | None = None) -> Array:
    """(M,) typed keys, one a member; streams of one experiment have different keys."""
    return _member_keys(np.uint32(config.seed), np.uint32(stream), members or config.members)


@partial(jax.jit, static_argnums=2)
def _member_keys(seed: Array, stream: Array, members: int) -> Array:
    key = jax.random.fold_in(jax.random.key(seed), stream)
    return jax.vmap(lambda m: jax.random.fold_in(key, m))(jnp.arange(members))
