"""How hard XLA works on a program: less where compiling it costs more than running it."""

import contextlib
import functools
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import jax
import jaxlib

RELEASE = "0.10.2"
"""Of jaxlib: the one for which options were chosen and anchors were made, which knows all of them."""
log = logging.getLogger("icl_lab")

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

    To be called before JAX looks for devices, which is when XLA reads its environment. Flags that it does not know stay
    off, which is said.
    """
    if message := upgraded(effort):
        log.warning(message)
    of_user = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{known(_flags(effort))} {of_user}".strip()  # the last one holds


def upgraded(effort: str) -> str:
    """What another release of jaxlib than ``RELEASE`` means for programs of this effort; empty for that release."""
    if jaxlib.__version__ == RELEASE:
        return ""
    flags = _flags(effort)
    off = [flag for flag in flags.split() if flag not in known(flags).split()]
    message = f"this is jaxlib {jaxlib.__version__}, not {RELEASE}: smoke runs are not compared with their anchors"
    return f"{message}, and speed flags that XLA no longer knows are off: {', '.join(off) or 'none'}"


@functools.cache
def known(flags: str) -> str:
    """Those of some flags of ``XLA_FLAGS`` that this release knows: one that it does not know ends the process.

    So another release than ``RELEASE`` is asked, by processes that end or go on.
    """

    def starts(candidate: str) -> bool:
        command = [sys.executable, "-c", "import jaxlib.xla_client as client; client.make_cpu_client()"]
        done = subprocess.run(command, env=os.environ | {"XLA_FLAGS": candidate}, capture_output=True, check=False)
        return done.returncode == 0

    if jaxlib.__version__ == RELEASE or starts(flags):
        return flags
    return " ".join(flag for flag in flags.split() if starts(flag))


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


def _flags(effort: str) -> str:
    return " ".join(f"--{name}={str(value).lower()}" for name, value in OPTIONS[effort].items())


def _lower(*efforts: str) -> str:
    return min(efforts, key=list(OPTIONS).index)


@functools.cache
def _options(effort: str) -> dict[str, Any]:
    options = OPTIONS[effort]
    if _known(options):
        return options
    taken = {name: value for name, value in options.items() if _known({name: value})}
    off = ", ".join(name for name in options if name not in taken)
    log.warning("speed options that jaxlib %s does not know are off: %s", jaxlib.__version__, off)
    return taken


def _known(options: dict[str, Any]) -> bool:
    """Whether this release of XLA knows the options, which come and go."""
    try:
        jax.jit(lambda: 0).lower().compile(options)
    except jax.errors.JaxRuntimeError:
        return False
    return True
