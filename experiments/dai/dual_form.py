"""Attention as an update of weights: which identities are exact, and how far the relaxed form is from a real head.

Dai et al. 2022 (section 3) drop softmax and scale from an attention head, and what remains is W_ZSL + dW_ICL applied to
the query: demonstrations would be a gradient step on the head's weights. That is exact for relaxed attention, as is the
dual form of gradient descent and the same form of fine-tuning. It says something of a network as far as relaxed
attention points where its softmax heads do. Here that is measured in the networks of ``pretrain``, layer by layer, at
the last token of held-out questions: of the whole head, and of what it takes from the demonstrations. The control is
the plain mean of the values, which does not look at the query at all.

There is an exact form for softmax: (1 - a) F_ZSL + a Attn_demonstrations with the mass a on the demonstrations. It has
a shrinking of the zero-shot part that the relaxed form lacks; and in the first layer F_ZSL is the head's output in a
run without demonstrations, if only the query keeps its positions. Above it the query itself has changed.
"""

import dataclasses
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.dai.dual_form_claims import CLAIMS
from experiments.dai.dual_form_figures import figures
from experiments.dai.heads import Pair, head_metrics, in_place
from experiments.dai.identities import PRECISIONS, descent_error, finetuning_terms
from experiments.dai.material import encoded, toy_material
from experiments.dai.networks import (
    RANDOM,
    Networks,
    OfNetworks,
    check_networks,
    load_networks,
    one_network,
    source_digest,
)
from experiments.dai.programs import rows
from experiments.settings import check_each_once, member_keys
from icl_lab.lab.command_line import main
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.flags import setting
from icl_lab.lab.session import Session
from icl_lab.prompts.text_tasks import HELD_OUT

ASKED = 400
"""Stage of the keys of what a network is asked."""


@dataclasses.dataclass(frozen=True)
class Config(OfNetworks):
    """What is looked at; the paper has no such measurement, the numbers of tokens are its own."""

    questions: int = setting(100, "of each task", at_least=1)
    learning_rate: float = setting(0.01, "of fine-tuning, for its expansion", above=0)
    inputs: int = setting(16, "D of the linear layer of the dual form", at_least=1)
    outputs: int = setting(8, "O", at_least=2)
    steps: int = setting(64, "of sequential gradient descent on it", at_least=1)


PRESETS = {
    "smoke": Config(
        networks=RANDOM, members=1, positions=("rotary",), demonstrations=2, questions=2, inputs=2, outputs=2, steps=2,
    ),
    "quick": Config(members=1, positions=("rotary",), demonstrations=12, questions=20),
    "lab": Config(demonstrations=12, questions=50),
    "paper": Config(),
}  # fmt: skip


def check(config: Config) -> None:
    """Raises FlagError where a position encoding is given twice."""
    check_each_once("positions", config.positions)


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Errors of the dual form (M,) by name; of every network (M, 6, L, H), (M, 6, L) or (M, 6) by ``<positions>_``.

    Raises:
      FlagError: where the networks are not there.
    """
    check_networks(config)
    keys = member_keys(config, ASKED)
    sizes = (config.steps, config.inputs, config.outputs)
    arrays = {f"descent_{kind}": np.array([descent_error(key, *sizes, kind) for key in keys]) for kind in PRECISIONS}
    with session.bar("networks", len(config.positions) * config.members) as advance:
        for p, positions in enumerate(config.positions):
            networks, members = load_networks(config.networks, positions, config.members), []
            for m, key in enumerate(keys):
                members.append(of_network(key, one_network(networks, m), config))
                advance(p * config.members + m + 1, len(config.positions) * config.members)
            for name in members[0]:
                arrays[f"{positions}_{name}"] = np.stack([one[name] for one in members]).astype(np.float32)
    tasks = [task.stands_for for task in HELD_OUT]
    return {"tasks": tasks, "networks": source_digest(config.networks)}, arrays


def of_network(key: Array, networks: Networks, config: Config) -> dict[str, np.ndarray]:
    """Metrics of one network: (6, L, H) means over questions, identities the largest error; of fine-tuning (6, H)."""
    found = []
    for t, own in enumerate(jax.random.split(key, len(HELD_OUT))):
        material = toy_material(
            own, networks.languages, rows(networks.tasks, t), seeds=(1,), demonstrations=config.demonstrations,
            development=1, test=config.questions,
        )  # fmt: skip
        task = encoded(material, material.sets[0], material.test)
        place = np.arange(task.in_context.shape[1])
        shown = jnp.asarray((place > 0) & (place < task.context))
        without = in_place(networks.params, task.context)
        measured = [
            head_metrics(networks.module, networks.params, without, Pair(jnp.asarray(whole), jnp.asarray(alone), shown))
            for whole, alone in zip(task.in_context, task.zero_shot[:, 1:])
        ]
        over = {name: np.stack([one[name] for one in measured]) for name in measured[0]}
        tuned = _finetuning_terms(
            networks.module, networks.params, task.examples, task.example_lengths, config.learning_rate
        )
        found.append(
            {name: values.max(0) if name.endswith("identity") else values.mean(0) for name, values in over.items()}
            | {name: np.asarray(values) for name, values in tuned.items()}
        )
    return {name: np.stack([one[name] for one in found]) for name in found[0]}


_finetuning_terms = jax.jit(finetuning_terms, static_argnums=0)

AXES = {
    "descent_*": ("member",),
    "*_share": ("member", "task", "head"),
    "*_finetuning_identity": ("member", "task", "head"),
    "*": ("member", "task", "layer", "head"),
}

EXPERIMENT = Experiment("dai.dual_form", __doc__, PRESETS, run, figures, CLAIMS, check, axes=AXES)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
