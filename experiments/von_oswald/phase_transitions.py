"""When the loss drops: one head, two heads, a block with MLP on fixed tasks (von Oswald et al. 2022, A.11, Fig. 15).

The loss of a layer with one linear head may stay on a plateau, the loss of the best rank-one A, for a time that depends
on the seed; with two heads, says the paper, it drops sooner and all members drop together. A block of attention and MLP
on 8192 fixed tasks, says the paper, first learns them by heart, while the loss on fresh tasks rises steeply, and
generalises later (grokking). The time of a drop is the step at which half of the way from predicting zero to the best
GD step is done; the claims are about its distribution over members.

Panels: loss of every member, with one head, with two, and of the block with MLP (on its set: dashed); the distribution
of the times.
"""

import dataclasses
import sys
from collections.abc import Iterator

from experiments.settings import member_keys
from experiments.von_oswald.common import SCHEDULE, Setting, one_layer, planned, sampler
from experiments.von_oswald.tuning import best_step, zero_loss
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import holds, multiple_of, once
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.prompts import same_tasks

LOOKS = (("#0072B2", ""), ("#E69F00", "///"), ("#009E73", "..."))
"""Colour and hatch of each number of heads."""


@dataclasses.dataclass(frozen=True)
class Config(Setting):
    """Fig. 15 as the released code runs it, with more members."""

    members: int = setting(128, "independent trainings with each number of heads", at_least=1)
    heads: tuple[int, ...] = setting((1, 2), "heads of the networks without MLP", at_least=1)
    measure_every: int = setting(20, "steps between measurements", at_least=1)
    set_members: int = setting(10, "members of the block with MLP", at_least=1)
    set_tasks: int = setting(8192, "tasks in the fixed set of the block with MLP", at_least=1)
    set_steps: int = setting(10_000, "training steps of the block with MLP, a multiple of measure_every", at_least=1)
    mlp_width: int = setting(44, "hidden width of the MLP: four times the token width", at_least=1)


PRESETS = {
    "smoke": Config(members=3, heads=(2,), context_length=4, input_size=3, batch=16, steps=20, measure_every=10,
                    eval_tasks=16, set_members=2, set_tasks=16, set_steps=20, mlp_width=8),
    "quick": Config(members=50, batch=256, steps=1000, eval_tasks=1000, set_members=2, set_tasks=1024, set_steps=400),
    "lab": Config(batch=256, eval_tasks=2000),
    "paper": Config(),
}  # fmt: skip


STEPS, SET_STEPS = quantity("steps", "step"), quantity("set/steps", "set_step")
LOSS = quantity("heads_{heads}/loss", "member", "step", heads="heads")
OF_SET = quantity("set/{loss}", "set_member", "set_step", loss=("loss", "train_loss"))


def trainings(config: Config) -> Table:
    """An ensemble for each number of heads; the block with MLP, each member on a set of its own."""
    of_set = dataclasses.replace(config, batch=config.set_tasks, members=config.set_members, steps=config.set_steps)
    table = {
        f"heads_{heads}": planned(config, one_layer(config, heads=heads), stream=i)
        for i, heads in enumerate(config.heads)
    }
    return table | {
        "set": planned(
            of_set, one_layer(config, mlp_width=config.mlp_width), stream=50,
            training_sampler_of=lambda now, key: same_tasks(sampler(now), key), settings=member_keys(of_set, 350),
        )
    }  # fmt: skip


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """The losses of every ensemble."""
    for heads in config.heads:
        fit = fits[f"heads_{heads}"]
        yield LOSS.at(heads=heads), fit.metrics["loss"]
    yield STEPS, fit.steps
    of_set = fits["set"]
    yield SET_STEPS, of_set.steps
    yield OF_SET, {name: of_set.metrics[name] for name in ("loss", "train_loss")}
    eta, best = best_step(config)
    yield "facts", {"learning_rate": eta, "closed_form": best, "predict_zero": zero_loss(config)}


EXPERIMENT = Experiment(
    "von_oswald.phase_transitions", __doc__, PRESETS, measured, (STEPS, SET_STEPS, LOSS, OF_SET),
    trainings=trainings, constraints=(
        *SCHEDULE,
        multiple_of("set_steps", "measure_every"),
        once("heads"),
        holds(f"at most {len(LOOKS)} values", "heads", when=lambda c: len(c.heads) <= len(LOOKS)),
    ),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
