"""Records of runs on disk: config, record and provenance as JSON, arrays and params as npz; verified, no pickle."""

import fcntl
import hashlib
import io
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from icl_lab.lab import stopping
from icl_lab.lab.provenance import digest
from icl_lab.lab.record import Record, RecordError

SCHEMA = 3
LOG = "log.txt"
FILES = ("params.npz", "arrays.npz", "config.json", "provenance.json", "record.json")
WRITING, WRITTEN = ".record.writing", ".record.written"
DRAWING = ".drawing-"
LOCKED = ("give this one another --outdir, or --wait for it", "choose an --outdir on a disk of this machine")
_CONTENT = dict.fromkeys(("experiment", "preset", "config", "arrays"), str) | {
    "metrics": dict,
    "claims": list,
    "axes": dict,
}


def save(record: Record, folder: Path, claims: list[dict]) -> None:
    """Writes the record into ``folder``, all of it or nothing, whenever this process is killed.

    The files are made in a folder beside, which is then renamed: from there on the record is written, and its files
    only have to move into place (``locked`` does it for a process that was killed). record.json and arrays.npz hold no
    time and no path: a rerun writes the same bytes.

    Raises:
      OSError: naming the file that could not be written; ``folder`` is as it was.
    """
    arrays, params = npz(record.arrays), npz(record.params) if record.params else None
    content = {
        "schema": SCHEMA,
        "experiment": record.experiment,
        "preset": record.preset,
        "config": digest(dict(record.config)),
        "arrays": hashlib.sha256(arrays).hexdigest(),
        "params": params and hashlib.sha256(params).hexdigest(),
        "axes": {name: list(names) for name, names in record.axes.items()},
        "metrics": dict(record.metrics),
        "claims": claims,
    }
    files = {
        "arrays.npz": arrays,
        "config.json": as_json(dict(record.config)),
        "provenance.json": as_json(sealed(dict(record.provenance))),
        "record.json": as_json(sealed(content)),
    } | ({"params.npz": params} if params else {})
    with stopping.held():
        folder.mkdir(parents=True, exist_ok=True)
        _settle(folder)
        try:
            (folder / WRITING).mkdir()
            for name, written in files.items():
                write_atomically(folder / WRITING / name, written)
            os.replace(folder / WRITING, folder / WRITTEN)
        finally:
            shutil.rmtree(folder / WRITING, ignore_errors=True)
        _settle(folder)


def replace_claims(folder: Path, claims: list[dict]) -> None:
    """Writes other ledger rows into a record; what the run found stays as it is.

    Raises:
      RecordError: if the record cannot be read.
    """
    load(folder, arrays=False)
    content = read_json(folder / "record.json") | {"claims": claims}
    del content["digest"]
    write_atomically(folder / "record.json", as_json(sealed(content)))


def _settle(folder: Path) -> None:
    """Ends what a killed process began: moves a written record into place, removes what was not written to its end."""
    if (folder / WRITTEN).exists():
        for name in FILES:
            with suppress(FileNotFoundError):
                os.replace(folder / WRITTEN / name, folder / name)
        (folder / WRITTEN).rmdir()
    for left in (folder / WRITING, *folder.glob(f"{DRAWING}*")):
        shutil.rmtree(left, ignore_errors=True)
    for path in folder.glob(".*.tmp"):
        if re.fullmatch(r"\..+\.\d+\.tmp", path.name):
            path.unlink(missing_ok=True)


def load(folder: Path, arrays: bool = True) -> Record:
    """Reads a finished run; without its arrays where they are not wanted.

    Raises:
      RecordError: saying which file is wrong and how.
    """
    content, config, origin = (read_json(folder / name) for name in ("record.json", "config.json", "provenance.json"))
    path = folder / "record.json"
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise RecordError(f"{path} is not a record of schema {SCHEMA}")
    if content.pop("digest", None) != digest(content):
        raise RecordError(f"{path} differs from its own digest (truncated or corrupt)")
    wrong = [name for name, kind in _CONTENT.items() if not isinstance(content.get(name), kind)]
    if wrong or not all(map(_are_words, content["axes"].values())):
        raise RecordError(f"{path} has no usable {', '.join(wrong) or 'axes'}")
    if not isinstance(config, dict) or digest(config) != content["config"]:
        raise RecordError(f"{folder / 'config.json'} does not belong to its record.json")
    # records from before provenance had a digest have none
    if not isinstance(origin, dict) or origin.pop("digest", digest(origin)) != digest(origin):
        raise RecordError(f"{folder / 'provenance.json'} is not a provenance, or differs from its own digest")
    data = read_arrays(folder / "arrays.npz", content["arrays"]) if arrays else {}
    axes, params = {name: tuple(names) for name, names in content["axes"].items()}, {}
    if content.get("params") and (folder / "params.npz").exists():  # a gallery may not keep them
        params = read_arrays(folder / "params.npz", content["params"])
    return Record(content["experiment"], content["preset"], config, content["metrics"], data, origin, axes, params)


