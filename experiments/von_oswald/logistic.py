"""Logistic regression in context, which von Oswald et al. 2022 name as future work (this lab).

Tasks are w ~ N(0, s^2 I) with labels +1 of probability 1 / (1 + exp(-w.x)), else -1; networks predict the logit of the
query's label. Training and evaluation take the logistic loss in expectation over that label, whose probability the
sampler knows: the same gradient in the mean as with a drawn label, with less noise. Context labels are drawn.

Theory says what one linear layer learns. Its prediction is linear in the tensor A x B, the logistic loss is convex in
that, and the task distribution is the same under signed permutations of the coordinates and under a flip of w and all
labels: so the best layer is c sum_i y_i x_i.x_q. That is one step of gradient descent on the logistic loss, which from
zero is the step on squared errors at half the rate. Later steps differ: the residual y s(-y f), s the sigmoid, is not
linear in the label, and no linear layer computes it. Two layers are therefore compared with two steps on the logistic
loss, and with two steps of GD and of GD++ on squared errors whose output is scaled, each at its best rates.

Panels: loss over training, relative to one logistic step on the same tasks, with what the algorithms reach; agreement
over training; the learning rate read off one linear layer; final cosine of every network with every algorithm.
"""

import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.settings import member_keys
from experiments.training import always, paired_losses
from experiments.von_oswald.common import SCHEDULE, Setting, model, strengths
from experiments.von_oswald.tuning import after
from icl_lab.compare import compare_batches
from icl_lab.compare.logistic import logistic_losses
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import Constraint, holds, multiple_of, once
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.models import LinearSelfAttention, Transformer
from icl_lab.prompts import BatchLearner, Learner, Sample, Sampler, logistic_regression
from icl_lab.solvers import (
    effective_draws,
    gd_plus_plus,
    gradient_descent,
    logistic_bayes,
    logistic_gradient_descent,
    logistic_map,
)
from icl_lab.training import Model

NETWORKS = ("linear_1", "linear_2", "softmax_1")


class Algorithm(NamedTuple):
    """What networks are compared with.

    Attributes:
      make: its learner as a function of positive parameters (P,).
      starts: where the tuning of those starts.
    """

    make: Callable[[Array], Learner]
    starts: tuple[tuple[float, ...], ...]


ALGORITHMS = {
    "logistic_1": Algorithm(logistic_gradient_descent, ((3.0,),)),
    "logistic_2": Algorithm(logistic_gradient_descent, ((2.0, 4.0),)),
    "logistic_5": Algorithm(logistic_gradient_descent, ((1.0, 1.0, 1.5, 2.0, 2.0),)),
    "squared_2": Algorithm(lambda p: _scaled(gradient_descent(p[:2]), p[2]), ((0.6, 0.6, 3.0),)),
    "gd++_2": Algorithm(  # its loss has more than one minimum
        lambda p: _scaled(gd_plus_plus(p[:2], p[2]), p[3]), ((1.0, 1.0, 0.005, 3.0), (0.3, 1.5, 0.015, 4.0))
    ),
}
"""By name. Every step has its own rate; GD and GD++ are on squared errors, and their output is scaled."""

COMPARED = {
    "linear_1": ("logistic_1",),
    "linear_2": ("logistic_1", "logistic_2", "gd++_2"),
    "softmax_1": ("logistic_1",),
}
"""Algorithms with which a network is compared during training; at the end it is with all of them."""


def _scaled(learner: Learner, scale: Array) -> Learner:
    return lambda prompt: scale * learner(prompt)


@dataclasses.dataclass(frozen=True)
class Config(Setting):
    """Tasks whose logits have standard deviation s r sqrt(D / 12), 5.2 by default (this lab)."""

    context_length: int = setting(20, "N, context pairs in a prompt", at_least=1)
    input_size: int = setting(5, "D, dimension of the inputs", at_least=1)
    input_range: float = setting(4.0, "r, inputs are U(-r/2, r/2)", above=0)
    task_scale: float = setting(2.0, "s, w ~ N(0, s^2 I)", above=0)
    init_scale: float = setting(0.05, "weights start with variance init_scale / layers / fan_in", above=0)
    steps: int = setting(20_000, "training steps, a multiple of measure_every", at_least=1)
    measure_every: int = setting(500, "steps between measurements", at_least=1)
    heads: int = setting(2, "heads of the softmax network", at_least=1)
    networks: tuple[str, ...] = setting(NETWORKS, "what is trained", choices=NETWORKS)
    algorithms: tuple[str, ...] = setting(
        tuple(ALGORITHMS), "what the networks are compared with, beside the most probable w", choices=tuple(ALGORITHMS)
    )
    tuning_tasks: int = setting(20_000, "tasks on which the rates of the algorithms are tuned", at_least=1)
    population_tasks: int = setting(100_000, "tasks for final losses, shared by all learners", at_least=1)
    bayes_tasks: int = setting(2000, "tasks for the loss of the Bayes predictor", at_least=1)
    bayes_draws: int = setting(40_000, "Monte Carlo draws of the Bayes predictor, an even number", at_least=2)


