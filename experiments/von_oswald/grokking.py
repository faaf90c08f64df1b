"""A search for late generalisation on a fixed set of tasks (von Oswald et al. 2022, A.11, Fig. 15 right).

The figure shows one block of attention and MLP on 8192 fixed tasks that learns them by heart, gets worse on fresh tasks
and generalises later; learning rate and batch size were "carefully tuned". Full batches at the default rate do not show
it (``phase_transitions``). Here every batch size is trained at every learning rate, several members each; a member
draws its batches from a set of its own. A training counts as late if half of the drop on fresh tasks comes at least
twice as many steps after the start as half of the drop on the set, and as shooting up if the loss on fresh tasks ever
exceeds that of predicting zero by a tenth.

Panels: loss on fresh tasks and on the set, of every member, one panel a cell of the grid.
"""

import dataclasses
import sys
from typing import Any

import jax
import numpy as np
from jax import Array

from experiments.onsets import half_drop_times
from experiments.settings import check, check_each_once, member_keys
from experiments.statistics import Statistic
from experiments.training import Model, learners_of
from experiments.von_oswald.common import Schedule, law_sizes, model, sampler, train, with_batch
from experiments.von_oswald.findings import FINDINGS
from experiments.von_oswald.headlines import QUICK
from experiments.von_oswald.tuning import best_step
from icl_lab.lab import Experiment, Record, Session, claims_of, from_json, main, setting, style
from icl_lab.lab.claims import FAILS
from icl_lab.lab.style import Figure
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts import Sample, Sampler
from icl_lab.theory.gradient_descent import one_step as theory


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


def check_grid(config: Config) -> None:
    """Raises FlagError where fields do not fit together."""
    check(config)
    check_each_once("batches", config.batches)
    check_each_once("rates", config.rates)


def cells(config: Config) -> dict[str, tuple[int, float]]:
    """Batch size and learning rate of every cell of the grid, by the name of its training."""
    return {f"batch_{b}_rate_{rate:g}": (b, rate) for b in config.batches for rate in config.rates}


def models(config: Config) -> dict[str, Model]:
    """What is trained, by stage."""
    network = LinearSelfAttention(layers=1, looped=True, mlp_width=config.mlp_width, init_scale=config.init_scale)
    return dict.fromkeys(cells(config), model(network, config))


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
    """Trains every cell, all on the same sets, one a member."""
    draw = jax.jit(sampler(config), static_argnums=1)
    sets = jax.lax.map(lambda key: draw(key, config.set_tasks), member_keys(config, 350))
    arrays: dict[str, Any] = {}
    for name, (batch, rate) in cells(config).items():
        fitted = train(
            session, name, with_batch(config, batch, learning_rate=rate), models(config)[name],
            keys=member_keys(config, 50), training_sampler_of=lambda _, own: from_set(own), settings=sets,
        )  # fmt: skip
        arrays |= {"steps": fitted.steps, name: {n: fitted.metrics[n] for n in ("loss", "train_loss")}}
    zero = float(theory.one_step_loss(0.0, **law_sizes(config)))
    return {"closed_form": best_step(config)[1], "predict_zero": zero}, arrays


def from_set(tasks: Sample) -> Sampler:
    """Batches of a set of tasks, drawn with replacement; the whole set, in order, where a batch is as large."""
    size = tasks.target.shape[0]

    def draw(key: Array, batch: int) -> Sample:
        chosen = jax.random.randint(key, (batch,), 0, size) if batch < size else slice(None)
        return jax.tree.map(lambda leaf: leaf[chosen], tasks)

    draw.repeats = True  # type: ignore[attr-defined]  # on purpose, where a batch is the whole set
    return draw


def figures(record: Record) -> dict[str, Figure]:
    """One row a batch size, one column a learning rate."""
    config = from_json(Config, record.config)
    figure, axes = style.panels(len(config.rates), len(config.batches), width=2.8, height=2.2)
    for at, (name, (batch, rate)) in zip(axes.flat, cells(config).items()):
        for curve, label, colour, dash in (("loss", "fresh tasks", "#D55E00", "-"), ("train_loss", "set", "0.4", "--")):
            lines = at.plot(record["steps"], record[f"{name}/{curve}"].T, color=colour, linestyle=dash, linewidth=0.8)
            lines[0].set_label(label)
        at.axhline(record.metrics["closed_form"], color="black", linestyle=":")
        at.set_title(f"batch {batch}, rate {rate:g}")
        at.set_ylim(0.1, 0.8)
        at.set_xlabel("training step")
        at.set_ylabel("loss")
    axes.flat[0].legend()
    return {"grokking": figure}


def late(record: Record, name: str) -> np.ndarray:
    """(M,) whether half of the drop on fresh tasks takes twice the steps of that on the set; False without one."""
    zero, best = record.metrics["predict_zero"], record.metrics["closed_form"]
    fresh, own = (
        half_drop_times(np.nan_to_num(record[f"{name}/{curve}"], nan=zero), record["steps"], zero, best)
        for curve in ("loss", "train_loss")
    )
    return np.isfinite(fresh) & (fresh >= 2 * own)


def shoots_up(record: Record, name: str) -> np.ndarray:
    """(M,) whether the loss on fresh tasks ever exceeds that of predicting zero by a tenth."""
    return record[f"{name}/loss"].max(axis=1) > 1.1 * record.metrics["predict_zero"]


def _most(of: Any) -> Statistic:
    """(M,) which members do it in the cell of the grid where most do.

    The cell is chosen by the members that are then counted, which errs towards the paper: if one in two members did it
    in every one of nine cells, the interval would lie above a half nine times in a hundred, not two or three.
    """
    return lambda record: max(
        (of(record, name).astype(float) for name in cells(from_json(Config, record.config))), key=np.mean
    )


_GRID = "at some batch size and learning rate of the grid (share of the members in the cell where most do)"

# the verdicts at lab were entered after the record, as first found
claim = claims_of(
    "von_oswald.grokking", "von Oswald et al. 2022, Fig. 15", {"late": FAILS, "late_and_up": FAILS},
    presets=("lab",), relation=">=", interval="wilson",
)  # fmt: skip

CLAIMS = (
    claim("late", "", f"Most members generalise late {_GRID}.", _most(late), 0.5, reason="most is more than half"),
    claim("late_and_up", "", f"Most get worse on fresh tasks first and then generalise late {_GRID}.",
          _most(lambda record, name: late(record, name) & shoots_up(record, name)), 0.5,
          reason="most is more than half"),
)  # fmt: skip

AXES = {"steps": ("step",), "*": ("member", "step")}

EXPERIMENT = Experiment(
    "von_oswald.grokking", __doc__, PRESETS, run, figures, CLAIMS, check_grid,
    parts=lambda config: [f"batch_{b}_rate_{r:g}/*" for b in config["batches"] for r in config["rates"]],
    axes=AXES, learners=learners_of(models), quick=QUICK["grokking"], finding=FINDINGS["grokking"],
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
