"""Arrays as bytes: the npz of checkpoints and of what processes exchange, and the reading of any npz without pickle."""

from collections.abc import Mapping
from typing import IO, Any

import jax
import numpy as np


def unzipped(file: IO[bytes]) -> dict[str, np.ndarray]:
    """The arrays of an npz; a file that is none raises many kinds of errors. Nothing is unpickled."""
    with np.lib.npyio.NpzFile(file, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise ValueError("it holds something else than arrays")
    return arrays


def pack(file: IO[bytes], arrays: Mapping[str, Any]) -> None:
    """Writes arrays as an npz that is not compressed; types that NumPy does not have (PRNG keys, bfloat16) by name."""
    plain: dict[str, Any] = {}
    for name, array in arrays.items():
        if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
            plain[f"key {jax.random.key_impl(array)}|{name}"] = jax.random.key_data(array)
        else:
            plain[f"{array.dtype if array.dtype.isbuiltin == 2 else ''}|{name}"] = array
    np.savez(file, allow_pickle=False, **plain)


def unpack(file: IO[bytes]) -> dict[str, Any]:
    """The inverse of ``pack``; a file that ``pack`` did not write raises many kinds of errors. Nothing is unpickled."""
    arrays: dict[str, Any] = {}
    for stored, array in unzipped(file).items():
        kind, _, name = stored.partition("|")
        if kind.startswith("key "):
            arrays[name] = jax.random.wrap_key_data(jax.numpy.asarray(array), impl=kind.removeprefix("key "))
        else:
            arrays[name] = array.view(kind) if kind else array
    return arrays