PRESETS = {
    "smoke": Config(members=2, context_length=4, input_size=2, batch=16, steps=20, measure_every=10,
                    eval_tasks=16, tuning_tasks=16, population_tasks=32, bayes_tasks=4, bayes_draws=16),
    "quick": Config(members=6, batch=256, steps=4000, measure_every=500, eval_tasks=500, networks=("linear_1",),
                    algorithms=("logistic_1", "logistic_2"), tuning_tasks=4000, population_tasks=10_000,
                    bayes_tasks=200),
    "lab": Config(batch=256, eval_tasks=2000),
    "paper": Config(),
}  # fmt: skip


STEPS = quantity("{network}/steps", "step", network="networks")
CURVE = quantity("{network}/{metric}", "member", "step", network="networks")
AGREEMENT = quantity(
    "{network}/{algorithm}_sensitivity_cosine", "member", "step", network="networks", algorithm=tuple(ALGORITHMS)
)
FINAL = quantity(
    "final/{learner}",
    "member",
    learner=lambda config: [*config.get("networks", NETWORKS), *config.get("algorithms", ALGORITHMS), "map"],
)
COSINES = quantity("cosines/{network}", "member", "algorithm", network="networks")
DRAWS = quantity("bayes/effective_draws", "task")


def trainings(config: Config) -> Table:
    """Every network; it is measured against algorithms that are tuned first."""

    def compared(name: str, network: Model, _: Fits) -> dict[str, Any]:
        beside = {other: learner for other, learner in references(config).items() if other in COMPARED[name]}
        return {"references": beside, "extra": _compared(config, name, network, beside)}

    return {
        name: after(
            config, network, functools.partial(compared, name, network), lambda now, _: sampler(now),
            stream=NETWORKS.index(name), objective=objective,
        )
        for name, network in networks(config).items()
    }  # fmt: skip


def networks(config: Config) -> dict[str, Model]:
    """What is trained, by the network's name."""
    scale = config.init_scale
    modules = {
        "linear_1": LinearSelfAttention(layers=1, init_scale=scale),
        "linear_2": LinearSelfAttention(layers=2, init_scale=scale),
        "softmax_1": Transformer(layers=1, heads=config.heads, attention="softmax", init_scale=scale),
    }
    return {name: model(modules[name], config) for name in config.networks}


def _beside(network: str) -> Constraint:
    needed = COMPARED[network]
    return holds(f"with {', '.join(needed)} where --networks has {network}", "algorithms",
                 when=lambda c: network not in c.networks or {*needed} <= {*c.algorithms})  # fmt: skip


def sampler(config: Config) -> Sampler:
    """The task distribution."""
    return logistic_regression(
        context_length=config.context_length,
        input_size=config.input_size,
        input_range=config.input_range,
        task_scale=config.task_scale,
    )


def objective(predictions: Array, samples: Sample) -> Array:
    """(B,) logistic loss in expectation over the label of the query."""
    return logistic_losses(predictions, samples.latent["probability"])


@functools.cache
def tuned(config: Config) -> dict[str, np.ndarray]:
    """The best parameters of every algorithm on the same sampled tasks, by name (L-BFGS on their logarithms)."""
    from scipy.optimize import minimize

    samples = jax.jit(sampler(config), static_argnums=1)(member_keys(config, 700, 1)[0], config.tuning_tasks)
    parameters = {}
    for name in config.algorithms:
        algorithm = ALGORITHMS[name]
        slope = jax.jit(jax.value_and_grad(_tuning_loss(algorithm.make)))

        def value(logs: np.ndarray, slope: Callable = slope) -> tuple[float, np.ndarray]:
            mean, gradient = slope(jnp.asarray(logs, jnp.float32), samples)
            return float(mean), np.asarray(gradient, np.float64)

        minima = [minimize(value, np.log(s), jac=True, method="L-BFGS-B") for s in algorithm.starts]
        parameters[name] = np.exp(min(minima, key=lambda one: one.fun).x)
    return parameters


