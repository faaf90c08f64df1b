"""What must hold between the settings of a configuration, as data: ``Experiment(constraints=(rising("rates"),))``."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from icl_lab.lab import flags
from icl_lab.lab.flags import FlagError

Constraint = Callable[[Any], None]
"""Raises FlagError for a configuration that is not allowed."""
Bound = str | float
"""A number, or the setting that holds it."""


def once(*names: str) -> Constraint:
    """No value of these tuples is given twice: stages and arrays are named by it."""
    return _of_each(names, lambda values: len(set(values)) == len(values), "each value once")


def rising(*names: str, fewest: int = 1) -> Constraint:
    """The values of these tuples rise, and there are as many at least."""
    few = f"at least {fewest} " if fewest > 1 else ""
    return _of_each(names, lambda values: list(values) == sorted(set(values)) and len(values) >= fewest,
                    f"{few}values that rise")  # fmt: skip


def multiple_of(name: str, of: Bound) -> Constraint:
    """A setting is a multiple of another, or of a number."""
    return _compared(name, of, lambda value, base: value % base == 0, "a multiple of")


def at_most(name: str, of: Bound) -> Constraint:
    """A setting is not larger than another, or a number; of a tuple none is."""
    return _compared(name, of, lambda value, base: value <= base, "at most")


def at_least(name: str, of: Bound) -> Constraint:
    """A setting is not smaller than another, or a number; of a tuple none is."""
    return _compared(name, of, lambda value, base: value >= base, "at least")


def below(name: str, of: Bound) -> Constraint:
    """A setting is smaller than another, or a number; of a tuple every one is."""
    return _compared(name, of, lambda value, base: value < base, "less than")


def above(name: str, of: Bound) -> Constraint:
    """A setting is larger than another, or a number; of a tuple every one is."""
    return _compared(name, of, lambda value, base: value > base, "more than")


def as_long_as(of: str, *names: str) -> Constraint:
    """These tuples have a value for each of another one's."""

    def check(config: Any) -> None:
        wanted = len(getattr(config, of))
        for name in names:
            if (length := len(getattr(config, name))) != wanted:
                raise FlagError(f"--{name} has {length} values; allowed is one for each of --{of} ({wanted})")

    return check


def holds(said: str, *names: str, when: Callable[[Any], bool]) -> Constraint:
    """Anything else: ``holds("a divisor of --width", "heads", when=lambda c: c.width % c.heads == 0)``."""

    def check(config: Any) -> None:
        if not when(config):
            off = {field.name for field in dataclasses.fields(config) if field.default is False}
            values = {name: getattr(config, name) for name in names}
            given = {name: value for name, value in values.items() if value is not False or name not in off}
            shown = (f"--{name}" if v is True else f"--{name}={flags.text(v, ',')}" for name, v in given.items())
            raise FlagError(f"{' '.join(shown)}: allowed is {said}")

    return check


def check(config: Any, constraints: Iterable[Constraint]) -> None:
    """Raises FlagError for the first constraint that a configuration does not meet."""
    for constraint in constraints:
        constraint(config)


def _of_each(names: Iterable[str], right: Callable[[tuple], bool], allowed: str) -> Constraint:
    def check(config: Any) -> None:
        for name in names:
            if not right(values := getattr(config, name)):
                raise FlagError(f"--{name}={flags.text(values, ',')}: allowed is {allowed}")

    return check


def _compared(name: str, of: Bound, right: Callable[[Any, Any], bool], relation: str) -> Constraint:
    def check(config: Any) -> None:
        given = getattr(config, name)
        base = getattr(config, of) if isinstance(of, str) else of
        if not all(right(value, base) for value in (given if isinstance(given, tuple) else (given,))):
            bound = f"--{of}={base}" if isinstance(of, str) else f"{of}"
            raise FlagError(f"--{name}={flags.text(given, ',')}: allowed is {relation} {bound}")

    return check
