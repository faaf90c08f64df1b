"""What is measured beside the loss of a network: learners of B prompts, each under a name of its own."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array

from icl_lab.prompts import BatchLearner, Prompt
from icl_lab.prompts.naming import raised, sizes
from icl_lab.prompts.prompt import ShapeError

TAKEN = ("train_loss", "steps", "diverged_at")
"""Names of a training beside those of what is measured."""


NUMBERS = (bool, int, float, np.generic, np.ndarray, jax.Array)


def asked(said: str, usual: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the caller's; what it raises is told in one sentence that names it."""

    def answers(*given: Any) -> Any:
        try:
            return function(*given)
        except ShapeError:  # which says it all
            raise
        except Exception as error:  # whatever a foreign function raises
            raise ValueError(f"{said} must be a function {usual}; it {raised(error)}") from error

    return answers


def check_learners(learners: Any, said: str = "references") -> None:
    """ValueError for what is no dict of functions by name."""
    usual = f"{said} must be a dict of learners of B prompts by name"
    if not isinstance(learners, Mapping):
        raise ValueError(f"{usual}, got {type(learners).__name__}")
    for name, given in learners.items():
        if not isinstance(name, str) or not callable(given):
            raise ValueError(f"{usual}, got {{{name!r}: {given!r}}}")


def of_batches(said: str, learner: BatchLearner) -> BatchLearner:
    """The learner; what is none of B prompts is refused by name."""

    def checked(prompts: Prompt) -> Array:
        try:
            answers = learner(prompts)
        except Exception as error:  # whatever a foreign function raises
            usual = "must take B prompts at once (jax.vmap a learner of one)"
            raise ValueError(f"{said} {usual}; it {raised(error)}") from error
        if getattr(answers, "ndim", 0) < 2 or len(answers) != len(prompts.x):
            got = sizes(answers)
            raise ValueError(f"{said} answers {len(prompts.x)} prompts with {got}; jax.vmap a learner of one")
        return answers

    checked.__qualname__ = said  # by which it is named in what is refused later
    return checked


def check_extra(measured: Any) -> dict[str, Array]:
    """What ``extra`` measured; ValueError for what is no dict of arrays by name."""
    if not isinstance(measured, Mapping):
        raise ValueError(f"extra must give a dict of arrays by name, got {type(measured).__name__}")
    for name, value in measured.items():
        if not isinstance(name, str) or not isinstance(value, NUMBERS):
            raise ValueError(f"extra must give a dict of arrays by name, got {{{name!r}: {sizes(value)}}}")
    return dict(measured)


def each_once(found: Sequence[dict[str, Array]]) -> dict[str, Array]:
    """All that is measured, under names of their own."""
    names = [name for part in found for name in part]
    if twice := {name for name in names if names.count(name) > 1 or name in TAKEN or name.startswith("_")}:
        listed = ", ".join(sorted(twice))
        raise ValueError(f"{listed}: a name that is empty or taken; references, variants and extra need their own")
    return {name: value for part in found for name, value in part.items()}
