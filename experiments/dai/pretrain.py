"""Small language models that learn in context: the networks that the other binaries of this paper analyse.

GPT-2 (pre-LN, tied embeddings; rotary, sinusoidal or learned positions) is trained on sequences of classified sentences
in a made-up language, and tested on six held-out tasks that stand for the data sets of Dai et al. 2022; no training
sequence has their set of labels. The label of the first example of a sequence can only be guessed from meanings
(zero-shot), the last one has all others as demonstrations.

Trained on such sequences from a random start, the network only learns which labels occur in its context: the loss of
labels stays at the entropy of the set of labels. A curriculum takes it further: repeated strings, words with their
labels, sentences of clear classes, each until the loss of what the context predicts is low enough; then the mixture of
all families, the same number of steps for every network. A network that needs more than ``most_steps`` before the
mixture stops there and is counted. Loss: cross-entropy of every next token, that of labels counted 20 times (once in
the first stage).

The networks are pre-trained on sequences of the same form as those of the test, which Shen et al. 2024 criticise in toy
models: what is found here holds for networks that were trained to learn in context.

Networks are trained one after the other. To share them among cores, give each process some of them
(``--positions=rotary --first=10 --members=10``) and join the folders: ``python -m experiments.join_members``.
"""

import sys
from collections.abc import Iterator
from typing import Any

import jax

from experiments.dai.common import HEADS, count, network, per_network
from experiments.dai.pretrain_stages import Config, measured_of, trainings_of, worlds_of
from icl_lab.lab import Experiment, main
from icl_lab.lab.constraints import below, holds, multiple_of, once
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Table, Yield
from icl_lab.prompts.text_sequences import STAGES
from icl_lab.prompts.text_tasks import HELD_OUT, ceiling_accuracy, meaning_only_accuracy

SMALL: dict[str, Any] = {
    "layers": 4, "heads": 4, "width": 64, "demonstrations": 12, "offsets": 32, "batch": 16, "learning_rate": 2e-3,
    "warm_up": 100, "measure_every": 50, "most_steps": 6000, "eval_tasks": 32, "held_out_tasks": 8, "test_tasks": 500,
}  # fmt: skip
PRESETS = {
    "smoke": Config(
        members=1, layers=1, heads=2, width=8, demonstrations=2, positions=("rotary",), batch=2, most_steps=12,
        steps=4, measure_every=2, stage_loss=(100.0, 100.0, 100.0), warm_up=1, learning_rate=2e-3, eval_tasks=2,
        held_out_tasks=2, test_tasks=4,
    ),
    "quick": Config(
        **SMALL | {
            "members": 1, "layers": 2, "width": 32, "positions": ("rotary",), "most_steps": 50, "steps": 50,
            "warm_up": 25, "test_tasks": 50,
        }
    ),
    "lab": Config(**SMALL, positions=("sinusoidal", "rotary", "learned"), members=30, fewer=(20, 3), steps=1800),
    "paper": Config(),
}  # fmt: skip


CONSTRAINTS = (
    multiple_of("steps", "measure_every"),
    multiple_of("most_steps", "measure_every"),
    HEADS,
    once("positions"),
    holds(f"one for each of {', '.join(STAGES[:-1])}", "stage_loss",
          when=lambda c: len(c.stage_loss) == len(STAGES) - 1),
    below("warm_up", "steps"),
    holds("a number for each of --positions but the first", "fewer", "positions",
          when=lambda c: len(c.fewer) >= len(c.positions) - 1),
)  # fmt: skip


LANGUAGE = quantity("language/{part}", "member", "{part}", "meaning")
TASK = quantity("task/{part}", "member", "task")
DIRECTIONS = quantity("task/directions", "member", "task", "class", "place", "meaning")
LABELS = quantity("task/labels", "member", "task", "class")
CEILING, MEANING_ONLY = (quantity(name, "member", "task") for name in ("ceiling", "meaning_only"))
FINAL = per_network("final_accuracy", "task", "demonstrations")
REACHED = per_network("reached")
END = per_network("end/{metric}", "stage")
CURVE = per_network("{stage}/{metric}", "{stage}_step", stage=STAGES)
ACCURACY = per_network("{stage}/accuracy", "{stage}_step", "task", "demonstrations", stage=STAGES)


def trainings(config: Config) -> Table:
    """The stages of the networks of every position encoding."""
    table: dict[str, Any] = {}
    for encoding in config.positions:
        table |= trainings_of(config, encoding, network(config, encoding), count(config, encoding))
    return table


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """The worlds, which networks of one number share, and the networks; kept are those at the end of their training."""
    languages, tasks = (worlds_of(config)[name] for name in ("language", "tasks"))
    yield {"language": vars(languages), "task": vars(tasks)}
    for handle, measure in ((CEILING, ceiling_accuracy), (MEANING_ONLY, meaning_only_accuracy)):
        of_worlds = jax.jit(jax.vmap(jax.vmap(measure, (0, None, 0)), (None, 0, 0)))
        yield handle, of_worlds(jax.random.split(jax.random.key(config.seed), len(HELD_OUT)), languages, tasks)
    for encoding in config.positions:
        module, members = network(config, encoding), count(config, encoding)
        params, metrics = measured_of(config, encoding, module, members, fits)
        yield {encoding: metrics}
        yield "params", {encoding: params}
    yield "facts", {"tasks": [task.stands_for for task in HELD_OUT], "stages": list(STAGES)}


EXPERIMENT = Experiment(
    "dai.pretrain", __doc__, PRESETS, measured,
    (LANGUAGE, TASK, DIRECTIONS, LABELS, CEILING, MEANING_ONLY, FINAL, REACHED, END, CURVE, ACCURACY),
    trainings=trainings, constraints=CONSTRAINTS, feeds_others=True, effort={"quick": "little"},
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
