"""How the nonlinear transformer is trained and tested: on every prefix of its prompts, by Garg et al.'s curriculum.

Beside it, on the same tests: least squares, and the exact error of linear attention.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments.settings import Members, member_keys
from experiments.training import model, warmed_up
from icl_lab.lab import arguments, setting
from icl_lab.models import GPT, prefix_predictions
from icl_lab.prompts import Prompt, Sample, Sampler, gaussian_regression
from icl_lab.prompts.layouts import alternating_layout
from icl_lab.prompts.prompt import all_answers, all_inputs
from icl_lab.solvers import least_squares
from icl_lab.theory import random_covariance_optimum, random_covariance_risk, variance_moments
from icl_lab.training.plans import Training
from icl_lab.training.prefixes import curriculum, rising

COVARIANCES = ("identity", "random")
"""Covariances of training: the identity, or diag(Exp(1)) drawn anew for each task."""

TRAINED = {"identity": 0.0, "random": 1.0}
"""c of the covariance c diag(Exp(1)) in training; 0 for the identity."""

POSITIONS = ("with", "without", "reused", "offset")
"""Position embeddings: as in the paper; none; those of the first, with trained rows reused beyond the training length;
trained at random offsets, so that every row is."""


@dataclasses.dataclass(frozen=True)
class Schedule(Members):
    """How one network is trained; defaults as published."""

    members: int = setting(3, "independent trainings of each network, each with its own evaluation prompts", at_least=1)
    first: int = setting(
        0, "number of the first member: processes that have some each give the same numbers", at_least=0
    )
    input_size: int = setting(20, "D", at_least=1)
    batch: int = setting(64, "fresh tasks in a training step", at_least=1)
    steps: int = setting(500_000, "training steps, a multiple of measure_every", at_least=1)
    measure_every: int = setting(10_000, "steps between measurements", at_least=1)
    eval_tasks: int = setting(1280, "tasks of a measurement during training", at_least=1)
    learning_rate: float = setting(
        1e-4, "Adam's learning rate: 1e-4 for 500,000 steps; 1e-3 with warm-up and decay for 10,000", above=0
    )
    warm_up: int = setting(0, "steps in which the learning rate rises from 0", at_least=0)
    decay: bool = setting(False, "the learning rate falls to 0 as a cosine after the warm-up")
    start_dimension: int = setting(5, "input dimensions at the start, one more each curriculum_every steps", at_least=1)
    start_points: int = setting(
        11, "prefixes that count at the start, two more each curriculum_every steps", at_least=1
    )
    curriculum_every: int = setting(2000, "steps between stages of the curriculum", at_least=1)


def own_keys(config: Schedule, stream: int = 0) -> Array:
    """(M,) keys of the members ``first`` and on, whichever run has them."""
    return member_keys(config, stream, config.first + config.members)[config.first :]


Setting = dict[str, Any]
"""Of a member: ``random`` covariance or identity; ``dimension`` of the inputs, the rest is 0; ``points`` that count."""


def drawn(key: Array, tasks: int, length: int, factors: Callable[[Array], Array], input_size: int) -> Sample:
    """Noiseless tasks with independent inputs, coordinate i times ``factors(Exp(1) draws (tasks, D))[:, i]``.

    The same draws whatever the factors are. They may be traced: training on either covariance, and tests on all, are
    one program.
    """
    draw_key, variance_key = jax.random.split(key)
    samples = gaussian_regression(context_length=length, covariance=np.eye(input_size))(draw_key, tasks)
    factor = factors(jax.random.exponential(variance_key, (tasks, input_size)))
    x, query, w = samples.prompt.x * factor[:, None], samples.prompt.x_query * factor, samples.latent["w"]
    prompt = Prompt(x, jnp.einsum("bnd,bdo->bno", x, w), query)
    return Sample(prompt, jnp.einsum("bd,bdo->bo", query, w), {"w": w, "factor": factor})


def training_tasks(key: Array, tasks: int, length: int, setting: Setting, input_size: int) -> Sample:
    """Tasks of the member's covariance, inputs cut to its first ``dimension`` coordinates."""

    def factors(variances: Array) -> Array:
        kept = jnp.arange(input_size) < setting["dimension"]
        return jnp.where(setting["random"], jnp.sqrt(variances), 1.0) * kept[None]

    return drawn(key, tasks, length, factors, input_size)


def errors(network: GPT, params: dict, samples: Sample) -> Array:
    """(B, N + 1) squared errors after the first k = 0 .. N examples, each of the prediction for the next input."""
    return ((prefix_predictions(network, params, samples.prompt) - jax.vmap(all_answers)(samples)) ** 2)[:, :, 0]


def prefix_loss(found: Array, points: Array) -> Array:
    """Mean over tasks and over the first ``points`` prefixes of (B, N + 1) errors."""
    counted = jnp.arange(found.shape[1]) < points
    return (found.mean(0) * counted).sum() / counted.sum()


def reused(params: dict, length: int) -> dict:
    """Parameters whose rows of position beyond 2N tokens are those of 2N tokens before: trained ones, inputs' on
    inputs, labels' on labels. Leaves have any leading axes.
    """
    table = params["params"]["position"]
    rows = jnp.arange(table.shape[-2])
    rows = jnp.where(rows <= 2 * length, rows, rows % (2 * length))
    return {"params": params["params"] | {"position": table[..., rows, :]}}


