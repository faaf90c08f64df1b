"""A training step of the nonlinear transformer on all prefixes: one matrix of tokens against one task vmapped."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from experiments.benchmarks.timing import Config, Row, row, take_turns
from experiments.zhang_frei_bartlett import prefixes as binary
from experiments.zhang_frei_bartlett.nonlinear_transformer import PRESETS
from icl_lab.models import GPT
from icl_lab.prompts import Sample
from icl_lab.prompts.layouts import alternating_layout


def prefixes(config: Config) -> dict[str, list[Row]]:
    """Steps at the lab preset, its longest prompts, with position embeddings."""
    lab = dataclasses.replace(PRESETS["lab"], batch=config.prefix_batch)
    length = max(lab.lengths)
    network = GPT(lab.layers, lab.heads, lab.width, 2 * length + 1)
    forms = {"plain loop": plain_errors, "ours": binary.errors}
    steps = {name: _steps(lab, network, length, form, config.loop_steps) for name, form in forms.items()}
    timings = take_turns({name: (run, config.loop_steps) for name, run in steps.items()}, config.rounds)
    rows = [row(f"N = {length}, {name}", t, timings["plain loop"]) for name, t in timings.items()]
    return {f"training step of GPT, {lab.layers} layers, width {lab.width}, batch {lab.batch}": rows}


def plain_errors(network: GPT, params: dict, samples: Sample) -> Array:
    """``prefixes.errors`` by ``vmap`` of the network as it is written."""
    tokens = jax.vmap(alternating_layout().encode)(samples.prompt)
    read = jax.vmap(lambda t: network.apply(params, t)[0])(tokens)[:, ::2]
    answers = jnp.concatenate([samples.prompt.y, samples.target[:, None]], axis=1)
    return ((read - answers) ** 2)[:, :, 0]


def _steps(lab: Any, network: GPT, length: int, form: Callable, steps: int) -> Callable[[], Any]:
    """Some steps in a Python loop of a jitted one; the plain form draws its tasks in a program of its own."""
    d, optimizer = lab.input_size, optax.adam(1e-3)
    start = jax.jit(network.init)(jax.random.key(0), jnp.zeros((2 * length + 1, d)))
    whole = {"random": jnp.array(True), "dimension": d, "points": length + 1}
    draw = partial(binary.training_tasks, tasks=lab.batch, length=length, setting=whole, input_size=d)

    def update(params: Any, state: Any, samples: Sample) -> tuple[Any, Any]:
        slope = jax.grad(lambda p: binary.prefix_loss(form(network, p, samples), whole["points"]))(params)
        updates, state = optimizer.update(slope, state, params)
        return optax.apply_updates(params, updates), state

    if form is plain_errors:
        drawn, updated = jax.jit(draw), jax.jit(update)
        step = lambda params, state, key: updated(params, state, drawn(key))  # noqa: E731
    else:
        step = jax.jit(lambda params, state, key: update(params, state, draw(key)))

    def run() -> Any:
        params, state = start, optimizer.init(start)
        for t in range(steps):
            params, state = step(params, state, jax.random.fold_in(jax.random.key(1), t))
        return params

    return run
