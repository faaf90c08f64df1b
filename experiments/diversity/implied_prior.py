"""Which prior over tasks does a learner hold? Its own predictions, rolled out, say it (Aswadi et al. 2026).

Inputs are drawn, outputs are what the learner itself predicts, noise and all; least squares fits a task to each
roll-out (``icl_lab.compare.implied_prior``). For a Bayes predictor this gives back its prior, exactly: tasks from
N(0, I) with the errors of the fits, of variance 1 + s^2 / (n - D - 1) a coordinate, or equal shares of k given tasks
(dMMSE). Point predictors that draw the noise alone (*noise only*) must not give it back.

Linear attention is trained for every number of examples t. Its normal head has the variance of its errors: for all
inputs alike (*constant*), or in proportion to |x|^2 but for the noise (*by size*). With h = sum y x, the best network
predicts c h.x, c = 1 / (t + D + 1 + s^2), and E |h|^2 follows a recursion, for the second head that of the true prior.

Panels: variance of fitted tasks and of what they leave; shares of the given tasks; E |h|^2 over that of the true prior.
"""

import dataclasses
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import training
from experiments.diversity.regression import Floats
from experiments.settings import Members, member_keys
from experiments.zhang_frei_bartlett.common import lsa, predictions
from icl_lab.compare import implied_prior
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import holds, multiple_of
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.prompts import Prompt, Sample, Sampler, gaussian_regression
from icl_lab.prompts.tracing import one_program


@dataclasses.dataclass(frozen=True)
class Config(Members):
    """Standard normal inputs and tasks; Adam, whose learning rate falls to zero as a cosine."""

    input_size: int = setting(5, "D, numbers of an input", at_least=1)
    examples: int = setting(16, "n, examples of a roll-out, at least D + 4", at_least=1)
    noise_variance: float = setting(0.5, "s^2, of the labels", above=0, argument=False)
    tasks: int = setting(8, "k, tasks of dMMSE", at_least=2)
    rollouts: int = setting(40_000, "roll-outs of a learner", at_least=2)
    steps: int = setting(2000, "training steps, a multiple of measure_every", at_least=1)
    measure_every: int = setting(500, "steps between measurements", at_least=1)
    learning_rate: float = setting(0.01, "Adam's learning rate at the start", above=0)
    batch: int = setting(128, "fresh prompts in a training step", at_least=1)
    init_scale: float = setting(0.1, "size of the initial weights", above=0)
    eval_tasks: int = setting(50_000, "prompts that give the variance of a head", at_least=2)


PRESETS = {
    "smoke": Config(
        members=2, input_size=2, examples=6, tasks=3, rollouts=64, steps=20, measure_every=10, batch=16, eval_tasks=64,
    ),
    "quick": Config(members=6, rollouts=5000, steps=500, batch=64, eval_tasks=5000),
    "lab": Config(),
    "paper": Config(),
}  # fmt: skip

LINEAR, SETS = ("ridge", "ridge_noise_only", "constant", "by_size"), ("dmmse", "dmmse_noise_only")
FITTED = quantity("{learner}/{of}", "member", learner=LINEAR, of=("variance", "noise"))
MOMENT = quantity("{learner}/moment", "member", "example", learner=LINEAR)
SHARES = quantity("{learner}/shares", "member", "task", learner=SETS)


def ridge(noise_variance: float, noise_only: bool, prompts: Any) -> tuple[Floats, Floats]:
    """The Bayes predictor of tasks N(0, I), or its mean with the variance of the noise alone."""
    x, y, query = prompts.x, prompts.y[..., 0], prompts.x_query
    precision = np.einsum("bti,btj->bij", x, x) / noise_variance + np.eye(x.shape[2])
    at = np.linalg.solve(precision, query[..., None])[..., 0]  # posterior covariance times query
    mean = np.sum(at * np.einsum("bti,bt->bi", x, y), axis=1, keepdims=True) / noise_variance
    return mean, noise_variance + (not noise_only) * np.sum(query * at, axis=1, keepdims=True)


def dmmse(tasks: Floats, noise_variance: float, noise_only: bool, prompts: Any) -> tuple[Floats, ...]:
    """The Bayes predictor of tasks (k, D), each as likely, or its mean with the variance of the noise alone."""
    misses = np.sum((prompts.y - prompts.x @ tasks.T) ** 2, axis=1)
    weights = np.exp((misses.min(axis=1, keepdims=True) - misses) / (2 * noise_variance))
    weights /= weights.sum(axis=1, keepdims=True)
    means = prompts.x_query @ tasks.T
    if noise_only:
        means, weights = np.sum(weights * means, axis=1, keepdims=True), np.ones_like(means[:, :1])
    return means, np.full_like(means, noise_variance), weights


