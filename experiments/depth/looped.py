"""Looped and free layers of linear attention end at different steps of gradient descent (Gatmiry et al. 2024).

L layers of linear self-attention that keep inputs and labels apart (Ahn et al. 2023, section 4) leave prod (1 - a_j l)
of the labels along an eigenvector of the context's Gram matrix with the eigenvalue l. Looped layers share one
a, free layers have one each. The error is a polynomial in the rates, and its coefficients are exact moments of a
Wishart matrix (``icl_lab.theory.depth``); among free rates the looped optimum is a strict saddle. Errors are squared
errors over that of predicting zero.

Networks, kind_L: looped; free; equal (free, all layers start alike); inputs (free, and layers may move the inputs too:
GD++); turned (free, on inputs of another covariance, with tasks of its inverse). Beside them gradient descent on the
rates themselves, from equal starts and from starts a little apart.

Panels: errors over depth; error of the looped layers over the loops at test; steps in which equal rates come apart.
"""

import dataclasses
import functools
import re
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments import training
from experiments.settings import Members, member_keys
from experiments.training import Model, always, paired_losses
from icl_lab.fast import batch_learner
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import holds, multiple_of, once
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts import Prompt, Sampler, gaussian_regression
from icl_lab.theory import best_gd_plus_plus, depth_error, depth_gradient, free_rates, gram_spectrum, looped_rate

KINDS = ("looped", "free", "equal", "inputs", "turned")


@dataclasses.dataclass(frozen=True)
class Config(Members):
    """Isotropic inputs but for the turned networks; Adam at a rate that falls to zero as a cosine."""

    context_length: int = setting(20, "N, labelled examples in a prompt", at_least=2)
    input_size: int = setting(5, "D, dimension of the inputs", at_least=2)
    networks: tuple[str, ...] = setting(
        ("looped_2", "free_2", "equal_2", "inputs_2", "turned_2", "looped_3", "free_3"),
        f"kind_L: L layers of a kind ({', '.join(KINDS)})",
    )
    scales: tuple[float, ...] = setting(
        (1.0, 1.0, 0.5, 0.25, 1.0), "roots of the turned covariance's spectrum", above=0
    )
    loops: tuple[int, ...] = setting((1, 2, 3, 4, 5, 6, 8, 10), "loops of the looped networks at test", at_least=1)
    depths: tuple[int, ...] = setting((2, 3), "L of the descents on the rates themselves", at_least=2)
    jitters: tuple[float, ...] = setting((1e-2, 1e-3, 1e-4, 1e-5), "how far apart these rates start", above=0)
    descent_rate: float = setting(0.1, "step of these descents", above=0)
    descent_steps: int = setting(1500, "steps of these descents", at_least=1)
    eval_tasks: int = setting(2000, "prompts that measure a member during training", at_least=1)
    steps: int = setting(4000, "training steps, a multiple of measure_every", at_least=1)
    measure_every: int = setting(500, "steps between measurements", at_least=1)
    learning_rate: float = setting(0.01, "Adam's learning rate at the start", above=0)
    batch: int = setting(256, "fresh prompts in a training step", at_least=1)
    init_scale: float = setting(0.1, "standard deviation of the weights at the start", above=0)
    final_tasks: int = setting(400_000, "prompts for each final error of a member", at_least=1)


PRESETS = {
    "smoke": Config(
        members=2, context_length=4, input_size=2, networks=("looped_2", "free_2", "turned_2", "inputs_2"),
        scales=(1.0, 0.5), loops=(1, 3), depths=(2,), jitters=(1e-2, 1e-3), descent_steps=200, steps=20,
        measure_every=10, batch=16, eval_tasks=32, final_tasks=64,
    ),
    "quick": Config(
        members=6, networks=("looped_2", "free_2"), loops=(1, 2), depths=(2,), descent_steps=500, steps=1000,
        measure_every=500, batch=128, final_tasks=20_000,
    ),
    "lab": Config(scales=(1.0, 1.0, 0.7, 0.5, 1.0), batch=128, final_tasks=50_000),
    "paper": Config(),
}  # fmt: skip

