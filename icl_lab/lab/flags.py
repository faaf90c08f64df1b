"""Frozen dataclass -> absl flags -> dataclass. A configuration's fields are the hyperparameters of the paper."""

import dataclasses
import functools
import math
import operator
import os
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from absl import flags

C = TypeVar("C")


class FlagError(ValueError):
    """A flag whose value is not allowed; the message names the flag, the value and what is allowed."""


def setting(
    default: Any,
    about: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    choices: Sequence[str] | None = None,
    argument: bool = True,
    path: bool = False,
) -> Any:
    """A field of a configuration: its default (the paper's setting), what it means, and what is allowed.

    For tuples the bounds and choices hold for each element. A real number is an argument of compiled programs
    (``arguments``) unless ``argument`` is False: it decides shapes or operations, or is rounded better as a constant
    (1 - b2). In a ``path`` of a command line, ``~`` is the user's folder.
    """
    bounds = {"at_least": at_least, "above": above, "at_most": at_most}
    words = {"about": about, "choices": tuple(choices) if choices else None, "argument": argument, "path": path}
    return dataclasses.field(default=default, metadata=words | bounds)


def define(config_class: type, values: flags.FlagValues) -> None:
    """Defines one flag for each field; a flag that is not given leaves the preset's value."""
    for field in dataclasses.fields(config_class):
        define_one: Callable = flags.DEFINE_boolean if _kind(field) is bool else flags.DEFINE_string
        define_one(field.name, None, field.metadata["about"], flag_values=values)  # ``parse`` reads numbers


def check_class(config_class: type, needed: Sequence[str] = ()) -> None:
    """Checks that flags can be made of a class of configurations, and that it has the fields that are needed.

    Raises:
      ValueError: naming the field, and how it is written.
    """
    fields = {field.name: field for field in dataclasses.fields(config_class)}
    for name, field in fields.items():
        if "about" not in field.metadata:
            raise ValueError(f"{config_class.__name__}.{name} must be a setting(default, about, ...)")
        if isinstance(field.type, str):
            problem = "must have a type, not its name: leave out `from __future__ import annotations`"
            raise ValueError(f"{config_class.__name__}.{name} {problem}")
    if missing := [name for name in needed if name not in fields]:
        raise ValueError(f"{config_class.__name__} has no field {', '.join(missing)}, which every configuration has")


def parse(preset: C, values: flags.FlagValues) -> C:
    """The preset with every given flag put in; validated.

    Raises:
      FlagError: for a value that is not allowed.
    """
    given: dict[str, Any] = {}
    for field in dataclasses.fields(preset):  # type: ignore[arg-type]
        value = values[field.name].value
        if value is not None:
            given[field.name] = value if isinstance(value, bool) else read(field, value, ",")
    config = dataclasses.replace(preset, **given)  # type: ignore[type-var]
    validate(config)
    return config


def read(field: dataclasses.Field, text: str, joined: str = "+") -> Any:
    """One value of a field from text, checked; the elements of a tuple are joined by ``+``.

    Raises:
      FlagError: for a value that is not allowed.
    """
    value: Any
    if _many(field):
        value = tuple(_convert(field, word.strip()) for word in text.split(joined) if text)
    elif _kind(field) is bool:  # bool("false") is True
        value = {"true": True, "false": False}.get(text.lower(), text)
    else:
        value = _convert(field, text)
    _check(field, value)
    return value


def to_flags(config: Any) -> list[str]:
    """The command-line words that give this configuration, whatever the preset."""
    return [f"--{name}={text(value, ',')}" for name, value in vars(config).items()]


def text(value: Any, joined: str = "+") -> str:
    """A setting's value as a command line takes it, or with ``+`` as ``--grid`` does."""
    return joined.join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def validate(config: Any) -> None:
    """Checks every field against its type, bounds and choices.

    Raises:
      FlagError: naming the first flag that is wrong.
    """
    for field in dataclasses.fields(config):
        _check(field, getattr(config, field.name))


