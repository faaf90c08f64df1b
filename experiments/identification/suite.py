"""The planted suite: learners whose algorithm is known, and outsiders that are none; each with a disturbance.

Rates and strengths are in units in which the mean eigenvalue of X^T X / N is 1 (``UNIT`` for these prompts, whose
labels are of size 1). Every distribution below was written before the suite was run.

A disturbance is one of three, scaled until the predictions on training prompts change by a given share (of medians):

- couplings: Gaussian entries where the weights of a construction are zero (GD and GD++, which are built as weights);
- training: what twenty steps of Adam from the construction change (GD and GD++);
- a smooth random change: a random tanh network of the prompt is added to the predictions (every learner).
"""

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from icl_lab import solvers
from icl_lab.constructions import gd_plus_plus_weights
from icl_lab.fast import batch_learner
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts import Learner, Prompt, linear_regression

N, D, LAYERS = 10, 5, 5
UNIT = 1 / 12  # the variance of an input coordinate
SAMPLER = linear_regression(context_length=N, input_size=D)
NETWORK = LinearSelfAttention(layers=LAYERS)
Rng = np.random.Generator


@dataclasses.dataclass(frozen=True)
class Planted:
    """A learner with a known algorithm, or an outsider.

    Attributes:
      family: the bar's family; of an outsider its kind.
      truth: names that are right; none for an outsider.
      build: ``parameters -> batch of prompts -> (B, 1)``, one and the same function for all learners of a program.
      params: what it is given.
      disturbance: ``couplings``, ``training`` or ``smooth``.
    """

    family: str
    truth: tuple[str, ...]
    build: Callable[[Any], Callable[[Prompt], Array]]
    params: Any
    disturbance: str = "smooth"


def log_uniform(rng: Rng, low: float, high: float, size: int | None = None) -> Any:
    """Log-uniform draws."""
    return np.exp(rng.uniform(np.log(low), np.log(high), size))


@cache
def one_prompt(make: Callable[[Any], Learner], *static: Any) -> Callable:
    """A solver of one prompt as a function of parameters and a batch; the same object for the same arguments."""
    return lambda params: jax.vmap(make(params, *static))


def network(params: Any) -> Callable[[Prompt], Array]:
    """The network that carries every construction: five layers, of which those with zero weights do nothing."""
    return batch_learner(NETWORK, params)


def weights(rates: np.ndarray, gammas: np.ndarray) -> dict:
    """GD++ as weights, rates and gammas in units; layers after the last one are zero."""
    filled = [np.concatenate([v, np.zeros(LAYERS - len(v))]) for v in (rates / UNIT, gammas / UNIT / N)]
    built = gd_plus_plus_weights(*(jnp.asarray(v) for v in filled), context_length=N, input_size=D)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), built)


MAKE: dict[str, Callable[..., Learner]] = {
    "heavy ball": lambda p, steps: solvers.heavy_ball(p[0], p[1], steps),
    "Nesterov": lambda p, steps: solvers.nesterov(p[0], p[1], steps),
    "Chebyshev": lambda p, steps: solvers.chebyshev(p[0], p[1], steps),
    "Newton from covariance": lambda p, steps: solvers.newton(p[0], steps, of="covariance"),
    "ridge": lambda p: solvers.ridge(p[0]),
    "gradient flow": lambda p: solvers.gradient_flow(p[0]),
    "preconditioned GD": solvers.preconditioned_gradient_descent,
    "centred GD": lambda p, steps: solvers.centred(solvers.gradient_descent(p[0], steps)),
    "centred GD + mean": lambda p, steps: solvers.centred(solvers.gradient_descent(p[0], steps), add_mean=True),
    "conjugate gradients": lambda p, steps: solvers.conjugate_gradients(steps),
    "noise-adaptive ridge": lambda p: solvers.noise_adaptive_ridge(p[0] * (p[1] / p[0]) ** jnp.linspace(0, 1, 9)),
    "kernel smoothing": lambda p: solvers.gaussian_smoothing(p[0], p[1]),
    "softmax regression": lambda p: solvers.softmax_regression(p[0], p[1]),
    "LMS": lambda p: solvers.lms(p[0]),
    "normalised LMS": lambda p: solvers.lms(p[0], normalised=True),
    "RLS with forgetting": lambda p: solvers.recursive_least_squares(p[0], p[1]),
}
"""Solvers of an array of parameters, by the name that is right for them."""


