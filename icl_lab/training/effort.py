"""How hard XLA works on a program: little where compiling it costs more than running it."""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import jax

LITTLE: dict[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}
"""XLA options that compile a program of a training on a CPU in a quarter of the time; they change its rounding."""


@functools.cache
def little() -> dict[str, Any]:
    """Compiler options for a program that is called a few times: none but on a CPU."""
    if not _on_cpu():
        return {}
    try:
        jax.jit(lambda: 0).lower().compile(LITTLE)
    except jax.errors.JaxRuntimeError:  # options of XLA come and go, all but the first
        return dict(list(LITTLE.items())[:1])
    return LITTLE


def usual() -> dict[str, Any]:
    """Compiler options for every other program: those of ``little`` where nothing is to be optimised (a smoke run)."""
    return little() if jax.config.read("jax_disable_most_optimizations") else {}


@contextlib.contextmanager
def none_spent(when: bool = True) -> Iterator[None]:
    """Inside this block nothing is optimised, where ``when`` and on a CPU: for runs that are compilation mostly."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", before or (when and _on_cpu()))
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)


def _on_cpu() -> bool:
    return jax.default_backend() == "cpu"
