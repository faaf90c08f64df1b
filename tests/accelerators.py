"""Lowering of training programs for CUDA and TPU, which needs no accelerator: nothing is compiled, nothing is run."""

import re
from collections.abc import Callable
from unittest import mock

import jax

from icl_lab.lab import Session
from icl_lab.training import Training
from icl_lab.training.fitting import Fit, member

PLATFORMS = ("cuda", "tpu")


def lowered(init, loss, optimizer, keys, settings=None, *, measure=None, **options) -> str:
    """StableHLO of the start, one step and a measurement of all members, for both platforms at once.

    The loop over steps is left out: it is the same for every training, and costs more to trace than the step. Arguments
    are those of ``fit``.
    """
    schedules = {name: options.get(name) for name in ("schedule", "measure_schedule")}
    one = member(init, loss, optimizer, measure, **schedules)

    def training(key, setting):
        init_key, data_key, eval_key = jax.random.split(key, 3)
        start = jax.jit(one.begin)(init_key, setting)  # a step must not see that its number is a constant
        state, train_loss = one.step(start, data_key, setting)
        return state, train_loss, one.observe(state, eval_key, setting)

    shapes = jax.eval_shape(lambda *given: given, keys, jax.device_put(settings))
    return for_accelerators(jax.vmap(training), *shapes)


def for_accelerators(function: Callable, *shapes) -> str:
    """StableHLO of a function, traced as a process does it whose default backend is an accelerator.

    The code asks for the backend in order to leave out what is meant for CPUs, and to vectorise all members together.
    """
    with mock.patch("jax.default_backend", return_value="gpu"):
        return jax.jit(function).trace(*shapes).lower(lowering_platforms=PLATFORMS).as_text()


def calls_of_lapack(function: Callable, *arguments) -> int:
    """How often the program of a function asks LAPACK where it runs on a CPU."""
    return jax.jit(function).trace(*arguments).lower(lowering_platforms=("cpu",)).as_text().count("lapack")


def unwanted(program: str) -> set[str]:
    """What an accelerator must not be given: hints to XLA:CPU, barriers to its fusions, double precision."""
    return set(re.findall(r"inlineable|xla_cpu|optimization_barrier|(?<=[<x])f64|(?<=complex<)f64", program))


def lowering(fit: Callable[..., Fit], found: list[set[str]]) -> Callable[..., Fit]:
    """``Session.fit``, which first lowers the programs and adds what is unwanted in them to ``found``."""

    def both(session: Session, stage: str, training: Training) -> Fit:
        found.append(unwanted(training.carried_out(lowered)))
        return fit(session, stage, training)

    return both
