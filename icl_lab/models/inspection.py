"""The one door into a network: what it computed on the way (Trace), and what to put there instead (Intervention)."""

from flax import struct
from jax import Array
from jax import numpy as jnp
from jax.typing import ArrayLike


@struct.dataclass
class Trace:
    """What a network computed on the way to one prediction. L layers, H heads, T tokens, N keys (T with the query as
    a key), E token width.

    Attributes:
      attention: (L, H, T, N) attention patterns.
      head_output: (L, H, T, E) what each head adds to the residual stream, before damping and masking.
      residual: (L + 1, T, E) residual stream: the input tokens, then the tokens after each block.
    """

    attention: Array
    head_output: Array
    residual: Array


@struct.dataclass
class Intervention:
    """Array data that replaces parts of a trace while a network runs; it vmaps, and lives inside a compiled loop.

    Attributes:
      replace: by name of a ``Trace`` field, the values to put in (that field's shape).
      mask: by the same names, True where the value is replaced (same rank, broadcastable).
      start: first training step at which it acts.
      stop: first training step at which it no longer acts.
    """

    replace: dict[str, Array]
    mask: dict[str, Array]
    start: ArrayLike = 0
    stop: ArrayLike = 2**31 - 1


def intervened(value: Array, name: str, layer: int, intervention: Intervention | None, step: ArrayLike) -> Array:
    """The value of trace field ``name`` at ``layer``, with the intervention applied where it acts at this step."""
    if intervention is None or name not in intervention.replace:
        return value
    active = (jnp.asarray(step) >= intervention.start) & (jnp.asarray(step) < intervention.stop)
    return jnp.where(active & intervention.mask[name][layer], intervention.replace[name][layer], value)
