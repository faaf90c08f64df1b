"""What the binaries of this paper share: the setting, training and measuring, learners, panels."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.typing import ArrayLike

from icl_lab.compare import compare_batches, interpolate
from icl_lab.constructions import gd_plus_plus_weights
from icl_lab.experiment import Session
from icl_lab.flags import FlagError, setting
from icl_lab.models import LinearSelfAttention, batched_predictions, folded_weights
from icl_lab.prompts import Sample, Sampler, input_variance, linear_regression
from icl_lab.solvers import oracle
from icl_lab.solvers.oracle import TunedSolver
from icl_lab.theory import linear_regression as theory
from icl_lab.training import Fit


@dataclasses.dataclass(frozen=True)
class Task:
    """The law of the tasks and how a member is measured; the defaults are those of the released code."""

    seed: int = setting(0, "seed of every random draw", at_least=0, at_most=2**32 - 1)
    members: int = setting(10, "independent trainings, each with its own start, data and evaluation tasks", at_least=1)
    context_length: int = setting(10, "N, context pairs in a prompt", at_least=1)
    input_size: int = setting(10, "D, dimension of the inputs", at_least=1)
    input_range: float = setting(1.0, "r, inputs are U(-r/2, r/2): the text says r = 2, its figures are r = 1", above=0)
    eval_tasks: int = setting(10_000, "tasks that measure a member, the same at every measurement", at_least=1)
    adam_b2: float = setting(0.98, "Adam's b2: .98 in the code, .999 in the text", at_least=0, at_most=0.9999)
    init_scale: float = setting(0.002, "weights start with variance init_scale / layers / fan_in", above=0)


@dataclasses.dataclass(frozen=True)
class Setting(Task):
    """The training setting of one network."""

    batch: int = setting(2048, "fresh tasks in a training step", at_least=1)
    steps: int = setting(5000, "training steps, a multiple of measure_every", at_least=1)
    measure_every: int = setting(100, "steps between measurements", at_least=1)
    learning_rate: float = setting(1e-3, "Adam's learning rate", above=0)
    gradient_clip: float = setting(
        1e-3, "clip of the gradient's norm: .001 in the code for K <= 2, 10 in the text", above=0
    )


@dataclasses.dataclass(frozen=True)
class Networks(Task):
    """Several networks in one figure, one value per network in every tuple (section 0, facts 8 to 10)."""

    networks: tuple[str, ...] = setting(("looped_2", "free_5"), "looped_K or free_K: K layers, shared or own weights")
    only: str = setting("all", "the one network to run, or all")
    heads: tuple[int, ...] = setting((1, 1), "heads of each network", at_least=1)
    mlp_widths: tuple[int, ...] = setting((0, 0), "hidden width of the MLPs of each network, 0 for none", at_least=0)
    batches: tuple[int, ...] = setting((2048, 2048), "batch of each network", at_least=1)
    steps: tuple[int, ...] = setting((5000, 50_000), "training steps of each network", at_least=1)
    measurements: tuple[int, ...] = setting((50, 50), "measurements during the training of each network", at_least=1)
    learning_rates: tuple[float, ...] = setting((1e-3, 5e-4), "learning rate: 1e-3 for K <= 3, else 5e-4", above=0)
    gradient_clips: tuple[float, ...] = setting((1e-3, 10.0), "gradient clip: .001 for K <= 2, else 10", above=0)
    token_clips: tuple[float, ...] = setting(
        (0.0, 10.0), "token clip: 10 for K > 3 (text: K > 2), 0 is off", at_least=0
    )
    tuning_contexts: int = setting(100_000, "contexts on which GD and GD++ are tuned, and as many held out", at_least=2)
    tuning_steps: int = setting(30_000, "Adam steps that tune GD++ where tokens are clipped", at_least=1)
    tuning_batch: int = setting(512, "tasks of such a step", at_least=1)


def check(config: Setting) -> None:
    """Raises FlagError where fields do not fit together."""
    if config.steps % config.measure_every:
        raise FlagError(f"--steps={config.steps}: allowed is a multiple of --measure_every={config.measure_every}")


def check_networks(config: Networks) -> None:
    """Raises FlagError where the networks' tuples do not fit together."""
    for field in dataclasses.fields(Networks):
        value = getattr(config, field.name)
        if isinstance(value, tuple) and len(value) != len(config.networks):
            raise FlagError(
                f"--{field.name} has {len(value)} values; allowed is one per network ({len(config.networks)})"
            )
    for name, steps, measurements in zip(config.networks, config.steps, config.measurements):
        if not re.fullmatch(r"(looped|free)_[1-9]\d*", name):
            raise FlagError(f"--networks: {name!r}: allowed is looped_K or free_K with K >= 1 layers")
        if steps % measurements:
            raise FlagError(f"--steps: {steps} for {name}: allowed is a multiple of its --measurements={measurements}")
    if config.only not in ("all", *config.networks):
        raise FlagError(f"--only={config.only}: allowed is all, {', '.join(config.networks)}")
    if len(set(config.networks)) != len(config.networks):
        raise FlagError(f"--networks={','.join(config.networks)}: allowed is each network once")


