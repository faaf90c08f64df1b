"""What training leaves of an algorithm: seven disturbances, each scaled by the change of predictions that results.

On training prompts, the median change of a prediction is ``amount`` times the median size of one.

- smooth: a random tanh network of the prompt is added to the predictions;
- gain: they are multiplied by 1 + a or 1 - a;
- shrinkage, tilt: a part of them is replaced by the answer to labels whose component along an eigenvector of
  X^T X / N is multiplied by l / (l + k), or by 1 + log l or 1 - log l (l in units); what of the labels no task explains
  stays;
- mixture: a part of them is replaced by another algorithm's;
- couplings: Gaussian entries where the weights of a construction are zero;
- training: what twenty steps of Adam from the construction change in its weights.
"""

import dataclasses
import hashlib
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments.identification.suite import (
    MAKE,
    OF_WEIGHTS,
    Build,
    Law,
    Planted,
    Rng,
    largest,
    log_uniform,
    network,
    one_prompt,
    sampler,
)
from icl_lab import solvers
from icl_lab.prompts import Prompt

Arrays = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
BATCH = 2048  # prompts in one call, as identify asks them: a program compiles once for a size
FEATURES = 64

MIXED: dict[str, tuple[Build, Callable[[Law], list[float]]]] = {
    "GD": (
        one_prompt(lambda p: solvers.gradient_descent(p[0], 1)),
        lambda law: [min(0.6, 1.2 / largest(law)) / law.unit],
    ),
    "least squares": (one_prompt(MAKE["ridge"]), lambda law: [1e-4 * law.unit * law.n]),  # nearly, and faster
    "ridge": (one_prompt(MAKE["ridge"]), lambda law: [0.3 * law.unit * law.n]),
    "LMS": (one_prompt(MAKE["LMS"]), lambda law: [0.5 / law.d / law.unit]),
    "mean of labels": (one_prompt(lambda p: lambda prompt: prompt.y.mean(0)), lambda law: []),
    "kernel smoothing": (one_prompt(MAKE["kernel smoothing"]), lambda law: [law.unit**0.5, 1.0]),
}
"""Algorithms of which a part is mixed in, and their parameters."""


def training(law: Law, seed: int) -> tuple[np.ndarray, ...]:
    """A batch of training prompts (x, y, x_query)."""
    prompts = sampler(law)(jax.random.key(seed), BATCH).prompt
    return tuple(np.asarray(part) for part in (prompts.x, prompts.y, prompts.x_query))


