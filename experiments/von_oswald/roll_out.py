"""One trained layer applied many times (von Oswald et al. 2022, Fig. 1 right and Fig. 10).

One layer, trained to answer after a single application, is applied 50 times to its own output. Only the label channel
moves, and its update is damped by lambda. Beside it: the constructed gradient-descent layer, and the exact loss of
damped gradient descent, (D s^2/2) E mean_l (1 - lambda eta l/N)^(2k) over the eigenvalues l of the context's X^T X. The
loss of a context grows if it has an eigenvalue with lambda eta l/N > 2. Without damping such contexts turn the mean
loss up after a few applications. At lambda = 0.75 they are so rare that 10,000 tasks may have none, yet they raise the
exact mean after some twenty. In the paper the trained layer diverges before GD; here most members diverge after it.
"""

import dataclasses
import sys
from collections.abc import Iterator
from functools import partial

import jax
import numpy as np
from jax import Array

from experiments.settings import member_keys
from experiments.von_oswald.common import SCHEDULE, Setting, constructed, looped, one_layer, planned, sampler
from experiments.von_oswald.tuning import best_layer, best_step, eigenvalues, zero_loss
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import once
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.models import LinearSelfAttention, traced
from icl_lab.prompts import Sample


@dataclasses.dataclass(frozen=True)
class Config(Setting):
    """Fig. 10 as the released code runs it."""

    eval_tasks: int = setting(
        10_000, "tasks that measure a member, the same at every measurement and application", at_least=1
    )
    dampings: tuple[float, ...] = setting((1.0, 0.875, 0.75), "lambda, factor on every update", above=0, at_most=1)
    applications: int = setting(50, "times the layer is applied", at_least=2)
    oracle_contexts: int = setting(1_000_000, "contexts of the exact damped-GD curve", at_least=2)


PRESETS = {
    "smoke": Config(
        members=2, context_length=4, input_size=3, batch=32, steps=20, measure_every=10, eval_tasks=32, applications=4,
        oracle_contexts=100,
    ),
    "quick": Config(members=6, batch=512, steps=2000, eval_tasks=2000, oracle_contexts=20_000),
    "lab": Config(),
    "paper": Config(),
}  # fmt: skip


STEPS, LOSS = quantity("steps", "step"), quantity("training_loss", "member", "step")
ROLLED_OUT = quantity(
    "damping_{damping}/{learner}", "member", "application", damping="dampings", learner=("trained", "gd")
)
EXACT = quantity("damping_{damping}/exact", "application", damping="dampings")


def trainings(config: Config) -> Table:
    """The layer, which answers after a single application."""
    return {"training": planned(config, one_layer(config), references={"gd": best_layer(config)})}


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """The training, then losses of the layer and of the GD layer after each application, at each damping."""
    fit, eta = fits["training"], best_step(config)[0]
    weights = constructed(config, eta)
    yield STEPS, fit.steps
    yield LOSS, fit.metrics["loss"]

    def losses(deep: LinearSelfAttention, args: tuple[dict, Array]) -> dict[str, Array]:
        params, key = args
        samples = sampler(config)(key, config.eval_tasks)
        return {name: _after_each(deep, p, samples) for name, p in (("trained", params), ("gd", weights))}

    members = (fit.params, member_keys(config, 900))
    for damping in config.dampings:
        deep = looped(config, config.applications, damping=damping, updated_channels=1)
        yield ROLLED_OUT.at(damping=damping), jax.jit(partial(jax.lax.map, partial(losses, deep)))(members)
        yield EXACT.at(damping=damping), exact(config, damping * eta)
    yield "facts", {"learning_rate": eta}


def _after_each(deep: LinearSelfAttention, params: dict, samples: Sample) -> Array:
    """(K,) mean loss after each application of the layer."""

    def errors(sample: Sample) -> Array:
        _, trace = traced(deep, params)(sample.prompt)
        predictions = -trace.residual[1:, -1, sample.prompt.x.shape[1]]
        return 0.5 * (predictions - sample.target) ** 2

    return jax.vmap(errors)(samples).mean(axis=0)


def exact(config: Config, rate: float) -> np.ndarray:
    """(K,) loss of damped gradient descent after each of K applications: exact given many contexts' eigenvalues."""
    spectrum = eigenvalues(config, member_keys(config, 10_001, 1)[0], config.oracle_contexts)
    factor = (1 - rate * spectrum / config.context_length) ** 2
    power, losses = np.ones_like(factor), []
    for _ in range(config.applications):
        power = power * factor
        losses.append(zero_loss(config) * power.mean())
    return np.array(losses)


EXPERIMENT = Experiment(
    "von_oswald.roll_out", __doc__, PRESETS, measured, (STEPS, LOSS, ROLLED_OUT, EXACT),
    trainings=trainings, constraints=(*SCHEDULE, once("dampings")),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
