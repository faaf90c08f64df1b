"""Why a looped layer differs from GD++ on larger targets (this lab, on von Oswald et al. 2022, Fig. 6).

A layer looped twice is GD++ in training, and exceeds its loss on targets much larger than those of training. GD++ has
no entries in the label row and column of A, and none in B that carry between inputs and label. Training leaves small
ones, whose effect grows with the square of the targets. Here they are set to zero in the trained weights (an ablation;
nothing is trained again), and both networks are compared with GD++ under the shifts of Fig. 6.

Panels: loss under each shift, as trained, without the label couplings, and of GD++.
"""

import dataclasses
import sys
from typing import Any

import numpy as np

from experiments.settings import check, member_keys
from experiments.statistics import Statistic, ratio
from experiments.training import Model, learners_of
from experiments.von_oswald import shifts
from experiments.von_oswald.common import Setting, constructed, decoupled, model, train
from experiments.von_oswald.findings import FINDINGS
from experiments.von_oswald.headlines import QUICK
from experiments.von_oswald.tuning import exactly_tuned, solver_json
from icl_lab.lab import Experiment, Record, Session, claims_of, from_json, main, setting, style
from icl_lab.lab.style import Figure
from icl_lab.models import LinearSelfAttention
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


def models(config: Config) -> dict[str, Model]:
    """What is trained."""
    return {"training": model(_network(config), config)}


def _network(config: Config) -> LinearSelfAttention:
    return LinearSelfAttention(layers=config.layers, looped=True, init_scale=config.init_scale)


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
    """Trains the layer; evaluates it with and without its label couplings, and GD++, on the same tasks."""
    trained = models(config)["training"]
    _, solver = exactly_tuned(config, _network(config), config.tuning_contexts)
    gdpp = trained.learner(constructed(config, solver.learning_rates, solver.gammas))
    without = decoupled(trained, config)
    fitted = train(session, "training", config, trained)

    def learners(params: dict) -> dict[str, BatchLearner]:
        return {"trained": trained.learner(params), "ablated": without(params), "gd++": gdpp}

    columns = config.columns(*shifts.COLUMNS)
    found = shifts.losses(config, learners, fitted.params, member_keys(config, 900), columns)
    return {"gd++": solver_json(solver)}, {"steps": fitted.steps, "loss": fitted.metrics["loss"], "shift": found}


def figures(record: Record) -> dict[str, Figure]:
    """One column a shift."""
    columns = from_json(Config, record.config).columns(*shifts.COLUMNS)
    figure, (row,) = style.panels(len(columns), 1, width=2.8)
    shifts.draw(row, columns, record["shift"])
    return {"label_couplings": figure}


def _worst(learner: str, *columns: str) -> Statistic:
    """(M,) largest |log ratio| of a learner's loss to that of GD++ over these shifts."""
    over = [ratio(f"shift/{column}/{learner}", f"shift/{column}/gd++") for column in columns]
    return lambda record: np.max([np.abs(np.log(one(record).astype(float))).max(axis=1) for one in over], axis=0)


_TARGETS, _INPUTS = ("targets", "other_targets"), ("inputs", "other_inputs")
_LINE = "a tenth of e is a line's width on the figure's logarithmic axis"

claim = claims_of("von_oswald.label_couplings", "this lab, on von Oswald et al. 2022, Fig. 6", presets=("lab",))

CLAIMS = (
    claim("targets", "",
          "Without its label couplings a layer looped twice coincides with tuned GD++ on larger and other targets "
          "(largest |log ratio| of the losses; control: as trained).",
          _worst("ablated", *_TARGETS), 0.0, 0.1, relation="<=", reason=_LINE, control=_worst("trained", *_TARGETS)),
    claim("trained_targets", "", "As trained, with its label couplings, it does not.",
          _worst("trained", *_TARGETS), 0.1, relation=">=", reason=_LINE),
    claim("inputs", "",
          "Label couplings do not explain larger and other inputs: without them the largest |log ratio| there "
          "stays at least half of what it is as trained (ratio).",
          lambda record: _worst("ablated", *_INPUTS)(record) / _worst("trained", *_INPUTS)(record), 0.5, relation=">=",
          interval="median", reason="half of it explained would be half"),
)  # fmt: skip

AXES = {"steps": ("step",), "loss": ("member", "step")} | shifts.AXES

EXPERIMENT = Experiment(
    "von_oswald.label_couplings", __doc__, PRESETS, run, figures, CLAIMS, check, axes=AXES,
    learners=learners_of(models), quick=QUICK["label_couplings"], finding=FINDINGS["label_couplings"],
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
