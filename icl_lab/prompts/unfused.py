"""Functions that XLA:CPU must not fuse into their users."""

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.experimental.xla_metadata import set_xla_metadata


def unfused(function: Callable | None = None, *, static: tuple[str, ...] = ()) -> Any:
    """Decorator: compile a function as one of its own, which XLA's CPU back end may not inline.

    That back end counts multiply-adds as free to repeat: it fuses an unrolled product into every product that reads it,
    once for each term, so that five layers of attention take thirty times as long. ``optimization_barrier`` does not
    help, since it is removed before fusion; the attribute on the call does. It is a hint, without which results are the
    same. Other back ends get the call without it, and inline it.

    The one place that names ``jax.experimental.xla_metadata``. Should a release take it away, this import fails;
    without the context the function is right, but slow.

    Args:
      function: array arguments are positional.
      static: names of keyword arguments that are compile-time constants.
    """
    if function is None:
        return functools.partial(unfused, static=static)

    @functools.wraps(function)
    def whole(*args: Any, **constants: Any) -> Any:
        with set_xla_metadata(inlineable="true"):  # what it calls (jnp.where, jax.nn.gelu) is fused into it
            return function(*args, **constants)

    on_cpu, elsewhere = (jax.jit(one, static_argnames=static) for one in (whole, function))

    @functools.wraps(function)
    def call(*args: Any, **constants: Any) -> Any:
        if jax.default_backend() != "cpu":
            return elsewhere(*args, **constants)  # a call, which costs less to trace again; it is inlined there
        with set_xla_metadata(inlineable="false"):
            return on_cpu(*args, **constants)

    return call
