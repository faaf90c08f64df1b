"""Compiled programs that this process has already: the same text, compiled in the same way, is not compiled again."""

import collections
import hashlib
import threading
from collections.abc import Hashable
from typing import Any

import jax

MOST = 32
"""Programs that are kept, those that were used last. A training has three."""
_KEPT: collections.OrderedDict[Hashable, Any] = collections.OrderedDict()
_LOCK = threading.Lock()  # programs are compiled side by side
_OF_THE_HOST = ("callback", "infeed", "outfeed", "stablehlo.send", "stablehlo.recv")
"""Words in the text of a program that calls Python, or exchanges values with it, on any back end."""


def compiled(traced: Any, options: dict[str, Any], where: Hashable = None) -> Any:
    """``traced.lower().compile(options)``, or the program that this process has compiled of the same text.

    Everything that decides what a program computes is in its text, values of closures among it; functions that are new
    objects in every call (a sampler, an optimizer) so give one program. The text does not say which Python function a
    callback calls, so a program with callbacks or other effects on the host is compiled for every training.

    Args:
      traced: of ``jax.jit(...).trace(...)``.
      options: of the compiler.
      where: stands for the devices on which the arguments are.
    """
    lowered = traced.lower()
    key = None if traced.jaxpr.effects else _key(lowered, options, where)
    if key is None:
        return lowered.compile(options)
    with _LOCK:
        program = _KEPT.pop(key, None)
    program = lowered.compile(options) if program is None else program
    with _LOCK:
        _KEPT[key] = program
        while len(_KEPT) > MOST:
            _KEPT.popitem(last=False)
    return program


def forget() -> None:
    """Lets all programs go."""
    with _LOCK:
        _KEPT.clear()


def _key(lowered: Any, options: dict[str, Any], where: Hashable) -> Hashable | None:
    """What the program is found by; None where the text lacks what decides it, or its state cannot be compared."""
    config: Any = jax.config  # whose names no type checker knows
    if config.values.get("jax_use_simplified_jaxpr_constants"):
        return None
    settings = [config.jax_default_device, config.read("jax_disable_most_optimizations"), sorted(options.items())]
    text = lowered.as_text()
    if any(word in text for word in _OF_THE_HOST):
        return None
    shapes = str(lowered.in_avals)  # the text leaves out arguments that nothing uses
    key = (hashlib.sha256(text.encode()).hexdigest(), shapes, str(settings), where, lowered.in_tree, lowered.out_tree)
    try:
        hash(key)
    except TypeError:  # a state whose structure holds what cannot be compared
        return None
    return key
