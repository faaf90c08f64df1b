"""icl_lab: a JAX/Flax toy-model laboratory for in-context learning.

A learner is a function ``Prompt -> prediction``; trained networks, hand-built weights and classical solvers all have
that one type, so any two of them can be compared.
"""

from typing import Any

__all__ = ["load_run", "train"]


def __getattr__(name: str) -> Any:
    """``icl_lab.load_run`` and ``icl_lab.train``, imported when they are asked for."""
    if name == "load_run":
        from icl_lab.lab.runs import load_run

        return load_run
    if name == "train":
        from icl_lab.training.trained import train

        return train
    raise AttributeError(f"module 'icl_lab' has no attribute {name!r}")
