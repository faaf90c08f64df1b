"""Whether compiled programs see numbers that are not finite, by which members that diverge are stopped."""

import functools
import os

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from icl_lab.training import effort, processes


def check() -> None:
    """Refuses flags of XLA under which programs take NaN or infinity for numbers; one small program is asked, once.

    Raises:
      RefusedError: a ValueError, naming ``XLA_FLAGS``.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if flags and not seen():
        raise processes.RefusedError(
            f"XLA_FLAGS={flags}: compiled programs do not see NaN or infinity, so members that diverge would go on; "
            "allowed is XLA_FLAGS without fast math (xla_cpu_enable_fast_math), or one that honours both"
        )


@functools.cache
def seen() -> bool:
    """Whether a compiled program tells NaN and infinity from numbers, in what it computes itself."""

    @functools.partial(jax.jit, compiler_options=effort.of("full"))
    def told(values: Array) -> Array:
        computed = 2 * values
        return jnp.stack([jnp.isfinite(computed).all(), jnp.isnan(computed).any()])

    values = np.zeros((3, 4), np.float32)
    values[:2, 1] = np.nan, np.inf
    return [told(row).tolist() for row in values] == [[False, True], [False, False], [True, False]]