def chosen(config: Networks) -> tuple[str, ...]:
    """The networks to run."""
    return config.networks if config.only == "all" else (config.only,)


def unpack(config: Networks) -> dict[str, tuple[LinearSelfAttention, Setting]]:
    """Module and training setting of each network to run, by name."""
    task = {field.name: getattr(config, field.name) for field in dataclasses.fields(Task)}
    found = {}
    for i, name in enumerate(config.networks):
        kind, layers = name.split("_")
        network = LinearSelfAttention(
            layers=int(layers),
            looped=kind == "looped",
            heads=config.heads[i],
            mlp_width=config.mlp_widths[i],
            token_clip=config.token_clips[i],
            init_scale=config.init_scale,
        )
        found[name] = (
            network,
            Setting(
                **task,
                batch=config.batches[i],
                steps=config.steps[i],
                measure_every=config.steps[i] // config.measurements[i],
                learning_rate=config.learning_rates[i],
                gradient_clip=config.gradient_clips[i],
            ),
        )
    return {name: found[name] for name in chosen(config)}


def sampler(config: Task, **changes) -> Sampler:
    """The training law of the configuration, with changes (a shifted input range, corrupted labels ...)."""
    law = {
        "context_length": config.context_length,
        "input_size": config.input_size,
        "input_range": config.input_range,
    }
    return linear_regression(**(law | changes))


def member_keys(config: Task, stage: int = 0, members: int | None = None) -> Array:
    """(M,) typed keys, one a member; stages of one experiment have different keys."""
    key = jax.random.fold_in(jax.random.key(config.seed), stage)
    return jax.vmap(lambda m: jax.random.fold_in(key, m))(jnp.arange(members or config.members))


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


def best_step(config: Task) -> tuple[float, float]:
    """Best learning rate of one GD step on this law, and its loss: closed forms."""
    eta, loss = theory.one_step_optimum(**law_sizes(config))
    return float(eta), float(loss)


def law_sizes(config: Task) -> dict[str, Any]:
    """The law as the closed forms take it."""
    return {
        "context_length": config.context_length,
        "input_size": config.input_size,
        "input_variance": input_variance("uniform", config.input_range),
    }


def eigenvalues(config: Task, key: Array, contexts: int) -> np.ndarray:
    """(contexts, D) eigenvalues of X^T X of random contexts."""
    n, d = config.context_length, config.input_size
    return oracle.context_eigenvalues(key, contexts, context_length=n, input_size=d, input_range=config.input_range)


