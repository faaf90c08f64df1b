"""Both solutions learned, and kept, from mixed data (Reddy 2023, Fig. A.1).

A sequence has novel classes, which only the context can tell, with probability p_C; trained classes in a bursty
context, which weights or context can tell, with probability (1 - p_C) p_B; and otherwise independent draws of trained
classes, which only the weights can tell. The network is trained at p_B and p_C of {.25, 0.75}: at all four points the
loss asks for both, and both are learned. The shares decide which comes first, and when; what came first is not lost
when the other comes.
"""

import dataclasses
import sys
from collections.abc import Iterator

import numpy as np

from experiments.reddy.settings import SMALL, SMOKE, TRAINING, Schedule, member_laws
from experiments.reddy.training import Induction, induction_model, planned
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import holds, once
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import After, Fits, Table, Yield
from icl_lab.training.plans import Training


@dataclasses.dataclass(frozen=True)
class Config(Schedule):
    """Fig. A.1 as published; the points of the grid replace ``bursty_share`` and ``novel_share``."""

    bursty_shares: tuple[float, ...] = setting((0.25, 0.75), "p_B of the grid", at_least=0, at_most=1)
    novel_shares: tuple[float, ...] = setting((0.25, 0.75), "p_C of the grid", at_least=0, at_most=1)


PRESETS = {
    "smoke": Config(**SMOKE | {"bursty_shares": (0.25,)}),
    "quick": Config(
        **SMALL | {
            "members": 6, "steps": 1200, "measure_every": 100, "learning_rate": 0.2, "eval_tasks": 250,
            "bursty_shares": (0.75,),
        },
    ),
    "lab": Config(**SMALL | {"steps": 8000, "measure_every": 250, "learning_rate": 0.1}),
    "paper": Config(),
}  # fmt: skip


STEPS = quantity("steps", "step")
CURVE = quantity("{metric}", "member", "bursty_share", "novel_share", "step")


def trainings(config: Config) -> Table:
    """The members of all points of the grid in one program, those of the first point first."""
    model = induction_model(config)
    return {"training": After(lambda fits: plan(config, model), model.learner)}


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Losses and accuracies at every point of the grid."""
    fit, shape = fits["training"], (len(config.bursty_shares), len(config.novel_shares), config.members, -1)
    yield STEPS, fit.steps
    for name in ("ic", "ic2", "iwl", "loss", "accuracy"):
        yield CURVE.at(metric=name), np.moveaxis(fit.metrics[name].reshape(shape), 2, 0)


def plan(config: Config, model: Induction) -> Training:
    """The training of all points; a member has the same dictionaries, start and keys at each."""
    bursty, novel = (v.ravel() for v in np.meshgrid(config.bursty_shares, config.novel_shares, indexing="ij"))
    return planned(config, model, member_laws(config, bursty.size, bursty_share=bursty, novel_share=novel))


EXPERIMENT = Experiment(
    "reddy.mixtures", __doc__, PRESETS, measured, (STEPS, CURVE), trainings=trainings,
    constraints=(
        *TRAINING,
        once("bursty_shares", "novel_shares"),
        holds("at least 2 * --measure_every: what is kept is read off three measurements", "steps", "measure_every",
              when=lambda c: c.steps >= 2 * c.measure_every),
    ),
    unused=("bursty_share", "novel_share"),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
