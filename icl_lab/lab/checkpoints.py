"""Checkpoints of unfinished runs: a file of arrays and its digest, written beside, renamed, verified before use."""

import contextlib
import hashlib
import io
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax

from icl_lab.lab import stopping
from icl_lab.lab.record import RecordError
from icl_lab.lab.records import as_json, read_json, set_aside, write_atomically
from icl_lab.training import processes
from icl_lab.training.arrays import pack, unpack

CURRENT, NEXT = "current", "next"
OVER = "over"  # an empty file: these checkpoints are of a run that is done over again
OF = "of.json"  # the experiment and the configuration that these checkpoints are of


class Checkpoint:
    """One stage's place on disk; implements ``icl_lab.training.Resume``.

    ``folder/current`` is the newest good checkpoint: a line with the SHA-256 of all that follows, a line with the
    fingerprint of what wrote it, and an npz. A new one is written to ``next`` and then renamed: a kill at any moment
    leaves a good one. A checkpoint that is truncated or corrupt, or whose fingerprint differs (another configuration,
    another JAX, another version of any source file), is renamed to ``current.set-aside-<n>``, named in the log, and
    never used. Saves are at least ``every_seconds`` apart.

    Several processes use it together: process 0 alone reads and writes the file and says when it is due, all have what
    is in it, and what goes wrong in process 0 (a full disk) is raised in all. No file system need be shared.
    """

    def __init__(self, folder: Path, fingerprint: str, every_seconds: float):
        self.folder, self.fingerprint, self.every_seconds = folder, fingerprint, every_seconds
        self._saved_at = time.monotonic()

    def load(self, like: Callable[[], Any]) -> Any | None:
        """The newest good checkpoint as host arrays, its state with the structure of that in ``like()``; or None."""
        self._stop_if_asked()  # nothing was trained yet that is not saved
        arrays = processes.arrays_of_writer(self._newest(like) if processes.is_writer() else None)
        return None if arrays is None else _tree(arrays, like())

    def save(self, tree: Callable[[], Any], finished: bool) -> None:
        """Writes ``tree()`` if it is finished, time, or the run was asked to stop, which it then does.

        Raises:
          OSError: naming the file; the checkpoint before it stays.
          Stopped, KeyboardInterrupt: after the write, where the run was asked to (``stopping.heeding``).
        """
        due = finished or time.monotonic() - self._saved_at >= self.every_seconds
        if processes.in_any(stopping.requested() or (processes.is_writer() and due)):
            state = tree()
            with stopping.held():
                processes.led(lambda: self._write(_named(jax.device_get(state))))
                self._saved_at = time.monotonic()
            self._stop_if_asked()

    def _stop_if_asked(self) -> None:
        if processes.in_any(stopping.requested()):
            processes.end_together()
            stopping.stop()

    def _newest(self, like: Callable[[], Any]) -> dict[str, Any] | None:
        path = self.folder / CURRENT
        if not path.exists():
            return None
        try:
            arrays = self._read(path)
            _tree(arrays, like())
            return arrays
        except Exception as error:  # with the right digest, but not written here: many kinds
            ours = isinstance(error, RecordError)
            problem = str(error) if ours else f"it cannot be read ({type(error).__name__}: {error})"
        log = logging.getLogger("icl_lab")
        log.warning("%s is not used: %s; kept as %s", path, problem, set_aside(path).name)
        return None

    def _read(self, path: Path) -> dict[str, Any]:
        digest, _, content = path.read_bytes().partition(b"\n")
        if digest != hashlib.sha256(content).hexdigest().encode():
            raise RecordError("it differs from its digest (truncated or corrupt)")
        fingerprint, _, arrays = content.partition(b"\n")
        if fingerprint != self.fingerprint.encode():
            raise RecordError("it was written by another configuration or version")
        return unpack(io.BytesIO(arrays))

    def _write(self, arrays: dict[str, Any]) -> None:
        file = io.BytesIO()
        pack(file, arrays)
        content = self.fingerprint.encode() + b"\n" + file.getvalue()
        digest = hashlib.sha256(content).hexdigest().encode()
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / CURRENT, digest + b"\n" + content, beside=NEXT)


def begin(folder: Path, experiment: str, config: dict[str, Any]) -> None:
    """Writes down whose checkpoints these are.

    Raises:
      RecordError: where those of an unfinished run of another configuration are there, naming what differs.
    """
    here = {"experiment": experiment, "config": config}
    there = (any(folder.glob(f"*/{CURRENT}")) and _of(folder)) or here
    if different := differing(there, here):
        said = f"holds an unfinished run of {different}; choose another --outdir, or --overwrite it"
        raise RecordError(f"{folder.parent} {said}")
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / OF, as_json(here), beside=NEXT)


def differing(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """How a run differs from this one in ``experiment`` and ``config``, in words; empty: it does not."""
    if there["experiment"] != here["experiment"]:
        return str(there["experiment"])
    before, now = dict(there["config"]), dict(here["config"])
    names = [name for name in {**now, **before} if before.get(name) != now.get(name)]
    changes = ", ".join(f"{name}: {before.get(name)} there, {now.get(name)} here" for name in names)
    return f"another configuration ({changes})" if names else ""


def _of(folder: Path) -> dict[str, Any]:
    """What the checkpoints are of; empty where that is not known, as of earlier versions."""
    with contextlib.suppress(RecordError):
        found = read_json(folder / OF)
        if isinstance(found, dict) and isinstance(found.get("config"), dict) and "experiment" in found:
            return found
    return {}


def start_over(folder: Path, experiment: str, config: dict[str, Any]) -> None:
    """Removes the checkpoints of a run that is done over again, once: when that run is resumed, they are its own."""
    there = _of(folder)
    if not (folder / OVER).exists() or (there and differing(there, {"experiment": experiment, "config": config})):
        remove(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / OVER).touch()


def remove(folder: Path) -> None:
    """Removes the checkpoints of all stages of a finished run; what was set aside stays."""
    for path in (folder / OVER, folder / OF, folder / NEXT, *folder.glob(f"*/{CURRENT}"), *folder.glob(f"*/{NEXT}")):
        path.unlink(missing_ok=True)
    for emptied in (*folder.glob("*"), folder):
        with contextlib.suppress(OSError):
            emptied.rmdir()


def _named(tree: dict[str, Any]) -> dict[str, Any]:
    """Arrays by name: the leaves of the state in their order, whatever code its structure is, and the metrics."""
    state = {f"state/{i:04d}": leaf for i, leaf in enumerate(jax.tree.leaves(tree["state"]))}
    return state | {f"metrics/{name}": array for name, array in tree["metrics"].items()}


def _tree(named: dict[str, Any], like: dict[str, Any]) -> dict[str, Any]:
    """The inverse of ``_named``, with the structure of the state in ``like``; refuses other shapes and types."""
    found = [leaf for name, leaf in sorted(named.items()) if name.startswith("state/")]
    expected, structure = jax.tree.flatten(like["state"])
    if [(leaf.shape, leaf.dtype) for leaf in found] != [(leaf.shape, leaf.dtype) for leaf in expected]:
        raise RecordError("its arrays have other shapes or types than this run's state")
    metrics = {name.removeprefix("metrics/"): leaf for name, leaf in named.items() if name.startswith("metrics/")}
    return {"state": jax.tree.unflatten(structure, found), "metrics": metrics}
