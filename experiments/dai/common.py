"""What the binaries of this paper share: the pre-trained network, its made-up language and its held-out tasks."""

import dataclasses

import jax
from jax import Array

from experiments.settings import Members, member_keys
from icl_lab.lab import FlagError, Record, setting
from icl_lab.models import LanguageModel
from icl_lab.prompts.text import VOCABULARY, Language, TextTask, language
from icl_lab.prompts.text_sequences import sequence_length
from icl_lab.prompts.text_tasks import held_out_tasks

ENCODINGS = ("rotary", "learned")
"""Position encodings."""
WORLDS = 100
"""PRNG stream of languages and held-out tasks."""


def encodings(record: Record) -> list[str]:
    """The position encodings of a run, in the order of ``ENCODINGS``."""
    return [positions for positions in ENCODINGS if positions in record.config["positions"]]


@dataclasses.dataclass(frozen=True)
class Network(Members):
    """The network. Defaults: the sizes of the paper's 1.3B network and its largest number of demonstrations."""

    members: int = setting(3, "networks of each position encoding, each with its own language and data", at_least=1)
    layers: int = setting(24, "L", at_least=1)
    heads: int = setting(32, "H, a divisor of width", at_least=1)
    width: int = setting(2048, "E, of the residual stream", at_least=2)
    demonstrations: int = setting(32, "examples before the last one of a sequence", at_least=1)
    rotary_base: float = setting(100.0, "base of rotary positions", above=1)


def check_network(config: Network) -> None:
    """Raises FlagError where heads do not divide the width into an even number of channels."""
    if config.width % config.heads or (config.width // config.heads) % 2:
        raise FlagError(f"--heads={config.heads}: allowed is a divisor of --width={config.width} with an even quotient")


def network(config: Network, positions: str) -> LanguageModel:
    """The module with this position encoding, ``rotary`` or ``learned``."""
    length = sequence_length(config.demonstrations)
    return LanguageModel(
        vocabulary=VOCABULARY,
        layers=config.layers,
        heads=config.heads,
        width=config.width,
        positions=length if positions == "learned" else 0,
        rotary=config.rotary_base if positions == "rotary" else 0.0,
        scaled=True,
        spread=config.width**-0.5,
    )


def worlds(config: Members, most_zero_shot: float) -> tuple[Language, TextTask, Array]:
    """The language of every member, its six held-out tasks, and their key, all with a leading member axis.

    Args:
      config: the members.
      most_zero_shot: share of a held-out task that may be answered without demonstrations, from meanings alone.
    """
    keys = member_keys(config, WORLDS)

    def world(key: Array) -> tuple[Language, TextTask, Array]:
        of_language, of_tasks = jax.random.split(key)
        drawn = language(of_language)
        return drawn, held_out_tasks(of_tasks, drawn, most_zero_shot), of_tasks

    return jax.jit(jax.vmap(world))(keys)
