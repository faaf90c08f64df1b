"""Checkpoints of unfinished runs: orbax trees with a manifest, written beside and renamed, verified before use."""

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from icl_lab import stopping
from icl_lab.records import set_aside, write_atomically

MANIFEST = "manifest.json"
CURRENT, NEXT, OLD = "current", "next", "old"
OVER = "over"  # an empty file: these checkpoints are of a run that is done over again


class Checkpoint:
    """One stage's place on disk; implements ``icl_lab.training.Resume``.

    ``folder/current`` is the newest good checkpoint. A new one is written to ``next``, then current is renamed to old,
    next to current, and old removed: a kill at any moment leaves a good one, and so does another in the save after.
    A checkpoint whose manifest does not match its files (truncated, flipped bits) or whose fingerprint differs (another
    configuration, another JAX) is renamed to ``<name>.set-aside-<n>``, named in the log, and never used.
    """

    def __init__(self, folder: Path, fingerprint: str, every_seconds: float):
        """Args: its folder; what it must have been written by; the least time between two saves."""
        self.folder, self.fingerprint, self.every_seconds = folder, fingerprint, every_seconds
        self._saved_at = time.monotonic()

    def load(self, like: Any) -> Any | None:
        """The newest good checkpoint as host arrays, those named in ``like`` with its structure; None if none."""
        if stopping.requested():  # nothing was trained yet that is not saved
            stopping.stop()
        for name in (CURRENT, NEXT, OLD):
            path = self.folder / name
            if not path.exists() or (name != CURRENT and not (path / MANIFEST).exists()):
                continue  # what a kill in the middle of writing "next" or of removing "old" leaves
            problem = _problem(path, self.fingerprint)
            if problem is None:
                try:
                    with _checkpointer() as checkpointer:
                        tree = checkpointer.restore((path / "tree").resolve())
                    return {key: _restructure(like[key], tree[key]) if key in like else tree[key] for key in tree}
                except Exception as error:  # orbax raises many kinds; each means that the checkpoint cannot be used
                    problem = f"it cannot be read ({type(error).__name__}: {error})"
            logging.getLogger("icl_lab").warning("%s is not used: %s; kept as %s", path, problem, set_aside(path).name)
        return None

    def due(self, finished: bool) -> bool:
        """Whether to save now: the stage is finished, or ``every_seconds`` have passed since the last save."""
        return finished or time.monotonic() - self._saved_at >= self.every_seconds

    def save(self, tree: Callable[[], Any], finished: bool) -> None:
        """Writes ``tree()`` if it is due or the run was asked to stop; then it stops here (``stopping.heeding``)."""
        if stopping.requested() or self.due(finished):
            self.write(tree())
            if stopping.requested():
                stopping.stop()

    def write(self, tree: Any) -> None:
        """Writes a tree, whatever the time.

        Raises:
          OSError: naming the folder; the checkpoint before it stays.
        """
        with stopping.writing():
            self._write(tree)

    def _write(self, tree: Any) -> None:
        current, following, old = (self.folder / name for name in (CURRENT, NEXT, OLD))
        shutil.rmtree(following, ignore_errors=True)
        following.mkdir(parents=True)
        try:
            with _without_log(), _checkpointer() as checkpointer:
                checkpointer.save((following / "tree").resolve(), named_leaves(jax.device_get(tree)))
            manifest = {"fingerprint": self.fingerprint, "files": _digests(following)}
            write_atomically(following / MANIFEST, json.dumps(manifest, indent=1).encode())
        except Exception as error:
            shutil.rmtree(following, ignore_errors=True)  # a full disk gets its room back
            raise _of_the_disk(error, following) from error
        shutil.rmtree(old, ignore_errors=True)
        if current.exists():
            os.replace(current, old)
        os.replace(following, current)
        shutil.rmtree(old, ignore_errors=True)
        self._saved_at = time.monotonic()


def start_over(folder: Path) -> None:
    """Removes the checkpoints of a run that is done over again, once: when that run is resumed, they are its own."""
    if not (folder / OVER).exists():
        remove(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / OVER).touch()


def remove(folder: Path) -> None:
    """Removes the checkpoints of all stages of a finished run; what was set aside stays."""
    (folder / OVER).unlink(missing_ok=True)
    for stage in folder.glob("*"):
        for name in (CURRENT, NEXT, OLD):
            shutil.rmtree(stage / name, ignore_errors=True)
    for emptied in (*folder.glob("*"), folder):
        with contextlib.suppress(OSError):
            emptied.rmdir()


def _checkpointer() -> ocp.StandardCheckpointer:
    """Of this process alone: where there are several, it waits for none of the others."""
    if not jax.distributed.is_initialized():
        return ocp.StandardCheckpointer()
    me = jax.process_index()
    alone = ocp.options.MultiprocessingOptions(me, active_processes={me}, barrier_sync_key_prefix=f"process-{me}")
    return ocp.StandardCheckpointer(multiprocessing_options=alone)


@contextlib.contextmanager
def _without_log() -> Iterator[None]:
    """Nothing is logged by the threads of orbax: what goes wrong there is raised here, too."""
    logger = logging.getLogger("absl")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before


def _of_the_disk(error: Exception, path: Path) -> Exception:
    """One OSError that names the folder, where a write failed; orbax says it with other kinds, some levels down."""
    cause: BaseException | None = error
    while cause is not None:
        said = re.search(r"os_error_code='(\d+)'", str(cause))
        number = int(said[1]) if said else getattr(cause, "errno", None)
        if number is not None:
            return OSError(number, os.strerror(number), os.fspath(path))
        cause = cause.__cause__ or cause.__context__
    return error


def _problem(path: Path, fingerprint: str) -> str | None:
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        found, files = manifest["fingerprint"], manifest["files"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        return f"its manifest cannot be read ({type(error).__name__})"
    if found != fingerprint:
        return "it was written by another configuration or version"
    if files != _digests(path):
        return "its files differ from its manifest (truncated or corrupt)"
    return None


def _digests(path: Path) -> dict[str, str]:
    files = sorted(p for p in path.rglob("*") if p.is_file() and p.name != MANIFEST)
    return {str(p.relative_to(path)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def named_leaves(tree: Any) -> Any:
    """A list of leaves where the structure is code (states, tuples), dicts of arrays as they are."""
    return {
        key: value if isinstance(value, dict) else {f"{i:04d}": leaf for i, leaf in enumerate(jax.tree.leaves(value))}
        for key, value in tree.items()
    }


def _restructure(like: Any, leaves: dict[str, np.ndarray]) -> Any:
    ordered = [leaves[name] for name in sorted(leaves)]
    expected = jax.tree.leaves(like)
    if [(np.shape(a), a.dtype) for a in ordered] != [(np.shape(a), a.dtype) for a in expected]:
        raise ValueError("its arrays have other shapes or types than this run's state")
    return jax.tree.unflatten(jax.tree.structure(like), ordered)
