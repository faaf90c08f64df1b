"""Similarity of in-context learning and fine-tuning, layer by layer (Dai et al. 2022, first version, box plots).

For up to 50 test questions of every held-out task: SimAOU, SimAM and Kendall's correlation in every layer, each beside
its control. The first version of the paper finds that low layers are noisy and that similarity rises with depth. But
two controls may rise as well: the floor of SimAOU, because updates grow with depth and normalising makes large updates
similar; and noise of equal norm in place of the update, because it passes through the same layers.
"""

import dataclasses
import sys
from typing import Any

import jax
import numpy as np
from jax import Array

from experiments.dai.analysis import FEW, SMALL, SMALLEST, Analysis, check, choose, subjects
from experiments.dai.controls import PAPER, row_metrics, table_rows
from experiments.dai.findings import FINDINGS
from experiments.dai.headlines import QUICK
from experiments.dai.layers_claims import CLAIMS, NOISE, SHOWN
from experiments.dai.layers_figures import figures
from experiments.dai.networks import Networks, by_positions, every_network, source_digest, stacked
from icl_lab.lab import Experiment, Session, main, setting
from icl_lab.prompts.text_tasks import HELD_OUT

ASKED = 300
"""PRNG stream of the test questions."""


@dataclasses.dataclass(frozen=True)
class Config(Analysis):
    """The analysis; defaults are those of the paper's first version."""

    state_queries: int = setting(50, "test questions of a task in a box", at_least=1)


PRESETS = {
    "smoke": Config(**SMALLEST),
    "quick": Config(**FEW),
    "lab": Config(**SMALL),
    "paper": Config(),
}


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
    """By position encoding: metrics (M, 6, I, L), the same with noise, and accuracies (M, 6).

    Raises:
      FlagError: where the networks are not there.
    """
    found = [
        (positions, by_layer(key, network, config)) for positions, key, network in every_network(config, session, ASKED)
    ]
    metrics = {"tasks": [task.stands_for for task in HELD_OUT], "networks": source_digest(config.networks)}
    return metrics, by_positions(found)


def by_layer(key: Array, networks: Networks, config: Config) -> dict[str, Any]:
    """Arrays (6, ..) by name, of one network."""
    of_material, of_rows = jax.random.split(key)
    found = []
    for t, subject in enumerate(subjects(of_material, networks, config)):
        chosen, own = choose(subject, config), jax.random.fold_in(of_rows, t)
        table = table_rows(own, subject, chosen, config, (NOISE,))
        measured = {name: row_metrics(own, row, config).similarities for name, row in table.items()}
        accuracies = {"zero_shot": chosen.zero_shot, "in_context": chosen.in_context[chosen.best]}
        found.append(
            {name: np.asarray(value) for name, value in accuracies.items()}
            | {name: measured[PAPER][name] for name in SHOWN}
            | {"noise": {name: measured[NOISE][name] for name in SHOWN}}
        )
    return stacked(found)


AXES = {
    "*/zero_shot": ("member", "task"),
    "*/in_context": ("member", "task"),
    "*": ("member", "task", "question", "layer"),
}

EXPERIMENT = Experiment(
    "dai.layers", __doc__, PRESETS, run, figures, CLAIMS, check, axes=AXES,
    quick=QUICK["layers"], finding=FINDINGS["layers"],
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
