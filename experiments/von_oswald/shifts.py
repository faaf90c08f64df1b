"""How a network is measured on inputs and targets of another distribution than in training."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jax import Array

from experiments.training import paired_losses
from experiments.von_oswald.common import sampler
from icl_lab.lab.flags import setting
from icl_lab.lab.quantities import Domain, Quantity, quantity
from icl_lab.prompts import BatchLearner, Sampler

COLUMNS: dict[str, tuple[str, str, dict[str, str]]] = {
    "inputs": ("larger inputs", "input_range", {}),
    "targets": ("larger targets", "task_scale", {}),
    "other_inputs": ("other inputs", "input_range", {"input_law": "mixture"}),
    "other_targets": ("other targets", "task_scale", {"task_law": "mixture"}),
}
"""Title of a column, what its alpha scales, and what else of the task distribution is another."""


def grid(first: float, last: float, step: float) -> tuple[float, ...]:
    """Scales from the first to the last."""
    return tuple(np.round(np.arange(first, last + step / 2, step), 2).tolist())


@dataclasses.dataclass(frozen=True)
class Scales:
    """What alpha a network is evaluated at; alpha = 1 is the distribution of training."""

    input_scales: tuple[float, ...] = setting(grid(0.5, 2, 0.15), "alpha of the larger inputs", above=0)
    other_scales: tuple[float, ...] = setting(grid(0.5, 5, 0.25), "alpha of the other shifts", above=0)
    shift_tasks: int = setting(10_000, "tasks at each alpha, the same draws at every alpha", at_least=1)

    def columns(self, *names: str) -> dict[str, tuple[float, ...]]:
        """The alpha of these columns, of larger inputs and targets where none is named."""
        chosen = names or ("inputs", "targets")
        return {name: self.input_scales if name == "inputs" else self.other_scales for name in chosen}


def losses(
    config: Any, learners: Callable[[Any], Mapping[str, BatchLearner]], params: Any, keys: Array,
    columns: Mapping[str, Sequence[float]],
) -> dict[str, dict[str, np.ndarray]]:  # fmt: skip
    """(M, A) losses by column and learner, of all learners on the same ``shift_tasks`` tasks.

    Args:
      config: a ``Task`` with ``shift_tasks``.
      learners: ``params of a member -> {name: learner}``.
      params: parameters with leading member axis.
      keys: (M,) keys, apart from those of training.
      columns: the alpha of some of ``COLUMNS``.
    """

    def at(column: str) -> Callable[[Array], Sampler]:
        _, argument, changes = COLUMNS[column]
        return lambda scale: sampler(config, **{argument: scale}, **changes)

    return {
        column: paired_losses(learners, at(column), params, keys, config.shift_tasks, np.asarray(scales))
        for column, scales in columns.items()
    }


def quantities(place: str, **domains: Domain) -> dict[str, Quantity]:
    """Handles by column of what ``losses`` makes, kept under a place (``"{network}"``), with a place ``learner``."""
    axes = {column: "input_scale" if column == "inputs" else "other_scale" for column in COLUMNS}
    return {
        column: quantity(f"{place}/{column}/{{learner}}", "member", axis, **domains) for column, axis in axes.items()
    }
