"""Similarity of in-context learning and fine-tuning, layer by layer (Dai et al. 2022, first version, box plots).

For every held-out task, up to 50 test questions: SimAOU, SimAM and Kendall's correlation in every layer, each beside
what it must be told apart from. The first version finds low layers noisy and similarity rising with depth. What rises
with depth may be the floor instead: updates grow with depth, and so does what normalising makes of them; and noise in
place of what fine-tuning learned goes through the same layers.
"""

import dataclasses
import sys
from typing import Any

import jax
import numpy as np
from jax import Array

from experiments.dai.analysis import FEW, SMALL, SMALLEST, Analysis, check, choose, subjects
from experiments.dai.controls import PAPER, row_metrics, table_rows
from experiments.dai.layers_claims import CLAIMS, NOISE, SHOWN
from experiments.dai.layers_figures import figures
from experiments.dai.networks import Networks, check_networks, load_networks, one_network, source_digest
from experiments.settings import member_keys
from icl_lab.lab.command_line import main
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.flags import setting
from icl_lab.lab.session import Session
from icl_lab.prompts.text_tasks import HELD_OUT

ASKED = 300
"""Stage of the keys of what a network is asked."""


@dataclasses.dataclass(frozen=True)
class Config(Analysis):
    """The analysis; of the first version."""

    state_queries: int = setting(50, "test questions of a task in a box", at_least=1)


PRESETS = {
    "smoke": Config(**SMALLEST),
    "quick": Config(**FEW),
    "lab": Config(**SMALL),
    "paper": Config(),
}


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Arrays (M, 6, I, L) by ``<positions>_<metric>``, with noise ``<positions>_noise_<metric>``; accuracies (M, 6).

    Raises:
      FlagError: where the networks are not there.
    """
    check_networks(config)
    arrays: dict[str, np.ndarray] = {}
    with session.bar("networks", len(config.positions) * config.members) as advance:
        for p, positions in enumerate(config.positions):
            networks, members = load_networks(config.networks, positions, config.members), []
            for m, key in enumerate(member_keys(config, ASKED)):
                members.append(by_layer(key, one_network(networks, m), config))
                advance(p * config.members + m + 1, len(config.positions) * config.members)
            arrays |= {
                f"{positions}_{name}": np.stack([one[name] for one in members]).astype(np.float32)
                for name in members[0]
            }
    tasks = [task.stands_for for task in HELD_OUT]
    return {"tasks": tasks, "networks": source_digest(config.networks)}, arrays


def by_layer(key: Array, networks: Networks, config: Config) -> dict[str, np.ndarray]:
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
            | {f"noise_{name}": measured[NOISE][name] for name in SHOWN}
        )
    return {name: np.stack([one[name] for one in found]) for name in found[0]}


AXES = {
    "*_zero_shot": ("member", "task"),
    "*_in_context": ("member", "task"),
    "*": ("member", "task", "question", "layer"),
}

EXPERIMENT = Experiment("dai.layers", __doc__, PRESETS, run, figures, CLAIMS, check, axes=AXES)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
