"""Twelve layers with MLPs and four heads (von Oswald et al. 2022, Fig. 8).

Linear attention, no LayerNorm, weights of its own in every layer, tokens clipped at 10. Compared, as the networks of
Figs. 3 and 7 are, with twelve steps of gradient descent at the best shared learning rate and of GD++ with one (eta,
gamma) a step, tuned through the token clip.

The published training has 50,000 steps of 2048 tasks, the lab preset 5,000 of 256. There the loss is still falling at
the last step, so nothing is claimed about where it ends.

Panels: loss over training; agreement with GD and with GD++.
"""

import dataclasses
import sys

from experiments.von_oswald.common import NETWORKS, Networks
from experiments.von_oswald.multi_step import QUANTITIES, measured, trainings
from icl_lab.lab import Experiment, main, setting


@dataclasses.dataclass(frozen=True)
class Config(Networks):
    """Fig. 8 as the released code runs it."""

    networks: tuple[str, ...] = setting(("free_12",), "free_K: K layers with weights of their own")
    heads: tuple[int, ...] = setting((4,), "heads of each network", at_least=1)
    mlp_widths: tuple[int, ...] = setting((44,), "hidden width of each network's MLPs: four times E", at_least=0)
    batches: tuple[int, ...] = setting((2048,), "batch of each network", at_least=1)
    steps: tuple[int, ...] = setting((50_000,), "training steps of each network", at_least=1)
    measurements: tuple[int, ...] = setting((50,), "measurements during the training of each network", at_least=1)
    learning_rates: tuple[float, ...] = setting((5e-4,), "learning rate of each network", above=0)
    gradient_clips: tuple[float, ...] = setting((10.0,), "gradient clip of each network", above=0)
    token_clips: tuple[float, ...] = setting((10.0,), "token clip of each network", at_least=0)
    population_tasks: int = setting(200_000, "tasks for final losses, shared by all learners", at_least=1)


PRESETS = {
    "smoke": Config(
        networks=("free_2",), heads=(2,), mlp_widths=(8,), batches=(8,), steps=(20,), measurements=(2,), members=2,
        context_length=4, input_size=3, eval_tasks=16, tuning_contexts=200, tuning_steps=4, tuning_batch=16,
        population_tasks=64,
    ),
    "quick": Config(
        batches=(64,), steps=(20,), measurements=(2,), members=2, eval_tasks=64, tuning_contexts=2000,
        tuning_steps=20, tuning_batch=64, population_tasks=1000,
    ),
    "lab": Config(batches=(256,), steps=(5000,), eval_tasks=1000, tuning_steps=5000, population_tasks=100_000),
    "paper": Config(),
}  # fmt: skip

EXPERIMENT = Experiment(
    "von_oswald.twelve_layers", __doc__, PRESETS, measured, QUANTITIES, trainings=trainings, constraints=NETWORKS,
    effort={"quick": "little"},
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
