"""Learners that belong to no family; their parameters stay away from limits in which they would."""

import dataclasses
import itertools
from collections.abc import Collection
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.identification.disturbances import MIXED, by_adam, program, training
from experiments.identification.suite import MAKE, Build, Law, Planted, Rng, log_uniform, one_prompt, solver
from icl_lab.fast import batch_learner
from icl_lab.models import LinearSelfAttention, Transformer
from icl_lab.prompts import Learner, Prompt

NETWORKS = {
    "untrained linear": LinearSelfAttention(layers=2, init_scale=2.0),
    "untrained softmax": Transformer(layers=2, attention="softmax", init_scale=2.0),
    "half-trained": LinearSelfAttention(layers=2, init_scale=0.1),
    "LayerNorm": LinearSelfAttention(layers=3, layer_norm=True, init_scale=2.0),
}
HALF_TRAINED_STEPS = 60
KINDS = {"nearest neighbour": 15, "tanh filter": 15, "principal components": 15, "random MLP": 14, "untrained": 12,
         "half-trained": 12, "LayerNorm": 12, "clipped labels": 12, "spike and slab": 11,
         "mean of two": 32}  # fmt: skip
APART = 0.3
"""Two algorithms of which a mean is taken differ by this share of their mean, in the median over training prompts."""


def neighbours(p: Any, count: int) -> Learner:
    """Mean label of the two to four nearest examples. One is kernel smoothing without width, all are the mean."""

    def predict(prompt: Prompt) -> Array:
        distances = jnp.sum((prompt.x - prompt.x_query[None]) ** 2, axis=1)
        return p[0] * prompt.y[jnp.argsort(distances)[:count]].mean(0)

    return predict


def components(p: Any, count: int) -> Learner:
    """Regression on the first one to three principal components."""

    def predict(prompt: Prompt) -> Array:
        values, vectors = jnp.linalg.eigh(prompt.x.T @ prompt.x)
        v, values = vectors[:, -count:], values[-count:]
        return p[0] * (prompt.x_query @ v / values) @ (v.T @ (prompt.x.T @ prompt.y))

    return predict


def threshold(p: Any) -> Learner:
    """A filter that is a sharp step: l h(l) = (1 + tanh((l - c) / w)) / 2, w at most a tenth of c."""

    def predict(prompt: Prompt) -> Array:
        n = len(prompt.x)
        values, vectors = jnp.linalg.eigh(prompt.x.T @ prompt.x / n)
        h = (1 + jnp.tanh((values - p[0]) / (p[1] * p[0]))) / 2 / jnp.maximum(values, 1e-6)
        return (prompt.x_query @ vectors * h) @ (vectors.T @ (prompt.x.T @ prompt.y / n))

    return predict


def clipped(p: Any, name: str) -> Learner:
    """An algorithm on labels that are cut off at .2 to .4 of their size: three in four are."""
    inner = MAKE[name](p)
    return lambda prompt: inner(dataclasses.replace(prompt, y=jnp.clip(prompt.y, -p[1], p[1])))


def spike_and_slab(p: Any, d: int) -> Learner:
    """Posterior mean where a coordinate of the task is zero with probability .8 to .95, else normal: over all subsets.

    p: the variance of the noise over that of the task, the log odds of a coordinate, the variance of the task.
    """
    subsets = jnp.asarray(list(itertools.product((0.0, 1.0), repeat=d)))  # (2^D, D)

    def predict(prompt: Prompt) -> Array:
        x, y = prompt.x, prompt.y[:, 0]
        gram, b = x.T @ x, x.T @ y

        def of(subset: Array) -> tuple[Array, Array]:
            system = subset[:, None] * gram * subset[None] + p[0] * jnp.eye(d)
            w = jnp.linalg.solve(system, subset * b)
            fit = (subset * b) @ w / (2 * p[0] * p[2])
            return w, fit - 0.5 * (jnp.linalg.slogdet(system)[1] - d * jnp.log(p[0])) + p[1] * subset.sum()

        tasks, evidence = jax.vmap(of)(subsets)
        return (prompt.x_query @ (jax.nn.softmax(evidence) @ tasks))[None]

    return predict


@cache
def mean_of(first: Build, second: Build) -> Build:
    """Half of one algorithm and half of another."""
    return lambda params: lambda prompts: (first(params["first"])(prompts) + second(params["second"])(prompts)) / 2


def mlp(params: Any) -> Any:
    """A random tanh network of two hidden layers that reads the whole prompt."""

    def predict(prompts: Prompt) -> Array:
        x, q = (part / params["unit"] for part in (prompts.x, prompts.x_query))
        parts = (x.reshape(len(x), -1), prompts.y[:, :, 0] / params["label"], q)
        hidden = jnp.tanh(jnp.concatenate(parts, 1) @ params["in"])
        return params["size"] * jnp.tanh(hidden @ params["middle"]) @ params["out"]

    return predict


@cache
def of_network(name: str) -> Any:
    """A network times a number that gives its predictions label size."""
    return lambda params: lambda prompts: params["size"] * batch_learner(NETWORKS[name], params["net"])(prompts)


@partial(jax.jit, static_argnums=(0, 2, 3))
def trained(name: str, keys: Array, steps: int, law: Law) -> Any:
    """(M, ...) parameters after so many steps of Adam at 3e-3 on batches of 128 prompts; untrained for none."""
    network = NETWORKS[name]

    def one(key: Array) -> Any:
        params = network.init(key, jnp.zeros((law.n + 1, law.d + 1)))
        if not steps:
            return params
        return by_adam(partial(batch_learner, network), params, 3e-3, jax.random.split(key, steps), law, 128)

    return jax.vmap(one)(keys)


