"""What learners are asked with, and what they answer, refused in one sentence where it is no prediction of a prompt."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from jax import Array

from icl_lab.prompts.naming import called
from icl_lab.prompts.prompt import BatchLearner, Learner, Members, Prompt, Sample, ShapeError


def check_learner(argument: str, learner: Any) -> None:
    """Raises ValueError, naming the argument, for what is no function of a prompt, saying what would be one."""
    allowed = f"{argument} must be a learner, a function Prompt -> prediction"
    if isinstance(learner, Sample | Prompt):
        raise ValueError(f"{allowed}, or what icl_lab.train returns; got {learner}: samples come last")
    if isinstance(learner, type | nn.Module) or _is_model(learner):
        name = learner.__name__ if isinstance(learner, type) else type(learner).__name__
        raise ValueError(
            f"{allowed}; got the network {name}, which predicts nothing without parameters: allowed are "
            "icl_lab.models.learner(network, params) and what icl_lab.train returns"
        )
    if not callable(learner):
        raise ValueError(f"{allowed}; got {learner!r}")
    if not _takes_one(learner):
        raise ValueError(f"{allowed}; got {name_of(learner)}{inspect.signature(learner)}{_call_it(learner)}")


def asked_one(argument: str, learner: Learner) -> Learner:
    """A learner of one prompt, which is checked; what it raises is said in one sentence."""
    check_learner(argument, learner)

    def asked(prompt: Prompt) -> Array:
        try:
            answer = learner(prompt)
        except (ValueError, TypeError, IndexError) as error:
            if isinstance(error, ShapeError):
                raise
            if isinstance(error, jax.errors.JAXTypeError):
                raise untraceable(learner) from error
            raise ShapeError(
                f"{argument} must take one prompt, where {name_of(learner)} raised {type(error).__name__}"
                f"{_call_it(learner) or '; compare_batches takes learners of B prompts'}; got {prompt}"
            ) from error
        if callable(answer):
            raise ValueError(
                f"{argument} must be a learner, a function Prompt -> prediction; got {name_of(learner)}, which returns "
                f"a function: call it, {name_of(learner)}(...)"
            )
        return answer

    return called(asked, name_of(learner))


def answered(learner: BatchLearner, prompts: Prompt) -> Array:
    """What a learner of B prompts predicts; what JAX cannot trace is refused by name."""
    try:
        return learner(prompts)
    except jax.errors.JAXTypeError as error:
        raise untraceable(learner) from error
    except ShapeError as error:
        raise ShapeError(f"{name_of(learner)} does not take these prompts: {error}") from error


def untraceable(learner: Callable) -> TypeError:
    """The error of a learner that is not written in JAX."""
    return TypeError(
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


def _call_it(learner: Callable) -> str:
    """A hint for what makes learners: a function of this library by its own name, or one of more arguments."""
    inner = learner.func if isinstance(learner, functools.partial) else learner
    ours = getattr(inner, "__module__", "").startswith("icl_lab.")
    makes = ours and getattr(inner, "__name__", "").isidentifier() and "<" not in name_of(inner)
    if makes or not _takes_one(learner):
        return f": what makes learners is called first, {getattr(inner, '__name__', 'it')}(...)"
    return ""
