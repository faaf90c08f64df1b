"""Similarity of in-context learning and fine-tuning, layer by layer (Dai et al. 2022, first version, box plots).

For 50 test questions of every held-out task, after every set of demonstrations: SimAOU, SimAM and Kendall's
correlation in every layer, each beside its control. The first version of the paper finds that low layers are noisy and
that similarity rises with depth. But two controls may rise as well: the floor of SimAOU, because updates grow with
depth and normalising makes large updates similar; and noise in place of the update, of equal size in every layer.

A slope needs depth: at lab the networks have eight layers, which is what ``pretrain`` at lab makes of them with
``--layers=8 --positions=rotary --members=15``. ``--networks`` may be the folder of any run of ``pretrain``.
"""

import dataclasses
import sys
from collections.abc import Iterator
from typing import Any

import jax
from jax import Array

from experiments.dai import controls
from experiments.dai.analysis import CONSTRAINTS, FEW, SMALL, SMALLEST, Analysis, choose, present_mean, subjects
from experiments.dai.common import ACCURACY, Networks, per_network, stacked
from experiments.dai.controls import PAPER
from experiments.dai.networks import every_network, source_digest, stacked_by_encoding
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.trainings import Fits, Yield
from icl_lab.prompts.text_tasks import HELD_OUT

ASKED = 300
"""PRNG stream of the test questions."""
DEEP = "figures/dai/pretrain/lab-8-layers"
"""Networks of eight layers; the first of them comes with the laboratory."""


@dataclasses.dataclass(frozen=True)
class Config(Analysis):
    """The analysis; defaults are those of the paper's first version."""

    test_queries: int = setting(50, "test questions of a task in a box", at_least=2)


PRESETS = {
    "smoke": Config(**SMALLEST),
    "quick": Config(**FEW),
    "lab": Config(
        **SMALL | {"networks": DEEP, "members": 15, "positions": ("rotary",), "fewer": (15, 3), "test_queries": 50}
    ),
    "paper": Config(),
}


CONTROL = "random_update"
SHOWN = (
    "sim_aou", "sim_aou_raw", "floor", "random", "sim_am_before", "sim_am_after", "sim_am_delta", "kendall",
    "kendall_random",
)  # fmt: skip
SIMILARITY = per_network("{metric}", "task", "question", "layer", metric=SHOWN)
NOISE = per_network("noise/{metric}", "task", "question", "layer", metric=SHOWN)


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """By position encoding: metrics (M, 6, I, L), the same with noise, and accuracies (M, 6).

    Raises:
      FlagError: where the networks are not there.
    """
    networks = every_network(config, fits, ASKED)
    yield stacked_by_encoding([(encoding, by_layer(key, network, config)) for encoding, key, network in networks])
    yield "facts", {"tasks": [task.stands_for for task in HELD_OUT], "networks": source_digest(config.networks)}


def by_layer(key: Array, network: Networks, config: Config) -> dict[str, Any]:
    """Arrays (6, ..) by name, of one network; similarities are means over sets."""
    material_key, rows_key = jax.random.split(key)
    by_task = []
    for t, subject in enumerate(subjects(material_key, network, config)):
        task_key, sets = jax.random.fold_in(rows_key, t), []
        for s in range(config.seeds):
            set_key, chosen = jax.random.fold_in(task_key, s), choose(subject, config, s)
            table = controls.readings(set_key, subject, chosen, config, (CONTROL,))
            by_row = {name: controls.metrics(set_key, row, chosen.task, config) for name, row in table.items()}
            accuracies = dict(zip(("zero_shot", "in_context"), by_row[PAPER].hits.mean(0)))
            similarities = {name: by_row[PAPER].similarities[name] for name in SHOWN}
            noise = {name: by_row[CONTROL].similarities[name] for name in SHOWN}
            sets.append(accuracies | similarities | {"noise": noise})
        by_task.append(jax.tree.map(lambda values: present_mean(values, 0), stacked(sets)))
    return stacked(by_task)


EXPERIMENT = Experiment(
    "dai.layers", __doc__, PRESETS, measured, (ACCURACY, SIMILARITY, NOISE),
    constraints=CONSTRAINTS, given=True, effort={"quick": "little"},
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
