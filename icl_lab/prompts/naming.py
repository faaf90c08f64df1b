"""What arrays and functions are called, in ``repr`` and in messages."""

import difflib
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

F = TypeVar("F", bound=Callable[..., Any])


def shortened(text: str, most: int = 100) -> str:
    """The text, cut where it has more characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def sizes(array: Any) -> str:
    """The shape of an array, in words: ``(5, 3)``; of what is no array its kind."""
    shape = getattr(array, "shape", None)
    return str(tuple(shape)) if shape is not None else type(array).__name__


def raised(error: BaseException) -> str:
    """What a foreign function raised, in one line: ``raised TypeError: ...``."""
    lines = str(error).splitlines() or [""]
    return f"raised {type(error).__name__}: {lines[0].rstrip('.')}"


def called(function: F, name: str) -> F:
    """The function under this name, which ``repr``, messages and ``identify`` show."""
    function.__name__ = function.__qualname__ = shortened(name)
    return function


def named_by_arguments(make: F) -> F:
    """Decorator of what makes learners: they are called as they were made, ``ridge(0.1)``; arrays by their shapes."""

    @functools.wraps(make)
    def made(*args: Any, **options: Any) -> Any:
        words = [_argument(value) for value in args] + [f"{name}={_argument(value)}" for name, value in options.items()]
        return called(make(*args, **options), f"{make.__name__}({', '.join(words)})")

    make = named_options(make)  # made is the function that it names
    return made  # type: ignore[return-value]


def named_options(make: F) -> F:
    """Decorator of what is called with options: one that it does not have is refused with one that it has.

    What it makes computes as the function does, and says so (``only_checks``) where a call is described.
    """
    known = inspect.signature(make).parameters
    by_place = [name for name, parameter in known.items() if parameter.kind is not parameter.KEYWORD_ONLY]

    @functools.wraps(make)
    def made(*args: Any, **options: Any) -> Any:
        for name in options:
            if name not in known:
                raise TypeError(f"{make.__name__}() has no option {name!r}; {alike(name, list(known))}")
        if len(args) > len(by_place):
            names = ", ".join(f"{name}=" if name not in by_place else name for name in known)
            raise TypeError(f"{make.__name__}() got {len(args)} arguments without a name; allowed is ({names})")
        return make(*args, **options)

    made.only_checks = True  # type: ignore[attr-defined]
    return made  # type: ignore[return-value]


def alike(name: str, known: Sequence[str]) -> str:
    """What may have been meant by a name that there is not: one of those that are alike, or all that are allowed."""
    initials = [other for other in known if name == "".join(part[0] for part in other.split("_"))]
    like = initials or difflib.get_close_matches(name, known, 1)
    return f"did you mean {like[0]}?" if like else f"allowed are {', '.join(known)}"


def _argument(value: Any) -> str:
    if isinstance(value, jax.Array | np.ndarray):  # which may be traced, or still be computed
        return f"array {sizes(value)}" if value.ndim else "array"
    return getattr(value, "__name__", f"{value:.4g}" if isinstance(value, float) else repr(value))
