"""Does momentum attention descend with momentum? Linear attention on in-context linear regression (Dai et al. 2022, 4).

Dai et al. read attention as gradient descent and add to it, by analogy with momentum, a decaying sum of earlier values.
One layer of linear self-attention learns one step of gradient descent (von Oswald et al. 2022); here it is trained with
momentum in it, and with local mixers of equal cost, and compared with gradient descent, with gradient descent with
momentum (heavy ball), and with the literal reading of the analogy: one pass over the demonstrations that sums their
gradients at zero with momentum, which weighs early ones more.

What theory says (this lab, ``icl_lab/theory/linear_attention/momentum.py``):

- Joint tokens (x, y), one layer. The added sum depends on no query: it is no step of any descent, and its effect on the
  loss is exactly weight decay on the values. So the layer stays one plain step, whose loss is the floor, and a learned
  coefficient falls.
- Tokens x_1, y_1, x_2, .., x_q without positions, two layers. Attention alone cannot tell whose label a label is: its
  loss stays that of predicting zero. A mixer copies: it brings x_j to the token of y_j, and the second layer takes the
  step. A shift by one token copies without noise; momentum adds its past, eta^2, eta^4, .., as noise. What momentum
  does here is a local mixer's work, and a mixer without momentum does it better.
"""

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments import settings
from experiments.dai import mixers
from experiments.dai.linear_mixing import MixedNetwork, mixed_network
from experiments.dai.momentum_regression_claims import CLAIMS, PARTS
from experiments.dai.momentum_regression_figures import figures
from experiments.settings import Members, member_keys
from experiments.training import mean_in_chunks, members_at_once
from icl_lab.compare import compare_batches
from icl_lab.lab.command_line import main
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.flags import FlagError, arguments, setting
from icl_lab.lab.session import Session
from icl_lab.models import folded_weights
from icl_lab.prompts import BatchLearner, Prompt, Sample, input_variance, linear_regression
from icl_lab.solvers import gradient_descent, oracle
from icl_lab.solvers.heavy_ball import heavy_ball, tune_heavy_ball
from icl_lab.theory import one_step_optimum
from icl_lab.theory.linear_attention.momentum import copied_pairs, mixed_step_optimum, mixer_penalty
from icl_lab.training.fitting import Fit

MIXERS = ("vanilla", "momentum_0.3", "momentum_0.5", "momentum_0.9", "learned_0.5", "recent_1", "recent_4")


@dataclasses.dataclass(frozen=True)
class Config(Members):
    """The law and the training of one layer of von Oswald et al. 2022; Dai et al. publish no regression."""

    mixers: tuple[str, ...] = setting(MIXERS, f"beside attention: {mixers.ALLOWED}")
    context_length: int = setting(10, "N, context pairs in a prompt", at_least=2)
    input_size: int = setting(10, "D, dimension of the inputs of joint tokens", at_least=1)
    batch: int = setting(2048, "fresh tasks in a training step of joint tokens", at_least=1)
    steps: int = setting(5000, "training steps of joint tokens, a multiple of measure_every", at_least=1)
    measure_every: int = setting(100, "steps between measurements", at_least=1)
    learning_rate: float = setting(1e-3, "Adam's, on joint tokens", above=0)
    gradient_clip: float = setting(1e-3, "clip of the gradient's norm, on joint tokens", above=0)
    init_scale: float = setting(0.002, "weights of joint tokens start with variance init_scale / fan_in", above=0)
    adam_b2: float = setting(0.98, "Adam's b2", at_least=0, at_most=0.9999, argument=False)
    descents: tuple[int, ...] = setting((2, 10), "steps K of heavy ball to compare with", at_least=2)
    oracle_contexts: int = setting(100_000, "contexts on which heavy ball is tuned", at_least=2)
    alternating_size: int = setting(5, "D of alternating tokens", at_least=1)
    alternating_batch: int = setting(512, "fresh tasks in a training step of alternating tokens", at_least=1)
    alternating_steps: int = setting(10_000, "their training steps, a multiple of measure_every", at_least=1)
    alternating_rate: float = setting(3e-3, "Adam's learning rate for them, with cosine decay to 0", above=0)
    alternating_clip: float = setting(0.1, "clip of their gradient's norm", above=0)
    alternating_scale: float = setting(0.1, "their weights start with this variance / layers / fan_in", above=0)
    eval_tasks: int = setting(10_000, "tasks that measure a member during training", at_least=1)
    population_tasks: int = setting(200_000, "tasks for final losses, shared by all learners", at_least=1)
    only: tuple[str, ...] = setting(PARTS, "parts to run", choices=PARTS)


PRESETS = {
    "smoke": Config(
        members=2, mixers=("vanilla", "momentum_0.5", "learned_0.5", "recent_1"), context_length=3, input_size=2,
        batch=8, steps=4, measure_every=2, descents=(2,), oracle_contexts=50, alternating_size=2, alternating_batch=8,
        alternating_steps=4, eval_tasks=16, population_tasks=32,
    ),
    "quick": Config(
        members=2, mixers=("vanilla", "momentum_0.5", "recent_1"), context_length=5, input_size=5, batch=128,
        steps=1500, measure_every=50, descents=(2, 5), oracle_contexts=5000, alternating_size=3, alternating_batch=64,
        alternating_steps=1500, eval_tasks=1000, population_tasks=10_000,
    ),
    "lab": Config(
        batch=256, steps=4000, alternating_batch=64, alternating_steps=3000, eval_tasks=2000,
        population_tasks=100_000, oracle_contexts=20_000,
    ),
    "paper": Config(),
}  # fmt: skip


