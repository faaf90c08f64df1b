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
from collections.abc import Iterator

import jax
from jax import Array

from experiments.settings import member_keys
from experiments.training import always, paired_losses
from experiments.von_oswald import shifts
from experiments.von_oswald.common import SCHEDULE, Schedule, constructed, one_layer, planned, sampler, setting_of
from experiments.von_oswald.tuning import best_layer, best_step, with_best_step
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import once
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.models import LinearSelfAttention, folded_weights, learner
from icl_lab.prompts import Sample, same_tasks
from icl_lab.theory import overfitting_coefficient
from icl_lab.training.plans import squared_error


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


LEARNERS = ("trained", "gd", "interpolated")
STEPS = quantity("steps", "step")
CURVE = quantity("tasks_{tasks}/{metric}", "member", "step", tasks="sets")
FINAL = quantity("tasks_{tasks}/final/{learner}", "member", tasks="sets", learner=LEARNERS)
SHIFTED = shifts.quantities("tasks_{tasks}", tasks="sets", learner=LEARNERS)


def trainings(config: Config) -> Table:
    """A layer for each number of tasks, each member on a set of its own."""
    layer = one_layer(config)
    gd = best_layer(config)
    return {
        f"tasks_{tasks}": planned(
            setting_of(config, batch=tasks), layer, stream=i, references={"gd": gd},
            training_sampler_of=lambda now, key: same_tasks(sampler(now), key),
            settings=member_keys(config, 300 + i),
        )
        for i, tasks in enumerate(config.sets)
    }  # fmt: skip


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """The layers over training, at the end and far out, compared with the best GD step."""
    eta, best = best_step(config)
    yield "facts", {"learning_rate": eta, "closed_form": best, "coefficient": _coefficient(config, eta)}
    of = with_best_step(config)
    for i, tasks in enumerate(config.sets):
        fit = fits[f"tasks_{tasks}"]
        yield CURVE.at(tasks=tasks), fit.metrics
        fresh, keys = always(sampler(config)), member_keys(config, 900 + i)
        yield FINAL.at(tasks=tasks), paired_losses(of, fresh, fit.params, keys, config.population_tasks)
        far = shifts.losses(config, of, fit.params, member_keys(config, 800 + i), config.columns())
        for column, losses in far.items():
            yield SHIFTED[column].at(tasks=tasks), losses
    yield STEPS, fit.steps


def _coefficient(config: Config, eta: float) -> float:
    """c of the excess loss c/B, at the best GD step; of the folded weights, which are what the layer computes with."""
    merged = LinearSelfAttention(layers=1, looped=True, parametrisation="merged")
    a, b = folded_weights(constructed(config, eta))
    samples = sampler(config)(member_keys(config, 950, 1)[0], config.theory_tasks)

    def losses(params: dict, samples: Sample) -> Array:  # in the plain form, which has second derivatives
        return squared_error(jax.vmap(learner(merged, params))(samples.prompt), samples)

    return overfitting_coefficient(losses, {"params": {"w_kq": a, "w_pv": b}}, samples)


EXPERIMENT = Experiment(
    "von_oswald.task_sets", __doc__, PRESETS, measured, (STEPS, CURVE, FINAL, *SHIFTED.values()),
    trainings=trainings, constraints=(*SCHEDULE, once("sets")),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
