"""What is measured beside the loss of a network: learners of B prompts, each under a name of its own."""

from collections.abc import Mapping, Sequence
from typing import Any

from jax import Array

from icl_lab.prompts import BatchLearner, Prompt

TAKEN = ("train_loss", "steps", "diverged_at")
"""Names of a training beside those of what is measured."""


def check_references(references: Any) -> None:
    """ValueError for what is no dict of functions by name."""
    if references is None:
        return
    if not isinstance(references, Mapping):
        raise ValueError(f"references must be a dict of learners of B prompts by name, got {type(references).__name__}")
    for name, given in references.items():
        if not isinstance(name, str) or not callable(given):
            raise ValueError(f"references must be a dict of learners of B prompts by name, got {{{name!r}: {given!r}}}")


def of_batches(said: str, learner: BatchLearner) -> BatchLearner:
    """The learner; what is none of B prompts is refused by name."""

    def checked(prompts: Prompt) -> Array:
        try:
            answers = learner(prompts)
        except Exception as error:  # whatever a foreign function raises
            raised = f"it raised {type(error).__name__}: {error}"
            raise ValueError(f"{said} must take B prompts at once (jax.vmap a learner of one); {raised}") from error
        if answers.ndim < 2 or len(answers) != len(prompts.x):
            raise ValueError(f"{said} answers {len(prompts.x)} prompts with {answers.shape}; jax.vmap a learner of one")
        return answers

    checked.__qualname__ = said  # by which it is named in what is refused later
    return checked


def each_once(found: Sequence[dict[str, Array]]) -> dict[str, Array]:
    """All that is measured, under names of their own."""
    names = [name for part in found for name in part]
    if twice := {name for name in names if names.count(name) > 1 or name in TAKEN or name.startswith("_")}:
        listed = ", ".join(sorted(twice))
        raise ValueError(f"{listed}: a name that is empty or taken; references, variants and extra need their own")
    return {name: value for part in found for name, value in part.items()}