def names(kinds: Collection[str], share: float) -> list[tuple[str, int]]:
    """Kind and number of every outsider, of a share of some kinds."""
    counts = ((kind, max(1, round(share * count))) for kind, count in KINDS.items() if kind in kinds)
    return [(kind, i) for kind, count in counts for i in range(count)]


def outsiders(seed: int, kinds: Collection[str], share: float) -> list[Planted]:
    """150 outsiders, or a share of some kinds: three in four at D = 5, N = 10, the others at D = 10, N = 20."""
    place = list(KINDS).index
    return [
        _outsider(kind, i, np.random.default_rng([seed, 7, place(kind), i]), seed) for kind, i in names(kinds, share)
    ]


def _outsider(kind: str, i: int, rng: Rng, seed: int) -> Planted:
    large = i % 4 == 3 and kind not in ("half-trained", "spike and slab")
    noise = {"spike and slab": 0.3, "half-trained": 0.0}.get(kind, (0.0, 0.0, 0.1)[i % 3])
    law = Law(*((10, 20) if large else (5, 10)), "normal" if i % 2 and kind != "half-trained" else "uniform", noise)
    outsider = partial(Planted, kind, False, law=law)
    size = np.array([rng.uniform(0.7, 1.0)], np.float32)
    if kind == "nearest neighbour":
        return outsider(one_prompt(neighbours, 2 + i % 3), size)
    if kind == "principal components":
        return outsider(one_prompt(components, 1 + i % 3), size)
    if kind == "tanh filter":
        return outsider(
            one_prompt(threshold), np.array([rng.uniform(0.6, 1.2) * law.unit, rng.uniform(0.02, 0.1)], np.float32)
        )
    if kind == "clipped labels":
        params = [0.05 * law.unit * law.n, rng.uniform(0.2, 0.4) * law.label]
        return outsider(one_prompt(clipped, ("ridge", "least squares")[i % 2]), np.array(params, np.float32))
    if kind == "spike and slab":
        odds, variance = rng.uniform(0.05, 0.2), log_uniform(rng, 0.5, 2)
        params = [noise**2 * law.d * law.unit / variance, np.log(odds / (1 - odds)), variance]
        return outsider(one_prompt(spike_and_slab, law.d), np.array(params, np.float32))
    if kind == "mean of two":
        return _mean(i, rng, law)
    if kind == "random MLP":
        width = law.n * law.d + law.n + law.d
        shapes = {"in": (width, 64), "middle": (64, 64), "out": (64, 1)}
        drawn: dict[str, Any] = {k: np.float32(rng.normal(size=s) * 2 / s[0] ** 0.5) for k, s in shapes.items()}
        sizes = {"unit": np.float32(law.unit**0.5), "label": np.float32(law.label), "size": np.float32(1)}
        return _of_label_size(outsider(mlp, drawn | sizes))
    name = ("untrained linear", "untrained softmax")[i // 2 % 2] if kind == "untrained" else kind
    net = jax.tree.map(lambda leaf: leaf[i], _networks(name, seed, KINDS[kind], law))
    planted = outsider(of_network(name), {"net": net, "size": np.float32(1)})
    return planted if kind == "half-trained" else _of_label_size(planted)


def _mean(i: int, rng: Rng, law: Law) -> Planted:
    """The mean of two algorithms that are ``APART``."""
    pair = (("GD", "least squares"), ("LMS", "ridge"), ("kernel smoothing", "ridge"), ("LMS", "least squares"))[
        i // 2 % 4
    ]
    sample = training(law, 0)
    while True:
        halves = [_one_step(rng, law) if name == "GD" else solver(name, rng, law, i) for name in pair]
        a, b = (
            np.asarray(program(half.build, "gain", None)(half.params, np.float32(0), *sample)[0]) for half in halves
        )
        narrow = pair[0] != "kernel smoothing" or halves[0].params[0] < 1.2 * law.unit**0.5  # wide, it is the mean
        if narrow and np.median(np.abs(a - b)) > APART * np.median(np.abs(a + b)) / 2:
            params = {"first": halves[0].params, "second": halves[1].params}
            return Planted("mean of two", False, mean_of(halves[0].build, halves[1].build), params, law)


def _one_step(rng: Rng, law: Law) -> Planted:
    rate = np.array([log_uniform(rng, 0.2, 0.8) / law.unit], np.float32)
    return Planted("GD", True, MIXED["GD"][0], rate, law)


@cache
def _networks(name: str, seed: int, count: int, law: Law) -> Any:
    steps = HALF_TRAINED_STEPS if name == "half-trained" else 0
    law = law if steps else dataclasses.replace(law, inputs="uniform", noise=0.0)  # whose sizes count only
    return jax.tree.map(np.asarray, trained(name, jax.random.split(jax.random.key(seed), count), steps, law))


def _of_label_size(one: Planted) -> Planted:
    x, y, q = training(one.law, 0)
    predictions = np.asarray(program(one.build, "gain", None)(one.params, np.float32(0), x, y, q)[0])
    return dataclasses.replace(one, params=one.params | {"size": np.float32(np.std(y) / predictions.std())})
