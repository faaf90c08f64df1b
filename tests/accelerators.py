"""Lowering of training programs for CUDA and TPU, which needs no accelerator: nothing is compiled, nothing is run."""

import re
from collections.abc import Callable
from unittest import mock

import jax
import jax.numpy as jnp

from icl_lab.training.fitting import Fit, member

PLATFORMS = ("cuda", "tpu")


def lowered(init, loss, optimizer, keys, settings=None, *, steps, measure=None, measure_every=None, **options) -> str:
    """StableHLO of the start, a chunk of steps and a measurement of all members, for both platforms at once.

    It is traced as a process does it whose default backend is an accelerator: that is what the code asks in order to
    leave out what is meant for CPUs, and there all members are vectorised together. Arguments are those of ``fit``.
    """
    schedules = {name: options.get(name) for name in ("schedule", "measure_schedule")}
    one = member(init, loss, optimizer, measure, **schedules)

    def training(key, setting):
        init_key, data_key, eval_key = jax.random.split(key, 3)
        state, train_loss = one.chunk(measure_every or steps)(one.begin(init_key, setting), data_key, setting)
        return state, train_loss, one.observe(state, eval_key, setting)

    shapes = jax.eval_shape(lambda *given: given, keys, jax.tree.map(jnp.asarray, settings))
    with mock.patch("jax.default_backend", return_value="gpu"):
        return jax.jit(jax.vmap(training)).trace(*shapes).lower(lowering_platforms=PLATFORMS).as_text()


def unwanted(program: str) -> set[str]:
    """What an accelerator must not be given: hints to XLA:CPU, barriers to its fusions, double precision."""
    return set(re.findall(r"inlineable|xla_cpu|optimization_barrier|(?<=[<x])f64|(?<=complex<)f64", program))


def lowering(fit: Callable[..., Fit], found: list[set[str]]) -> Callable[..., Fit]:
    """``fit``, which first lowers its programs and adds what is unwanted in them to ``found``."""

    def both(*args, **options) -> Fit:
        # where an ensemble runs is not part of the program
        program = {name: value for name, value in options.items() if name not in ("resume", "progress", "mesh")}
        found.append(unwanted(lowered(*args, **program)))
        return fit(*args, **options)

    return both