def to_json(config: Any) -> dict[str, Any]:
    """The configuration as plain JSON values."""
    return {k: plain(v) for k, v in dataclasses.asdict(config).items()}


def plain(value: Any) -> Any:
    """A setting as a plain JSON value."""
    return list(value) if isinstance(value, tuple) else value


def from_json(config_class: Callable[..., C], value: Mapping[str, Any]) -> C:
    """The inverse of ``to_json``."""
    return config_class(**{k: tuple(v) if isinstance(v, list) else v for k, v in value.items()})


def arguments(config: C, members: int) -> C:
    """The configuration as a pytree with (M,) float32 arrays for its real numbers, as ``fit`` takes its ``settings``.

    Where a program reads a learning rate, a noise or a scale off it, another value is the same program and nothing is
    compiled anew. What else there is (sizes, names, tuples) decides shapes and operations and stays what it is, and so
    does a real number that is zero: zero switches an operation off, so it is a program of its own.
    """
    _make_tree(type(config))  # type: ignore[arg-type]
    return jax.tree.map(lambda value: np.full(members, value, np.float32), config)


@functools.cache
def _make_tree(config_class: type) -> None:
    """Registers a class of configurations as a pytree, once."""
    fields = dataclasses.fields(config_class)
    real = {f.name for f in fields if not _many(f) and _kind(f) is float and f.metadata["argument"]}

    def flatten(config: Any) -> tuple[list, tuple]:
        values = {field.name: getattr(config, field.name) for field in fields}
        off = {name for name, value in values.items() if isinstance(value, int | float) and value == 0}
        moving = tuple(name for name in values if name in real - off)
        return [values.pop(name) for name in moving], (moving, tuple(values.items()))

    def unflatten(structure: tuple, leaves: Iterable) -> Any:
        moving, values = structure
        return config_class(**dict(zip(moving, leaves)), **dict(values))

    jax.tree_util.register_pytree_node(config_class, flatten, unflatten)


def allowed(field: dataclasses.Field) -> str:
    """What a field accepts, in words."""
    m = field.metadata
    words = [{int: "whole number", float: "number", bool: "true or false", str: "text"}[_kind(field)]]
    if m["choices"]:
        words = ["one of " + ", ".join(m["choices"])]
    bounds = [f"{sign} {_plainly(m[key])}" for key, (sign, _) in _BOUNDS.items() if m[key] is not None]
    return ("comma-separated, each: " if _many(field) else "") + " ".join([*words, " and ".join(bounds)]).strip()


def _plainly(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"


_BOUNDS = {"at_least": (">=", operator.ge), "above": (">", operator.gt), "at_most": ("<=", operator.le)}


def _many(field: dataclasses.Field) -> bool:
    return typing.get_origin(field.type) is tuple


def _kind(field: dataclasses.Field) -> type:
    """The type of a field, of its elements where it is a ``tuple[T, ...]``."""
    if _many(field):
        return typing.get_args(field.type)[0]
    return field.type if isinstance(field.type, type) else type(field.default)


def _convert(field: dataclasses.Field, text: str) -> Any:
    try:
        return os.path.expanduser(text) if field.metadata["path"] else _kind(field)(text)
    except ValueError as error:
        raise FlagError(f"--{field.name}={text}: allowed is {allowed(field)}") from error


def _check(field: dataclasses.Field, value: Any) -> None:
    if _many(field) and (not isinstance(value, tuple) or not value):
        raise FlagError(f"--{field.name}={value!r}: needs at least one value; allowed: {allowed(field)}")
    m, kind = field.metadata, _kind(field)
    for v in value if _many(field) else (value,):
        right = isinstance(v, (int, float) if kind is float else kind) and isinstance(v, bool) == (kind is bool)
        right = right and (not m["choices"] or v in m["choices"])
        if right and kind in (int, float):
            bounds = [(holds, m[key]) for key, (_, holds) in _BOUNDS.items() if m[key] is not None]
            right = abs(v) < math.inf and all(holds(v, bound) for holds, bound in bounds)
        if not right:
            raise FlagError(f"--{field.name}={v}: allowed is {allowed(field)}")
