"""Whether a value can be looked at, and whether a number is allowed; samplers as one program."""

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
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
      ValueError: naming it and what is allowed, where one is no number, not finite or out of range, there is none, or
        there are several of a ``scalar``.
    """
    if is_traced(value):
        if scalar and np.ndim(value):
            raise ValueError(f"{name} must be one number, got an array {np.shape(value)}")
        return
    words = [f"above {above:g}"] * (above > -math.inf) + [f"at least {at_least:g}"] * (at_least > -math.inf)
    words += [f"at most {at_most:g}"] * (at_most < math.inf)
    try:
        array = np.asarray(None if isinstance(value, str | bytes) else value)
    except ValueError:  # lists of several lengths
        array = np.asarray(None)
    if not any(jnp.issubdtype(array.dtype, kind) for kind in (jnp.bool, jnp.floating, jnp.integer)):
        raise ValueError(f"{name} must be a number{' ' * bool(words)}{' and '.join(words)}, got {value!r}")
    if scalar and array.ndim:
        raise ValueError(f"{name} must be one number, got an array {array.shape}")
    array = array.astype(float)
    if not array.size or not (np.isfinite(array) & (array > above) & (array >= at_least) & (array <= at_most)).all():
        raise ValueError(f"{name} must be {' and '.join(words) or 'finite'}, got {value}")


def check_seed(seed: int) -> int:
    """The seed as an int; ValueError where it is not whole or has no key of its own, outside [0, 2^32 - 1]."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
        raise ValueError(f"seed must be a whole number in [0, 2^32 - 1], got {seed!r}")
    return int(seed)


def whole(name: str, value: Any, at_least: int = 1) -> int:
    """A size as an int, also where it is a whole float (1e4); any other is refused by name (ValueError)."""
    array = None if is_traced(value) or isinstance(value, bool | str) else np.asarray(value)
    if array is None or array.ndim or array.dtype.kind not in "iuf" or not math.inf > array >= at_least or array % 1:
        raise ValueError(f"{name} must be a whole number of at least {at_least}, got {value!r}")
    return int(array)


def check_key(key: Any) -> None:
    """ValueError for what is no key."""
    if not isinstance(key, jax.Array | np.ndarray):
        raise ValueError(f"key must be a PRNG key of JAX (jax.random.key(0)), got {key!r}")


def check_sizes(**sizes: Any) -> tuple[int, ...]:
    """Sizes as ints, in the order in which they are named; ValueError for one that is not ``whole`` or below 1."""
    return tuple(whole(name, size) for name, size in sizes.items())


def switched_off(value: Any) -> bool:
    """True for a Python 0, so that what is switched off costs nothing; a traced value is kept."""
    return isinstance(value, int | float) and value == 0


def one_program(sampler: S) -> S:
    """Decorator: ``(key, batch) -> Sample`` as one program where it is called outside of any.

    Operation by operation, each would be a program of its own, compiled for every shape. A batch that is no whole
    number of at least 1, and a key that is none, are refused (ValueError).
    """
    program = jax.jit(sampler, static_argnames="batch")

    @functools.wraps(sampler)
    def draw(key: jax.Array, batch: int) -> Any:
        batch = whole("batch", batch)
        check_key(key)
        return sampler(key, batch) if is_traced(key) else program(key, batch)

    return draw  # type: ignore[return-value]