def _tuning_loss(make: Callable[[Array], Learner]) -> Callable[[Array, Sample], Array]:
    return lambda logs, samples: objective(jax.vmap(make(jnp.exp(logs)))(samples.prompt), samples).mean()


def references(config: Config) -> dict[str, BatchLearner]:
    """The tuned algorithms and the most probable w."""
    tuned_at = {name: jnp.asarray(parameters, jnp.float32) for name, parameters in tuned(config).items()}
    learners = {name: jax.vmap(ALGORITHMS[name].make(parameters)) for name, parameters in tuned_at.items()}
    return learners | {"map": jax.vmap(logistic_map(config.task_scale))}


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """The networks over training, then all of them and the algorithms on the same fresh tasks; the Bayes loss."""
    trained, beside = networks(config), references(config)
    for name in trained:
        yield STEPS.at(network=name), fits[name].steps
        yield CURVE.at(network=name), fits[name].metrics
    params = {name: fits[name].params for name in trained}

    def learners(params: Mapping[str, dict]) -> dict[str, BatchLearner]:
        return {name: network.learner(params[name]) for name, network in trained.items()} | beside

    keys, tasks = member_keys(config, 900), always(sampler(config))
    finals = paired_losses(learners, tasks, params, keys, config.population_tasks, objective=objective)
    yield FINAL, finals
    yield COSINES, _final_cosines(config, trained, beside)(params, member_keys(config, 800))
    surplus, effective = _bayes_minus_map(config, beside["map"])
    yield DRAWS, effective
    yield (
        "facts",
        {
            "parameters": {name: parameters.tolist() for name, parameters in tuned(config).items()},
            "bayes": float(finals["map"].mean() + surplus),
            "cosines_with": list(beside),
            **{f"final_{name}": float(values.mean()) for name, values in finals.items()},
        },
    )


def _compared(config: Config, name: str, network: Model, beside: Mapping[str, BatchLearner]) -> Callable:
    """Distances to algorithms, all of which predict one logit; and the rate of the step that one linear layer is."""

    def measure(params: dict, samples: Sample) -> dict[str, Array]:
        metrics = {
            f"{other}_{metric}": value
            for other, learner in beside.items()
            for metric, value in compare_batches(network.learner(params), learner, samples).items()
        }
        if name == "linear_1":  # read off its weights
            metrics["rate"] = 2 * config.context_length * strengths(params, config.input_size)["eta_over_n"][0]
        return metrics

    return measure


def _final_cosines(config: Config, trained: Mapping[str, Model], references: Mapping[str, BatchLearner]) -> Callable:
    """``(params, (M,) keys) -> {network: (M, references)}`` sensitivity cosines on each member's own fresh tasks."""

    def one(params: Mapping[str, dict], key: Array) -> dict[str, Array]:
        samples = sampler(config)(key, config.eval_tasks)
        cosine = lambda name, other: compare_batches(trained[name].learner(params[name]), other, samples)[  # noqa: E731
            "sensitivity_cosine"
        ]
        return {name: jnp.stack([cosine(name, other) for other in references.values()]) for name in trained}

    return jax.jit(lambda params, keys: jax.lax.map(lambda pair: one(*pair), (params, keys)))


def _bayes_minus_map(config: Config, most_probable: BatchLearner) -> tuple[Array, Array]:
    """Mean loss of the Bayes predictor above that of the most probable w, on the same few tasks; its effective draws.

    The mean is NaN where one task has too few of them (``logistic_bayes``); they are (tasks,).
    """
    task_key, draw_key = member_keys(config, 600, 2)
    drawn = draw_key, config.task_scale, config.bayes_draws
    bayes, effective = logistic_bayes(*drawn), effective_draws(*drawn)

    @jax.jit
    def difference(key: Array) -> tuple[Array, Array]:
        samples = sampler(config)(key, config.bayes_tasks)
        predictions, draws = jax.lax.map(lambda prompt: (bayes(prompt), effective(prompt)), samples.prompt)
        surplus = objective(predictions, samples) - objective(most_probable(samples.prompt), samples)
        return surplus.mean(), draws[:, 0]

    return difference(task_key)


EXPERIMENT = Experiment(
    "von_oswald.logistic", __doc__, PRESETS, measured, (STEPS, CURVE, AGREEMENT, FINAL, COSINES, DRAWS),
    trainings=trainings, constraints=(
        *SCHEDULE, once("networks", "algorithms"), multiple_of("bayes_draws", 2), *map(_beside, COMPARED),
    ),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