def _are_words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def read_arrays(path: Path, expected: str) -> dict[str, np.ndarray]:
    """Arrays whose file has this digest; no other file is unpacked. Nothing is ever unpickled."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise RecordError(f"{path} cannot be read ({error})") from error
    if hashlib.sha256(raw).hexdigest() != expected:
        raise RecordError(f"{path} differs from the digest beside it (truncated or corrupt)")
    try:
        return unzipped(raw)
    except Exception as error:  # a file with the right digest that we did not write: many kinds, MemoryError among them
        raise RecordError(f"{path} cannot be read ({type(error).__name__}: {error})") from error


def unzipped(content: bytes) -> dict[str, np.ndarray]:
    """The arrays of an npz; a file that is none raises many kinds of errors. Nothing is unpickled."""
    with np.lib.npyio.NpzFile(io.BytesIO(content), allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise ValueError("it holds something else than arrays")
    return {name: array.view(array.dtype.names[0]) if array.dtype.names else array for name, array in arrays.items()}


def set_aside(path: Path) -> Path:
    """Renames a file or folder that must not be used to ``<name>.set-aside-<n>`` and returns the new path."""
    n = 1
    while (target := path.with_name(f"{path.name}.set-aside-{n}")).exists():
        n += 1
    os.replace(path, target)
    return target


def set_record_aside(folder: Path) -> list[Path]:
    """Renames the record files in ``folder``: neither used nor overwritten; returns the new paths."""
    return [set_aside(folder / name) for name in reversed(FILES) if (folder / name).exists()]


@contextmanager
def locked(folder: Path, wait: bool = False, instead: tuple[str, str] = LOCKED) -> Iterator[None]:
    """Holds the run folder for one process, and ends what a killed one began there to write.

    The lock goes with the process, however it ends.

    Args:
      folder: is made where there is none.
      wait: until no other process is at work in the folder.
      instead: what a person may do where another one is, and where no lock can be had.

    Raises:
      RecordError: if another process is at work in the folder and is not waited for, or no lock can be had there.
      OSError: if the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "wb") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            raise RecordError(f"another run is at work in {folder}; {instead[0]}") from error
        except OSError as error:  # of a network's file system: ENOLCK, ENOSYS, ESTALE
            raise RecordError(f"{folder} cannot be locked ({error.strerror}); {instead[1]}") from error
        _settle(folder)
        yield


def write_atomically(path: Path, content: bytes, beside: str = "") -> None:
    """Writes a file ``beside`` its place (empty: under a name of this process alone), flushes and renames it.

    Raises:
      OSError: naming the file.
    """
    temporary = path.with_name(beside or f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error  # a failing write does not say of what
    finally:
        temporary.unlink(missing_ok=True)  # a full disk gets its room back


def sealed(content: dict[str, Any]) -> dict[str, Any]:
    """The content with its digest."""
    return content | {"digest": digest(json.loads(as_json(content)))}


def npz(arrays: Mapping[str, np.ndarray], compressed: bool = True) -> bytes:
    """An npz of the arrays; the same arrays give the same bytes.

    NumPy would forget the name of a type of JAX's (bfloat16): it is that of the one field of such an array.
    """
    stored = {name: np.asarray(arrays[name]) for name in sorted(arrays)}
    for name, array in stored.items():
        if array.dtype.isbuiltin == 2:  # a type that NumPy was told of
            stored[name] = array.view([(array.dtype.name, f"V{array.itemsize}")])
    buffer = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(buffer, allow_pickle=False, **stored)
    return buffer.getvalue()


def as_json(value: Any) -> bytes:
    """The bytes of a JSON file; equal values give equal bytes."""
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def read_json(path: Path) -> Any:
    """What a JSON file holds.

    Raises:
      RecordError: naming the file.
    """
    try:
        value = json.loads(path.read_bytes())
        json.dumps(value)  # what is nested too deep is refused here, not by whoever reads on
        return value
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"{path} cannot be read ({type(error).__name__}: {error})") from error
