"""What a person gave to train, as plain JSON by place, which names what differs between two calls.

A person's own function is there by its compiled code and the values that it reads (closure, defaults, globals), as are
the functions that it calls. One of ``KNOWN`` packages is there by its name and closure. All else is *unknown*.
"""

import enum
import functools
import math
import sys
from collections.abc import Mapping
from pathlib import PurePath
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import jax
import numpy as np
from flax import linen as nn

from icl_lab.lab.provenance import digest, digest_of_array

KNOWN = {"icl_lab", "jax", "jaxlib", "flax", "optax", "numpy", "scipy", "chex", "diffrax", "equinox", "optimistix"}
KNOWN |= {"absl", "ml_collections", "builtins"} | sys.stdlib_module_names
"""Packages whose functions their names tell."""


def described(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Plain JSON by place, ``{"optimizer": ..., "optimizer/update/rate": 0.1}``, and the places of what is unknown."""
    found: dict[str, Any] = {}
    seen: dict[int, tuple[str, Any]] = {}  # by identity: the place, and the value, which so stays alive

    def walk(place: str, value: Any) -> None:
        if (plain := _plain(value)) is not None or value is None:
            found[place] = plain
        elif isinstance(value, Mapping) or type(value).__module__.startswith("ml_collections."):  # a ConfigDict
            for key, part in value.items():
                walk(f"{place}/{key}".removeprefix("/"), part)
        elif isinstance(value, list | tuple | set | frozenset) and "_fields" not in dir(type(value)):
            for i, part in enumerate(value if isinstance(value, list | tuple) else sorted(value, key=repr)):
                walk(f"{place}/{i}", part)
        elif id(value) in seen:
            found[place] = f"as {seen[id(value)][0]}"
        else:
            seen[id(value)] = (place, value)
            found[place], parts = _parts(value)
            for name, part in parts.items():
                walk(f"{place}{name}", part)

    walk("", values)
    return found, [place for place, value in found.items() if str(value).startswith("unknown (")]


def _parts(value: Any) -> tuple[str, dict[str, Any]]:
    """What a value is, in words, and by relative place what it consists of."""
    kind = type(value)
    if isinstance(value, FunctionType):  # one that checks another's options, and computes the same, is that other
        return _function(value.__wrapped__ if getattr(value, "only_checks", False) else value)  # type: ignore[attr-defined]
    if isinstance(value, functools.partial):
        words, parts = _parts(value.func)
        return words, parts | {"/partial": [*value.args, value.keywords]}
    if isinstance(value, MethodType):
        words, parts = _parts(value.__func__)
        return words, parts | {"/self": value.__self__}
    if isinstance(value, ModuleType):
        return value.__name__, {}
    if isinstance(value, type):
        parts = {}
        for base in (vars(base) for base in reversed(value.__mro__) if not is_known(base.__module__)):
            shown = {name for name in base if name == "__call__" or not name.startswith("__")}
            for name in sorted(shown - base.get("__dataclass_fields__", {}).keys()):
                parts[f".{name}"] = base[name].fget if isinstance(base[name], property) else base[name]
        return _name(value), parts
    if is_known(kind.__module__) and callable(value) and hasattr(value, "__wrapped__"):  # of jax.jit, staticmethod
        return _parts(value.__wrapped__)
    if is_known(kind.__module__) and callable(value) and hasattr(value, "__name__"):  # built in, or a ufunc
        name = f"{getattr(value, '__module__', None) or kind.__module__}.{value.__name__}"
        return name, {"/self": getattr(value, "__self__", None)}  # of dict.get, its dict
    listing = (getattr(kind, name) for name in ("__dataclass_fields__", "_fields") if name in dir(kind))
    fields = () if kind is object else next(listing, None)
    if fields is None and "__dict__" in dir(kind) and not kind.__module__.startswith("absl."):
        fields = vars(value) if kind.__basicsize__ <= type("", (), {}).__basicsize__ else None  # else it holds more
    if fields is None:
        return f"unknown ({_name(kind)})", {}
    hidden = ("parent", "name") if isinstance(value, nn.Module) else ()
    own = {} if is_known(kind.__module__) else {f"/{kind.__name__}": kind}
    return _name(kind), own | {f"/{field}": getattr(value, field, None) for field in fields if field not in hidden}


def _function(function: FunctionType) -> tuple[str, dict[str, Any]]:
    """A function, and by relative place the values that it reads."""
    code, reads = function.__code__, function.__globals__
    cells = zip(code.co_freevars, function.__closure__ or ())
    parts = {f"/{name}": cell.cell_contents for name, cell in cells if cell != CellType()}  # else not filled yet
    if is_known(str(reads.get("__name__"))):
        return f"{reads['__name__']}.{function.__qualname__}", parts
    parts["/defaults"] = [*(function.__defaults__ or ()), function.__kwdefaults__ or {}]
    text, names = _code(code)
    for name in sorted(names & {*reads, *sys.modules}):
        value = reads.get(name, sys.modules.get(name))
        if not isinstance(value, ModuleType):
            parts[f"/{name}"] = value
        elif not is_known(value.__name__):  # a module of a person's own, of which it names some
            parts |= {f"/{name}.{part}": vars(value)[part] for part in sorted(names & vars(value).keys())}
    release = sys.implementation.cache_tag  # of Python: each compiles in its own way
    return f"{function.__qualname__} ({release}, code {digest(text)[:12]})", parts


def _code(code: CodeType) -> tuple[str, set[str]]:
    """What a code object does, without names of files and variables or lines, and the names that it loads."""
    inner = [_code(value) for value in code.co_consts if isinstance(value, CodeType)]
    plain = [value for value in code.co_consts if not isinstance(value, CodeType)]
    words = [sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value) for value in plain]
    text = repr((code.co_code, words, code.co_names, [text for text, _ in inner]))
    return text, set(code.co_names).union(*(names for _, names in inner))


def _plain(value: Any) -> Any:
    """JSON of a number, a word, an array or a sequence of such; None for anything else."""
    if isinstance(value, enum.Enum | PurePath | bytes | complex | range | slice | np.dtype) or value is Ellipsis:
        return str(value)
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):  # 1.0 is 1
        return str(value) if not math.isfinite(value) else int(value) if value.is_integer() else value
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return digest_of_array(value)
    words = [_plain(part) for part in value] if type(value) in (list, tuple) else [None]
    return None if None in words else words or None


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}" if is_known(kind.__module__) else kind.__qualname__


def is_known(module: str) -> bool:
    """Whether a module is of ``KNOWN`` packages."""
    return module.partition(".")[0] in KNOWN