def network(params: Any, left: Floats, noise_variance: float, by_size: bool, prompts: Any) -> tuple[Any, Floats]:
    """Networks for 0, 1, .., n - 1 examples, leaves (n, ...), of squared errors (n,), each alike or as |x|^2 / D."""
    t, query = prompts.x.shape[1], prompts.x_query
    padded: Any = [np.pad(values, ((0, 0), (0, len(left) - t), (0, 0))) for values in (prompts.x, prompts.y)]
    weights = jax.tree.map(lambda leaf: leaf[t], params)
    mean = _predicted(weights, jax.tree.map(np.float32, Prompt(padded[0], padded[1], query)))
    return mean, noise_variance + left[t] * np.mean(query**2 if by_size else np.ones_like(query), axis=1, keepdims=True)


_predicted = jax.jit(predictions)


def sampler(config: Config, length: Any) -> Sampler:
    """Prompts of so many examples, which may be traced, and rows of zeros up to n."""
    n, d = config.examples, config.input_size
    whole = gaussian_regression(context_length=n, covariance=np.eye(d), label_noise=config.noise_variance**0.5)

    @one_program
    def cut(key: jax.Array, batch: int) -> Sample:
        sample = whole(key, batch)
        kept, prompt = (jnp.arange(n) < length)[None, :, None], sample.prompt
        return replace(sample, prompt=replace(prompt, x=prompt.x * kept, y=prompt.y * kept))

    return cut


def trainings(config: Config) -> Table:
    """A network for every number of examples below n: so many members in one program, by member and number."""
    n, members = config.examples, config.members
    return {
        "trained": training.planned(
            config, lsa(config.input_size, config.init_scale), keys=member_keys(config, 0, n * members),
            settings=jnp.tile(jnp.arange(n), members), optimizer=training.falling_adam(config.steps),
            sampler_of=lambda _, length: sampler(config, length), measured=False,
        )
    }  # fmt: skip


def errors(config: Config, params: Any) -> Floats:
    """(M, n) mean squared error of every network, against labels without noise."""

    def error(one: tuple) -> jax.Array:
        weights, key, length = one
        sample = sampler(config, length)(key, config.eval_tasks)
        return jnp.mean((sample.target - predictions(weights, sample.prompt)) ** 2)

    n, members = config.examples, config.members
    every = params, member_keys(config, 900, n * members), jnp.tile(jnp.arange(n), members)
    return np.asarray(jax.jit(partial(jax.lax.map, error))(every), np.float64).reshape(members, n)


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Roll-outs of every learner: variances of fitted tasks and second moments, or shares of given tasks."""
    n, s2, members, params = config.examples, config.noise_variance, range(config.members), fits["trained"].params
    left, inputs = errors(config, params), sampler(config, n)
    weights = [jax.tree.map(lambda leaf, m=m: np.asarray(leaf[m * n : (m + 1) * n]), params) for m in members]
    sets = [np.random.default_rng([config.seed, m]).standard_normal((config.tasks, config.input_size)) for m in members]
    for stream, name in enumerate((*LINEAR, *SETS)):
        priors = []
        for m, key in enumerate(member_keys(config, 100 + stream)):
            learners: dict[str, Any] = {
                "ridge": partial(ridge, s2, False), "dmmse": partial(dmmse, sets[m], s2, False),
                "ridge_noise_only": partial(ridge, s2, True), "dmmse_noise_only": partial(dmmse, sets[m], s2, True),
                "constant": partial(network, weights[m], left[m], s2, False),
                "by_size": partial(network, weights[m], left[m], s2, True),
            }  # fmt: skip
            priors.append(implied_prior(learners[name], inputs, key, config.rollouts))
        if name in LINEAR:
            sums = (np.cumsum(one.y[..., None] * one.x, axis=1) for one in priors)
            yield MOMENT.at(learner=name), np.array([np.sum(h**2, axis=2).mean(axis=0) for h in sums])
            residuals = (one.y - np.einsum("rti,ri->rt", one.x, one.tasks) for one in priors)
            left_over = np.array([np.sum(e**2, axis=1).mean() for e in residuals]) / (n - config.input_size)
            of_tasks = np.array([one.tasks.var(axis=0).mean() for one in priors])
            yield FITTED.at(learner=name), {"variance": of_tasks, "noise": left_over}
            continue
        nearest = (np.sum((one.tasks[:, None] - tasks) ** 2, axis=2).argmin(1) for one, tasks in zip(priors, sets))
        counts = [np.bincount(one, minlength=config.tasks) for one in nearest]
        yield SHARES.at(learner=name), np.array(counts) / config.rollouts


EXPERIMENT = Experiment(
    "diversity.implied_prior", __doc__, PRESETS, measured, (FITTED, MOMENT, SHARES), trainings=trainings,
    constraints=(
        multiple_of("steps", "measure_every"),
        holds("at least D + 4", "examples", when=lambda c: c.examples >= c.input_size + 4),
    ),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
