"""Whether a value can be looked at, and whether a number is allowed."""

import math
from typing import Any

import jax
import numpy as np


def is_traced(value: Any) -> bool:
    """Whether a value is abstract, inside ``jit``, ``vmap`` or ``grad``: what it is can then not be checked.

    The one place that names ``jax.core.Tracer``. Should a release of JAX take that name away, this import fails at the
    first check; True for every array would then be a safe answer, which leaves the checks of values out.
    """
    return isinstance(value, jax.core.Tracer)


def check_number(
    name: str, value: Any, *, above: float = -math.inf, at_least: float = -math.inf, at_most: float = math.inf,
    scalar: bool = False,
) -> None:  # fmt: skip
    """Checks a number, or each of an array; what is traced has a shape but no value yet.

    Raises:
      ValueError: naming it and what is allowed, where one is not finite or out of range, there is none, or there are
        several of a ``scalar``.
    """
    if scalar and np.ndim(value):
        raise ValueError(f"{name} must be one number, got an array {np.shape(value)}")
    if is_traced(value):
        return
    found = np.asarray(value, float)
    if not found.size or not (np.isfinite(found) & (found > above) & (found >= at_least) & (found <= at_most)).all():
        words = [f"above {above:g}"] * (above > -math.inf) + [f"at least {at_least:g}"] * (at_least > -math.inf)
        words += [f"at most {at_most:g}"] * (at_most < math.inf)
        raise ValueError(f"{name} must be {' and '.join(words) or 'finite'}, got {value}")
