"""Where a sampler takes its randomness from: its key alone, since Python runs once, when the program is made."""

import contextlib
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from icl_lab.prompts.tracing import is_traced

PARTS: dict[str, Callable[[Any], Any]] = {
    "x": lambda sample: sample.prompt.x,
    "y": lambda sample: sample.prompt.y,
    "x_query": lambda sample: sample.prompt.x_query,
    "target": lambda sample: sample.target,
}
"""What a task is made of, each part of which a sampler draws."""
CALLBACK = "jax.pure_callback(draw, shapes, jax.random.key_data(key), vmap_method='sequential')"
"""How a sampler calls a function of numpy."""


@contextlib.contextmanager
def drawing(name: str, sampler: Callable[..., Any], batch: int) -> Iterator[None]:
    """What a sampler raises inside, where it is asked for its shapes, as one sentence about the sampler.

    Raises:
      TypeError: for what is no function of a key and a batch.
      ValueError: for a function that needs the value of its key, or cannot draw for several members at once.
    """
    with contextlib.suppress(ValueError):  # of a function that does not say how it is called
        inspect.signature(sampler).bind(None, batch)
    try:
        yield
    except NotImplementedError as error:
        raise ValueError(
            f"{name} must draw for several members at once, which it does not ({_first_line(error)}); of a callback "
            f"allowed is {CALLBACK}"
        ) from error
    except (TypeError, jax.errors.JAXTypeError) as error:
        of_value = isinstance(error, jax.errors.JAXTypeError)
        if of_value or any(word in str(error) for word in ("seed", "SeedSequence", "unhashable")):
            raise ValueError(
                f"{name} must draw inside a program, where its key has no value yet for numpy or Python to seed with; "
                f"allowed are jax.random and {CALLBACK}"
            ) from error
        raise ValueError(f"{name}(key, {batch}) raised {type(error).__name__}: {_first_line(error)}") from error


def frozen_parts(program: Callable[[Any], Any], keys: Any) -> list[str]:
    """The parts of what a program draws that do not depend on its key; ``vmap`` knows, and nothing is computed."""

    def follows(part: Callable[[Any], Any]) -> bool:
        try:
            jax.eval_shape(jax.vmap(lambda key: part(program(key)), out_axes=None), keys)
        except ValueError:
            return True
        return False

    return [name for name, part in PARTS.items() if not follows(part)]


def same_program(one: Any, other: Any, key: Any) -> bool:
    """Whether two jitted functions have the same instructions and constants: two traces of one function should."""
    first, second = (program.trace(key).jaxpr for program in (one, other))
    texts = [re.sub(r"0x[0-9a-f]+", "", str(traced.jaxpr)) for traced in (first, second)]
    pairs = zip(first.consts, second.consts)
    return texts[0] == texts[1] and all(
        is_traced(a) or is_traced(b) or np.array_equal(a, b, equal_nan=True) for a, b in pairs
    )


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
