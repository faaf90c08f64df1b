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
from typing import Any

import jax
import numpy as np
from jax import Array

from experiments.dai.common import check_network, network, worlds
from experiments.dai.findings import FINDINGS
from experiments.dai.headlines import QUICK
from experiments.dai.pretrain_claims import CLAIMS
from experiments.dai.pretrain_figures import figures
from experiments.dai.pretrain_stages import Config, accuracies_of_tasks, train
from experiments.settings import check as check_schedule
from experiments.settings import check_each_once, member_keys
from icl_lab.lab import Experiment, FlagError, Session, main
from icl_lab.models import LanguageModel
from icl_lab.prompts.text_sequences import STAGES
from icl_lab.prompts.text_tasks import HELD_OUT, ceiling_accuracy, held_out_sets, meaning_only_accuracy

TEST = 200
"""PRNG stream of the test at the end."""

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


def check(config: Config) -> None:
    """Raises FlagError where fields do not fit together."""
    check_schedule(config)
    check_schedule(config, "most_steps")
    check_network(config)
    check_each_once("positions", config.positions)
    if len(config.stage_loss) != len(STAGES) - 1:
        given = ",".join(map(str, config.stage_loss))
        raise FlagError(f"--stage_loss={given}: allowed is one for each of {', '.join(STAGES[:-1])}")
    if config.warm_up >= config.steps:
        raise FlagError(f"--warm_up={config.warm_up}: allowed is less than --steps={config.steps}")
    if len(config.fewer) < len(config.positions) - 1:
        given = ",".join(map(str, config.fewer))
        raise FlagError(f"--fewer={given}: allowed is a number for each of --positions but the first")


def count(config: Config, positions: str) -> int:
    """How many networks there are of this position encoding."""
    at = config.positions.index(positions)
    return min([config.members, *config.fewer[at - 1 : at]]) if at else config.members


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
    """Trains the networks of every position encoding; those of one number share language, tasks and sequences."""
    world = worlds_of(config)
    of, tasks = world["language"], world["tasks"]
    measures = {"ceiling": ceiling_accuracy, "meaning_only": meaning_only_accuracy}
    arrays: dict[str, Any] = {"language": vars(of), "task": vars(tasks)}
    for name, measure in measures.items():
        of_worlds = jax.jit(jax.vmap(jax.vmap(measure, (0, None, 0)), (None, 0, 0)))
        arrays[name] = of_worlds(jax.random.split(jax.random.key(config.seed), len(HELD_OUT)), of, tasks)
    arrays = jax.tree.map(np.asarray, arrays)
    params = {}
    for positions in config.positions:
        module, members = network(config, positions), count(config, positions)
        params[positions], arrays[positions] = trained(session, config, positions, module, members, world)
    session.params = params  # those at the end of the last stage, without those of the others
    return {"tasks": [task.stands_for for task in HELD_OUT], "stages": list(STAGES)}, arrays


def trained(
    session: Session, config: Config, prefix: str, module: LanguageModel, members: int, world: dict[str, Any]
) -> tuple[dict, dict[str, Any]]:
    """The first M networks of a module, ``train`` of one after the other: params, and all that is measured, stacked."""
    each = [
        train(session, config, prefix, module, config.first + m, jax.tree.map(lambda leaf, m=m: leaf[m : m + 1], world))
        for m in range(members)
    ]
    params, found = jax.tree.map(lambda *leaves: np.stack(leaves), *each)
    return params, found | {"final_accuracy": _final_accuracies(config, module, params, world)}


def worlds_of(config: Config) -> dict[str, Any]:
    """The ``language`` of every network, its held-out ``tasks``, and the sets of labels that are ``held_out``."""
    of, tasks, keys = worlds(config, config.first)
    return jax.device_get({"language": of, "tasks": tasks, "held_out": jax.jit(jax.vmap(held_out_sets))(keys)})


def _final_accuracies(config: Config, module: LanguageModel, params: dict, world: dict[str, Any]) -> np.ndarray:
    """(M, 6, n + 1) accuracies of the networks at the end, on ``test_tasks`` new sequences of each task."""
    members = len(jax.tree.leaves(params)[0])
    worlds = jax.tree.map(lambda leaf: leaf[:members], world)
    keys = member_keys(config, TEST, config.first + members)[config.first :]

    def member(own: tuple) -> Array:
        key, params, world = own
        return accuracies_of_tasks(config, module, params, key, world, config.test_tasks)

    return np.asarray(jax.jit(lambda *own: jax.lax.map(member, own))(keys, params, worlds))


AXES = {
    "ceiling": ("member", "task"),
    "meaning_only": ("member", "task"),
    "language/*": ("member", "{0}", "meaning"),
    "task/directions": ("member", "task", "class", "place", "meaning"),
    "task/labels": ("member", "task", "class"),
    "task/*": ("member", "task"),
    "*/final_accuracy": ("{0}_member", "task", "demonstrations"),
    "*/reached": ("{0}_member",),
    "*/end/*": ("{0}_member", "stage"),
    "*/*/accuracy": ("{0}_member", "{1}_step", "task", "demonstrations"),
    "*/*/*": ("{0}_member", "{1}_step"),
}

EXPERIMENT = Experiment(
    "dai.pretrain", __doc__, PRESETS, run, figures, CLAIMS, check, lambda c: [f"{name}/*" for name in c["positions"]],
    feeds_others=True, axes=AXES, quick=QUICK["pretrain"], finding=FINDINGS["pretrain"],
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
