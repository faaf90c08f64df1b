"""A training as a value: the arguments of ``fit``, not called yet, and what its parameters are good for."""

import dataclasses
from collections.abc import Callable
from typing import Any

from jax import Array

from icl_lab.prompts import BatchLearner, Sampler
from icl_lab.training.fitting import Fit, Metrics, Tree, fit
from icl_lab.training.optimizers import Optimizer


@dataclasses.dataclass(frozen=True)
class Training:
    """The arguments of ``fit``, in its order and by its names; nothing is trained until it is carried out.

    Attributes:
      learner: ``params -> learner``, what final parameters predict; None where they predict nothing of a prompt.
      sampler: ``setting of a member -> sampler``, the task distribution on which it is measured; None: there is none.
      kept: whether a record keeps the final parameters (those that are nested dicts).
    """

    init: Callable[[Array, Tree], Tree]
    loss: Callable[[Tree, Array, Tree], Array]
    optimizer: Optimizer
    keys: Array
    settings: Tree = None
    _: dataclasses.KW_ONLY
    steps: int
    measure: Callable[[Tree, Array, Tree], Metrics] | None = None
    measure_every: int | None = None
    members_at_once: int | None = None
    schedule: Callable[[Tree, Array], Tree] | None = None
    measure_schedule: Callable[[Tree, Array], Tree] | None = None
    until: Callable[[dict], bool] | None = None
    learner: Callable[[Tree], BatchLearner] | None = None
    sampler: Callable[[Tree], Sampler] | None = None
    kept: bool = True

    def carried_out(self, by: Callable[..., Fit] = fit, **options: Any) -> Fit:
        """Trains, by ``fit`` or what has its arguments; ``options`` are those that are no part of a training."""
        names = ("measure", "measure_every", "members_at_once", "schedule", "measure_schedule", "until")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        return by(self.init, self.loss, self.optimizer, self.keys, self.settings, steps=self.steps, **given, **options)
