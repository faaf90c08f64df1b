"""Linear self-attention with LayerNorm (von Oswald et al. 2022, Fig. 14).

LayerNorm rescales every token by its own spread, so attention no longer sees x_j and y_j on the scale that a gradient
needs: one layer after a LayerNorm stays above the best GD step, two layers with a LayerNorm between them above two
steps of GD++. On much larger inputs, where an unbounded step overshoots, it is the other way round. Controls are the
same networks without LayerNorm.

Panels, one row a network: loss and agreement with GD and GD++ over training, loss on larger inputs and targets.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from experiments.settings import member_keys
from experiments.training import always, paired_losses
from experiments.von_oswald import shifts
from experiments.von_oswald.common import NETWORKS, Networks, chosen_of, model, sampler, unpack
from experiments.von_oswald.tuning import Compared, after, compared_with, solver_json, tunings
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import holds
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.prompts import BatchLearner


@dataclasses.dataclass(frozen=True)
class Config(Networks):
    """Fig. 14 as the released code runs it."""

    networks: tuple[str, ...] = setting(
        ("looped_1", "free_2"), "looped_K: LayerNorm before every pass; free_K: before every layer but the first"
    )
    steps: tuple[int, ...] = setting((17_500, 17_500), "training steps of each network", at_least=1)
    learning_rates: tuple[float, ...] = setting((1e-3, 1e-3), "learning rate of each network", above=0)
    gradient_clips: tuple[float, ...] = setting((1e-3, 1e-3), "gradient clip of each network", above=0)
    token_clips: tuple[float, ...] = setting((0.0, 0.0), "token clip of each network, 0 is off", at_least=0)
    ranges: tuple[float, ...] = setting(shifts.grid(0.5, 2, 0.1), "alpha of the larger inputs", above=0)
    target_scales: tuple[float, ...] = setting(shifts.grid(0.5, 5, 0.25), "alpha of the larger targets", above=0)
    shift_tasks: int = setting(10_000, "tasks at each alpha, the same draws at every alpha", at_least=1)
    population_tasks: int = setting(200_000, "tasks for final losses, shared by all learners", at_least=1)


PRESETS = {
    "smoke": Config(
        batches=(16, 16), steps=(20, 20), measurements=(2, 2), members=2, context_length=4, input_size=3,
        eval_tasks=16, tuning_contexts=200, ranges=(0.5, 1.0, 2.0), target_scales=(0.5, 5.0), shift_tasks=16,
        population_tasks=64,
    ),
    "quick": Config(
        networks=("looped_1",), heads=(1,), mlp_widths=(0,), batches=(256,), steps=(2000,), measurements=(20,),
        learning_rates=(1e-3,), gradient_clips=(1e-3,), token_clips=(0.0,), members=6, eval_tasks=500,
        tuning_contexts=4000, ranges=(0.5, 1.0, 1.5, 2.0), target_scales=(0.5, 1.0, 2.0, 3.5, 5.0), shift_tasks=1000,
        population_tasks=20_000,
    ),
    "lab": Config(batches=(256, 256), eval_tasks=2000),
    "paper": Config(),
}  # fmt: skip


LEARNERS = ("trained", "without", "gd", "gd++")
STEPS = quantity("{network}/steps", "{network}_step", network=chosen_of)
CURVE = quantity("{network}/{metric}", "member", "{network}_step", network=chosen_of)
WITHOUT = quantity("{network}/without/{metric}", "member", "{network}_step", network=chosen_of)
FINAL = quantity("{network}/final/{learner}", "member", network=chosen_of, learner=LEARNERS)
RANGE = quantity("{network}/range/{learner}", "member", "range", network=chosen_of, learner=LEARNERS)
TARGETS = quantity("{network}/targets/{learner}", "member", "other_scale", network=chosen_of, learner=LEARNERS)


def trainings(config: Config) -> Table:
    """Tunings of the solvers through a token clip; every network with LayerNorm, and the same without it."""
    table: dict[str, Any] = dict(tunings(config))
    for name, (network, one) in unpack(config).items():
        references = partial(beside, config, name)
        stream = config.networks.index(name)
        table[name] = after(one, model(network.clone(layer_norm=True), one), references, stream=stream)
        table[f"{name}_without"] = after(one, model(network, one), references, stream=stream)
    return table


def beside(config: Config, name: str, fits: Fits) -> dict[str, dict[str, BatchLearner]]:
    """What a network is measured with: the solvers that the plain one is compared with, of one layer GD alone."""
    one = compared_with(config, name, fits)
    return {"references": one.learners("gd", one.match)}


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Every network and its control over training, at the end and far out, beside the solvers."""
    for name in unpack(config):
        one, fit, without = compared_with(config, name, fits), fits[name], fits[f"{name}_without"]
        params, of = (fit.params, without.params), learners(one)
        yield STEPS.at(network=name), fit.steps
        yield CURVE.at(network=name), fit.metrics
        yield WITHOUT.at(network=name), without.metrics
        keys = member_keys(config, 900 + one.stage)
        yield FINAL.at(network=name), paired_losses(of, always(sampler(config)), params, keys, config.population_tasks)
        far = shifts.losses(config, of, params, member_keys(config, 800 + one.stage), columns(config))
        yield RANGE.at(network=name), far["inputs"]
        yield TARGETS.at(network=name), far["targets"]
        yield "facts", {name: {solver: solver_json(one.solvers[solver]) for solver in ("gd", "gd++")}}


def learners(one: Compared) -> Callable[[tuple[dict, dict]], dict[str, BatchLearner]]:
    """``parameters with and without LayerNorm -> learners``, with the solvers."""
    trained, control = model(one.network.clone(layer_norm=True), one.setting), model(one.network, one.setting)
    solvers = one.learners("gd", one.match)
    return lambda params: {"trained": trained.learner(params[0]), "without": control.learner(params[1]), **solvers}


def columns(config: Config) -> dict[str, tuple[float, ...]]:
    """The alpha of each shift."""
    return {"inputs": config.ranges, "targets": config.target_scales}


EXPERIMENT = Experiment(
    "von_oswald.layer_norm", __doc__, PRESETS, measured, (STEPS, CURVE, WITHOUT, FINAL, RANGE, TARGETS),
    trainings=trainings, constraints=(
        *NETWORKS,
        holds("looped_1 for free_1, which has no LayerNorm before its only layer", "networks",
              when=lambda c: "free_1" not in c.networks),
    ),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
