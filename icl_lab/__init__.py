"""icl_lab: a JAX/Flax toy-model laboratory for in-context learning.

A learner is a function ``Prompt -> prediction``; trained networks, hand-built weights and classical solvers all have
that one type, so any two of them can be compared.
"""

from typing import Any

__all__ = ["load", "load_run", "save", "train"]


def __getattr__(name: str) -> Any:
    """``icl_lab.load_run``, ``load``, ``save`` and ``train``, imported when they are asked for."""
    if name == "load_run":
        from icl_lab.lab.runs import load_run

        return load_run
    if name in ("load", "save"):
        from icl_lab.lab import own_record

        return getattr(own_record, name)
    if name == "train":
        from icl_lab.lab.own_training import train

        return train
    raise AttributeError(f"module 'icl_lab' has no attribute {name!r}")
