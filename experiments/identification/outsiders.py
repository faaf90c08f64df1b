"""Learners that belong to no family; their parameters stay away from limits in which they would."""

import dataclasses
from collections.abc import Collection
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments.identification.suite import SAMPLER, UNIT, D, N, Planted, one_prompt, program
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
KINDS = {"nearest neighbour": 24, "tanh filter": 24, "principal components": 24, "random MLP": 24, "untrained": 18,
         "half-trained": 18, "LayerNorm": 18}  # fmt: skip


def neighbours(p: Any, count: int) -> Learner:
    """Mean label of the nearest examples: two to four of ten. One is kernel smoothing without width, ten the mean."""

    def predict(prompt: Prompt) -> Array:
        distances = jnp.sum((prompt.x - prompt.x_query[None]) ** 2, axis=1)
        return p[0] * prompt.y[jnp.argsort(distances)[:count]].mean(0)

    return predict


def components(p: Any, count: int) -> Learner:
    """Regression on the first one to three principal components of five."""

    def predict(prompt: Prompt) -> Array:
        values, vectors = jnp.linalg.eigh(prompt.x.T @ prompt.x)
        v, values = vectors[:, -count:], values[-count:]
        return p[0] * (prompt.x_query @ v / values) @ (v.T @ (prompt.x.T @ prompt.y))

    return predict


def threshold(p: Any) -> Learner:
    """A filter that is a sharp step: l h(l) = (1 + tanh((l - c) / w)) / 2, w at most a tenth of c."""

    def predict(prompt: Prompt) -> Array:
        values, vectors = jnp.linalg.eigh(prompt.x.T @ prompt.x / N)
        h = (1 + jnp.tanh((values - p[0]) / (p[1] * p[0]))) / 2 / jnp.maximum(values, 1e-6)
        return (prompt.x_query @ vectors * h) @ (vectors.T @ (prompt.x.T @ prompt.y / N))

    return predict


def mlp(params: Any) -> Any:
    """A random tanh network of two hidden layers that reads the whole prompt."""

    def predict(prompts: Prompt) -> Array:
        parts = (prompts.x.reshape(len(prompts.x), -1) / UNIT**0.5, prompts.y[:, :, 0], prompts.x_query / UNIT**0.5)
        hidden = jnp.tanh(jnp.concatenate(parts, 1) @ params["in"])
        return params["size"] * jnp.tanh(hidden @ params["middle"]) @ params["out"]

    return predict


@cache
def of_network(name: str) -> Any:
    """A network times a number that gives its predictions label size."""
    return lambda params: lambda prompts: params["size"] * batch_learner(NETWORKS[name], params["net"])(prompts)


@partial(jax.jit, static_argnums=(0, 2))
def trained(name: str, keys: Array, steps: int) -> Any:
    """(M, ...) parameters after so many steps of Adam at 1e-3 on batches of 128 prompts; untrained for none."""
    network, optimizer = NETWORKS[name], optax.adam(3e-3)

    def loss(params: Any, key: Array) -> Array:
        sample = SAMPLER(key, 128)
        return jnp.mean((batch_learner(network, params)(sample.prompt) - sample.target) ** 2)

    def step(state: Any, key: Array) -> tuple[Any, None]:
        params, inner = state
        updates, inner = optimizer.update(jax.grad(loss)(params, key), inner)
        return (optax.apply_updates(params, updates), inner), None

    def one(key: Array) -> Any:
        params = network.init(key, jnp.zeros((N + 1, D + 1)))
        state = (params, optimizer.init(params))
        return jax.lax.scan(step, state, jax.random.split(key, steps))[0][0] if steps else params

    return jax.vmap(one)(keys)


def outsiders(seed: int, kinds: Collection[str] = tuple(KINDS), share: float = 1.0) -> list[Planted]:
    """150 outsiders, or a share of some kinds."""
    found = []
    for kind, count in ((kind, count) for kind, count in KINDS.items() if kind in kinds):
        for i in range(max(1, round(share * count))):
            found.append(_outsider(kind, i, np.random.default_rng([seed, 7, i]), seed))
    return found


def _outsider(kind: str, i: int, rng: np.random.Generator, seed: int) -> Planted:
    one = np.array([rng.uniform(0.7, 1.0)], np.float32)
    if kind == "nearest neighbour":
        return Planted(kind, (), one_prompt(neighbours, 2 + i % 3), one)
    if kind == "principal components":
        return Planted(kind, (), one_prompt(components, 1 + i % 3), one)
    if kind == "tanh filter":
        params = np.array([rng.uniform(0.6, 1.2) * UNIT, rng.uniform(0.02, 0.1)], np.float32)
        return Planted(kind, (), one_prompt(threshold), params)
    if kind == "random MLP":
        width = N * D + N + D
        shapes = {"in": (width, 64), "middle": (64, 64), "out": (64, 1)}
        drawn: dict[str, Any] = {
            k: (rng.normal(size=s) * 2 / s[0] ** 0.5).astype(np.float32) for k, s in shapes.items()
        }
        return _of_label_size(Planted(kind, (), mlp, drawn | {"size": np.float32(1)}))
    name = ("untrained linear", "untrained softmax")[i % 2] if kind == "untrained" else kind
    many = _networks(name, seed, KINDS[kind], _steps(kind))
    net = jax.tree.map(lambda leaf: leaf[i], many)
    planted = Planted(kind, (), of_network(name), {"net": net, "size": np.float32(1)})
    return planted if kind == "half-trained" else _of_label_size(planted)


@cache
def _networks(name: str, seed: int, count: int, steps: int) -> Any:
    return jax.tree.map(np.asarray, trained(name, jax.random.split(jax.random.key(seed), count), steps))


def _steps(kind: str) -> int:
    return HALF_TRAINED_STEPS if kind == "half-trained" else 0


def _of_label_size(one: Planted) -> Planted:
    sample = SAMPLER(jax.random.key(0), 2048)
    still = {"in": np.zeros((N * D + N + D, 64), np.float32), "out": np.zeros(64, np.float32)}
    arrays = (np.asarray(part) for part in (sample.prompt.x, sample.prompt.y, sample.prompt.x_query))
    predictions = np.asarray(program(one.build)(one.params, still, np.float32(0), *arrays))
    size = np.float32(np.std(np.asarray(sample.target)) / predictions.std())
    return dataclasses.replace(one, params=one.params | {"size": size})
