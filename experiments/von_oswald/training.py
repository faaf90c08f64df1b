"""How the binaries of this paper train and measure a network."""

from collections.abc import Callable, Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.typing import ArrayLike

from experiments.von_oswald.settings import Setting, Task, member_keys, sampler
from icl_lab.compare import compare_batches, interpolate
from icl_lab.constructions import gd_plus_plus_weights
from icl_lab.experiment import Session
from icl_lab.models import LinearSelfAttention, batched_predictions, folded_weights
from icl_lab.prompts import Sample, Sampler
from icl_lab.training import Fit


def optimizer(config: Setting) -> optax.GradientTransformation:
    """Adam after a clip of the global norm (section 0, facts 7 to 9)."""
    return optax.chain(
        optax.clip_by_global_norm(config.gradient_clip), optax.adam(config.learning_rate, b2=config.adam_b2)
    )


def train(
    session: Session,
    stage: str,
    config: Setting,
    network: LinearSelfAttention,
    *,
    keys: Array | None = None,
    references: Mapping[str, tuple[LinearSelfAttention, dict]] | None = None,
    interpolate_with: dict | None = None,
    corrupted_labels: Array | None = None,
    extra: Callable[[dict], dict[str, Array]] | None = None,
    measured: bool = True,
) -> Fit:
    """Trains the members of one network and measures each against the references on its own evaluation tasks.

    Args:
      session: where it runs.
      stage: name of the checkpoint and of the progress bar.
      config: the setting.
      network: the module.
      keys: (M,) member keys; None means ``member_keys(config)``.
      references: networks and weights to compare with, by name.
      interpolate_with: constructed weights with which the trained ones are interpolated, None for no interpolation.
      corrupted_labels: (M,) corrupted context labels of each member, None for clean labels.
      extra: ``params -> {name: array}``, measured beside.
      measured: False measures the training loss only.

    Returns:
      A ``Fit`` whose metrics are ``loss``, ``interpolated_loss``, and for each reference ``<reference>_loss`` and
      ``<reference>_<comparison>``.
    """
    keys = member_keys(config) if keys is None else keys
    labels = jnp.zeros(keys.shape, jnp.int32) if corrupted_labels is None else corrupted_labels

    def law(corrupted: Array) -> Sampler:
        return sampler(config, corrupted_labels=0 if corrupted_labels is None else corrupted)

    def init(key: Array, _: Array) -> dict:
        return dict(network.init(key, jnp.zeros((config.context_length + 1, config.input_size + 1))))

    def loss(params: dict, key: Array, corrupted: Array) -> Array:
        return batched_loss(network, params, law(corrupted)(key, config.batch))

    def measure(params: dict, key: Array, corrupted: Array) -> dict[str, Array]:
        samples = law(corrupted)(key, config.eval_tasks)
        trained = partial(batched_predictions, network, params)
        found = {"loss": batched_loss(network, params, samples)}
        for name, reference in (references or {}).items():
            found[f"{name}_loss"] = batched_loss(*reference, samples)
            compared = compare_batches(trained, partial(batched_predictions, *reference), samples)
            found |= {f"{name}_{metric}": value for metric, value in compared.items()}
        if interpolate_with is not None:
            middle = interpolate(params, interpolate_with, input_size=config.input_size)
            found["interpolated_loss"] = batched_loss(network, middle, samples)
        return found | (extra(params) if extra is not None else {})

    return session.fit(
        stage,
        init,
        loss,
        optimizer(config),
        keys,
        labels,
        steps=config.steps,
        measure_every=config.measure_every,
        measure=measure if measured else None,
        members_at_once=members_at_once(config.batch, network.layers),
    )


def batched_loss(network: LinearSelfAttention, params: dict, samples: Sample) -> Array:
    """Half the mean squared error over a batch of tasks."""
    return 0.5 * jnp.mean((batched_predictions(network, params, samples.prompt) - samples.target) ** 2)


def members_at_once(batch: int, layers: int) -> int | None:
    """All members together on an accelerator; on a CPU as many as fill its caches.

    That is about 8192 tasks for one or two layers, 1024 for more, whose gradient keeps every layer's matrices.
    """
    tasks = 8192 if layers <= 2 else 1024
    return max(1, tasks // batch) if jax.default_backend() == "cpu" else None


def paired_losses(
    networks: Callable[[dict], Mapping[str, tuple[LinearSelfAttention, dict]]],
    law: Callable[[Array], Sampler],
    params: dict,
    keys: Array,
    tasks: int,
    settings: ArrayLike = 0.0,
    chunk: int = 10_000,
) -> dict[str, np.ndarray]:
    """Mean losses of several networks on the same fresh tasks, for each member at each setting of the law.

    Args:
      networks: ``params of a member -> {name: (network, weights)}``.
      law: ``setting -> sampler``.
      params: parameters with leading member axis.
      keys: (M,) keys, apart from those of training; every setting sees the same draws.
      tasks: tasks for each member; drawn in chunks.
      settings: (S,) settings of the law, or a scalar.
      chunk: tasks held in memory at once.

    Returns:
      (M, S) mean losses by name; (M,) for a scalar setting.
    """
    chunks = max(1, tasks // chunk)

    def at(params: dict, key: Array, value: Array) -> dict[str, Array]:
        def part(k: Array) -> dict[str, Array]:
            samples = law(value)(k, min(chunk, tasks))
            return {name: batched_loss(*pair, samples) for name, pair in networks(params).items()}

        return jax.tree.map(jnp.mean, jax.lax.map(part, jax.random.split(key, chunks)))

    @jax.jit
    def evaluate(params: dict, keys: Array, values: Array) -> dict[str, Array]:
        return jax.lax.map(lambda pk: jax.lax.map(lambda value: at(pk[0], pk[1], value), values), (params, keys))

    found = evaluate(params, keys, jnp.atleast_1d(jnp.asarray(settings, float)))
    return {name: np.asarray(v if np.ndim(settings) else v[:, 0]) for name, v in found.items()}


def constructed(config: Task, learning_rates, gammas=0.0) -> dict:
    """Hand-built GD or GD++ weights in float32, for any network of one head without MLP."""
    weights = gd_plus_plus_weights(
        learning_rates, gammas, context_length=config.context_length, input_size=config.input_size
    )
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), weights)


def strengths(params: dict, input_size: int) -> dict[str, Array]:
    """GD++ strengths read off one-head weights: ``gamma`` and ``eta_over_n``, (S,) each (Fig. 9 and 13).

    With A scaled to mean input diagonal 1, B has -gamma on the inputs and -eta/N on the label.
    """
    a, b = (w[:, 0] for w in folded_weights(params))
    diagonal = lambda m: jnp.diagonal(m[:, :input_size, :input_size], axis1=1, axis2=2).mean(axis=1)  # noqa: E731
    scale = diagonal(a)
    return {"gamma": -scale * diagonal(b), "eta_over_n": -scale * b[:, input_size, input_size]}