def planted(seed: int, draws: int) -> list[Planted]:
    """Thirteen families, each with as many draws of its parameters."""
    found = []
    for i in range(draws):
        rng = np.random.default_rng([seed, i])
        found += [_as_weights(rng, i), _as_weights(rng, i, gammas=True), *_by_solver(rng, i)]
    return found


def _as_weights(rng: Rng, i: int, gammas: bool = False) -> Planted:
    """GD, or GD++: odd draws have parameters of their own in every step."""
    steps = int(rng.integers(2 if gammas else 1, LAYERS + 1))
    low, high = (0.1, 1.0) if gammas else (0.03, 1.2)
    rates = log_uniform(rng, low, high, steps) if i % 2 else np.full(steps, log_uniform(rng, low, high))
    g = log_uniform(rng, 0.005, 0.3, steps) if i % 2 else np.full(steps, log_uniform(rng, 0.005, 0.3))
    name = "GD++" if gammas else "GD"
    built = weights(rates, g if gammas else np.zeros(steps))
    return Planted(name, (name,), network, built, ("couplings", "training", "smooth")[i // 2 % 3])


def _by_solver(rng: Rng, i: int) -> list[Planted]:
    """The other eleven families; the last three hold two or three algorithms in turn."""
    few, some = int(rng.integers(2, 7)), int(rng.integers(1, 5))
    rates = log_uniform(rng, 0.1, 0.8, 3) / UNIT
    turn = rng.normal(size=(D, D))
    turn = (turn + turn.T) / np.linalg.norm(turn + turn.T) * D**0.5
    values, vectors = np.linalg.eigh(turn * log_uniform(rng, 0.05, 1.0))
    matrix = log_uniform(rng, 0.1, 0.8) / UNIT * vectors @ np.diag(np.exp(values)) @ vectors.T
    high = log_uniform(rng, 1.5, 4.0) * UNIT
    low_strength = log_uniform(rng, 1e-3, 0.3) * UNIT * N
    strengths = [low_strength, low_strength * log_uniform(rng, 1, 1e3)]
    sign = rng.choice([-1.0, 1.0])
    found = [
        _solver("heavy ball", [rates[0], log_uniform(rng, 0.03, 0.8)], few),
        _solver("Nesterov", [rates[1], log_uniform(rng, 0.03, 0.8)], few),
        _solver("Chebyshev", [log_uniform(rng, 0.02, 0.5) * high, high], few),
        _solver("Newton from covariance", [log_uniform(rng, 0.02, 0.2) / UNIT**2], some),
        _solver("ridge", [log_uniform(rng, 3e-3, 3.0) * UNIT * N]),
        _solver("gradient flow", [log_uniform(rng, 0.1, 10.0) / UNIT]),
        _solver("preconditioned GD", matrix, 1 + i % 2),
        _solver("centred GD + mean" if i % 2 else "centred GD", rates[2:], 1 + i // 2 % 3, family="centred GD"),
        _solver("noise-adaptive ridge", strengths, family="adaptive")
        if i % 2
        else _solver("conjugate gradients", [0.0], some, family="adaptive"),
        _solver("kernel smoothing", [log_uniform(rng, 0.5, 5.0) * UNIT**0.5, 1.0], family="similarity")
        if i % 2
        else _solver(
            "softmax regression", [log_uniform(rng, 0.05, 5.0) / UNIT, sign * log_uniform(rng, 0.3, 3.0)],
            family="similarity",
        ),
    ]  # fmt: skip
    one_pass = {
        "LMS": [log_uniform(rng, 0.01, 0.2) / UNIT],
        "normalised LMS": [log_uniform(rng, 0.1, 1.5)],
        "RLS with forgetting": [log_uniform(rng, 0.03, 10.0) * UNIT, 1 - log_uniform(rng, 0.01, 0.4)],
    }
    name = list(one_pass)[i % 3]
    return [*found, _solver(name, one_pass[name], family="one pass")]


def _solver(name: str, params: Any, *static: int, family: str = "") -> Planted:
    return Planted(family or name, (name,), one_prompt(MAKE[name], *static), np.asarray(params, np.float32))


def disturbed(one: Planted, amount: float, rng: Rng) -> Callable:
    """The learner as a function of arrays, changed so that its training predictions move by this share."""
    sample = SAMPLER(jax.random.key(int(rng.integers(2**31))), 2048).prompt
    arrays = tuple(np.asarray(part) for part in (sample.x, sample.y, sample.x_query))
    wave = {
        "in": rng.normal(size=(N * D + N + D, 64)).astype(np.float32) * 1.5 / (N * D + N + D) ** 0.5,
        "out": rng.normal(size=64).astype(np.float32) / 8,
    }
    run = program(one.build)
    plain = np.asarray(run(one.params, wave, np.float32(0), *arrays))
    size = float(np.median(np.abs(plain)))  # deep methods have a few very large predictions
    if one.disturbance == "smooth" or amount == 0:
        change = float(np.median(np.abs(np.asarray(run(one.params, wave, np.float32(1), *arrays)) - plain)))
        scale = np.float32(amount * size / max(change, 1e-12))
        return lambda x, y, q: run(one.params, wave, scale, x, y, q)
    toward, step = direction(one, rng), 0.05
    moved = lambda step: jax.tree.map(lambda w, d: w + np.float32(step) * d, one.params, toward)  # noqa: E731
    for _ in range(6):
        change = float(np.median(np.abs(np.asarray(run(moved(step), wave, np.float32(0), *arrays)) - plain))) / size
        step *= float(np.clip(amount / max(change, 1e-9), 0.2, 5))
    params = moved(step)
    return lambda x, y, q: run(params, wave, np.float32(0), x, y, q)


@cache
def program(build: Callable) -> Callable:
    """One compiled function of parameters, smooth change and prompts for all learners of a build."""

    @jax.jit
    def run(params: Any, wave: dict[str, Array], scale: Array, x: Array, y: Array, q: Array) -> Array:
        x, y, q = (jnp.asarray(part, jnp.float32) for part in (x, y, q))
        parts = (x.reshape(len(x), -1) / UNIT**0.5, y[:, :, 0] / (D * UNIT) ** 0.5, q / UNIT**0.5)
        change = jnp.tanh(jnp.concatenate(parts, 1) @ wave["in"]) @ wave["out"]
        return build(params)(Prompt(x, y, q)) + scale * change[:, None]

    return run


def direction(one: Planted, rng: Rng) -> Any:
    """What couplings, or a short training, change in the weights of layers that do something."""
    active = (np.abs(one.params["params"]["w_p"]).max((1, 2, 3)) > 0)[:, None, None, None]
    if one.disturbance == "couplings":
        return jax.tree.map(
            lambda w: np.float32(np.where(np.asarray(w) == 0, rng.normal(size=w.shape), 0) * np.abs(w).max() * active),
            one.params,
        )
    trained = short_training(one.params, jax.random.key(int(rng.integers(2**31))))
    return jax.tree.map(lambda after, before: (after - before) * active, trained, one.params)


@jax.jit
def short_training(params: Any, key: Array) -> Any:
    """Twenty steps of Adam on the loss of fresh prompts."""
    optimizer = optax.adam(1e-3)

    def loss(params: Any, key: Array) -> Array:
        sample = SAMPLER(key, 256)
        return jnp.mean((network(params)(sample.prompt) - sample.target) ** 2)

    def step(state: Any, key: Array) -> tuple[Any, None]:
        params, inner = state
        updates, inner = optimizer.update(jax.grad(loss)(params, key), inner)
        return (optax.apply_updates(params, updates), inner), None

    return jax.lax.scan(step, (params, optimizer.init(params)), jax.random.split(key, 20))[0][0]
