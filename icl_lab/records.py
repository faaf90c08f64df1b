"""Records of runs on disk: config.json, record.json, arrays.npz, provenance.json; atomic, verified, without pickle."""

import dataclasses
import fcntl
import hashlib
import importlib.metadata
import io
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from icl_lab import stopping

SCHEMA = 2
PACKAGES = ("icl-lab", "jax", "jaxlib", "flax", "optax", "numpy", "chex", "orbax-checkpoint")


class RecordError(ValueError):
    """A record that cannot be used: foreign, truncated or corrupt."""


@dataclasses.dataclass(frozen=True)
class Record:
    """What a run found; figures and claims are pure functions of it.

    Attributes:
      experiment: name, ``paper.figure``.
      preset: which preset the configuration started from.
      config: the configuration, plain JSON values by field.
      metrics: plain JSON values by name (numbers a person reads).
      arrays: numpy arrays by name (what figures and claims are made of).
      provenance: versions, commit, device, times, command line; never part of a number.
    """

    experiment: str
    preset: str
    config: Mapping[str, Any]
    metrics: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]
    provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def digest(value: Any) -> str:
    """SHA-256 of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def save(record: Record, folder: Path, claims: list[dict]) -> None:
    """Writes the record into ``folder``; each file atomically, record.json last (it makes the run finished).

    record.json and arrays.npz hold no time and no path: a rerun writes the same bytes.
    """
    with stopping.writing():
        _save(record, folder, claims)


def _save(record: Record, folder: Path, claims: list[dict]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    arrays = _npz(record.arrays)
    write_atomically(folder / "arrays.npz", arrays)
    write_atomically(folder / "config.json", _json(dict(record.config)))
    write_atomically(folder / "provenance.json", _json(dict(record.provenance)))
    content = {
        "schema": SCHEMA,
        "experiment": record.experiment,
        "preset": record.preset,
        "config": digest(dict(record.config)),
        "arrays": hashlib.sha256(arrays).hexdigest(),
        "metrics": dict(record.metrics),
        "claims": claims,
    }
    write_atomically(folder / "record.json", _json(content | {"digest": digest(json.loads(_json(content)))}))


def load(folder: Path) -> Record:
    """Reads a finished run.

    Raises:
      RecordError: saying which file is wrong and how.
    """
    content, config, provenance = (
        _read_json(folder / name) for name in ("record.json", "config.json", "provenance.json")
    )
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise RecordError(f"{folder / 'record.json'} is not a record of schema {SCHEMA}")
    if content.pop("digest", None) != digest(content):
        raise RecordError(f"{folder / 'record.json'} differs from its own digest (truncated or corrupt)")
    if digest(config) != content["config"]:
        raise RecordError(f"{folder / 'config.json'} does not belong to its record.json")
    if not isinstance(provenance, dict):
        raise RecordError(f"{folder / 'provenance.json'} is not a provenance")
    path = folder / "arrays.npz"
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise RecordError(f"{path} cannot be read ({error})") from error
    if hashlib.sha256(raw).hexdigest() != content["arrays"]:
        raise RecordError(f"{path} differs from the digest in record.json (truncated or corrupt)")
    with np.load(io.BytesIO(raw), allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    return Record(content["experiment"], content["preset"], config, content["metrics"], arrays, provenance)


def set_aside(path: Path) -> Path:
    """Renames a file or folder that must not be used to ``<name>.set-aside-<n>`` and returns the new path."""
    n = 1
    while (target := path.with_name(f"{path.name}.set-aside-{n}")).exists():
        n += 1
    os.replace(path, target)
    return target


def set_record_aside(folder: Path) -> list[Path]:
    """Renames the record files in ``folder`` so that they are neither used nor overwritten; returns the new paths."""
    names = ("record.json", "arrays.npz", "config.json", "provenance.json")
    return [set_aside(folder / name) for name in names if (folder / name).exists()]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the run folder for one process; the lock goes with the process, however it ends.

    Raises:
      RecordError: if another process is running in the folder.
      OSError: if the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RecordError(f"another run is at work in {folder}; give this one another --outdir") from error
        yield


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file beside its place, flushes it to disk and renames it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def provenance(seconds: float) -> dict[str, Any]:
    """Versions, commit, device and command line of this process, and the seconds the run took."""
    return {
        "versions": versions(),
        "python": platform.python_version(),
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain")),
        "device": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
        "cpus": os.cpu_count(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "seconds": round(seconds, 1),
    }


def versions() -> dict[str, str]:
    """Versions of the packages that decide the numbers."""
    return {name: importlib.metadata.version(name) for name in PACKAGES}


def code_version() -> str:
    """Digest of package versions and of every source file of the laboratory: what a checkpoint must agree with."""
    home = Path(__file__).resolve().parents[1]
    files = [path for folder in ("icl_lab", "experiments") for path in sorted((home / folder).rglob("*.py"))]
    sources = {str(path.relative_to(home)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    return digest([versions(), sources])


def _git(*words: str) -> str:
    home = Path(__file__).resolve().parent
    try:
        done = subprocess.run(["git", *words], cwd=home, capture_output=True, text=True, timeout=10, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    """A compressed npz of the arrays; the same arrays give the same bytes."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **{name: np.asarray(arrays[name]) for name in sorted(arrays)})
    return buffer.getvalue()


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RecordError(f"{path} cannot be read ({type(error).__name__}: {error})") from error