def check(config: Config) -> None:
    """Raises FlagError where fields do not fit together."""
    mixers.check_mixers(config.mixers)
    for flag in ("steps", "alternating_steps"):
        settings.check(config, flag)
    settings.check_each_once("descents", config.descents)
    if not any(mixers.kind(name) == "momentum" for name in config.mixers):
        raise FlagError(f"--mixers={','.join(config.mixers)}: a momentum_E must be among them")


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Trains V mixers times M members of each part; arrays are (V, M, ..)."""
    metrics: dict[str, Any] = {}
    arrays: dict[str, np.ndarray] = {}
    for part in PARTS:
        if part in config.only:
            found, values = _PARTS[part](config, session)
            metrics |= {f"{part}_{name}": value for name, value in found.items()}
            arrays |= {f"{part}_{name}": value for name, value in values.items()}
    return metrics, arrays


def _joint(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """One layer on joint tokens, compared with the descents."""
    size, n = config.input_size, config.context_length
    network = mixed_network(1, n, size, config.init_scale)

    def adam(now: Config) -> optax.GradientTransformation:
        return optax.chain(optax.clip_by_global_norm(now.gradient_clip), optax.adam(now.learning_rate, b2=now.adam_b2))

    each = mixers.settings(config.mixers, config.members, n + 1, n)
    fitted = _train(config, session, "joint", network, each, adam, size, config.batch, config.steps)
    solvers, metrics = _descents(config)
    analogy = _pass_over_demonstrations(config)

    def learners(params: dict, own: dict) -> dict[str, BatchLearner]:
        trained = network.learner(params, own)
        without = network.learner(params, own | {"mixing": 0 * own["mixing"], "learned": 0 * own["learned"]})
        return {"trained": trained, "without": without} | solvers | {"analogy": analogy(own)}

    found = _finals(config, fitted, each, size, learners, compared=True)
    rows = np.asarray(jax.vmap(lambda own, eta: mixers.mixing(own, eta)[0, -1])(each, fitted.params["params"]["eta"]))
    columns = np.asarray(jax.vmap(lambda params: folded_weights(params)[1][0, 0, :, -1])(fitted.params))
    variance = input_variance("uniform", 1.0)
    penalty = [float(mixer_penalty(row, b, input_variance=variance)) for row, b in zip(rows, columns)]
    found |= {"penalty": np.array(penalty), "values_norm": np.linalg.norm(columns, axis=1)}
    return metrics, _by_mixer(config, found, fitted)


def _alternating(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Two layers on tokens x_1, y_1, x_2, .., x_q without positions."""
    size, n = config.alternating_size, config.context_length
    network = mixed_network(2, n, size, config.alternating_scale, alternating=True)

    def adam(now: Config) -> optax.GradientTransformation:
        rate = optax.cosine_decay_schedule(now.alternating_rate, now.alternating_steps)
        return optax.chain(optax.clip_by_global_norm(now.alternating_clip), optax.adam(rate, b2=now.adam_b2))

    each = mixers.settings(config.mixers, config.members, 2 * n + 1, 2 * n)
    fitted = _train(
        config, session, "alternating", network, each, adam, size, config.alternating_batch, config.alternating_steps
    )
    law: dict[str, Any] = {"input_size": size, "input_variance": input_variance("uniform", 1.0)}
    rate_gd, best = (float(value) for value in one_step_optimum(context_length=n, **law))
    step = jax.vmap(gradient_descent(rate_gd, 1))
    zero = lambda prompts: jnp.zeros((prompts.x.shape[0], 1))  # noqa: E731
    learners = lambda params, own: {"trained": network.learner(params, own), "gd": step, "zero": zero}  # noqa: E731
    found = _finals(config, fitted, each, size, learners)
    by_hand = {
        name: mixed_step_optimum(copied_pairs(mixers.fixed_mixing(name, 2 * n + 1, 2 * n)), **law)[1]
        for name in config.mixers
        if mixers.kind(name) in ("momentum", "normalised", "recent")
    }
    metrics = {"best_step": best, "zero": size * law["input_variance"] / 2, "by_hand": by_hand}
    return metrics, _by_mixer(config, found, fitted)


_PARTS = {"joint": _joint, "alternating": _alternating}


def _law(config: Config, size: int) -> Callable[[Array, int], Sample]:
    return linear_regression(context_length=config.context_length, input_size=size)


def _loss(learner: BatchLearner, samples: Sample) -> Array:
    return 0.5 * jnp.mean(jnp.sum((learner(samples.prompt) - samples.target) ** 2, axis=1))


