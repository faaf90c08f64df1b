"""Why a looped layer differs from GD++ on larger targets (this lab, on von Oswald et al. 2022, Fig. 6).

A layer looped twice is GD++ in training, and exceeds its loss on targets much larger than those of training. GD++ has
no entries in the label row and column of A, and none in B that carry between inputs and label. Training leaves small
ones, whose effect grows with the square of the targets. Here they are set to zero in the trained weights (an ablation;
nothing is trained again), and both networks are compared with GD++ under the shifts of Fig. 6.

Panels: loss under each shift, as trained, without the label couplings, and of GD++.
"""

import dataclasses
import sys
from collections.abc import Iterator

from experiments.settings import member_keys
from experiments.von_oswald import shifts
from experiments.von_oswald.common import SCHEDULE, Setting, constructed, decoupled, looped, model, planned
from experiments.von_oswald.tuning import exactly_tuned, solver_json
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.prompts import BatchLearner


@dataclasses.dataclass(frozen=True)
class Config(Setting, shifts.Scales):
    """One network of Fig. 6 as the released code trains it."""

    layers: int = setting(2, "K, loops of the layer", at_least=2)
    tuning_contexts: int = setting(100_000, "contexts on which GD++ is tuned, and as many held out", at_least=2)


PRESETS = {
    "smoke": Config(members=2, context_length=4, input_size=3, batch=16, steps=20, measure_every=10, eval_tasks=16,
                    tuning_contexts=200, input_scales=(0.5, 2.0), other_scales=(0.5, 5.0), shift_tasks=32),
    "quick": Config(members=6, batch=512, eval_tasks=500, measure_every=1000, tuning_contexts=4000,
                    input_scales=(0.5, 1.0, 2.0), other_scales=(0.5, 1.0, 2.0, 5.0), shift_tasks=1000),
    "lab": Config(eval_tasks=2000),
    "paper": Config(),
}  # fmt: skip


STEPS, LOSS = quantity("steps", "step"), quantity("loss", "member", "step")
SHIFTED = shifts.quantities("shift", learner=("trained", "ablated", "gd++"))


def trainings(config: Config) -> Table:
    """The looped layer."""
    return {"training": planned(config, model(looped(config, config.layers), config))}


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Losses of the layer with and without its label couplings, and of GD++, on the same tasks."""
    network, fit = looped(config, config.layers), fits["training"]
    trained = model(network, config)
    _, solver = exactly_tuned(config, network, config.tuning_contexts)
    gdpp = trained.learner(constructed(config, solver.learning_rates, solver.gammas))
    without = decoupled(trained, config)

    def learners(params: dict) -> dict[str, BatchLearner]:
        return {"trained": trained.learner(params), "ablated": without(params), "gd++": gdpp}

    yield STEPS, fit.steps
    yield LOSS, fit.metrics["loss"]
    columns = config.columns(*shifts.COLUMNS)
    shifted = shifts.losses(config, learners, fit.params, member_keys(config, 900), columns)
    yield from ((SHIFTED[column], losses) for column, losses in shifted.items())
    yield "facts", {"gd++": solver_json(solver)}


EXPERIMENT = Experiment(
    "von_oswald.label_couplings", __doc__, PRESETS, measured, (STEPS, LOSS, *SHIFTED.values()),
    trainings=trainings, constraints=SCHEDULE,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
