"""Trained layers out of their distribution (von Oswald et al. 2022, Fig. 6).

Networks trained on U(-1/2, 1/2) inputs and N(0, I) task vectors are evaluated on larger inputs, on larger targets, on
inputs and on targets of another distribution (exponential, normal or Laplace, normalised), beside the best GD or GD++
and the mean of trained and constructed weights. A network that *is* an algorithm must fail as the algorithm fails. For
one layer and larger inputs the loss is known: with c = N/(N + D - 0.2), L(a) = (D s^2 a^2/2)[1 - 2 c a^2 + c^2 a^4 (N +
D - 0.2)/N]. Why two loops differ from GD++ on targets: ``label_couplings``.
"""

import dataclasses
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from experiments.settings import member_keys
from experiments.von_oswald import shifts
from experiments.von_oswald.common import NETWORKS, Networks, chosen_of, interpolated, model, planned, unpack
from experiments.von_oswald.tuning import Compared, compared_with, solver_json, tunings
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.prompts import BatchLearner


@dataclasses.dataclass(frozen=True)
class Config(Networks, shifts.Scales):
    """Fig. 6 as the released code runs it."""

    networks: tuple[str, ...] = setting(("looped_1", "looped_2", "free_5"), "looped_K or free_K: K layers")
    heads: tuple[int, ...] = setting((1, 1, 1), "heads of each network", at_least=1)
    mlp_widths: tuple[int, ...] = setting((0, 0, 0), "hidden width of each network's MLPs, 0 for none", at_least=0)
    batches: tuple[int, ...] = setting((2048,) * 3, "batch of each network", at_least=1)
    steps: tuple[int, ...] = setting((5000, 5000, 50_000), "training steps of each network", at_least=1)
    measurements: tuple[int, ...] = setting((10,) * 3, "measurements during the training of each network", at_least=1)
    learning_rates: tuple[float, ...] = setting((1e-3, 1e-3, 5e-4), "1e-3 for K <= 3, else 5e-4", above=0)
    gradient_clips: tuple[float, ...] = setting((1e-3, 1e-3, 10.0), "0.001 for K <= 2, else 10", above=0)
    token_clips: tuple[float, ...] = setting((0.0, 0.0, 10.0), "10 for K > 3 (text: K > 2), 0 is off", at_least=0)


PRESETS = {
    "smoke": Config(
        networks=("looped_1", "free_2"), heads=(1, 1), mlp_widths=(0, 0), batches=(16, 16), steps=(20, 20),
        measurements=(2, 2), learning_rates=(1e-3, 1e-3), gradient_clips=(1e-3, 10.0), token_clips=(0.0, 10.0),
        members=2, context_length=4, input_size=3, eval_tasks=16, input_scales=(0.5, 1.0, 2.0), other_scales=(0.5, 5.0),
        shift_tasks=32, tuning_contexts=200, tuning_steps=4, tuning_batch=16,
    ),
    "quick": Config(
        networks=("looped_1",), heads=(1,), mlp_widths=(0,), batches=(256,), steps=(4000,), measurements=(10,),
        learning_rates=(1e-3,), gradient_clips=(1e-3,), token_clips=(0.0,), members=6, eval_tasks=500,
        input_scales=(0.5, 1.0, 1.5, 2.0), other_scales=(0.5, 1.0, 2.0, 3.5, 5.0), shift_tasks=1000,
        tuning_contexts=4000,
    ),
    "lab": Config(batches=(2048, 2048, 256), steps=(5000, 5000, 30_000), eval_tasks=2000, tuning_steps=5000),
    "paper": Config(),
}  # fmt: skip


SHIFTED = shifts.quantities("{network}", network=chosen_of, learner=("trained", "gd", "gd++", "interpolated"))


def trainings(config: Config) -> Table:
    """Tunings of the solvers through a token clip, and every network."""
    table: dict[str, Any] = dict(tunings(config))
    for name, (network, one) in unpack(config).items():
        table[name] = planned(one, model(network, one), stream=config.networks.index(name))
    return table


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Losses of all learners on the same tasks at every shift."""
    for name in unpack(config):
        one = compared_with(config, name, fits)
        for column, losses in _shifted(config, one, fits[name].params).items():
            yield SHIFTED[column].at(network=name), losses
        yield "facts", {name: {solver: solver_json(one.solvers[solver]) for solver in ("gd", "gd++")}}


def _shifted(config: Config, one: Compared, params: dict) -> dict[str, dict[str, np.ndarray]]:
    """(M, A) losses of every learner over each column's scales alpha."""
    trained, solvers = model(one.network, one.setting), one.learners("gd", one.match)
    middle = interpolated(trained, one.weights(one.match), config)
    single = one.network == one.plain and one.network.looped

    def learners(params: dict) -> dict[str, BatchLearner]:
        return {"trained": trained.learner(params), **solvers} | ({"interpolated": middle(params)} if single else {})

    columns = config.columns(*shifts.COLUMNS)
    return shifts.losses(config, learners, params, member_keys(config, 900 + one.stage), columns)


EXPERIMENT = Experiment(
    "von_oswald.out_of_distribution", __doc__, PRESETS, measured, tuple(SHIFTED.values()),
    trainings=trainings, constraints=NETWORKS,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