def _train(
    config: Config,
    session: Session,
    stage: str,
    network: MixedNetwork,
    each: dict[str, Array],
    adam: Callable[[Config], optax.GradientTransformation],
    size: int,
    batch: int,
    steps: int,
) -> Fit:
    """Trains the members of all mixers in one program; those of one number share start, tasks and evaluation."""
    draw, keys = _law(config, size), _keys(config, PARTS.index(stage))
    return session.fit(
        stage,
        lambda key, own: network.init(key, own["logit"]),
        lambda params, key, own: _loss(network.learner(params, own), draw(key, batch)),
        lambda own: adam(own["config"]),
        keys,
        each | {"config": arguments(config, keys.shape[0])},
        steps=steps,
        measure_every=config.measure_every,
        measure=lambda params, key, own: {
            "loss": _loss(network.learner(params, own), draw(key, config.eval_tasks)),
            "eta": jax.nn.sigmoid(params["params"]["eta"]),
        },
        members_at_once=members_at_once(batch, 1),
    )


def _finals(
    config: Config,
    fitted: Fit,
    each: dict[str, Array],
    size: int,
    learners: Callable[[dict, dict], dict[str, BatchLearner]],
    *,
    compared: bool = False,
) -> dict[str, np.ndarray]:
    """(V M,) final losses of all learners on the same tasks, and how the trained one compares with the others."""
    draw = _law(config, size)

    def one(member: tuple[dict, dict, Array]) -> dict[str, Array]:
        params, own, key = member

        def means(k: Array, tasks: int) -> dict[str, Array]:
            samples, others = draw(k, tasks), learners(params, own)
            found = {f"final_{name}": _loss(learner, samples) for name, learner in others.items()}
            trained = others.pop("trained")
            for name, other in others.items() if compared else ():
                differing = compare_batches(trained, other, samples)
                found |= {f"{name}_{metric}": value for metric, value in differing.items()}
            return found

        return mean_in_chunks(means, key, config.population_tasks)

    found = jax.jit(lambda *members: jax.lax.map(one, members))(fitted.params, each, _keys(config, 900 + size))
    return {name: np.asarray(value) for name, value in found.items()}


def _keys(config: Config, stage: int) -> Array:
    """(V M,) keys: members of one number share them whatever their mixer."""
    return jnp.concatenate([member_keys(config, stage)] * len(config.mixers))


def _by_mixer(config: Config, found: dict[str, np.ndarray], fitted: Fit) -> dict[str, np.ndarray]:
    found = found | {name: fitted.metrics[name] for name in ("loss", "eta")}
    return {"steps": fitted.steps} | {name: mixers.by_mixer(values, config.mixers) for name, values in found.items()}


def _descents(config: Config) -> tuple[dict[str, BatchLearner], dict[str, Any]]:
    """One step of gradient descent and K of heavy ball at their best, and what they are."""
    n, size = config.context_length, config.input_size
    law: dict[str, Any] = {"context_length": n, "input_variance": input_variance("uniform", 1.0)}
    rate, best = (float(value) for value in one_step_optimum(input_size=size, **law))
    key = member_keys(config, 10_000, 1)[0]
    spectrum = oracle.context_eigenvalues(key, config.oracle_contexts, context_length=n, input_size=size)
    learners: dict[str, BatchLearner] = {"gd": jax.vmap(gradient_descent(rate, 1))}
    metrics: dict[str, Any] = {"best_step": best, "zero": size * law["input_variance"] / 2}
    for steps in config.descents:
        tuned = tune_heavy_ball(spectrum, steps, **law)
        learners[f"heavy_ball_{steps}"] = jax.vmap(heavy_ball(tuned.learning_rate, tuned.momentum, steps))
        metrics[f"heavy_ball_{steps}"] = dataclasses.asdict(tuned)
    return learners, metrics


def _pass_over_demonstrations(config: Config) -> Callable[[dict], BatchLearner]:
    """The literal reading: gradients at zero of one demonstration after another, summed with momentum.

    The pair i is in N + 1 - i of the updates, with the powers of the mixer's column behind it: its weight is the sum
    of that column of the Toeplitz matrix. Of a member without momentum all weights are equal: one plain step.
    """
    n = config.context_length

    def learner(own: dict) -> BatchLearner:
        weights = own["mixing"].sum(0)  # (N,)
        weights = jnp.where(weights.sum() > 0, weights, jnp.ones(n))
        square = weights.sum() ** 2 + (config.input_size - 0.2) * (weights**2).sum()
        weights = weights * weights.sum() / square / input_variance("uniform", 1.0)

        def predict(prompts: Prompt) -> Array:
            return jnp.einsum("n,bno,bnd,bd->bo", weights, prompts.y, prompts.x, prompts.x_query)

        return predict

    return learner


AXES = {
    "*_steps": ("{0}_step",), "*_eta": ("mixer", "member", "{0}_step", "{0}_layer"),
    "*_loss": ("mixer", "member", "{0}_step"), "*": ("mixer", "member"),
}  # fmt: skip

EXPERIMENT = Experiment(
    "dai.momentum_regression", __doc__, PRESETS, run, figures, CLAIMS, check,
    lambda c: [f"{part}_*" for part in c["only"]],
    axes=AXES,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
