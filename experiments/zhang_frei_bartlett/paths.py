"""Paths of the layer's blocks over training: sampled, and exact by the population loss in float64."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments.zhang_frei_bartlett.common import Tasks, block_product, covariance
from icl_lab.constructions import linear_attention_blocks
from icl_lab.prompts import gaussian_regression
from icl_lab.theory import optimal_loss, optimum
from icl_lab.theory.linear_attention.blocks import block_loss_terms
from icl_lab.training import Model
from icl_lab.training.fitting import Fit
from icl_lab.training.plans import Training, members_at_once, squared_error

Path = Mapping[str, np.ndarray]
"""Blocks ``u`` (M, R), ``u11`` (M, R, D, D), ``u12`` and ``u21`` (M, R, D) at R measurements, float64."""


def planned(
    config: Tasks,
    network_model: Model,
    optimizer: Callable[[Array], optax.GradientTransformation],
    *,
    keys: Array,
    rate: float,
    batch: int,
    steps: int,
    measure_every: int,
    starts: dict | None = None,
) -> Training:
    """The training of the layer on fresh prompts, in which nothing but its blocks is measured.

    The rate is an argument of the program, which is compiled once for all. ``starts`` are parameters (M, ...) from
    which the members start; None: from the layer's initialisation.
    """
    sampler = gaussian_regression(context_length=config.context_length, covariance=covariance(config))

    def loss(params: dict, key: Array, _: tuple) -> Array:
        samples = sampler(key, batch)
        return squared_error(network_model.learner(params)(samples.prompt), samples).mean()

    return Training(
        lambda key, setting: network_model.init(key) if starts is None else setting[1],
        loss,
        lambda setting: optimizer(setting[0]),
        keys,
        (jnp.full(keys.shape, rate), starts),
        steps=steps,
        measure_every=measure_every,
        measure=lambda params, *_: linear_attention_blocks(params),
        members_at_once=members_at_once(batch, 1),
        learner=network_model.learner,
        sampler=lambda _: sampler,
    )


def scheduled(transformation: Callable, steps: int) -> Callable[[Any], optax.GradientTransformation]:
    """``rate -> transformation`` at a rate that falls to zero as a cosine."""
    return lambda rate: transformation(optax.schedules.cosine_decay_schedule(rate, steps))


def blocks_of(fit: Fit) -> Path:
    """The blocks over a training, of ``planned``."""
    return {name: fit.metrics[name].astype(np.float64) for name in ("u", "u11", "u12", "u21")}


def start_of(path: Path) -> dict[str, np.ndarray]:
    """The blocks (M, ...) at which a path starts."""
    return {name: value[:, 0] for name, value in path.items()}


def population_path(
    start: Mapping[str, np.ndarray], config: Tasks, optimizer: optax.GradientTransformation, steps: int, every: int
) -> Path:
    """The same from blocks (M, ...) by the exact gradient of the population loss, every block, in float64.

    It is measured each ``every`` steps, a divisor of ``steps``.
    """
    lam, n = covariance(config), config.context_length

    def loss(blocks: dict[str, Array]) -> Array:
        return block_loss_terms(**blocks, lam=lam, n=n)

    def step(state: tuple, _: None) -> tuple[tuple, None]:
        blocks, memory = state
        updates, memory = optimizer.update(jax.grad(loss)(blocks), memory, blocks)
        return (optax.apply_updates(blocks, updates), memory), None

    def advance(state: tuple, _: None) -> tuple[tuple, dict]:
        state, _ = jax.lax.scan(step, state, None, length=every)
        return state, state[0]

    def member(blocks: dict[str, Array]) -> dict[str, Array]:
        _, path = jax.lax.scan(advance, (blocks, optimizer.init(blocks)), None, length=steps // every)
        return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), blocks, path)

    with jax.enable_x64(True):
        return jax.device_get(jax.jit(jax.vmap(member))(start))


def merged_path(product: np.ndarray, u: np.ndarray) -> Path:
    """The path with u12 = u21 = 0 and a given product u U11, (M, R, D, D) and (M, R)."""
    zero = np.zeros(product.shape[:-1])
    return {"u": u, "u11": product / u[..., None, None], "u12": zero, "u21": zero}


def balance(path: Mapping[str, np.ndarray]) -> np.ndarray:
    """b = u^2 + |u12|^2 - |U11|_F^2 - |u21|^2, (...)."""
    rows = path["u"] ** 2 + (path["u12"] ** 2).sum(-1)
    return rows - (path["u11"] ** 2).sum((-1, -2)) - (path["u21"] ** 2).sum(-1)


def product_error(path: Mapping[str, np.ndarray], config: Tasks) -> np.ndarray:
    """|A - Gam^-1|_F / |Gam^-1|_F, (...)."""
    best = optimum(covariance(config), config.context_length)
    return np.linalg.norm(block_product(path) - best, axis=(-1, -2)) / np.linalg.norm(best)


def excess_losses(paths: Mapping[str, Path], config: Tasks) -> dict[str, np.ndarray]:
    """L / L* - 1 of the exact population loss of every block, (M, R) for each path."""
    lam, n = covariance(config), config.context_length
    lengths = np.cumsum([path["u"].shape[1] for path in paths.values()])
    with jax.enable_x64(True):
        together = jax.tree.map(lambda *blocks: np.concatenate(blocks, axis=1), *paths.values())
        loss = jax.vmap(jax.vmap(lambda blocks: block_loss_terms(**blocks, lam=lam, n=n)))
        excess = np.asarray(jax.jit(loss)(together)) / optimal_loss(lam, n) - 1
    return dict(zip(paths, np.split(excess, lengths[:-1], axis=1)))
