"""Tuning GD and GD++ by the oracle, against the published scan of learning rates with a network."""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks.programs import Network, networks, plain_loss
from experiments.benchmarks.timing import Config, Row, Timing, row
from experiments.settings import member_keys
from experiments.von_oswald.common import sampler
from experiments.von_oswald.tuning import eigenvalues
from icl_lab.constructions import gradient_descent_weights
from icl_lab.prompts import input_variance
from icl_lab.solvers import oracle
from icl_lab.solvers.oracle import PUBLISHED_LEARNING_RATES, TunedSolver


def tuning(config: Config) -> dict[str, list[Row]]:
    """One run of each solver's tuning on as many contexts as the scan has tasks, and as many held out to judge it.

    The scan gives one learning rate for GD, and is the baseline of every row. (GD++ was tuned by thousands of Adam
    steps after it, which are not run here.)
    """
    found = []
    for network, setting in networks(config).values():
        if network.layers == 1:  # has a closed form
            continue
        _oracle("GD", (network, setting), config.tasks)  # compiles the sampler
        label = f"{network.layers} {'shared' if network.looped else 'free'} steps"
        scan, columns = _scan(config, (network, setting))
        name = f"{label}: scan of {config.scan} learning rates on {config.tasks} tasks"
        found.append(row(name, scan, scan, **columns))
        for solver in ("GD", "GD++"):
            started = time.perf_counter()
            tuned = _oracle(solver, (network, setting), config.tasks)
            timing = _timing(started)
            columns = {"learning rate": float(tuned.learning_rates[0]), "loss": tuned.loss}
            found.append(row(f"{label}: {solver} by the oracle", timing, scan, **columns))
    return {"tuning": found}


def _scan(config: Config, pair: Network) -> tuple[Timing, dict[str, float | str]]:
    """The published line search: the constructed network's loss at each learning rate, jitted, on the same tasks."""
    network, setting = pair
    samples = jax.jit(sampler(setting), static_argnums=1)(jax.random.key(5), config.tasks)
    sets = 1 if network.looped else network.layers
    sizes: dict[str, Any] = {"context_length": setting.context_length, "input_size": setting.input_size}

    @jax.jit
    def loss(rate: jax.Array) -> jax.Array:
        return plain_loss(network, gradient_descent_weights(jnp.full(sets, rate), **sizes), samples)

    rates = np.asarray(PUBLISHED_LEARNING_RATES[: config.scan])
    compiled = time.perf_counter()
    loss(rates[0]).block_until_ready()
    compile_ms = _timing(compiled).ms
    started = time.perf_counter()
    losses = np.array([float(loss(rate)) for rate in rates])
    timing = _timing(started, compile_ms)
    return timing, {"learning rate": float(rates[np.nanargmin(losses)]), "loss": float(np.nanmin(losses))}


def _oracle(solver: str, pair: Network, contexts: int) -> TunedSolver:
    """One solver tuned as the binaries do it without a token clip, drawing the contexts included."""
    network, setting = pair
    fitting, held_out = (eigenvalues(setting, key, contexts) for key in member_keys(setting, 10_000, 2))
    given: dict[str, Any] = {
        "held_out": held_out,
        "context_length": setting.context_length,
        "input_variance": input_variance("uniform", setting.input_range),
    }
    if solver == "GD":
        return oracle.tune_gradient_descent(fitting, network.layers, **given)
    return oracle.tune_gd_plus_plus(fitting, network.layers, shared=network.looped, **given)


def _timing(started: float, compile_ms: float = 0.0) -> Timing:
    return Timing(compile_ms, np.array([1e3 * (time.perf_counter() - started)]))
