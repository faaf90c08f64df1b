"""What a person gave to train, as plain JSON by place: two calls with one description draw and compute the same.

A function of a person's own is recognised by its compiled code (comments and layout do not count) and by every value
that it reads: of its closure, its defaults, the globals that it names, and, function by function, of what it calls. A
function of ``KNOWN`` packages is recognised by its name and its closure. What is none of that (a generator of random
numbers, an object of a compiled library) is *unknown*, and is said to be.
"""

import dataclasses
import dis
import enum
import functools
import hashlib
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import jax
import numpy as np

KNOWN = {"icl_lab", "jax", "jaxlib", "flax", "optax", "numpy", "scipy", "chex", "diffrax", "equinox", "optimistix"}
"""Packages whose functions their names tell; records have the versions. The standard library is another."""
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
"""Its releases compile the same text to different code."""


@dataclasses.dataclass(frozen=True)
class Unknown:
    """Stands for a value that cannot be recognised."""

    kind: str

    def __str__(self) -> str:
        return f"unknown ({self.kind})"


def described(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Plain JSON by place, ``{"optimizer": ..., "optimizer/update/rate": 0.1}``, and the places of what is unknown.

    Equal descriptions mean equal values but for what is unknown. Arrays are there as digests.
    """
    parts = dict(_Walk().parts("", values))
    unknown = [place for place, value in parts.items() if isinstance(value, Unknown)]
    return {place: str(value) if isinstance(value, Unknown) else value for place, value in parts.items()}, unknown


class _Walk:
    """One walk through values that may refer to each other."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[str, Any]] = {}  # by identity: the place, and the value, which so stays alive

    def parts(self, place: str, value: Any) -> Iterator[tuple[str, Any]]:
        """Every place at or below this one with what is there: JSON or ``Unknown``."""
        if (plain := _plain(value)) is not None or value is None:
            yield place, plain
            return
        if isinstance(value, Mapping | list | tuple) and not hasattr(value, "_fields"):
            items = value.items() if isinstance(value, Mapping) else enumerate(value)
            for key, one in items:
                yield from self.parts(f"{place}/{key}" if place else str(key), one)
            return
        if id(value) in self._seen:
            yield place, f"as {self._seen[id(value)][0]}"
            return
        self._seen[id(value)] = (place, value)
        if isinstance(value, FunctionType):
            yield from self._function(place, value)
        elif isinstance(value, functools.partial):
            yield from self.parts(place, value.func)
            yield from self.parts(f"{place}/partial", [*value.args, value.keywords])
        elif isinstance(value, MethodType):
            yield from self.parts(place, value.__func__)
            yield from self.parts(f"{place}/self", value.__self__)
        elif isinstance(value, type):
            yield from self._class(place, value)
        elif isinstance(value, ModuleType):
            yield place, value.__name__
        elif is_known(type(value)) and callable(value) and hasattr(value, "__wrapped__"):  # jit, custom_jvp
            yield from self.parts(place, value.__wrapped__)
            attrs = getattr(value, "__dict__", {})
            yield from self.parts(f"{place}/rules", {k: attrs[k] for k in ("jvp", "fwd", "bwd") if k in attrs})
        elif is_known(type(value)) and callable(value) and hasattr(value, "__name__"):  # built in, or a ufunc
            yield place, f"{getattr(value, '__module__', None) or type(value).__module__}.{value.__name__}"
            if not isinstance(owner := getattr(value, "__self__", None), ModuleType | None):  # dict.get, of its dict
                yield from self.parts(f"{place}/self", owner)
        else:
            yield from self._object(place, value)

    def _function(self, place: str, function: FunctionType) -> Iterator[tuple[str, Any]]:
        known = _known_name(function.__globals__.get("__name__", ""))
        label = f"{function.__globals__.get('__name__')}.{function.__qualname__}" if known else function.__qualname__
        yield place, label if known else f"{label} {_code(function)}"
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            try:
                content = cell.cell_contents
            except ValueError:  # not filled yet
                continue
            yield from self.parts(f"{place}/{name}", content)
        if known:
            return
        yield from self.parts(f"{place}/defaults", [*(function.__defaults__ or ()), function.__kwdefaults__ or {}])
        names = _loaded(function.__code__)
        for name in sorted(names["global"] & function.__globals__.keys()):
            yield from self._named(f"{place}/{name}", function.__globals__[name], names["attribute"])
        for name in sorted(names["import"]):
            if not _known_name(name):
                module = sys.modules.get(name, Unknown(f"{name}, which is not imported"))
                yield from self._named(f"{place}/{name}", module, names["attribute"])

    def _named(self, place: str, value: Any, attributes: set[str]) -> Iterator[tuple[str, Any]]:
        """What a function names; of a module of a person's own those of its attributes that the function names."""
        if not isinstance(value, ModuleType):
            yield from [(place, value)] if isinstance(value, Unknown) else self.parts(place, value)
        elif not _known_name(value.__name__):
            for name in sorted(attributes & vars(value).keys()):
                yield from self._named(f"{place}.{name}", vars(value)[name], attributes)

    def _class(self, place: str, kind: type) -> Iterator[tuple[str, Any]]:
        if is_known(kind):
            yield place, _name(kind)
            return
        yield place, kind.__qualname__
        for base in (base for base in kind.__mro__ if not is_known(base)):
            for name, value in sorted(vars(base).items()):
                value = getattr(value, "__func__", getattr(value, "fget", value))  # of classes, static, a property
                if isinstance(value, FunctionType) and value.__code__.co_filename != "<string>":  # else: of a dataclass
                    yield from self.parts(f"{place}.{name}", value)
                elif not name.startswith("_") and _plain(value) is not None:
                    yield f"{place}.{name}", _plain(value)

    def _object(self, place: str, value: Any) -> Iterator[tuple[str, Any]]:
        """An object is its class and its fields."""
        kind = type(value)
        if dataclasses.is_dataclass(value):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            fields = {name: field for name, field in fields.items() if name not in ("parent", "name")}  # of Flax
        elif hasattr(value, "_fields"):
            fields = value._asdict()
        elif hasattr(value, "__dict__") and kind.__basicsize__ <= Unknown.__basicsize__:  # else: it holds more
            fields = vars(value)
        else:
            yield place, Unknown(_name(kind))
            return
        yield place, _name(kind) if is_known(kind) else kind.__qualname__
        if not is_known(kind):
            yield from self.parts(f"{place}/{kind.__name__}", kind)
        yield from self.parts(place, fields)


def _plain(value: Any) -> Any:
    """JSON of a number, a word, an array or a sequence of such; None for anything else."""
    if isinstance(value, enum.Enum | PurePath | bytes | complex | range | slice | np.dtype) or value is Ellipsis:
        return str(value)
    if type(value) is object:  # a mark, which has nothing but its identity
        return "object()"
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):  # 1.0 is 1
        return str(value) if not math.isfinite(value) else int(value) if value.is_integer() else value
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return _array(value)
    if isinstance(value, set | frozenset):
        words = [_plain(one) for one in value]
        return None if None in words else sorted(words, key=str)
    if type(value) in (list, tuple) and value:
        words = [_plain(one) for one in value]
        return None if None in words else words
    return None


