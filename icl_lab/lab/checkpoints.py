"""Checkpoints of unfinished runs: a file of arrays and its digest, written beside, renamed, verified before use."""

import contextlib
import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax

from icl_lab.lab import stopping
from icl_lab.lab.provenance import changed, other_settings
from icl_lab.lab.record import RecordError
from icl_lab.lab.records import as_json, npz, read_json, set_aside, unzipped, write_atomically
from icl_lab.training import processes

CURRENT, NEXT = "current", "next"
OF = "of.json"  # the run that these checkpoints are of: experiment, config, precision, whether it is done over again
INSTEAD = "choose another --outdir, or --overwrite it"
"""What a person may do whose folder holds something else."""
FORMAT = 2
"""Number of this form of checkpoints; a file of another one is not used."""
log = logging.getLogger("icl_lab")


class Checkpoint:
    """One stage's place on disk; implements ``icl_lab.training.Resume``.

    ``folder/current`` is the newest good checkpoint: a line with the SHA-256 of all that follows, a line with the
    fingerprint of what wrote it, and an npz. A new one is written to ``next`` and then renamed: a kill at any moment
    leaves a good one. A checkpoint that is truncated or corrupt, or whose fingerprint differs (another configuration,
    another JAX, another version of any source of the laboratory), is renamed to ``current.set-aside-<n>``, named
    in the log, and never used. Saves are at least ``every_seconds`` apart.

    Several processes use it together: process 0 alone reads and writes the file and says when it is due, all have what
    is in it, and what goes wrong in process 0 (a full disk) is raised in all. No file system need be shared.
    """

    def __init__(self, folder: Path, fingerprint: str, every_seconds: float):
        self.folder, self.fingerprint, self.every_seconds = folder, fingerprint, every_seconds
        self._saved_at = time.monotonic()

    def load(self, like: Callable[[], Any]) -> Any | None:
        """The newest good checkpoint as host arrays, its state with the structure of that in ``like()``; or None."""
        self._stop_if_asked()  # nothing was trained yet that is not saved
        path = self.folder / CURRENT
        if not processes.led(path.exists):
            return None
        try:
            return self._read(processes.bytes_of_writer(path.read_bytes), like())
        except Exception as error:  # with the right digest, but not written here: many kinds
            ours = isinstance(error, RecordError)
            problem = str(error) if ours else f"it cannot be read ({type(error).__name__}: {error})"
        kept = processes.led(lambda: set_aside(path).name)
        log.warning("%s is not used: %s; kept as %s", path, problem, kept)
        return None

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
                processes.led(lambda: self._write(jax.device_get(state)))
                self._saved_at = time.monotonic()
            self._stop_if_asked()

    def _stop_if_asked(self) -> None:
        if processes.in_any(stopping.requested()):
            processes.end_together()
            stopping.stop()

    def _read(self, content: bytes, like: dict[str, Any]) -> dict[str, Any]:
        digest, _, rest = content.partition(b"\n")
        if digest != hashlib.sha256(rest).hexdigest().encode():
            raise RecordError("it differs from its digest (truncated or corrupt)")
        fingerprint, _, arrays = rest.partition(b"\n")
        if fingerprint != self.fingerprint.encode():
            raise RecordError("it was written by another configuration or version")
        return _unpacked(arrays, like)

    def _write(self, tree: dict[str, Any]) -> None:
        content = self.fingerprint.encode() + b"\n" + _packed(tree)
        digest = hashlib.sha256(content).hexdigest().encode()
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / CURRENT, digest + b"\n" + content, beside=NEXT)


def begin(
    folder: Path,
    run: dict[str, Any],
    over: bool,
    instead: str = INSTEAD,
    differs: Callable[[Mapping[str, Any], Mapping[str, Any]], str] | None = None,
) -> None:
    """Writes down whose checkpoints these are, by ``experiment``, ``config`` and ``precision``.

    Where the run is done ``over`` again, others are removed, once: when that run is resumed, they are its own.
    ``differs`` says in words how a run differs from another; None: as ``differing``.

    Raises:
      RecordError: where those of an unfinished run of another configuration, or under other settings of JAX, are
        there, naming what differs and what to do ``instead``.
    """
    requested, existing = run | {"over": over}, of(folder)
    if over and existing != requested:
        remove(folder)
    settings = other_settings(existing["precision"]) if existing else ""
    different = existing and (differs or differing)(existing, run)
    if (different or settings) and not over and any(folder.glob(f"*/{CURRENT}")):
        words = f"of {different}" if different else f"under {settings}"
        raise RecordError(f"{folder.parent} holds an unfinished run {words}; {instead}")
    write_down(folder, requested)


def write_down(folder: Path, run: dict[str, Any]) -> None:
    """Writes down whose checkpoints these are."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / OF, as_json(run), beside=NEXT)


def differing(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """How a run differs from this one in ``experiment`` and ``config``, in words; empty: it does not."""
    if there["experiment"] != here["experiment"]:
        return str(there["experiment"])
    changes = changed(there["config"], here["config"])
    return f"another configuration ({changes})" if changes else ""


def of(folder: Path) -> dict[str, Any]:
    """What the checkpoints are of; empty where that is not known, as of earlier versions."""
    with contextlib.suppress(RecordError):
        run = read_json(folder / OF)
        run = {"precision": {}} | run if isinstance(run, dict) else {}
        if "experiment" in run and all(isinstance(run.get(name), dict) for name in ("config", "precision")):
            return run
    return {}


def remove(folder: Path) -> None:
    """Removes the checkpoints of all stages of a finished run; what was set aside stays."""
    for path in (folder / OF, folder / NEXT, *folder.glob(f"*/{CURRENT}"), *folder.glob(f"*/{NEXT}")):
        path.unlink(missing_ok=True)
    for emptied in (*folder.glob("*"), folder):
        with contextlib.suppress(OSError):
            emptied.rmdir()


def _packed(tree: dict[str, Any]) -> bytes:
    """An npz of the leaves of the state, in their order whatever code its structure is, and of the metrics by name.

    Of PRNG keys the kind is in the names.
    """
    leaves = {f"state/{i:04d}": leaf for i, leaf in enumerate(jax.tree.leaves(tree["state"]))}
    named: dict[str, Any] = {}
    for name, leaf in (leaves | {f"metrics/{name}": array for name, array in tree["metrics"].items()}).items():
        kind = jax.random.key_impl(leaf) if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) else ""
        named[f"{kind}|{name}"] = jax.random.key_data(leaf) if kind else leaf
    return npz(named, compressed=False)


def _unpacked(content: bytes, like: dict[str, Any]) -> dict[str, Any]:
    """The inverse, with the structure of the state in ``like``; refuses other shapes and types."""
    named: dict[str, Any] = {}
    for stored, array in unzipped(content).items():
        kind, _, name = stored.partition("|")
        named[name] = jax.random.wrap_key_data(jax.numpy.asarray(array), impl=kind) if kind else array
    leaves = [leaf for name, leaf in sorted(named.items()) if name.startswith("state/")]
    expected, structure = jax.tree.flatten(like["state"])
    if [(leaf.shape, leaf.dtype) for leaf in leaves] != [(leaf.shape, leaf.dtype) for leaf in expected]:
        raise RecordError("its arrays have other shapes or types than this run's state")
    metrics = {name.removeprefix("metrics/"): leaf for name, leaf in named.items() if name.startswith("metrics/")}
    return {"state": jax.tree.unflatten(structure, leaves), "metrics": metrics}
