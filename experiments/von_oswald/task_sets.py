"""One layer trained on a fixed set of tasks (von Oswald et al. 2022, A.12, Fig. 16).

Every step sees the same B tasks, all of them; evaluation draws fresh ones. Near the best GD step the layer fits B tasks
as least squares fits B points: its loss is L* - c/B on them and L* + c/B on fresh ones, with c = tr(H^+ V) / 2 from the
Hessian of the population loss and the covariance of one task's gradient (this lab; c = 29 by default, an excess of
1.7 % at B = 8192). The layer has 120 free parameters, so a set of 128 tasks is learned by heart.

Panels: loss on the set and on fresh tasks over training, for each number of tasks; agreement with the best GD step;
final loss, also of the mean of both weights, against L* + c/B; larger inputs and targets.
"""

import dataclasses
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array

from experiments import panels
from experiments.settings import check, check_each_once, member_keys
from experiments.statistics import array, last, ratio
from experiments.training import Model, always, learners_of, paired_losses, squared_error
from experiments.von_oswald import shifts
from experiments.von_oswald.common import (
    Schedule,
    constructed,
    interpolated,
    model,
    sampler,
    train,
    with_batch,
)
from experiments.von_oswald.findings import FINDINGS
from experiments.von_oswald.headlines import QUICK
from experiments.von_oswald.tuning import best_step
from icl_lab.lab import Experiment, Record, Session, claims_of, from_json, main, setting, style
from icl_lab.lab.style import Figure, band
from icl_lab.models import LinearSelfAttention, folded_weights, learner
from icl_lab.prompts import BatchLearner, Sample, same_tasks
from icl_lab.theory import overfitting_coefficient


@dataclasses.dataclass(frozen=True)
class Config(Schedule, shifts.Scales):
    """Fig. 16 as the released code runs it (its batch is the number of tasks)."""

    sets: tuple[int, ...] = setting((128, 512, 2048, 8192), "number of tasks in each fixed set", at_least=1)
    theory_tasks: int = setting(20_000, "tasks that give the coefficient c of the excess loss", at_least=500)
    population_tasks: int = setting(200_000, "fresh tasks for final losses, shared by trained and GD", at_least=1)


PRESETS = {
    "smoke": Config(members=2, context_length=4, input_size=3, sets=(8,), steps=20, measure_every=10,
                    eval_tasks=16, theory_tasks=500, population_tasks=64, input_scales=(0.5, 1.0, 2.0),
                    other_scales=(0.5, 5.0), shift_tasks=32),
    "quick": Config(members=6, sets=(128, 2048), eval_tasks=500, theory_tasks=500, population_tasks=20_000,
                    input_scales=(0.5, 1.0, 2.0), other_scales=(0.5, 1.0, 2.0, 5.0), shift_tasks=1000),
    "lab": Config(eval_tasks=2000),
    "paper": Config(),
}  # fmt: skip


def check_sets(config: Config) -> None:
    """Raises FlagError where fields do not fit together."""
    check(config)
    check_each_once("sets", config.sets)


def models(config: Config) -> dict[str, Model]:
    """What is trained, by stage."""
    layer = model(LinearSelfAttention(layers=1, looped=True, init_scale=config.init_scale), config)
    return {f"tasks_{tasks}": layer for tasks in config.sets}


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
    """Trains the members of every set, each on a set of its own, and compares them with the best GD step."""
    eta, best = best_step(config)
    arrays: dict[str, Any] = {}
    coefficient = _coefficient(config, eta)
    for stage, (name, trained) in enumerate(models(config).items()):
        weights = constructed(config, eta)
        gd, middle = trained.learner(weights), interpolated(trained, weights, config)
        fitted = train(
            session,
            name,
            with_batch(config, config.sets[stage]),
            trained,
            keys=member_keys(config, stage),
            training_sampler_of=lambda now, key: same_tasks(sampler(now), key),
            settings=member_keys(config, 300 + stage),
            references={"gd": gd},
        )
        learners = partial(_learners, trained, gd, middle)
        keys = member_keys(config, 900 + stage)
        finals = paired_losses(learners, always(sampler(config)), fitted.params, keys, config.population_tasks)
        far = shifts.losses(config, learners, fitted.params, member_keys(config, 800 + stage), config.columns())
        arrays |= {"steps": fitted.steps, name: fitted.metrics | {"final": finals} | far}
    return {"learning_rate": eta, "closed_form": best, "coefficient": coefficient}, arrays


def _learners(
    trained: Model, gd: BatchLearner, middle: Callable[[dict], BatchLearner], params: dict
) -> dict[str, BatchLearner]:
    return {"trained": trained.learner(params), "gd": gd, "interpolated": middle(params)}


def _coefficient(config: Config, eta: float) -> float:
    """c of the excess loss c/B, at the best GD step; of the folded weights, which are what the layer computes with."""
    merged = LinearSelfAttention(layers=1, looped=True, parametrisation="merged")
    a, b = folded_weights(constructed(config, eta))
    samples = sampler(config)(member_keys(config, 950, 1)[0], config.theory_tasks)

    def losses(params: dict, samples: Sample) -> Array:  # in the plain form, which has second derivatives
        return squared_error(jax.vmap(learner(merged, params))(samples.prompt), samples)

    return overfitting_coefficient(losses, {"params": {"w_kq": a, "w_pv": b}}, samples)


