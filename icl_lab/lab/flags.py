"""Frozen dataclass -> absl flags -> dataclass. A configuration's fields are the hyperparameters of the paper."""

import dataclasses
import functools
import math
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
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
) -> Any:
    """A field of a configuration: its default (the paper's setting), what it means, and what is allowed.

    For tuples the bounds and choices hold for each element. A real number is an argument of compiled programs
    (``arguments``) unless ``argument`` is False: it decides shapes or operations, or is rounded better as a constant
    (1 - b2).
    """
    bounds = {"at_least": at_least, "above": above, "at_most": at_most}
    metadata = {"about": about, "choices": tuple(choices) if choices else None, "argument": argument, **bounds}
    return dataclasses.field(default=default, metadata=metadata)


def define(config_class: type, values: flags.FlagValues) -> None:
    """Defines one flag for each field; a flag that is not given leaves the preset's value."""
    for field in dataclasses.fields(config_class):
        about = f"{field.metadata['about']} (allowed: {allowed(field)})"
        if _element(field) is not None:
            define_one: Callable = flags.DEFINE_list
        else:  # numbers are read by ``parse``, whose message says what is allowed
            define_one = flags.DEFINE_boolean if _kind(field) is bool else flags.DEFINE_string
        define_one(field.name, None, about, flag_values=values)


def parse(preset: C, values: flags.FlagValues) -> C:
    """The preset with every given flag put in; validated.

    Raises:
      FlagError: for a value that is not allowed.
    """
    given: dict[str, Any] = {}
    for field in dataclasses.fields(preset):  # type: ignore[arg-type]
        value = values[field.name].value
        if value is None:
            continue
        if (element := _element(field)) is not None:
            given[field.name] = tuple(_convert(field, element, text) for text in value)
        else:
            given[field.name] = value if isinstance(value, bool) else _convert(field, _kind(field), value)
    config = dataclasses.replace(preset, **given)  # type: ignore[type-var]
    validate(config)
    return config


def read(field: dataclasses.Field, text: str) -> Any:
    """One value of a field from text, checked; the elements of a tuple are joined by ``+``.

    Raises:
      FlagError: for a value that is not allowed.
    """
    if (element := _element(field)) is not None:
        values = tuple(_convert(field, element, word) for word in text.split("+"))
        for value in values:
            _check(field, element, value)
        return values
    if _kind(field) is bool:
        if text.lower() not in ("true", "false"):
            raise FlagError(f"--{field.name}={text}: allowed is {allowed(field)}")
        return text.lower() == "true"
    value = _convert(field, _kind(field), text)
    _check(field, _kind(field), value)
    return value


def to_flags(config: Any) -> list[str]:
    """The command-line words that give this configuration, whatever the preset."""
    words = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        words.append(f"--{field.name}={','.join(str(v) for v in value) if isinstance(value, tuple) else value}")
    return words


def validate(config: Any) -> None:
    """Checks every field against its type, bounds and choices.

    Raises:
      FlagError: naming the first flag that is wrong.
    """
    for field in dataclasses.fields(config):
        value, element = getattr(config, field.name), _element(field)
        if element is None:
            _check(field, _kind(field), value)
            continue
        if not isinstance(value, tuple) or not value:
            raise FlagError(f"--{field.name}={value!r}: needs at least one value; allowed: {allowed(field)}")
        for v in value:
            _check(field, element, v)


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
    """The configuration as ``fit`` takes it for its ``settings``: real numbers are arguments of the program.

    Where a program reads a learning rate, a noise or a scale off it, another value is the same program and nothing is
    compiled anew. What else there is (sizes, names, tuples) decides shapes and operations and stays what it is, and so
    does a real number that is zero: zero switches an operation off, so it is a program of its own.

    Args:
      config: a configuration, a frozen dataclass of ``setting`` fields; the numbers it holds may be traced.
      members: M.

    Returns:
      The configuration with (M,) float32 arrays in the place of its numbers: a pytree whose leaves they are.
    """
    _make_tree(type(config))  # type: ignore[arg-type]
    return jax.tree.map(lambda value: jnp.full(members, value, jnp.float32), config)


@functools.cache
def _make_tree(config_class: type) -> None:
    """Registers a class of configurations as a pytree, once."""
    fields = dataclasses.fields(config_class)
    real = {f.name for f in fields if _element(f) is None and _kind(f) is float and f.metadata["argument"]}

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
    m, element = field.metadata, _element(field)
    words = [
        {"int": "whole number", "float": "number", "bool": "true or false", "str": "text"}[
            (element or _kind(field)).__name__
        ]
    ]
    if m["choices"]:
        words = ["one of " + ", ".join(m["choices"])]
    for key, sign in (("at_least", ">="), ("above", ">"), ("at_most", "<=")):
        if m[key] is not None:
            words.append(f"{sign} {m[key]:g}")
    return ("comma-separated, each: " if element else "") + " ".join(words)


def _kind(field: dataclasses.Field) -> type:
    return field.type if isinstance(field.type, type) else type(field.default)


def _element(field: dataclasses.Field) -> type | None:
    """The element type of a ``tuple[T, ...]`` field, None for any other."""
    return typing.get_args(field.type)[0] if typing.get_origin(field.type) is tuple else None


def _convert(field: dataclasses.Field, kind: type, text: str) -> Any:
    try:
        return kind(text)
    except ValueError as error:
        raise FlagError(f"--{field.name}={text}: allowed is {allowed(field)}") from error


def _check(field: dataclasses.Field, kind: type, value: Any) -> None:
    m = field.metadata
    right = isinstance(value, kind) or (kind is float and isinstance(value, int))
    right = right and not (isinstance(value, bool) and kind is not bool)
    if right and m["choices"]:
        right = value in m["choices"]
    if right and kind in (int, float):
        right = (
            (isinstance(value, int) or math.isfinite(value))
            and (m["at_least"] is None or value >= m["at_least"])
            and (m["above"] is None or value > m["above"])
            and (m["at_most"] is None or value <= m["at_most"])
        )
    if not right:
        raise FlagError(f"--{field.name}={value}: allowed is {allowed(field)}")