def disturbed(one: Planted, rng: Rng) -> Callable[[float], Arrays]:
    """``amount -> learner``, a function of arrays (x (B, N, D), y (B, N, 1), x_query (B, D)) -> (B, 1).

    What the undisturbed learner and the disturbance answer is remembered, and shared by all amounts.
    """
    sample = training(one.law, int(rng.integers(2**31)))
    kind, extra, other = _drawn(one, sample, rng)
    run = program(one.build, kind, other)
    memory: dict[bytes, tuple[np.ndarray, np.ndarray]] = {}

    def both(x: np.ndarray, y: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        arrays = [np.ascontiguousarray(part, np.float32) for part in (x, y, q)]
        key = hashlib.blake2b(b"".join(part.data for part in arrays), digest_size=16).digest()
        if key not in memory:
            f, g = run(one.params, extra, *arrays)
            memory[key] = np.asarray(f), np.asarray(g)
        return memory[key]

    plain, change = both(*sample)
    size, moved = (float(np.median(np.abs(part))) for part in (plain, change))  # a few predictions can be very large

    def at(amount: float) -> Arrays:
        if one.disturbance in OF_WEIGHTS and amount:
            params = _moved(one, run, extra, sample, plain, toward, amount * size)
            return lambda x, y, q: np.asarray(run(params, extra, x, y, q)[0])
        scale = np.float32(amount * size / max(moved, 1e-30)) if amount else np.float32(0)

        def answer(x: np.ndarray, y: np.ndarray, q: np.ndarray) -> np.ndarray:
            f, g = both(x, y, q)
            return f + scale * g if amount else f

        return answer

    toward = direction(one, rng) if one.disturbance in OF_WEIGHTS else None
    return at


def _drawn(one: Planted, sample: tuple[np.ndarray, ...], rng: Rng) -> tuple[str, Any, Build | None]:
    """The program's kind, what it is given, and the algorithm that is mixed in."""
    law, kind, sign = one.law, one.disturbance, np.float32(rng.choice([-1.0, 1.0]))
    if kind == "smooth":
        inputs = law.n * law.d + law.n + law.d
        into = rng.normal(size=(inputs, FEATURES)) * 1.5 / inputs**0.5
        out = rng.normal(size=FEATURES) / FEATURES**0.5
        sizes = {"unit": law.unit**0.5, "label": law.label}
        return kind, jax.tree.map(np.float32, {"in": into, "out": out} | sizes), None
    if kind in ("shrinkage", "tilt"):
        bend = {"unit": law.unit, "strength": log_uniform(rng, 0.05, 1.0) * law.unit}
        shares = {"shrink": np.float32(kind == "shrinkage"), "tilt": sign * np.float32(kind == "tilt")}
        return "bend", jax.tree.map(np.float32, bend) | shares, None
    if kind == "mixture":
        for name in rng.permutation([name for name in MIXED if name != one.family]):
            build, make = MIXED[str(name)]
            extra = np.array(make(law), np.float32)
            f, g = (np.asarray(part) for part in program(one.build, kind, build)(one.params, extra, *sample))
            if np.median(np.abs(g)) > 0.2 * np.median(np.abs(f)):  # another algorithm indeed
                break
        return kind, extra, build
    return kind, sign, None


@cache
def program(build: Build, kind: str, other: Build | None) -> Callable:
    """``(params, extra, x, y, x_query) -> (f, g)``: a learner and what the disturbance adds; compiled for each size."""

    def run(params: Any, extra: Any, x: Array, y: Array, q: Array) -> tuple[Array, Array]:
        prompts = Prompt(*(jnp.asarray(part, jnp.float32) for part in (x, y, q)))
        f = build(params)(prompts)
        if kind == "smooth":
            x, y, q = prompts.x / extra["unit"], prompts.y[:, :, 0] / extra["label"], prompts.x_query / extra["unit"]
            change = jnp.tanh(jnp.concatenate([x.reshape(len(x), -1), y, q], 1) @ extra["in"]) @ extra["out"]
            return f, change[:, None]
        if kind == "bend":
            return f, build(params)(dataclasses.replace(prompts, y=bent(prompts, extra))) - f
        if other is not None:
            return f, other(extra)(prompts) - f
        return f, f * extra

    return jax.jit(run)


def bent(prompts: Prompt, extra: Any) -> Array:
    """(B, N, 1) labels whose component along each eigenvector of X^T X / N is shrunk or tilted."""
    x, y = prompts.x, prompts.y
    values, vectors = jnp.linalg.eigh(jnp.einsum("bnd,bne->bde", x, x) / x.shape[1])
    seen = values > 1e-5 * values[:, -1:]
    values = jnp.where(seen, values, 1.0)
    change = extra["tilt"] * jnp.log(values / extra["unit"])
    change -= extra["shrink"] * extra["strength"] / (values + extra["strength"])
    components = x @ vectors  # (B, N, D), of squared length N l
    along = jnp.einsum("bnd,bno->bdo", components, y) / x.shape[1] / values[..., None]
    return y + components @ (jnp.where(seen, change, 0.0)[..., None] * along)


def _moved(
    one: Planted, run: Callable, extra: Any, sample: tuple[np.ndarray, ...], plain: np.ndarray, toward: Any, goal: float
) -> Any:
    """Weights moved so far that the median prediction changes by the goal."""
    moved = lambda step: jax.tree.map(lambda w, d: w + np.float32(step) * d, one.params, toward)  # noqa: E731
    step, best = 0.05, (np.inf, 0.0)
    for _ in range(10):
        change = float(np.median(np.abs(np.asarray(run(moved(step), extra, *sample)[0]) - plain)))
        change = change if np.isfinite(change) else np.inf
        best = min(best, (abs(np.log(max(change, 1e-30) / goal)), step))
        step *= float(np.clip(goal / max(change, 1e-30), 0.1, 10))
    return moved(best[1])


def direction(one: Planted, rng: Rng) -> Any:
    """What couplings, or a short training, change in the weights of layers that do something."""
    active = (np.abs(one.params["params"]["w_p"]).max((1, 2, 3)) > 0)[:, None, None, None]
    if one.disturbance == "couplings":
        return jax.tree.map(
            lambda w: np.float32(np.where(w == 0, rng.normal(size=w.shape), 0) * np.abs(w).max() * active), one.params
        )
    trained = short_training(one.params, jax.random.key(int(rng.integers(2**31))), one.law)
    return jax.tree.map(lambda after, before: (np.asarray(after) - before) * active, trained, one.params)


@partial(jax.jit, static_argnums=2)
def short_training(params: Any, key: Array, law: Law) -> Any:
    """Twenty steps of Adam, each of .003 of the largest output weight."""
    rate = 3e-3 * jnp.abs(params["params"]["w_p"]).max()
    return by_adam(network, params, rate, jax.random.split(key, 20), law, 256)


def by_adam(build: Build, params: Any, rate: Any, keys: Array, law: Law, batch: int) -> Any:
    """Parameters after a step of Adam on the loss of fresh prompts for every key."""
    optimizer = optax.adam(rate)

    def loss(params: Any, key: Array) -> Array:
        sample = sampler(law)(key, batch)
        return jnp.mean((build(params)(sample.prompt) - sample.target) ** 2)

    def step(state: Any, key: Array) -> tuple[Any, None]:
        params, inner = state
        updates, inner = optimizer.update(jax.grad(loss)(params, key), inner)
        return (optax.apply_updates(params, updates), inner), None

    return jax.lax.scan(step, (params, optimizer.init(params)), keys)[0][0]
