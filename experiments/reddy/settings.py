"""Settings of the binaries of this paper: how item-label prompts are drawn, and how a network trains on them."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from experiments.settings import Members, member_keys
from icl_lab.lab import setting
from icl_lab.lab.constraints import Constraint, holds, multiple_of
from icl_lab.prompts import NOVEL_CLASSES, ItemLabelLaw, burstiness_values, copies_without_bursts, item_label_law
from icl_lab.training.fitting import Tree

WORLDS = 7_000
"""PRNG stream of the keys of the dictionaries, apart from the keys of every training."""

SMALL: dict[str, Any] = {
    "classes": 128, "labels": 16, "context_length": 4, "input_size": 31, "slots": 33, "learning_rate": 0.05,
    "measure_every": 100, "eval_tasks": 1000,
}  # fmt: skip
"""The small setting of the lab presets: a transition within some thousand steps, under a millisecond each."""

SMOKE: dict[str, Any] = {
    "members": 2, "classes": 8, "labels": 4, "context_length": 2, "input_size": 5, "slots": 6, "hidden": 8,
    "batch": 8, "steps": 4, "measure_every": 2, "eval_tasks": 16, "learning_rate": 0.05,
}  # fmt: skip
"""Seconds; judges nothing."""


@dataclasses.dataclass(frozen=True)
class Data(Members):
    """How item-label prompts are drawn (section 2 of the paper); defaults are those of its Fig. 3."""

    members: int = setting(6, "independent trainings, each with its own dictionaries, start and data", at_least=1)
    classes: int = setting(256, "K, item classes, a multiple of the labels", at_least=1)
    labels: int = setting(32, "L, labels", at_least=2, at_most=NOVEL_CLASSES)
    context_length: int = setting(8, "N, item-label pairs before the target", at_least=1)
    input_size: int = setting(63, "D, content dimensions of a token", at_least=1)
    slots: int = setting(65, "P, position slots of a token, at least 2N + 1; the first is drawn", at_least=3)
    burstiness: int = setting(
        1, "B, copies of a class in a bursty sequence, a divisor of N below it; 0: none", at_least=0
    )
    bursty_share: float = setting(1.0, "p_B, share of bursty sequences", at_least=0, at_most=1)
    novel_share: float = setting(0.8, "p_C, share of sequences of classes drawn afresh", at_least=0, at_most=1)
    spread: float = setting(0.1, "epsilon, within-class spread of items", at_least=0)
    exponent: float = setting(0.0, "alpha, rank-frequency exponent: class k has frequency k^-alpha", at_least=0)
    distinct_labels: bool = setting(True, "the classes of a bursty sequence have different labels")


@dataclasses.dataclass(frozen=True)
class Schedule(Data):
    """How a network is trained on them (section 2 and appendix of the paper): plain SGD."""

    hidden: int = setting(128, "width of the classifier's three hidden layers", at_least=1)
    batch: int = setting(128, "fresh sequences in a training step", at_least=1)
    steps: int = setting(150_000, "training steps, a multiple of measure_every", at_least=1)
    measure_every: int = setting(500, "steps between measurements", at_least=1)
    learning_rate: float = setting(0.01, "of SGD", above=0)
    shrink: float = setting(1e-6, "every parameter shrinks by this share in every step", at_least=0)
    eval_tasks: int = setting(10_000, "sequences of each test set, the same at every measurement", at_least=1)


def bursts_fit(config: Data, burstiness: int) -> bool:
    """Whether B copies of each of N/B classes fill the context, with as many labels where they must differ."""
    n = config.context_length
    classes = n // (burstiness or copies_without_bursts(n))
    return burstiness in (0, *burstiness_values(n)) and not (config.distinct_labels and classes > config.labels)


BURSTS = "0 or a divisor B of N below it, with N/B at most L, or --nodistinct_labels"
"""What ``bursts_fit`` allows."""


def bursts(name: str) -> Constraint:
    """A number of copies that the context can hold."""
    return holds(BURSTS, name, "context_length", "labels", when=lambda c: bursts_fit(c, getattr(c, name)))


SLOTS = holds("at least 2N + 1", "slots", "context_length", when=lambda c: c.slots > 2 * c.context_length)
EXPONENT = holds(
    "0 with --distinct_labels, which ignores how frequent classes are",
    "exponent",
    when=lambda c: not (c.exponent and c.distinct_labels),
)
TRAINING = (
    multiple_of("steps", "measure_every"),
    multiple_of("classes", "labels"),
    SLOTS,
    bursts("burstiness"),
    EXPONENT,
)
"""Between the settings of a network's training."""


def member_laws(config: Data, points: int = 1, rows: int | None = None, **values: ArrayLike) -> ItemLabelLaw:
    """Task distributions that the members train on at every point of a grid, each member with its own dictionaries.

    Args:
      config: the setting.
      points: of the grid; a member has the same dictionaries at all of them.
      rows: classes of the tables, where points use different numbers of them; None means ``config.classes``.
      values: (points,) values for fields of ``ItemLabelLaw`` that replace the configuration's.

    Returns:
      An ``ItemLabelLaw`` with a leading axis (points * M,), see ``repeated``.
    """
    rows = rows or config.classes
    names = ("burstiness", "bursty_share", "novel_share", "spread", "exponent")
    scalars = {name: getattr(config, name) for name in names}

    def draw(key: Array) -> ItemLabelLaw:
        return item_label_law(key, classes=rows, labels=config.labels, input_size=config.input_size, **scalars)

    laws = repeated(jax.jit(jax.vmap(draw))(member_keys(config, WORLDS)), points)
    changed = {
        name: jnp.asarray(np.repeat(value, config.members), getattr(laws, name).dtype) for name, value in values.items()
    }
    return dataclasses.replace(laws, **changed)


def repeated(tree: Tree, points: int) -> Tree:
    """(points * M, ...) what M members have, at every point of a grid, point after point: paired by member."""
    return jax.tree.map(lambda leaf: jnp.concatenate([leaf] * points), tree)


def by_part(metrics: Mapping[str, np.ndarray], parts: Iterable[str]) -> dict[str, dict[str, np.ndarray]]:
    """Measurements by part, where one program trains the members of the first part, then those of the second, ..."""
    names = list(parts)
    pieces = {metric: np.split(values, len(names)) for metric, values in metrics.items()}
    return {name: {metric: values[i] for metric, values in pieces.items()} for i, name in enumerate(names)}
