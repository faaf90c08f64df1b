"""Whether a value can be looked at, and whether a number is allowed; samplers as one program."""

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np

S = TypeVar("S", bound=Callable[..., Any])


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


def check_seed(seed: int) -> int:
    """The seed as an int; ValueError where it is not whole or has no key of its own, outside [0, 2^32 - 1]."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
        raise ValueError(f"seed must be a whole number in [0, 2^32 - 1], got {seed!r}")
    return int(seed)


def check_sizes(**sizes: int) -> None:
    """Checks sizes, by name; ValueError for one below 1."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")


def switched_off(value: Any) -> bool:
    """True for a Python 0, so that what is switched off costs nothing; a traced value is kept."""
    return isinstance(value, int | float) and value == 0


def one_program(sampler: S) -> S:
    """Decorator: ``(key, batch) -> Sample`` as one program where it is called outside of any.

    Operation by operation, each would be a program of its own, compiled for every shape.
    """
    program = jax.jit(sampler, static_argnames="batch")

    @functools.wraps(sampler)
    def draw(key: jax.Array, batch: int) -> Any:
        return sampler(key, batch) if is_traced(key) else program(key, batch)

    return draw  # type: ignore[return-value]
