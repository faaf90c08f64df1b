"""Attention as an update of weights: which identities are exact, and how far the relaxed form is from a real head.

Dai et al. 2022 (section 3) drop softmax and scale from an attention head. What remains is W_ZSL + dW_ICL applied to the
query: demonstrations act like a gradient step on the head's weights. This identity is exact for relaxed attention, and
so are the dual form of gradient descent and the same form of fine-tuning. It describes a network only as far as relaxed
attention points where the network's softmax heads do. That is measured here in the networks of ``pretrain``, layer by
layer, at the last token of held-out questions: for the whole head, and for what it takes from the demonstrations. The
control is the plain mean of the values, which ignores the query.

Softmax attention has an exact form too: (1 - a) F_ZSL + a Attn_demonstrations, where a is the attention mass on the
demonstrations. It shrinks the zero-shot part, the relaxed form does not. In the first layer F_ZSL is the head's output
in a run without demonstrations whose query has the same positions; in higher layers the query itself has changed.
"""

import dataclasses
import sys
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.dai.common import RANDOM, Networks, OfNetworks, per_network, stacked
from experiments.dai.heads import Pair, head_metrics, in_place
from experiments.dai.identities import PRECISIONS, descent_error, finetuning_terms
from experiments.dai.material import encoded, toy_material
from experiments.dai.networks import every_network, source_digest, stacked_by_encoding
from experiments.dai.programs import rows
from experiments.settings import member_keys
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import once
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Yield
from icl_lab.prompts.text_tasks import HELD_OUT

ASKED = 400
"""PRNG stream of the test questions."""


@dataclasses.dataclass(frozen=True)
class Config(OfNetworks):
    """What is measured. The paper has no such measurement; only the number of demonstrations is its own."""

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
    "lab": Config(members=20, demonstrations=12, questions=50),
    "paper": Config(),
}  # fmt: skip


DESCENT = quantity("descent/{precision}", "member", precision=PRECISIONS)
HEADS = per_network("{metric}", "task", "layer", "head")
FINETUNING = per_network("finetuning_identity", "task", "head")
SHARE = per_network("{term}_share", "task", "head", term=("values", "keys", "both"))


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """Errors of the dual form (M,) by precision; of every network (M, 6, L, H) or (M, 6, H) by position encoding.

    Raises:
      FlagError: where the networks are not there.
    """
    networks = every_network(config, fits, ASKED)
    by_network = [(encoding, of_network(key, network, config)) for encoding, key, network in networks]
    keys, sizes = member_keys(config, ASKED), (config.steps, config.inputs, config.outputs)
    yield DESCENT, {kind: np.array([descent_error(key, *sizes, kind) for key in keys]) for kind in PRECISIONS}
    yield stacked_by_encoding(by_network)
    yield "facts", {"tasks": [task.stands_for for task in HELD_OUT], "networks": source_digest(config.networks)}


def of_network(key: Array, networks: Networks, config: Config) -> dict[str, np.ndarray]:
    """Metrics of one network: (6, L, H) means over questions, identities the largest error; of fine-tuning (6, H)."""
    network, by_task = (networks.module, networks.params), []
    for t, task_key in enumerate(jax.random.split(key, len(HELD_OUT))):
        material = toy_material(
            task_key, networks.languages, rows(networks.tasks, t), seeds=(1,), demonstrations=config.demonstrations,
            development=1, test=config.questions,
        )  # fmt: skip
        task = encoded(material, material.sets[0], material.test)
        place = np.arange(task.in_context.shape[1])
        shown = jnp.asarray((place > 0) & (place < task.context))
        without = in_place(networks.params, task.context)
        of_heads = stacked([
            head_metrics(*network, without, Pair(jnp.asarray(whole), jnp.asarray(alone), shown))
            for whole, alone in zip(task.in_context, task.zero_shot[:, 1:])
        ])  # fmt: skip
        by_task.append(
            {name: values.max(0) if name.endswith("identity") else values.mean(0) for name, values in of_heads.items()}
            | finetuning_terms(*network, task.examples, task.example_lengths, config.learning_rate)
        )
    return stacked(by_task)


EXPERIMENT = Experiment(
    "dai.dual_form", __doc__, PRESETS, measured, (DESCENT, HEADS, FINETUNING, SHARE),
    constraints=(once("positions"),), given=True, effort={"quick": "little"},
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
