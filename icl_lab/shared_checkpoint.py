"""A checkpoint of a run of several processes: process 0 has the files, all have what is in them."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from icl_lab import processes, stopping
from icl_lab.checkpoints import Checkpoint, named_leaves


class SharedCheckpoint:
    """A ``Checkpoint`` that all processes use together; only process 0 reads and writes, and says when it is due.

    No file system need be shared. What goes wrong in process 0 (a full disk) is raised in all.
    """

    def __init__(self, checkpoint: Checkpoint):
        self._of_writer = checkpoint

    def load(self, like: Any) -> Any | None:
        """As ``Checkpoint.load``."""
        tree = self._of_writer.load(like) if processes.is_writer() else None
        found = processes.arrays_of_writer(None if tree is None else _named(tree))
        if found is None:
            return None
        return {key: _restored(like.get(key), key, found) for key in {name.split("/", 1)[0]: 0 for name in found}}

    def due(self, finished: bool) -> bool:
        """Whether it is due in process 0."""
        return processes.in_any([processes.is_writer() and self._of_writer.due(finished)])[0]

    def save(self, tree: Callable[[], Any], finished: bool) -> None:
        """Writes ``tree()`` if it is due, or if any process was asked to stop; then all stop here."""
        stop, due = processes.in_any([stopping.requested(), processes.is_writer() and self._of_writer.due(finished)])
        if stop or due:
            self.write(tree())
        if stop:
            processes.end_together()
            if stopping.requested():
                stopping.stop()
            raise stopping.Stopped("stopped with another process of the run")

    def write(self, tree: Any) -> None:
        """Writes a tree, the same in all processes, whatever the time."""
        processes.led(lambda: self._of_writer.write(tree))


def _named(tree: dict[str, Any]) -> dict[str, np.ndarray]:
    """Arrays by key and name: the leaves in order where the structure is code, dicts of arrays as they are."""
    parts = named_leaves(tree).items()
    return {f"{key}/{name}": np.asarray(leaf) for key, part in parts for name, leaf in part.items()}


def _restored(like: Any, key: str, named: dict[str, np.ndarray]) -> Any:
    mine = {name.removeprefix(f"{key}/"): leaf for name, leaf in named.items() if name.startswith(f"{key}/")}
    return mine if like is None else jax.tree.unflatten(jax.tree.structure(like), [mine[name] for name in sorted(mine)])
