"""Networks trained on corrupted context labels (this lab).

The released code only evaluates on such labels (``noisy_labels``). Here m of the N context labels are replaced by N(0,
1) draws, in training and evaluation. A layer looped twice is trained at each m (all m and all members in one program)
and compared with two-step GD and GD++ whose eta and gamma are tuned by gradient on the same tasks, and with the mean of
trained and GD++ weights.
"""

import dataclasses
import sys
from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from experiments.settings import member_keys
from experiments.training import always, paired_losses
from experiments.von_oswald.common import SCHEDULE, Setting, constructed, interpolated, looped, model, planned, sampler
from experiments.von_oswald.tuning import exactly_tuned, tuned, tuning
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import at_most
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.prompts import Sampler
from icl_lab.training import Model


@dataclasses.dataclass(frozen=True)
class Config(Setting):
    """As the notebook on noisy labels, but trained on them."""

    layers: int = setting(2, "K, layers that share their weights", at_least=1)
    corrupted: tuple[int, ...] = setting((0, 2, 4, 6, 8), "m, corrupted labels among the N of a context", at_least=0)
    tuning_steps: int = setting(2000, "Adam steps that tune eta and gamma at each m", at_least=1)
    tuning_batch: int = setting(2048, "tasks of a tuning step", at_least=1)
    tuning_contexts: int = setting(100_000, "contexts on which the clean starting values are tuned", at_least=2)
    population_tasks: int = setting(200_000, "tasks for final losses, shared by all learners", at_least=1)


PRESETS = {
    "smoke": Config(
        members=2, context_length=4, input_size=3, batch=32, steps=20, measure_every=10, eval_tasks=32,
        corrupted=(0, 2), tuning_steps=4, tuning_batch=16, tuning_contexts=200, population_tasks=64,
    ),
    "quick": Config(members=6, batch=256, steps=3000, eval_tasks=500, corrupted=(0,), tuning_steps=500,
                    tuning_batch=512, tuning_contexts=4000, population_tasks=20_000),
    "lab": Config(batch=512, eval_tasks=2000),
    "paper": Config(),
}  # fmt: skip


STEPS, LOSS = quantity("steps", "step"), quantity("loss", "corrupted", "member", "step")
FINAL = quantity("final/{learner}", "corrupted", "member", learner=("trained", "gd", "gd++", "interpolated"))


def trainings(config: Config) -> Table:
    """The solvers at every m; the network, first all members at the first m, then all at the second ..."""
    grid = jnp.repeat(jnp.asarray(config.corrupted), config.members)

    def corrupted(m: jax.Array) -> Sampler:
        return sampler(config, corrupted_labels=m)

    network, counts = looped(config, config.layers), jnp.tile(jnp.asarray(config.corrupted), 2)
    return {
        "tuning": tuning(config, network, partial(starts, config), corrupted, counts),
        "training": planned(
            config, model(network, config), members=grid.size, sampler_of=lambda _, m: corrupted(m), settings=grid
        ),
    }


def starts(config: Config) -> np.ndarray:
    """(2 counts, 2, 1) eta and gamma of the best GD and of the best GD++ on clean labels, each at every m."""
    clean = exactly_tuned(config, looped(config, config.layers), config.tuning_contexts)
    return np.repeat([np.stack([s.learning_rates, s.gammas]) for s in clean], len(config.corrupted), axis=0)


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """The loss in training, and final losses of all learners on the same tasks at every m."""
    counts, trained = config.corrupted, model(looped(config, config.layers), config)
    solvers = tuned(fits["tuning"], starts(config)).reshape(2, len(counts), 2, 1)  # of GD and of GD++
    fit, finals = fits["training"], []
    for i, count in enumerate(counts):
        members = slice(i * config.members, (i + 1) * config.members)
        params = jax.tree.map(lambda leaf, members=members: leaf[members], fit.params)
        finals.append(_finals(config, trained, params, count, solvers[:, i]))
    yield STEPS, fit.steps
    yield LOSS, fit.metrics["loss"].reshape(len(counts), config.members, -1)
    yield FINAL, {name: np.stack([final[name] for final in finals]) for name in finals[0]}
    yield "facts", {"gd": solvers[0].tolist(), "gd++": solvers[1].tolist()}


def _finals(config: Config, trained: Model, params: dict, count: int, solvers: np.ndarray) -> dict[str, np.ndarray]:
    """(M,) final losses by learner at m = count, on the same tasks."""
    gd, gdpp = (constructed(config, eta, gamma) for eta, gamma in solvers)
    built, middle = {"gd": trained.learner(gd), "gd++": trained.learner(gdpp)}, interpolated(trained, gdpp, config)
    return paired_losses(
        lambda params: {"trained": trained.learner(params), **built, "interpolated": middle(params)},
        always(sampler(config, corrupted_labels=count)),
        params,
        member_keys(config, 900),
        config.population_tasks,
    )


EXPERIMENT = Experiment(
    "von_oswald.noisy_labels_retrained", __doc__, PRESETS, measured, (STEPS, LOSS, FINAL),
    trainings=trainings, constraints=(*SCHEDULE, at_most("corrupted", "context_length")),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
