"""The function that ends a training early: what it asks for and answers is checked before anything compiles."""

import builtins
import dis
import math
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from icl_lab.prompts.naming import raised

Row = Mapping[str, np.ndarray]
USUAL = 'allowed is one truth value for all members, as lambda measured: (measured["loss"] < 0.1).all()'
MODULES = (jax, jnp, math, np)
HARMLESS = "abs all any bool enumerate float int isinstance len list max min range round set sorted str sum tuple zip"
"""Builtin functions that change nothing."""
EFFECTS = "random save savez savez_compressed savetxt config debug seterr experimental"
"""Names in the modules above of what changes something, or another number each time."""
WRITES = {"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "DELETE_DEREF", "IMPORT_NAME"}
"""Instructions of Python by which a function changes what is outside of it, or reads more."""


class NotMeasuredError(KeyError):
    """A name that was asked for and is not measured."""


class Measured(dict):
    """What was measured, (M, ...) by name; raises NotMeasuredError for any other name."""

    def __missing__(self, name: Any) -> Any:
        raise NotMeasuredError(name)


def never(row: Row) -> bool:
    """Training does not end early."""
    return False


def asked(until: Callable[[dict], Any]) -> Callable[[Row], bool]:
    """The function as ``fit`` asks it: another answer than a truth value, and what it raises, is told in one sentence.

    Raises:
      ValueError: for what is no function; when it is called, for a name that was not measured, or another answer.
    """
    if not callable(until):
        raise ValueError(f"until must be a function, got {until!r}; {USUAL}")

    def ends(row: Row) -> bool:
        try:
            answer = until(Measured(row))
        except NotMeasuredError as error:
            problem = f"asks for {error.args[0]!r}, which is not measured; there are {', '.join(row)}"
            raise ValueError(f"until {problem}") from error
        except Exception as error:  # whatever a foreign function raises
            raise ValueError(f"until {raised(error)}; {USUAL}") from error
        if isinstance(answer, bool | np.bool_):
            return bool(answer)
        if isinstance(answer, np.ndarray | jax.Array) and answer.dtype == bool and not answer.ndim:
            return bool(answer)
        got = f"an array {answer.shape}" if getattr(answer, "ndim", 0) else repr(answer)
        raise ValueError(f"until answers with {got}; {USUAL}")

    return ends


def check(until: Callable[[dict], Any], like: Callable[[], Mapping[str, Any]]) -> None:
    """Asks a function that changes nothing once, with ones for all numbers, so that a wrong one is refused at once.

    What keeps a state, prints or calls functions of a person's own sees nothing but measurements: it is not asked.

    Args:
      until: as ``fit`` takes it.
      like: gives shapes and types of the measurements by name.

    Raises:
      ValueError: as ``asked``, where the cause is not in the numbers.
    """
    if until is never or not _changes_nothing(until):
        return
    row = {name: np.ones(leaf.shape, leaf.dtype) for name, leaf in like().items()}
    try:
        with np.errstate(all="ignore"):
            asked(until)(row)
    except ValueError as error:
        cause = error.__cause__
        of_kind = isinstance(cause, None | KeyError | AttributeError | TypeError | NameError)
        if of_kind or "truth value" in str(cause):  # which no other numbers would mend
            raise


def _changes_nothing(function: Any) -> bool:
    """Whether a function reads nothing but its argument, numbers, and modules of numerical functions."""
    if not isinstance(function, types.FunctionType):
        return False
    values = [cell.cell_contents for cell in function.__closure__ or ()]
    values += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for code in _codes(function.__code__):
        if any(step.opname in WRITES for step in dis.get_instructions(code)):
            return False
        for name in code.co_names:  # of globals, and of attributes
            if name in EFFECTS.split():
                return False
            if name in function.__globals__:
                values.append(function.__globals__[name])
            elif hasattr(builtins, name) and name not in HARMLESS.split():
                return False
    return all(map(_is_plain, values))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _is_plain(value: Any) -> bool:
    if isinstance(value, types.ModuleType):
        return value in MODULES
    return value is None or isinstance(value, bool | int | float | str | np.generic | jax.Array)
