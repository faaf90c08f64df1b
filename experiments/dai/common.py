"""What the binaries of this paper share: the pre-trained network, which networks are analysed, the gate."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from numpy.typing import NDArray

from experiments.settings import Members
from icl_lab.lab import Record, setting
from icl_lab.lab.constraints import holds
from icl_lab.lab.quantities import Domain, Quantity, quantity
from icl_lab.models import LanguageModel
from icl_lab.models.layers import Params
from icl_lab.prompts.text import VOCABULARY, Language, TextTask
from icl_lab.prompts.text_sequences import sequence_length

T = TypeVar("T")
Floats = NDArray[np.floating]
ENCODINGS = ("rotary", "sinusoidal", "learned")
"""Position encodings: the paper's is sinusoidal; learned ones, of random offset in training, are a control."""
COMMITTED = "figures/dai/pretrain/lab"
"""The networks that come with the laboratory, a folder below its root."""
RANDOM = "random"
"""Stands for a folder: small untrained networks and random tasks, to try a binary in seconds."""
GAIN, TASKS = 0.1, 4
"""A network learns in context where demonstrations gain so much accuracy on at least so many of the six tasks."""


def per_network(name: str, *axes: str, **domains: Domain) -> Quantity:
    """Arrays (M, ..) of the networks of each position encoding, ``{positions}/name``."""
    return quantity(f"{{positions}}/{name}", "{positions}_member", *axes, positions="positions", **domains)


ACCURACY = per_network(
    "{learner}", "task", learner=("zero_shot", "in_context", "finetuned", "finetuned_free", "chance", "ceiling"),
)  # fmt: skip
"""Accuracies of an analysis of these networks."""


def stacked(trees: Sequence[T]) -> T:
    """Trees of the same structure as one, with a leading axis."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def gated(accuracy: np.ndarray) -> np.ndarray:
    """(M,) bool: which networks learn in context, from their accuracies (M, 6, n + 1) on the held-out tasks.

    That is ICL at least ``GAIN`` above ZSL on ``TASKS`` tasks or more. What is said of in-context learning is said of
    these networks; the share of the others is reported beside it. Of a file with fewer tasks it asks for all.
    """
    gains = accuracy[..., -1] - accuracy[..., 0]  # shares of hundreds of sequences in float32
    return (gains >= GAIN - 1e-6).sum(-1) >= min(TASKS, accuracy.shape[-2])


def passing(arrays: Mapping[str, Any]) -> np.ndarray:
    """(M,) bool: ``gated``, from the accuracies ``zero_shot`` and ``in_context`` of the networks of an encoding."""
    return gated(np.stack([arrays["zero_shot"], arrays["in_context"]], axis=-1))


def encodings(record: Record) -> list[str]:
    """The position encodings of a run, in the order of ``ENCODINGS``."""
    return [encoding for encoding in ENCODINGS if encoding in record.config["positions"]]


@dataclasses.dataclass(frozen=True)
class Network(Members):
    """The network. Defaults: the sizes of the paper's 1.3B network and its largest number of demonstrations."""

    members: int = setting(20, "networks of the first position encoding, each with its own language", at_least=1)
    layers: int = setting(24, "L", at_least=1)
    heads: int = setting(32, "H, a divisor of width", at_least=1)
    width: int = setting(2048, "E, of the residual stream", at_least=2)
    demonstrations: int = setting(32, "examples before the last one of a sequence", at_least=1)
    rotary_base: float = setting(100.0, "base of rotary positions", above=1)
    sinusoidal_base: float = setting(10_000.0, "base of sinusoidal positions", above=1)
    offsets: int = setting(
        0, "learned positions: the largest offset at which a training sequence begins; at test half of it", at_least=0
    )


@dataclasses.dataclass(frozen=True)
class OfNetworks(Members):
    """Which networks a binary analyses."""

    networks: str = setting(COMMITTED, "folder of a finished run of dai.pretrain, or random to try it out", path=True)
    members: int = setting(3, "how many of its networks of the first position encoding", at_least=1)
    first: int = setting(0, "number of the first network, of each encoding", at_least=0)
    fewer: tuple[int, ...] = setting((10, 3), "at most so many of the second encoding, of the third, ..", at_least=1)
    positions: tuple[str, ...] = setting(ENCODINGS[:2], "position encodings, networks of each", choices=ENCODINGS)
    demonstrations: int = setting(32, "N", at_least=1)


class Networks(NamedTuple):
    """Networks of one position encoding, with what they were trained on. M members.

    ``networks.one_network`` takes one of them, whose arrays have no axis of members.

    Attributes:
      module: the network.
      params: its params, with a leading member axis.
      languages: of every member.
      tasks: (M, 6) held-out tasks.
      demonstrations: the most that a training sequence had.
    """

    module: LanguageModel
    params: Params
    languages: Language
    tasks: TextTask
    demonstrations: int


def count(config: Any, encoding: str) -> int:
    """How many networks of this position encoding there are, by ``members``, ``positions`` and ``fewer``."""
    at = config.positions.index(encoding)
    return min([config.members, *config.fewer[at - 1 : at]]) if at else config.members


HEADS = holds(
    "a divisor of --width with an even quotient", "heads", "width", when=lambda c: c.width % (2 * c.heads) == 0
)


def network(config: Network, encoding: str) -> LanguageModel:
    """The module with this position encoding, one of ``ENCODINGS``."""
    learned = encoding == "learned"
    return LanguageModel(
        vocabulary=VOCABULARY,
        layers=config.layers,
        heads=config.heads,
        width=config.width,
        positions=(sequence_length(config.demonstrations) + config.offsets) * learned,
        start=config.offsets // 2 * learned,
        rotary=config.rotary_base if encoding == "rotary" else 0.0,
        sinusoidal=config.sinusoidal_base if encoding == "sinusoidal" else 0.0,
        scaled=True,
        spread=config.width**-0.5,
    )
