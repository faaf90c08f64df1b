"""Where a record comes from: versions, commit, device, precision, command line, times. No number depends on it."""

import contextlib
import datetime
import enum
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from icl_lab.prompts.corpus import source_files

PACKAGES = ("icl-lab", "jax", "jaxlib", "flax", "optax", "numpy", "chex")
CAP = "--xla_cpu_max_isa="
"""Option in ``XLA_FLAGS``: the widest vector instructions that XLA may use."""
WIDTHS = {"SSE4_2": "sse4_2", "AVX": "avx", "AVX2": "avx2", "AVX512": "avx512f"}
"""Vector widths of x86-64 as XLA calls them, by what Linux calls them; from the narrowest."""
HOME = Path(__file__).resolve().parents[2]
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
    """What made a record, read when it is finished.

    ``seconds`` is how long this process worked at it, by a clock that is never set (a resumed run: since it was
    resumed); memory the most that this process held, in GB (10^9 bytes), on the host and on the first device.
    """
    commit, uncommitted_changes = _commit()
    finished = datetime.datetime.now(datetime.UTC)
    memory = {"host": peak_memory()}
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
        "vectors": vectors(),
        "precision": precision(),
        "seed": seed,
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "seconds": round(seconds, 1),
        "started": (finished - datetime.timedelta(seconds=seconds)).isoformat(timespec="seconds"),
        "finished": finished.isoformat(timespec="seconds"),
        "peak_memory_gb": {name: round(size / 1e9, 3) for name, size in memory.items()},
    }


def vectors() -> str:
    """The vector width of this process, a name of ``WIDTHS``; of another kind of machine, its kind (``aarch64``).

    It is that of the processor, or the one to which ``XLA_FLAGS`` confines XLA if that is less. Where Linux does not
    tell of what the processor has, the kind of machine is all that is known.
    """
    has, allowed = set(), list(WIDTHS)
    with contextlib.suppress(OSError):
        has = set(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split())
    caps = [cap.upper() for cap in re.findall(rf"{CAP}(\w+)", os.environ.get("XLA_FLAGS", ""))]
    if caps and caps[-1] in allowed:  # others, as AMX, are wider than these
        allowed = allowed[: allowed.index(caps[-1]) + 1]
    found = [name for name in allowed if WIDTHS[name] in has]
    return found[-1] if platform.machine() == "x86_64" and found else platform.machine()


def peak_memory() -> int:
    """The most memory that this process held, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def precision() -> dict[str, Any]:
    """The settings of JAX that decide how it rounds, types and random numbers, those that this release has."""
    names = {name: IN_JAX.get(name, name) for name in ("matmul", *USUAL)}
    found = {name: getattr(jax.config, flag) for name, flag in names.items() if flag in jax.config.values}
    return {name: value.name.lower() if isinstance(value, enum.Enum) else value for name, value in found.items()}


def other_settings(there: Mapping[str, Any]) -> str:
    """How the ``precision`` of a run differs from that of this process, in words; empty: it does not.

    A run that does not name a setting had the usual one; of ``matmul`` there is none.
    """
    here = precision()
    before = here | USUAL | dict(there)
    names = [name for name in here if before[name] != here[name]]
    changes = ", ".join(f"{IN_JAX.get(name, name)}: {before[name]} there, {here[name]} here" for name in names)
    return f"other settings of JAX ({changes})" if names else ""


def versions() -> dict[str, str]:
    """Versions of the packages that decide the numbers."""
    return {name: importlib.metadata.version(name) for name in PACKAGES}


def code_version() -> str:
    """Digest of package versions, precision and every source file of the laboratory: what a checkpoint agrees with."""
    return digest([versions(), precision(), source_version()])


@functools.cache
def source_version() -> str:
    """Digest of every source file of the laboratory, as they were when this process, or its parent, first asked.

    Files that are edited later are not what runs here.
    """
    files = [path for folder in ("icl_lab", "experiments") for path in source_files(HOME / folder).values()]
    return digest({str(path.relative_to(HOME)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files})


def digest(value: Any) -> str:
    """SHA-256 of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _commit() -> tuple[str | None, bool | None]:
    """The commit of this laboratory's own repository, and whether files differ from it; None: not known.

    A repository that encloses an installed package, or does not track these sources, says nothing about them.
    """
    top = _git("rev-parse", "--show-toplevel")
    if not top or Path(top).resolve() != HOME or not _git("ls-files", "--", "icl_lab"):
        return None, None
    changes = _git("status", "--porcelain")
    return _git("rev-parse", "HEAD"), None if changes is None else bool(changes)


def _git(*words: str) -> str | None:
    """What git says in the folder of the laboratory; None where there is no git, or it refuses."""
    try:
        done = subprocess.run(["git", *words], cwd=HOME, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