def figures(record: Record) -> dict[str, Figure]:
    """Losses on the set and on fresh tasks, agreement with the best GD step, shifts; all by number of tasks."""
    config, steps = from_json(Config, record.config), record["steps"]
    labels = [f"{tasks} tasks" for tasks in config.sets]
    gather = lambda name: np.stack([record[f"tasks_{tasks}/{name}"] for tasks in config.sets])  # noqa: E731
    figure, grid = style.panels(4, 2, width=3.4)
    shown = zip(grid.flat, (
        ("train_loss", "loss on the set (dots: GD)"), ("loss", "loss on fresh tasks (dots: GD)"),
        ("gd_sensitivity_cosine", "sensitivity cosine with GD"), ("gd_prediction_difference", "prediction diff."),
        ("gd_sensitivity_difference", "sensitivity diff."),
    ))  # fmt: skip
    for axes, (name, label) in shown:
        panels.family_panel(axes, steps, gather(name), labels)
        axes.set_ylabel(label)
        if name.endswith("loss"):
            axes.axhline(record.metrics["closed_form"], color="black", linestyle=":")
        if not name.endswith("cosine"):
            axes.set_yscale("log")
    finals, *far = grid.flat[5:]
    members = {learner: gather(f"final/{learner}") for learner in ("trained", "gd", "interpolated")}
    at = np.log2(config.sets)
    fine = np.linspace(at.min(), at.max(), 100)
    excess = record.metrics["coefficient"] / 2**fine
    theory = (fine, record.metrics["closed_form"] + excess)
    panels.points_panel(finals, at.tolist(), members, "tasks in the set", theory)
    finals.set_xticks(at, [str(tasks) for tasks in config.sets])
    finals.set_yscale("log")
    for axes, (column, scales) in zip(far, config.columns().items()):
        for tasks, look in zip(config.sets, panels.SERIES):
            found = record[f"tasks_{tasks}/{column}"]
            x = np.array(scales)
            band(axes, x, found["trained"], **{k: look[k] for k in ("color", "linestyle")}, label=f"{tasks} tasks")
        band(axes, x, found["gd"], "gd")
        axes.set_yscale("log")
        axes.set_xlabel(r"$\alpha$")
        axes.set_ylabel("loss")
        axes.set_title(shifts.COLUMNS[column][0])
    far[0].legend()
    return {"task_sets": figure}


def excess_over_theory(tasks: int) -> Callable[[Record], np.ndarray]:
    """(M,) excess loss on fresh tasks (paired with the GD step's) over c/B."""

    def statistic(record: Record) -> np.ndarray:
        over = ratio(f"tasks_{tasks}/final/trained", f"tasks_{tasks}/final/gd")(record)
        excess = (over - 1) * record.metrics["closed_form"]
        return excess * tasks / record.metrics["coefficient"]

    return statistic


_PAPER = "von Oswald et al. 2022, Fig. 16"

claim = claims_of("von_oswald.task_sets", presets=("lab",))

CLAIMS = (
    claim("few_overfit", _PAPER,
          "On 128 tasks the layer overfits: loss on fresh tasks at least 1, above predicting zero (median).",
          array("tasks_128/final/trained"), 1.0, relation=">=", interval="median",
          reason="the published range is 1 to 5", expected_verdict={"lab": "holds"}),
    claim("few_by_heart", _PAPER,
          "The layer has learned 128 tasks by heart: loss on them at most .02, a tenth of the best GD step's.",
          last("tasks_128/train_loss"), 0.02, relation="<=",
          reason="a tenth of the loss that the best GD step leaves"),
    claim("few_cosine", _PAPER,
          "Trained on 128 tasks its sensitivities differ from the GD step's: cosine at most .5 (control: 2048 tasks).",
          last("tasks_128/gd_sensitivity_cosine"), 0.5, relation="<=",
          reason="half of what gradient descent has", control=last("tasks_2048/gd_sensitivity_cosine")),
    claim("many_loss", _PAPER, "2048 tasks give the best GD step (ratio of losses on fresh tasks).",
          ratio("tasks_2048/final/trained", "tasks_2048/final/gd"), 1.1, relation="<=",
          reason="a tenth of the drop is what the figure's axis resolves"),
    claim("most_loss", _PAPER, "8192 tasks give it more closely (ratio).",
          ratio("tasks_8192/final/trained", "tasks_8192/final/gd"), 1.03, relation="<=",
          reason="theory says 1.7 % beyond what online training leaves (.2 %)"),
    claim("most_cosine", _PAPER, "8192 tasks align the layer nearly perfectly: cosine at least .98.",
          last("tasks_8192/gd_sensitivity_cosine"), 0.98, relation=">=",
          reason="online training reaches .999; the figure's axis resolves about .02"),
    claim("theory", "this lab (first order in 1/B)", "At 8192 tasks the excess over the best GD step is c/B (ratio).",
          excess_over_theory(8192), 1.0, 0.2,
          reason="second order in 1/B is about 120/8192 = 1.5 % of it; what training itself leaves is a tenth",
          expected_verdict={"lab": "not resolved"}),
)  # fmt: skip

AXES = shifts.AXES | {"steps": ("step",), "*/final/*": ("member",), "*": ("member", "step")}

EXPERIMENT = Experiment(
    "von_oswald.task_sets", __doc__, PRESETS, run, figures, CLAIMS, check_sets,
    parts=lambda config: [f"tasks_{tasks}/*" for tasks in config["sets"]],
    axes=AXES, learners=learners_of(models), quick=QUICK["task_sets"], finding=FINDINGS["task_sets"],
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
