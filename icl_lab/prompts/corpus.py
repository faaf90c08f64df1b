"""A corpus of bytes that every machine has: the Python sources of an installed package, split by file."""

import hashlib
from collections.abc import Callable
from importlib import util
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

END_OF_FILE = 0
"""The byte after every file, which no source holds."""

VALIDATION_SHARE = 0.1


class Corpus(NamedTuple):
    """Bytes to learn from and bytes to be judged on, of different files.

    Attributes:
      training: (n,) uint8, the files of this part one after the other, each with ``END_OF_FILE`` after it.
      validation: (m,) uint8, likewise.
      files: number of files in both.
      digest: SHA-256, in hexadecimal digits, of all paths and contents.
    """

    training: NDArray[np.uint8]
    validation: NDArray[np.uint8]
    files: int
    digest: str


def package_sources(package: str = "jax") -> Corpus:
    """The sources of an installed package: of a pinned one without compiled parts, the same bytes on every machine.

    Raises:
      FileNotFoundError: if the package is not installed, or has no sources in a folder.
      ValueError: as ``sources``.
    """
    spec = util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"package must name an installed package with a folder of sources, got {package!r}")
    return sources(Path(spec.submodule_search_locations[0]))


def sources(folder: Path) -> Corpus:
    """All .py files below a folder that are not hidden, in the order of their relative paths, each in one part whole.

    A file is of the validation part where the SHA-256 of its relative path begins with a number below a tenth (the
    first four bytes as a fraction): the part depends on nothing but the name.

    Raises:
      FileNotFoundError: if there is no .py file.
      ValueError: if all files are of one part, or one holds the byte that ends files.
    """
    paths = source_files(folder)
    if not paths:
        raise FileNotFoundError(f"folder must hold .py files, found none below {folder}")
    digest = hashlib.sha256()
    parts: dict[bool, list[bytes]] = {False: [], True: []}
    for name, path in paths.items():
        content = path.read_bytes()
        if END_OF_FILE in content:
            raise ValueError(f"sources must not hold the byte {END_OF_FILE}, which ends files: {name}")
        ended = content + bytes([END_OF_FILE])
        digest.update(name.encode() + bytes([END_OF_FILE]) + ended)
        parts[is_validation(name)].append(ended)
    if not all(parts.values()):
        raise ValueError(f"folder must hold files of both parts, got {len(paths)} of one: {', '.join(paths)}")
    training, validation = (np.frombuffer(b"".join(parts[part]), np.uint8) for part in (False, True))
    return Corpus(training, validation, len(paths), digest.hexdigest())


def source_files(folder: Path) -> dict[str, Path]:
    """Every .py file below a folder by its relative path with slashes, in that order.

    Hidden files and folders, which editors and file systems leave beside sources, are none.
    """
    paths = {path.relative_to(folder): path for path in folder.rglob("*.py")}
    seen = {name.as_posix(): path for name, path in paths.items() if not any(p.startswith(".") for p in name.parts)}
    return dict(sorted(seen.items()))


def is_validation(name: str) -> bool:
    """Whether the file of this relative path (with slashes) is of the validation part."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") < VALIDATION_SHARE * 2**32


def windows(text: Array | NDArray[np.uint8], length: int) -> Callable[[Array, int], Array]:
    """A sampler ``(key, batch) -> (B, length) int32`` of windows of a text that start anywhere, equally likely.

    Args:
      text: (n,) uint8.
      length: bytes of a window; T + 1 for T predictions.

    Raises:
      ValueError: for another text, or one shorter than a window.
    """
    text = jnp.asarray(text)
    if text.ndim != 1 or text.dtype != jnp.uint8:
        raise ValueError(f"text must be (n,) uint8, got {text.shape} of {text.dtype}")
    if not 1 <= length <= text.shape[0]:
        raise ValueError(f"length must be in [1, {text.shape[0]}], the bytes of the text, got {length}")

    def sampler(key: Array, batch: int) -> Array:
        starts = jax.random.randint(key, (batch,), 0, text.shape[0] - length + 1)
        return jax.vmap(lambda start: jax.lax.dynamic_slice(text, (start,), (length,)))(starts).astype(jnp.int32)

    return sampler