def tuned(
    session: Session, stage: str, config: Networks, network: LinearSelfAttention
) -> tuple[TunedSolver, TunedSolver]:
    """K-step GD and GD++ tuned for this network, each with one value for each of its weight sets.

    GD has one learning rate for all steps; GD++ has one (eta, gamma) for all steps of a looped network, one a step of a
    free one. Without a token clip both are the optimum of the exact loss given the contexts' eigenvalues. With one,
    that loss does not hold (the best free GD++ steps pass through tokens far beyond 10), and GD++ is tuned by Adam
    through the clipped network: from the released start (the tuned eta of GD, gamma = eta / N^2) and from the optimum
    without clip that descent from there reaches; the better of the two on held-out tasks is taken.
    """
    gd, gdpp = exactly_tuned(config, network, config.tuning_contexts, starts=1 if network.token_clip else 16)
    if not network.token_clip:
        return gd, gdpp
    released = np.stack([gd.learning_rates, gd.learning_rates / config.context_length**2])
    starts = np.stack([released, np.stack([gdpp.learning_rates, gdpp.gammas])])
    values, losses, errors = tune_on_tasks(
        session, f"{stage}_tuning", config, network, starts, lambda _: sampler(config), jnp.zeros(2),
        steps=config.tuning_steps, batch=config.tuning_batch,
    )  # fmt: skip
    best = int(np.nanargmin(losses))
    eta, gamma = values[best]
    return gd, TunedSolver(eta, gamma, float(losses[best]), float(errors[best]))


def exactly_tuned(
    config: Task, network: LinearSelfAttention, contexts: int, starts: int = 16
) -> tuple[TunedSolver, TunedSolver]:
    """GD and GD++ tuned on the exact loss without token clip, one value for each weight set of the network."""
    fitting, held_out = (eigenvalues(config, key, contexts) for key in member_keys(config, 10_000, 2))
    given: dict[str, Any] = {
        "held_out": held_out,
        "context_length": config.context_length,
        "input_variance": input_variance("uniform", config.input_range),
    }
    solvers = (
        oracle.tune_gradient_descent(fitting, network.layers, **given),
        oracle.tune_gd_plus_plus(fitting, network.layers, shared=network.looped, starts=starts, **given),
    )
    sets = 1 if network.looped else network.layers
    return tuple(  # type: ignore[return-value]
        dataclasses.replace(s, learning_rates=s.learning_rates[:sets], gammas=s.gammas[:sets]) for s in solvers
    )


def tune_on_tasks(
    session: Session,
    stage: str,
    config: Task,
    network: LinearSelfAttention,
    starts: np.ndarray,
    law: Callable[[Any], Sampler],
    settings: Array,
    *,
    steps: int,
    batch: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(eta, gamma) tuned by Adam on the sampled loss of the constructed network, all starts in one program.

    What is trained are logarithms of factors on the start, so that one learning rate suits both and a gamma of zero
    stays zero: GD.

    Args:
      session: where it runs.
      stage: its name.
      config: the law's sizes.
      network: the module whose constructed weights are tuned.
      starts: (M, 2, S) starting values.
      law: ``setting -> sampler``.
      settings: (M,) settings of the law.
      steps: Adam's steps (learning rate .01, cosine decay).
      batch: tasks of a step.

    Returns:
      (M, 2, S) tuned values, and (M,) held-out losses with their standard errors.
    """
    given = {"start": jnp.asarray(starts, jnp.float32), "law": settings}

    def losses(logs: Array, key: Array, setting: dict, tasks: int) -> Array:
        eta, gamma = jnp.exp(logs) * setting["start"]
        samples = law(setting["law"])(key, tasks)
        weights = constructed(config, eta, gamma)
        return 0.5 * (batched_predictions(network, weights, samples.prompt) - samples.target)[:, 0] ** 2

    def held_out(logs: Array, key: Array, setting: dict) -> dict[str, Array]:
        found = losses(logs, key, setting, config.eval_tasks)
        return {"loss": found.mean(), "error": found.std() / found.size**0.5}

    fitted = session.fit(
        stage,
        lambda key, setting: jnp.zeros(starts.shape[1:]),
        lambda logs, key, setting: losses(logs, key, setting, batch).mean(),
        optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(1e-2, steps))),
        member_keys(config, 50, len(starts)),
        given,
        steps=steps,
        measure=held_out,
        members_at_once=members_at_once(batch, network.layers),
    )
    values = np.exp(np.asarray(fitted.params, np.float64)) * starts
    return values, fitted.metrics["loss"][:, -1], fitted.metrics["error"][:, -1]


def solver_json(solver: TunedSolver) -> dict[str, Any]:
    """A tuned solver as plain JSON values."""
    return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in dataclasses.asdict(solver).items()}