def offset(params: dict, length: int, key: Array) -> dict:
    """Parameters whose rows of position begin at an even row drawn anew, so that a prompt of N examples fits."""
    table = params["params"]["position"]
    start = 2 * jax.random.randint(key, (), 0, (table.shape[0] - 2 * length - 1) // 2 + 1)
    return {"params": params["params"] | {"position": jnp.roll(table, -start, axis=0)}}


def planned(config: Schedule, network: GPT, length: int, offsets: bool) -> Training:
    """The training of a network by Adam on prompts of ``length`` examples: members on identity, then random covariance.

    A member has the same key on both: the same start and the same draws. One trains at a time on a CPU. Measured
    is ``loss``, the squared error over D, mean over all prefixes, on fresh tasks of the member's covariance. With
    ``offsets`` every step draws the first row of position. The curriculum is that of Garg et al. 2022, A.2: one
    dimension and two points more every ``curriculum_every`` steps, up to the whole.
    """
    d, kinds, members, every = config.input_size, len(COVARIANCES), config.members, config.curriculum_every
    network_model = model(network, length, d, alternating_layout())
    rising_numbers = curriculum(
        dimension=rising(min(config.start_dimension, d), d, every=every),
        points=rising(min(config.start_points, length + 1), length + 1, by=2, every=every),
    )

    def sampler(setting: Setting) -> Sampler:
        return lambda key, tasks: training_tasks(key, tasks, length, setting, d)

    def loss(params: dict, key: Array, setting: Setting) -> Array:
        samples = sampler(setting)(key, config.batch)
        if offsets:
            params = offset(params, length, jax.random.fold_in(key, 1))
        return prefix_loss(errors(network, params, samples), setting["points"])

    def measure(params: dict, key: Array, setting: Setting) -> dict[str, Array]:
        return {"loss": errors(network, params, sampler(setting)(key, config.eval_tasks)).mean() / d}

    ones = jnp.ones(kinds * members, int)
    whole: Setting = {
        "config": arguments(config, ones.size),
        "random": jnp.repeat(jnp.arange(kinds) > 0, members),
        "dimension": d * ones,
        "points": (length + 1) * ones,
    }
    return Training(
        lambda key, _: network_model.init(key), loss, lambda setting: optax.adam(warmed_up(setting["config"])),
        jnp.tile(own_keys(config), kinds), whole, steps=config.steps, measure_every=config.measure_every,
        measure=measure, schedule=rising_numbers, learner=network_model.learner, sampler=sampler,
        members_at_once=1 if jax.default_backend() == "cpu" else None,
    )  # fmt: skip


Predictor = Callable[[Any, Sample], Array]
"""``(params, tasks) -> (B, N + 1)`` squared errors."""


@partial(jax.jit, static_argnums=(0, 4, 5, 6, 7))
def tested(
    found: Predictor, params: Any, keys: Array, scales: Array, length: int, input_size: int, covariances: int, each: int
) -> Array:
    """(T, M, C, length + 1) mean squared errors over D after every number of examples, ``each`` prompts a covariance.

    A member has C covariances; ``params`` have a leading member axis. ``scales`` (T,) are c of the test covariance
    c diag(Exp(1)), 0 for the identity. What is tested with the same keys (M,) sees the same draws at every scale.
    """

    def member(scale: Array, params: Any, key: Array) -> Array:
        variance_key, task_key = jax.random.split(key)
        variances = jax.random.exponential(variance_key, (covariances, input_size))
        factor = jnp.where(scale > 0, jnp.sqrt(scale * variances), 1.0)

        def on(index: Array) -> Array:
            factors = lambda drawn: jnp.broadcast_to(factor[index], drawn.shape)  # noqa: E731
            samples = drawn(jax.random.fold_in(task_key, index), each, length, factors, input_size)
            return found(params, samples).mean(0) / input_size

        return jax.lax.map(on, jnp.arange(covariances))

    return jax.lax.map(lambda scale: jax.lax.map(lambda pk: member(scale, *pk), (params, keys)), scales)


def tests_of(scales: Sequence[float]) -> dict[str, float]:
    """c of the covariance in every test, by its name; 0 for the identity."""
    return {"identity": 0.0} | {f"exp_{c:g}": c for c in scales}


def linear_attention_error(trained: float, length: float, test: float, test_length: float, input_size: int) -> float:
    """Exact error of linear attention at its optimum for a c of training and N, in a test of another c at M >= 1.

    A c of 0 is the identity. Zhang, Frei & Bartlett 2023, Theorems 4.1 and 4.5 for the optimum; over the error of
    predicting zero.
    """
    train_moments, test_moments = (
        variance_moments("exponential", input_size, scale=c) if c else variance_moments("constant", input_size)
        for c in (trained, test)
    )
    best = random_covariance_optimum(train_moments, length)
    return float(random_covariance_risk(best, test_moments, test_length) / test_moments[0].sum())


def least_squares_errors(_: Any, samples: Sample) -> Array:
    """(B, N + 1) squared errors of least squares after k examples; from D on it is exact, and not computed."""
    x, y = jax.vmap(all_inputs)(samples.prompt), jax.vmap(all_answers)(samples)
    b, n, d = samples.prompt.x.shape
    columns = [(y[:, 0] ** 2)[:, 0]]
    for k in range(1, min(d, n + 1)):
        guess = jax.vmap(least_squares())(Prompt(x[:, :k], y[:, :k], x[:, k]))
        columns.append(((guess - y[:, k]) ** 2)[:, 0])
    return jnp.concatenate([jnp.stack(columns, axis=1), jnp.zeros((b, n + 1 - len(columns)))], axis=1)


def bootstrapped(values: np.ndarray, resamples: int, level: float = 0.9) -> np.ndarray:
    """(M, 2, X) percentile interval of the mean over covariances of (M, C, X), from resampled covariances."""
    c = values.shape[1]
    counts = np.random.default_rng(0).multinomial(c, np.full(c, 1 / c), resamples) / c
    means = np.einsum("rc,mcx->mrx", counts, values)
    return np.quantile(means, [0.5 - level / 2, 0.5 + level / 2], axis=1).swapaxes(0, 1)
