"""How hard XLA works on a program: less where compiling it costs more than running it."""

import contextlib
import functools
import os
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import jax
import jaxlib

OPTIONS: dict[str, dict[str, Any]] = {
    "little": {
        "xla_backend_optimization_level": 0,
        "xla_cpu_use_fusion_emitters": False,
        "xla_cpu_parallel_codegen_split_count": 1,
    },
    "some": {
        "xla_backend_optimization_level": 1,
        "xla_cpu_use_fusion_emitters": False,
        "xla_cpu_prefer_vector_width": 512,
    },
    "full": {"xla_cpu_prefer_vector_width": 512},
}
"""Compiler options by effort, on a CPU; they change rounding. ``little`` compiles in a fifth of the time what then runs
five times as long; ``some`` in half of it what ran as fast as with ``full``, wherever it was timed (docs/speed.md).
Wide vectors are the whole width of AVX-512 where a CPU has it, half of which is XLA's default."""
_MOST: ContextVar[str] = ContextVar("most", default="full")


def of(effort: str) -> dict[str, Any]:
    """Compiler options for a program that is worth this effort, or less inside ``at_most``.

    Args:
      effort: ``little``, ``some`` or ``full``.
    """
    most = "little" if jax.config.read("jax_disable_most_optimizations") else _MOST.get()
    return _options(_lower(effort, most)) if jax.default_backend() == "cpu" else {}


def whole_process(effort: str) -> None:
    """Every program of this process, also one that asks for nothing, is compiled with this effort.

    To be called before JAX looks for devices, which is when XLA reads its environment. A release of XLA that does not
    know a flag ends the process, so other releases than the locked one keep their defaults.
    """
    if jaxlib.__version__ == "0.10.2":
        flags = [f"--{name}={str(value).lower()}" for name, value in OPTIONS[effort].items()]
        os.environ["XLA_FLAGS"] = " ".join([*flags, os.environ.get("XLA_FLAGS", "")]).strip()  # the user's come last


@contextlib.contextmanager
def at_most(effort: str) -> Iterator[None]:
    """Inside this block programs get no more effort than this; with ``little`` nothing else that JAX compiles does."""
    before = jax.config.read("jax_disable_most_optimizations")
    token = _MOST.set(_lower(effort, _MOST.get()))
    jax.config.update("jax_disable_most_optimizations", before or (effort == "little" and bool(of(effort))))
    try:
        yield
    finally:
        _MOST.reset(token)
        jax.config.update("jax_disable_most_optimizations", before)


def _lower(*efforts: str) -> str:
    return min(efforts, key=list(OPTIONS).index)


@functools.cache
def _options(effort: str) -> dict[str, Any]:
    found = OPTIONS[effort]
    return found if _known(found) else {name: value for name, value in found.items() if _known({name: value})}


def _known(options: dict[str, Any]) -> bool:
    """Whether this release of XLA knows the options, which come and go."""
    try:
        jax.jit(lambda: 0).lower().compile(options)
    except jax.errors.JaxRuntimeError:
        return False
    return True