CONSTRAINTS = (
    multiple_of("steps", "measure_every"), once("networks", "loops", "depths", "jitters"),
    holds("kind_L, of L >= 2 layers", "networks",
          when=lambda c: all(re.fullmatch(rf"({'|'.join(KINDS)})_([2-9]|[1-9]\d+)", name) for name in c.networks)),
    holds("D numbers", "scales", "input_size", when=lambda c: len(c.scales) == c.input_size),
)  # fmt: skip

LOOPED: dict[str, Any] = {"network": lambda config: [name for name in config["networks"] if name[:6] == "looped"]}
SOLVERS = ("looped", "free", "gd++")
STEPS, LOSS = quantity("steps", "step"), quantity("{network}/loss", "member", "step", network="networks")
WEIGHTS = quantity("{network}/a", "member", "{network}_layer", "row", "column", network="networks")
ERROR = quantity("{network}/{learner}", "member", network="networks", learner=("trained", *SOLVERS))
LOOPS = quantity("{network}/loops/{learner}", "member", "loops", **LOOPED, learner=("trained", "looped"))
LEFT = quantity("descent_{depth}/left", "member", "jitter", depth="depths")
END = quantity("descent_{depth}/{start}", "member", depth="depths", start=("equal", "apart"))


class Optima(NamedTuple):
    """The law of eigenvalues of prompts, the best rates (L,) looped and free, and their errors (MSE / D)."""

    spectrum: tuple[np.ndarray, np.ndarray]
    rates: dict[str, np.ndarray]
    errors: dict[str, float]


@functools.cache
def optima(config: Config, layers: int) -> Optima:
    """Those of a configuration's prompts at a depth."""
    spectrum = gram_spectrum(config.context_length, config.input_size, 2 * layers)
    rates = {"looped": np.full(layers, looped_rate(layers, spectrum)), "free": free_rates(layers, spectrum)}
    return Optima(spectrum, rates, {name: float(depth_error(values, spectrum)) for name, values in rates.items()})


def root(config: Config, name: str) -> np.ndarray:
    """(D, D) symmetric root of the covariance of a network's inputs."""
    if not name.startswith("turned"):
        return np.eye(config.input_size)
    turn = np.linalg.qr(np.random.default_rng(config.seed).normal(size=(config.input_size,) * 2))[0]
    return turn * np.asarray(config.scales) @ turn.T


def sampler(config: Config, name: str) -> Sampler:
    """Prompts of inputs N(0, C) and tasks N(0, C^-1)."""
    covariance = root(config, name) @ root(config, name)
    task = None if name[:6] != "turned" else np.linalg.inv(covariance)
    return gaussian_regression(context_length=config.context_length, covariance=covariance, task_moment=task)


def model(config: Config, name: str, layers: int | None = None) -> Model:
    """Layers x <- x - (1/N) sum (x A x_n) B x_n, y <- y - (1/N) sum (x A x_n) y_n; B is there for inputs_L only."""
    kind, depth = name.split("_")
    d, layers = config.input_size, layers or int(depth)
    network = LinearSelfAttention(layers=layers, looped=kind == "looped", parametrisation="merged", averaged=True)
    shape = (1 if kind == "looped" else layers, d, d)

    def init(key: Array) -> dict:
        draw = lambda k: config.init_scale * jax.random.normal(k, (1, *shape[1:]) if kind == "equal" else shape)  # noqa: E731
        first, second = jax.random.split(key)
        weights = {"a": jnp.broadcast_to(draw(first), shape)}
        return {"params": weights | ({"b": draw(second)} if kind == "inputs" else {})}

    def predict(params: dict, prompts: Prompt) -> Array:
        weights = params["params"]
        a = jnp.pad(weights["a"], ((0, 0), (0, 1), (0, 1)))
        b = jnp.pad(weights.get("b", jnp.zeros_like(weights["a"])), ((0, 0), (0, 1), (0, 1)))
        stack = {"w_kq": a[:, None], "w_pv": -b.at[:, -1, -1].set(1)[:, None]}
        return batch_learner(network, {"params": stack})(prompts)

    return Model(init, predict, layers, f"{kind} layers")


