"""Where a record comes from: versions, commit, device, precision, command line, times. No number depends on it."""

import datetime
import enum
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from icl_lab import machine
from icl_lab.prompts.corpus import source_files

PACKAGES = ("icl-lab", "jax", "jaxlib", "flax", "optax", "numpy", "chex")
HOME = Path(__file__).resolve().parents[2]
ROOTS = ("icl_lab", "experiments")
"""The packages of the laboratory, which lie beside each other."""
IN_JAX = {"matmul": "jax_default_matmul_precision", "x64": "jax_enable_x64"}
"""Settings that records call otherwise than JAX does."""
USUAL: dict[str, Any] = {
    "x64": False,
    "jax_explicit_x64_dtypes": "warn",
    "jax_numpy_dtype_promotion": "standard",
    "jax_default_prng_impl": "threefry2x32",
    "jax_threefry_partitionable": True,
    "jax_random_seed_offset": 0,
    "jax_high_dynamic_range_gumbel": False,
}
"""Settings of JAX that decide types or random numbers, as records have them that name none."""


def provenance(seconds: float, seed: int | None = None) -> dict[str, Any]:
    """What made a record, read when it is finished, but for the commit, which is that of the code that runs.

    ``seconds`` is how long this process worked at it, by a clock that is never set (a resumed run: since it was
    resumed); memory the most that this process held, in GB (10^9 bytes), on the host and on the first device.
    """
    commit, uncommitted_changes = checked_out()
    finished = datetime.datetime.now(datetime.UTC)
    memory = {"host": machine.peak_memory()}
    if "peak_bytes_in_use" in (stats := jax.local_devices()[0].memory_stats() or {}):
        memory["device"] = stats["peak_bytes_in_use"]
    return {
        "versions": versions(),
        "python": platform.python_version(),
        "commit": commit,
        "uncommitted_changes": uncommitted_changes,
        "device": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
        "processes": jax.process_count(),
        "cpus": os.cpu_count(),
        "vectors": machine.vectors(),
        "precision": precision(),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "seed": seed,
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "seconds": round(seconds, 1),
        "started": (finished - datetime.timedelta(seconds=seconds)).isoformat(timespec="seconds"),
        "finished": finished.isoformat(timespec="seconds"),
        "peak_memory_gb": {name: round(size / 1e9, 3) for name, size in memory.items()},
    }


def precision() -> dict[str, Any]:
    """The settings of JAX that decide how it rounds, types and random numbers, those that this release has."""
    names = {name: IN_JAX.get(name, name) for name in ("matmul", *USUAL)}
    settings = {name: getattr(jax.config, flag) for name, flag in names.items() if flag in jax.config.values}
    return {name: value.name.lower() if isinstance(value, enum.Enum) else value for name, value in settings.items()}


def other_settings(there: Mapping[str, Any]) -> str:
    """How the ``precision`` of a run differs from that of this process, in words; empty: it does not.

    A run that does not name a setting had the usual one; of ``matmul`` there is none.
    """
    current = precision()
    before = current | USUAL | dict(there)
    changes = changed(*({IN_JAX.get(name, name): one[name] for name in current} for one in (before, current)))
    return f"other settings of JAX ({changes})" if changes else ""


def changed(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """The names whose values differ, with both, in words; empty where none does."""
    names = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    return ", ".join(f"{name}: {there.get(name)} there, {here.get(name)} here" for name in names)


def digest_of_array(value: Any) -> str | None:
    """Type and shape of an array (or of PRNG keys) with a digest, or type and value of a number; None for objects."""
    kind = str(value.dtype)
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    numbers = np.asarray(value)
    if numbers.dtype.hasobject:
        return None
    if numbers.ndim == 0:
        return f"{kind} {numbers}"
    return f"{kind}{list(numbers.shape)} {hashlib.sha256(numbers.tobytes()).hexdigest()[:12]}"


def versions() -> dict[str, str]:
    """Versions of the packages that decide the numbers."""
    return {name: importlib.metadata.version(name) for name in PACKAGES}


def of_others(found: Mapping[str, str]) -> dict[str, str]:
    """Versions without the release of this package: its code is in the digest of the sources."""
    return {name: version for name, version in found.items() if name != "icl-lab"}


def code_version(sources: str) -> str:
    """Digest of package versions, precision and a ``source_version``: what a checkpoint agrees with."""
    return digest([versions(), precision(), sources])


@functools.cache
def loaded() -> dict[str, str]:
    """The source of every module of the laboratory, as it was when this process, or its parent, first asked.

    Files that are edited later are not what runs here.
    """
    return texts(HOME)


def texts(home: Path) -> dict[str, str]:
    """The source of every module of the laboratory by its name, of a package that of its ``__init__``.

    Args:
      home: the folder that holds the packages ``ROOTS``.
    """
    sources = {}
    for root in ROOTS:
        for name, path in source_files(home / root).items():
            words = [root, *name.removesuffix(".py").split("/")]
            sources[".".join(words[:-1] if words[-1] == "__init__" else words)] = path.read_text("utf-8")
    return sources


def source_version(module: str = "") -> str:
    """Digest of all sources of the laboratory and, where a module of a user's own is given, of its file."""
    sources = loaded()
    file = getattr(sys.modules.get(module), "__file__", None)
    if module not in sources and file is not None:
        sources = sources | {module: Path(file).read_text("utf-8")}
    return digest(sources)


def digest(value: Any) -> str:
    """SHA-256 of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


@functools.cache
def checked_out() -> tuple[str | None, bool | None]:
    """The commit of this laboratory's own repository, and whether files differ from it; None: not known.

    Both are as they were when this process, or its parent, first asked, as the sources are (``loaded``). A repository
    that encloses an installed package, or does not track these sources, says nothing about them.
    """
    top = git("rev-parse", "--show-toplevel")
    if not top or Path(top).resolve() != HOME or not git("ls-files", "--", "icl_lab"):
        return None, None
    changes = git("status", "--porcelain")
    return git("rev-parse", "HEAD"), None if changes is None else bool(changes)


def commit_of(origin: Mapping[str, Any]) -> str:
    """The commit that a provenance names, in nine digits, with ``-dirty`` where files differed from it."""
    return (origin.get("commit") or "")[:9] + ("-dirty" if origin.get("uncommitted_changes") else "") or "unknown"


def git(*words: str) -> str | None:
    """What git says in the folder of the laboratory; None where there is no git, or it refuses."""
    # in a hook of another repository these say that one
    env = {name: value for name, value in os.environ.items() if not re.match("GIT_(?!CONFIG)", name)}
    try:
        done = subprocess.run(
            ["git", *words], cwd=HOME, env=env, capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
