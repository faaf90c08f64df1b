"""Noisy context labels (in the released code of von Oswald et al. 2022 only, no figure of the paper).

One layer is trained, and the GD step tuned, *without* noise. Both, and the mean of their weights, are then evaluated on
contexts of which m labels are replaced by N(0, 1) draws, as the released code does, and on contexts whose labels have
Gaussian noise. With c = eta s^2 and n = N - m labels left the GD step's loss is, exactly (this lab),

    (D s^2/2) [1 - 2 c n/N + c^2 n (n + D - 0.2) / N^2] + (c^2 D / 2 N^2) (m + n v)

for noise of variance v. ``noisy_labels_retrained`` trains on the corrupted labels.
"""

import dataclasses
import sys
from collections.abc import Iterator
from functools import partial

import numpy as np

from experiments.settings import member_keys
from experiments.training import paired_losses
from experiments.von_oswald.common import DECAYS, Setting, one_layer, optimizer, planned, sampler
from experiments.von_oswald.tuning import best_step, with_best_step
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import at_most
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield


@dataclasses.dataclass(frozen=True)
class Config(Setting):
    """The notebook on noisy labels."""

    corrupted: tuple[int, ...] = setting((0, 2, 4, 6, 8), "m, replaced labels among the N of a context", at_least=0)
    noises: tuple[float, ...] = setting((0.0, 0.25, 0.5, 0.75, 1.0), "standard deviation of label noise", at_least=0)
    population_tasks: int = setting(200_000, "tasks for each loss, shared by all learners", at_least=1)
    decay_steps: int = setting(0, "last steps of the training, in which the learning rate falls to 0", at_least=0)


PRESETS = {
    "smoke": Config(
        members=2, context_length=4, input_size=3, batch=32, steps=20, measure_every=10, eval_tasks=32,
        corrupted=(0, 2), noises=(0.0, 1.0), population_tasks=64,
    ),
    "quick": Config(members=6, batch=256, steps=2000, eval_tasks=500, population_tasks=20_000),
    "lab": Config(eval_tasks=2000),
    "paper": Config(),
}  # fmt: skip


LEARNERS = ("trained", "gd", "interpolated")
STEPS, LOSS = quantity("steps", "step"), quantity("loss", "member", "step")
CORRUPTED = quantity("corrupted_labels/{learner}", "member", "corrupted", learner=LEARNERS)
NOISY = quantity("label_noise/{learner}", "member", "noise", learner=LEARNERS)


def trainings(config: Config) -> Table:
    """One layer on clean labels."""
    return {
        "training": planned(config, one_layer(config), optimizer=partial(optimizer, decay_steps=config.decay_steps))
    }


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """The loss in training; losses on noisy labels of the layer, the GD step and the mean of their weights."""
    fit, learners = fits["training"], with_best_step(config)
    yield STEPS, fit.steps
    yield LOSS, fit.metrics["loss"]
    evaluated = partial(paired_losses, learners, params=fit.params, keys=member_keys(config, 900))
    noises = ((CORRUPTED, "corrupted_labels", config.corrupted), (NOISY, "label_noise", config.noises))
    for losses, kind, values in noises:
        noisy = lambda value, kind=kind: sampler(config, **{kind: value})  # noqa: E731
        yield losses, evaluated(noisy, tasks=config.population_tasks, settings=np.array(values))
    yield "facts", {"learning_rate": best_step(config)[0]}


EXPERIMENT = Experiment(
    "von_oswald.noisy_labels", __doc__, PRESETS, measured, (STEPS, LOSS, CORRUPTED, NOISY),
    trainings=trainings, constraints=(*DECAYS, at_most("corrupted", "context_length")),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
