"""What learners are asked with and what they answer, refused in one sentence where it is no prediction of a prompt."""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from jax import Array

from icl_lab.prompts.naming import called, shortened
from icl_lab.prompts.prompt import BatchLearner, Learner, Members, Prompt, Sample, ShapeError


class NoLearnerError(ValueError):
    """What is no learner of one prompt."""


class UntraceableError(TypeError):
    """A learner that is not written in JAX."""


_MADE = ": what makes learners is called first, {0}(...)"


def check_learner(argument: str, learner: Any) -> None:
    """Raises NoLearnerError, naming the argument, for what is no function of a prompt, saying what would be one."""
    allowed = f"{argument} must be a learner of one prompt, a function Prompt -> prediction"
    if isinstance(learner, Sample | Prompt):
        raise NoLearnerError(f"{allowed}, or what icl_lab.train returns; got {learner}: samples come last")
    if isinstance(learner, type | nn.Module) or _is_model(learner):
        name = learner.__name__ if isinstance(learner, type) else type(learner).__name__
        raise NoLearnerError(
            f"{allowed}; got the network {name}, which predicts nothing without parameters: allowed are "
            "icl_lab.models.learner(network, params) and what icl_lab.train returns"
        )
    if not callable(learner):
        raise NoLearnerError(f"{allowed}; got {shortened(repr(learner))}")
    if not _takes_one(learner):
        options = ", ".join(inspect.signature(learner).parameters)
        raise NoLearnerError(f"{allowed}; got a function of {options or 'no argument'}{_MADE.format(_called(learner))}")


def asked_one(argument: str, learner: Learner) -> Learner:
    """A learner of one prompt, which is checked; what it raises is said in one sentence."""
    check_learner(argument, learner)
    name = name_of(learner)

    def asked(prompt: Prompt) -> Array:
        try:
            answer = learner(prompt)
        except (ValueError, TypeError, IndexError) as error:
            if isinstance(error, ShapeError | NoLearnerError | UntraceableError):
                raise
            if isinstance(error, jax.errors.JAXTypeError):
                raise untraceable(learner) from error
            if _makes_learners(learner):
                raise NoLearnerError(f"{argument} must be a learner of one prompt{_MADE.format(name)}") from error
            raise ShapeError(
                f"{argument} must take one prompt, where {name} raised {type(error).__name__}; compare_batches takes "
                f"learners of B prompts; got {prompt}"
            ) from error
        if callable(answer):
            raise NoLearnerError(f"{argument} must be a learner of one prompt{_MADE.format(name)}")
        return answer

    return called(asked, name)


def answered(learner: BatchLearner, prompts: Prompt) -> Array:
    """What a learner of B prompts predicts; what JAX cannot trace is refused by name."""
    try:
        return learner(prompts)
    except jax.errors.JAXTypeError as error:
        raise untraceable(learner) from error
    except ShapeError as error:
        if name_of(learner) in str(error):
            raise
        raise ShapeError(f"{name_of(learner)} does not take these prompts: {error}") from error


def untraceable(learner: Callable) -> UntraceableError:
    """The error of a learner that is not written in JAX."""
    return UntraceableError(
        f"{name_of(learner)} cannot be traced by JAX, as a function of numpy or PyTorch; allowed is one of jax.numpy "
        "(icl_lab.identify takes any function of arrays)"
    )


def check_samples(samples: Any) -> None:
    """Refuses what is no batch of tasks."""
    allowed = "samples must be a Sample of B tasks, as sampler(key, B) draws them"
    if not isinstance(samples, Sample):
        raise ShapeError(f"{allowed}; got {type(samples).__name__}")
    if np.ndim(samples.prompt.x) != 3:
        raise ShapeError(f"{allowed}; got {samples}")
    if not len(samples.prompt.x):
        raise ShapeError(f"{allowed}, at least one; got none")


def check_members(learner: Any, samples: Sample) -> None:
    """Asks trained members whether they predict each prompt by itself, where they can be asked."""
    if isinstance(learner, Members) and (ask := getattr(learner, "check_alone", None)):
        ask(samples.prompt)


def name_of(learner: Callable) -> str:
    """Where a learner comes from: ``ridge.<locals>.predict``."""
    return getattr(learner, "__qualname__", repr(learner))


def _is_model(learner: Any) -> bool:
    """Whether something has the two functions of a ``Model``, which lies above this package."""
    return callable(getattr(learner, "init", None)) and callable(getattr(learner, "predict", None))


def _takes_one(learner: Callable) -> bool:
    """Whether a function can be called with one argument; True for what does not say."""
    try:
        inspect.signature(learner).bind(None)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _makes_learners(learner: Callable) -> bool:
    """Whether a function is one of this library by its own name, none that it has made and named by its arguments."""
    return getattr(learner, "__module__", "").startswith("icl_lab.") and name_of(learner).isidentifier()


def _called(learner: Callable) -> str:
    """The name by which a function is called."""
    return getattr(getattr(learner, "func", learner), "__name__", type(learner).__name__)
