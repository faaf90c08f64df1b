"""A search for late generalisation on a fixed set of tasks (von Oswald et al. 2022, A.11, Fig. 15 right).

The figure shows one block of attention and MLP on 8192 fixed tasks that learns them by heart, gets worse on fresh tasks
and generalises later; learning rate and batch size were "carefully tuned". Full batches at the default rate do not show
it (``phase_transitions``). Here every batch size is trained at every learning rate, several members each; a member
draws its batches from a set of its own. A training counts as late if half of the drop on fresh tasks comes at least
twice as many steps after the start as half of the drop on the set, and as shooting up if the loss on fresh tasks ever
exceeds that of predicting zero by a tenth.

Panels: steps to half of the drop on fresh tasks over those on the set, of every member; the losses of the slowest.
"""

import dataclasses
import functools
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import jax
from jax import Array

from experiments.settings import member_keys
from experiments.von_oswald.common import SCHEDULE, Schedule, one_layer, sampler, setting_of
from experiments.von_oswald.tuning import after, best_step, zero_loss
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import once
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.prompts import Sample, Sampler


@dataclasses.dataclass(frozen=True)
class Config(Schedule):
    """The right panel of Fig. 15 at several batch sizes and learning rates."""

    steps: int = setting(10_000, "training steps of every cell, a multiple of measure_every", at_least=1)
    batches: tuple[int, ...] = setting((64, 512, 8192), "tasks of a step, drawn from the set", at_least=1)
    rates: tuple[float, ...] = setting((1e-3, 5e-3, 2e-2), "Adam's learning rate", above=0)
    set_tasks: int = setting(8192, "tasks in the fixed set", at_least=1)
    mlp_width: int = setting(44, "hidden width of the MLP: four times the token width", at_least=1)


PRESETS = {
    "smoke": Config(members=2, context_length=4, input_size=3, steps=20, measure_every=10, eval_tasks=16,
                    batches=(8, 16), rates=(1e-3,), set_tasks=16, mlp_width=8),
    "quick": Config(members=6, steps=1000, eval_tasks=500, batches=(64,), rates=(1e-3, 5e-3), set_tasks=1024),
    "lab": Config(eval_tasks=2000),
    "paper": Config(),
}  # fmt: skip


def cells(config: Mapping[str, Any]) -> dict[str, tuple[int, float]]:
    """Batch size and learning rate of every cell of the grid, by the name of its training."""
    return {f"batch_{b}_rate_{rate:g}": (b, rate) for b in config["batches"] for rate in config["rates"]}


STEPS = quantity("steps", "step")
LOSS = quantity("{cell}/{loss}", "member", "step", cell=cells, loss=("loss", "train_loss"))


def trainings(config: Config) -> Table:
    """Every cell of the grid, all on the same sets, one a member."""
    block = one_layer(config, mlp_width=config.mlp_width)

    @functools.cache
    def sets() -> Sample:
        draw = jax.jit(sampler(config), static_argnums=1)
        return jax.lax.map(lambda key: draw(key, config.set_tasks), member_keys(config, 350))

    return {
        name: after(
            setting_of(config, batch=batch, learning_rate=rate), block, lambda _: {"settings": sets()}, stream=50,
            training_sampler_of=lambda _, tasks: from_set(tasks),
        )
        for name, (batch, rate) in cells(vars(config)).items()
    }  # fmt: skip


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """The losses of every cell."""
    for name in fits:
        fit = fits[name]
        yield LOSS.at(cell=name), {loss: fit.metrics[loss] for loss in ("loss", "train_loss")}
    yield STEPS, fit.steps
    yield "facts", {"closed_form": best_step(config)[1], "predict_zero": zero_loss(config)}


def from_set(tasks: Sample) -> Sampler:
    """Batches of a set of tasks, drawn with replacement; the whole set, in order, where a batch is as large."""
    size = tasks.target.shape[0]

    def draw(key: Array, batch: int) -> Sample:
        chosen = jax.random.randint(key, (batch,), 0, size) if batch < size else slice(None)
        return jax.tree.map(lambda leaf: leaf[chosen], tasks)

    draw.repeats = True  # type: ignore[attr-defined]  # on purpose, where a batch is the whole set
    return draw


EXPERIMENT = Experiment(
    "von_oswald.grokking", __doc__, PRESETS, measured, (STEPS, LOSS),
    trainings=trainings, constraints=(*SCHEDULE, once("batches", "rates")),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