def solvers(config: Config, name: str) -> dict[str, tuple[str, dict]]:
    """By name, the kind and the weights of layers that are gradient descent, or GD++, at the best rates."""
    layers, inverse = int(name.split("_")[1]), np.linalg.inv(root(config, name) @ root(config, name))
    pairs: dict[str, Any] = {key: (rates, None) for key, rates in optima(config, layers).rates.items()}
    if name.startswith("inputs"):
        spectrum = gram_spectrum(config.context_length, config.input_size, 3**layers - 1)
        rates, gammas, _ = best_gd_plus_plus(layers, *spectrum)
        pairs["gd++"] = rates, gammas / rates
    weights = lambda of: jnp.asarray(of[:, None, None] * inverse, jnp.float32)  # noqa: E731
    return {
        key: ("free", {"params": {"a": weights(a)} | ({} if b is None else {"b": weights(b)})})
        for key, (a, b) in pairs.items()
    }


def trainings(config: Config) -> Table:
    """Every network."""
    return {
        name: training.planned(
            config, model(config, name), keys=member_keys(config, stream),
            optimizer=training.falling_adam(config.steps), sampler_of=always(sampler(config, name)),
        )
        for stream, name in enumerate(config.networks)
    }  # fmt: skip


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Errors of every network and of the solvers on the same prompts, at other numbers of loops too; the descents."""
    for stream, name in enumerate(config.networks):
        fit, layers, beside = fits[name], int(name.split("_")[1]), solvers(config, name)

        def errors(learners: Any, stream: int = stream, name: str = name, fit: Any = fit) -> dict[str, np.ndarray]:
            keys = member_keys(config, 900 + stream)
            losses = paired_losses(learners, always(sampler(config, name)), fit.params, keys, config.final_tasks)
            return {one: 2 * values / config.input_size for one, values in losses.items()}

        if not stream:
            yield STEPS, fit.steps
        yield LOSS.at(network=name), fit.metrics["loss"]
        yield WEIGHTS.at(network=name), np.asarray(fit.params["params"]["a"], np.float64)
        fixed = {key: model(config, f"{kind}_{layers}").learner(weights) for key, (kind, weights) in beside.items()}
        trained = model(config, name)
        yield ERROR.at(network=name), errors(lambda params: {"trained": trained.learner(params), **fixed})  # noqa: B023
        best = optima(config, layers)
        facts = {"rates": {key: rates.tolist() for key, rates in best.rates.items()}, "errors": dict(best.errors)}
        yield "facts", {name: facts}
        if not name.startswith("looped"):
            continue
        by_count = []
        for count in config.loops:
            stack, one = model(config, name, count), {"params": {"a": beside["looped"][1]["params"]["a"][:1]}}
            both = lambda params: {"trained": stack.learner(params), "looped": stack.learner(one)}  # noqa: B023, E731
            by_count.append(errors(both))
        yield LOOPS.at(network=name), {key: np.stack([one[key] for one in by_count], axis=1) for key in by_count[0]}
    for layers in config.depths:
        yield from _descents(config, layers)


def _descents(config: Config, layers: int) -> Iterator[Yield]:
    """Gradient descent on the mean error as a function of the rates, in float64; a member is a start.

    LEFT counts steps from the looped optimum, moved by a jitter, until the error has fallen half way to the free one.
    END is the error of starts that are equal, or apart by the first jitter, after all steps.
    """
    best, rng = optima(config, layers), np.random.default_rng([config.seed, layers])
    apart = rng.normal(size=(config.members, layers))
    apart = (apart - apart.mean(1, keepdims=True)) / apart.std(1, keepdims=True)
    equal = rng.uniform(0.3, 0.9, (config.members, 1)) * np.ones(layers)
    moved = [best.rates["looped"] + jitter * apart for jitter in config.jitters]
    rates = np.stack([*moved, equal, equal + config.jitters[0] * apart], axis=1)
    half, left = (best.errors["looped"] + best.errors["free"]) / 2, np.full(rates.shape[:2], np.nan)
    for step in range(config.descent_steps):
        rates = rates - config.descent_rate * depth_gradient(rates, best.spectrum)
        left[(depth_error(rates, best.spectrum) < half) & np.isnan(left)] = step + 1
    errors = depth_error(rates, best.spectrum)
    yield LEFT.at(depth=layers), left[:, :-2]
    yield END.at(depth=layers), {"equal": errors[:, -2], "apart": errors[:, -1]}


EXPERIMENT = Experiment(
    "depth.looped", __doc__, PRESETS, measured, (STEPS, LOSS, WEIGHTS, ERROR, LOOPS, LEFT, END), trainings=trainings,
    constraints=CONSTRAINTS,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
