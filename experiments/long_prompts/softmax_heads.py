"""A softmax head needs three times the examples of a linear layer, two heads hardly more (Boursier & Boyer 2025).

For Gaussian inputs softmax attention with logits c x_i.x_q is linear attention where prompts are infinitely long. At N
examples its error is known exactly (``icl_lab.theory.softmax_risk``, this lab): in place of D + 1 a head has V / c^2,
3.19 times as much at D = 5 for many examples, and e times for large D. Two heads whose outputs are subtracted make one
step of gradient descent on centred inputs, of error (D + 1) / (N + D). Both networks are trained and tested at other
lengths. Errors are squared errors over that of predicting zero.

Panels: error over training; error at other lengths than trained; error over the scale of the logits.
"""

import dataclasses
import sys
from collections.abc import Iterator

import jax
import numpy as np

from experiments import training
from experiments.settings import Members, member_keys
from experiments.training import Model, always, paired_losses
from icl_lab import theory
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import multiple_of, once
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.models import Transformer, folded_weights
from icl_lab.prompts import Sampler, gaussian_regression
from icl_lab.prompts.layouts import joint_layout


@dataclasses.dataclass(frozen=True)
class Config(Members):
    """Standard normal inputs and tasks, no noise; Adam, whose learning rate falls to zero as a cosine."""

    context_length: int = setting(200, "N, labelled examples in a training prompt", at_least=2)
    input_size: int = setting(5, "D, numbers of an input", at_least=2)
    heads: tuple[int, ...] = setting((1, 2), "heads of each network", at_least=1, at_most=2)
    test_lengths: tuple[int, ...] = setting((50, 100, 400), "examples in prompts of other lengths", at_least=2)
    steps: int = setting(4000, "training steps, a multiple of measure_every", at_least=1)
    measure_every: int = setting(100, "steps between measurements", at_least=1)
    learning_rate: float = setting(0.01, "Adam's learning rate at the start", above=0)
    batch: int = setting(256, "fresh prompts in a training step", at_least=1)
    init_scale: float = setting(0.02, "variance of the initial weights, times E", above=0)
    eval_tasks: int = setting(2000, "prompts that measure a member, the same at every measurement", at_least=1)
    risk_tasks: int = setting(100_000, "prompts for each error of a member", at_least=1)


PRESETS = {
    "smoke": Config(
        members=2, context_length=8, input_size=2, test_lengths=(4, 12), steps=20, measure_every=10, batch=16,
        eval_tasks=32, risk_tasks=64,
    ),
    "quick": Config(
        members=6, context_length=50, test_lengths=(100,), steps=1500, measure_every=500, batch=128, risk_tasks=20_000,
    ),
    "lab": Config(),
    "paper": Config(),
}  # fmt: skip

GRID = np.linspace(0.2, 0.6, 9)
"""Scales at which the exact error is drawn."""

STEPS, LOSS = quantity("steps", "step"), quantity("heads_{heads}/loss", "member", "step", heads="heads")
ERROR = quantity("heads_{heads}/error", "member", "tested", heads="heads")
LOGITS = quantity("heads_{heads}/logits", "member", "heads_{heads}_head", "row", "column", heads="heads")
RATE = quantity("heads_{heads}/rate", "member", "heads_{heads}_head", heads="heads")
EXACT = quantity("exact/{of}", "tested", of=("error", "best"))
CURVE = quantity("exact/curve", "scale")


def network(config: Config, heads: int) -> Model:
    """One layer; the query is no key."""
    layer = Transformer(heads=heads, parametrisation="merged", init_scale=config.init_scale)
    return training.model(layer, config.context_length, config.input_size, joint_layout(sign=1))


def untrained_logits(config: Config, heads: int) -> np.ndarray:
    """(M, H, D, D) maps of the logits of networks before training."""
    params = jax.vmap(network(config, heads).init)(member_keys(config, 910))
    return np.asarray(jax.vmap(weights)(params)[0], np.float64)


def sampler(config: Config, length: int) -> Sampler:
    """Prompts of so many examples."""
    return gaussian_regression(context_length=length, covariance=np.eye(config.input_size))


def trainings(config: Config) -> Table:
    """A network for each number of heads."""
    return {
        f"heads_{heads}": training.planned(
            config, network(config, heads), keys=member_keys(config, stream),
            optimizer=training.falling_adam(config.steps), sampler_of=always(sampler(config, config.context_length)),
        )
        for stream, heads in enumerate(config.heads)
    }  # fmt: skip


def tested(config: Config) -> tuple[int, ...]:
    """The lengths of test prompts; the first is that of training."""
    return (config.context_length, *config.test_lengths)


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Errors at every length, the heads' logits and rates, and what theory says of one head."""
    for stream, heads in enumerate(config.heads):
        fit, keys = fits[f"heads_{heads}"], member_keys(config, 900 + stream)
        if not stream:
            yield STEPS, fit.steps
        yield LOSS.at(heads=heads), fit.metrics["loss"]
        logits, rates = jax.vmap(weights)(fit.params)
        yield LOGITS.at(heads=heads), np.asarray(logits, np.float64)
        yield RATE.at(heads=heads), np.asarray(rates, np.float64)
        yield ERROR.at(heads=heads), np.stack([_error(config, heads, n, fit.params, keys) for n in tested(config)], 1)
    n, d = config.context_length, config.input_size
    scale, rate, _ = theory.softmax_optimum(n, d)
    yield EXACT.at(of="error"), np.array([theory.softmax_risk(m, d, scale, rate) for m in tested(config)])
    yield EXACT.at(of="best"), np.array([theory.softmax_optimum(m, d)[2] for m in tested(config)])
    yield CURVE, np.array([theory.softmax_risk(n, d, float(c)) for c in GRID])
    yield "facts", {"scale": scale, "rate": rate, "long": theory.softmax_scale(d)[0]}


def weights(params: dict) -> tuple[jax.Array, jax.Array]:
    """(H, D, D) maps of the logits x_q A x_i, and (H,) factors eta on the heads' averages of labels."""
    a, b = (layers[0] for layers in folded_weights(params))
    return a[:, :-1, :-1] / a.shape[-1] ** 0.5, b[:, -1, -1]  # softmax attention divides by the root of its key size


def _error(config: Config, heads: int, length: int, params: dict, keys: jax.Array) -> np.ndarray:
    """(M,) errors on prompts of a length."""
    learners = lambda member: {"trained": network(config, heads).learner(member)}  # noqa: E731
    losses = paired_losses(learners, always(sampler(config, length)), params, keys, config.risk_tasks)
    return 2 * losses["trained"] / config.input_size


EXPERIMENT = Experiment(
    "long_prompts.softmax_heads", __doc__, PRESETS, measured, (STEPS, LOSS, ERROR, LOGITS, RATE, EXACT, CURVE),
    trainings=trainings, constraints=(multiple_of("steps", "measure_every"), once("heads", "test_lengths")),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
