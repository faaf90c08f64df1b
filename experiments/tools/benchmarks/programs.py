"""What is timed: the training programs of von Oswald et al. as the binaries run them, and a plain baseline."""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from experiments.tools.benchmarks.timing import Config, Train
from experiments.von_oswald import common
from icl_lab.fast import batch_learner
from icl_lab.models import LinearSelfAttention, Transformer, learner
from icl_lab.prompts import Prompt, Sample
from icl_lab.training import Training
from icl_lab.training.plans import squared_error

Network = tuple[Transformer, common.Setting]


def program(network: Transformer, setting: common.Setting, members: int = 1) -> Training:
    """Training of some members of a network, without measurements on the way."""
    return common.planned(setting, common.model(network, setting), members=members, measured=False)


def networks(config: Config) -> dict[str, Network]:
    """The networks by name, with the published settings, and the batch of the benchmark."""
    published = common.Networks(
        networks=("looped_1", "looped_2", "free_5"),
        heads=(1, 1, 1),
        mlp_widths=(0, 0, 0),
        batches=(config.batch,) * 3,
        steps=(5000, 5000, 50_000),
        measurements=(50, 50, 50),
        learning_rates=(1e-3, 1e-3, 5e-4),
        gradient_clips=(1e-3, 1e-3, 10.0),
        token_clips=(0.0, 0.0, 10.0),
    )
    by_name = common.unpack(published)
    return {name: by_name[name] for name in config.networks}


def other_networks(config: Config) -> dict[str, Network]:
    """Softmax heads, LayerNorm and MLPs (Figs. 8, 11, 12, 14, 15) with the published settings, at a smaller batch."""

    def setting(**changes: Any) -> common.Setting:
        return common.Setting(**({"batch": config.other_batch, "steps": 5000} | changes))

    linear, deep = LinearSelfAttention(layers=1, looped=True), {"learning_rate": 5e-4, "gradient_clip": 10.0}
    return {
        "1 layer, softmax, 2 heads": (Transformer(layers=1, looped=True, heads=2), setting()),
        "1 layer, LayerNorm": (linear.clone(layer_norm=True), setting()),
        "2 free layers, LayerNorm": (LinearSelfAttention(layers=2, layer_norm=True), setting()),
        "1 layer, MLP": (linear.clone(mlp_width=44), setting()),
        "12 free layers, 4 heads, MLPs, clip": (
            LinearSelfAttention(layers=12, heads=4, mlp_width=44, token_clip=10.0),
            setting(**deep),
        ),
    }


def by_fit(network: Transformer, setting: common.Setting, chunk: int, members: int = 1) -> Train:
    """``in_chunks`` of the program of a network."""
    return in_chunks(program(network, setting, members), chunk)


def in_chunks(p: Training, chunk: int) -> Train:
    """``progress -> fit(...)`` of a program, in chunks, without end and without measurements."""
    endless = replace(p, steps=10**6 * chunk, measure_every=chunk, measure=None)
    return lambda progress: endless.carried_out(progress=progress)


def by_plain_loop(network: Transformer, setting: common.Setting, steps: int) -> Callable[[], Any]:
    """The baseline: a Python loop that calls a jitted per-task sampler, then a jitted step of the per-task network."""
    p, draw = program(network, setting), plain_sampler(setting)
    optimizer = p.optimizer(jax.tree.map(lambda leaf: leaf[0], p.settings))
    start = jax.jit(p.init)(p.keys[0], None)
    begin = (start, optimizer.init(start))

    @jax.jit
    def update(params: dict, state: Any, samples: Sample) -> tuple[dict, Any, Array]:
        loss, gradient = jax.value_and_grad(lambda q: plain_loss(network, q, samples))(params)
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state, loss

    def run() -> Any:
        params, state = begin
        for t in range(steps):
            params, state, loss = update(params, state, draw(p.keys[0], t))
        return params, loss

    return run


def plain_sampler(setting: common.Setting) -> Callable[[Array, int], Sample]:
    """``(key, step) -> Sample``: jitted, a key of its own for every task, ``vmap`` over tasks."""
    n, d, r = setting.context_length, setting.input_size, setting.input_range

    def task(key: Array) -> Sample:
        w_key, x_key, query_key = jax.random.split(key, 3)
        w = jax.random.normal(w_key, (d, 1))
        x = jax.random.uniform(x_key, (n, d), minval=-r / 2, maxval=r / 2)
        query = jax.random.uniform(query_key, (d,), minval=-r / 2, maxval=r / 2)
        return Sample(Prompt(x, x @ w, query), query @ w, {"w": w})

    @jax.jit
    def draw(key: Array, t: Array) -> Sample:
        return jax.vmap(task)(jax.random.split(jax.random.fold_in(key, t), setting.batch))

    return draw


def plain_loss(network: Transformer, params: dict, samples: Sample) -> Array:
    """Mean loss by ``vmap`` of the network, as it is written in the paper."""
    return squared_error(jax.vmap(learner(network, params))(samples.prompt), samples).mean()


def disagreement(network: Transformer, setting: common.Setting) -> dict[str, float]:
    """Largest relative difference of our loss and gradient from the plain form's, on the same data.

    At the start of training and at weights 0.15 times standard normal, where every layer acts and tokens are clipped
    where they can be. Gradients are compared as whole weight matrices, in Frobenius norm.
    """
    samples = jax.jit(common.sampler(setting), static_argnums=1)(jax.random.key(1), setting.batch)
    start = program(network, setting).init(jax.random.key(0), None)
    leaves, tree = jax.tree.flatten(start)
    keys = jax.random.split(jax.random.key(2), len(leaves))
    large = jax.tree.unflatten(tree, [0.15 * jax.random.normal(k, leaf.shape) for k, leaf in zip(keys, leaves)])

    def fast(params: dict) -> Array:
        return squared_error(batch_learner(network, params)(samples.prompt), samples).mean()

    plain = functools.partial(plain_loss, network, samples=samples)
    losses, gradients = [], []
    for params in (start, large):
        (a, da), (b, db) = (jax.jit(jax.value_and_grad(f))(params) for f in (plain, fast))
        losses.append(float(abs(a - b) / abs(a)))
        relative = jax.tree.map(lambda u, v: jnp.linalg.norm(u - v) / jnp.maximum(jnp.linalg.norm(u), 1e-30), da, db)
        gradients.append(max(float(v) for v in jax.tree.leaves(relative)))
    return {"loss difference": max(losses), "gradient difference": max(gradients)}