def _array(value: Any) -> Any:
    kind = str(value.dtype)
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    array = np.asarray(value)
    if array.dtype.hasobject:
        return None
    if array.ndim == 0:
        return f"{kind} {array}"
    return f"{kind}{list(array.shape)} {hashlib.sha256(array.tobytes()).hexdigest()[:12]}"


def _code(function: FunctionType) -> str:
    digest = hashlib.sha256(repr(_canonical(function.__code__, function.__doc__)).encode())
    return f"(Python {PYTHON}, code {digest.hexdigest()[:12]})"


def _canonical(code: CodeType, documented: str | None = None) -> tuple:
    """What a code object does: no name of a file or a variable, no line, no docstring of its own."""

    def constant(value: Any) -> Any:
        if isinstance(value, CodeType):
            return _canonical(value)
        if isinstance(value, frozenset):
            return sorted(map(repr, value))
        return [constant(one) for one in value] if isinstance(value, tuple) else repr(value)

    constants = [constant(None if value == documented else value) for value in code.co_consts]
    return code.co_code, constants, code.co_names, code.co_argcount, code.co_kwonlyargcount


def _loaded(code: CodeType) -> dict[str, set[str]]:
    """Names that a function, or one inside it, loads: globals, attributes, imports."""
    loaded: dict[str, set[str]] = {"global": set(), "attribute": set(), "import": set()}
    kinds = {"LOAD_GLOBAL": "global", "LOAD_NAME": "global", "LOAD_ATTR": "attribute", "LOAD_METHOD": "attribute"}
    kinds |= {"IMPORT_NAME": "import", "IMPORT_FROM": "attribute"}
    for instruction in dis.get_instructions(code):
        if instruction.opname in kinds:
            loaded[kinds[instruction.opname]].add(instruction.argval)
    for value in code.co_consts:
        if isinstance(value, CodeType):
            for kind, names in _loaded(value).items():
                loaded[kind] |= names
    return loaded


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def is_known(kind: type) -> bool:
    """Whether a class is of ``KNOWN`` packages or the standard library."""
    return _known_name(kind.__module__)


def _known_name(module: str) -> bool:
    return module.partition(".")[0] in KNOWN | sys.stdlib_module_names | {"builtins"}
