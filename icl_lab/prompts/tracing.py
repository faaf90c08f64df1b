"""Whether a value can be looked at."""

from typing import Any

import jax


def is_traced(value: Any) -> bool:
    """Whether a value is abstract, inside ``jit``, ``vmap`` or ``grad``: what it is can then not be checked.

    The one place that names ``jax.core.Tracer``. Should a release of JAX take that name away, this import fails at the
    first check; True for every array would then be a safe answer, which leaves the checks of values out.
    """
    return isinstance(value, jax.core.Tracer)
