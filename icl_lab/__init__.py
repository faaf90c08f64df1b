"""icl_lab: a JAX/Flax toy-model laboratory for in-context learning.

A learner is a function ``Prompt -> prediction``; trained networks, hand-built weights and classical solvers all have
that one type, so any two of them can be compared.
"""

import importlib
from typing import Any

# what is imported when it is asked for, by where it is; identify and compare are modules, with functions of that name
_LAZY = {
    "compare": "", "identify": "", "load": "icl_lab.lab.own_record", "load_run": "icl_lab.lab.runs",
    "save": "icl_lab.lab.own_record", "train": "icl_lab.lab.own_training",
}  # fmt: skip
__all__ = ["compare", "identify", "load", "load_run", "save", "train"]


def __getattr__(name: str) -> Any:
    """``icl_lab.train`` and what else is in ``_LAZY``, imported when it is asked for."""
    if name not in _LAZY:
        raise AttributeError(f"module 'icl_lab' has no attribute {name!r}; it has {', '.join(_LAZY)}")
    if not _LAZY[name]:
        return importlib.import_module(f"icl_lab.{name}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    """What is asked for by name, and the modules that are loaded."""
    loaded = [name for name, one in globals().items() if getattr(one, "__name__", "").startswith("icl_lab.")]
    return sorted({*_LAZY, *loaded})
