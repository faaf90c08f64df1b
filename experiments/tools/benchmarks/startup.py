"""What a person waits for: imports, ``--help``, and smoke runs with and without compiled programs on disk."""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from experiments.binaries import discover
from experiments.tools.benchmarks.timing import Config, Row
from icl_lab.lab.profile import PHASES

BINARIES = ("von_oswald.one_step", "dai.momentum_icl", "reddy.label_count", "zhang_frei_bartlett.gradient_flow")


def startup(config: Config) -> dict[str, list[Row]]:
    """Processes started one after the other, each by the clock (the median of rounds) and in CPU seconds of all cores.

    A cold smoke run finds no compiled program on disk; the same again finds all. A ratio is against importing JAX, or
    against the cold run. Of a run, ``compiling`` is tracing, lowering and compiling or reading back, which several
    programs do at once; ``programs`` how many there were. Smoke runs are of all binaries, medians over them first.
    """
    imports = {"import jax": "import jax", "import flax.linen, optax": "import flax.linen, optax"}
    imports |= {f"import experiments.{name}": f"import experiments.{name}" for name in BINARIES}
    words = {name: ["-c", code] for name, code in imports.items()}
    words["--help"] = ["-m", f"experiments.{BINARIES[0]}", "--help"]
    with tempfile.TemporaryDirectory() as folder:
        for one in words.values():  # bytecode is on disk from here on
            _seconds(one, folder)
        taken = {name: np.array([_seconds(one, folder) for _ in range(config.rounds)]) for name, one in words.items()}
    base = np.median(taken["import jax"], axis=0)
    starts = [_row(name, seconds, base) for name, seconds in taken.items()]
    smoke_runs = {name: _smoke(name) for name in discover()}
    of_all = {name: np.array([runs[name][0][0] for runs in smoke_runs.values()]) for name in ("cold", "again")}
    cold = np.median(of_all["cold"], axis=0)
    rows = [_row(f"median of {len(smoke_runs)}, {name}", seconds, cold) for name, seconds in of_all.items()]
    for binary, runs in smoke_runs.items():
        base = runs["cold"][0][0]
        rows += [_row(f"{binary}, {name}", seconds, base, origin) for name, (seconds, origin) in runs.items()]
    return {"start-up": starts, "smoke runs": rows}


def _smoke(binary: str) -> dict[str, tuple[np.ndarray, dict[str, Any]]]:
    """(1, 2) seconds and provenance, ``cold`` and ``again``."""
    runs = {}
    with tempfile.TemporaryDirectory() as folder:  # where the run keeps its compiled programs too
        command = ["-m", f"experiments.{binary}", "--preset=smoke", "--outdir=run", "--overwrite"]
        for name in ("cold", "again"):
            seconds = np.array([_seconds(command, folder)])
            runs[name] = seconds, json.loads(Path(folder, "run", "provenance.json").read_bytes())
    return runs


def _row(name: str, seconds: np.ndarray, base: np.ndarray, origin: dict[str, Any] | None = None) -> Row:
    """Of (R, 2) seconds by the clock and of CPU time."""
    clock, cpu = np.median(seconds, axis=0).tolist()
    row = {"name": name, "milliseconds": 1e3 * clock, "ratio": float(base[0]) / clock}
    row |= {"CPU s": cpu, "CPU ratio": float(base[1]) / cpu}
    if origin is not None:
        stages = origin["compilation"]["stages"].values()
        compiling = sum(stage[phase] for stage in stages for phase in PHASES.values())
        programs, cached = (sum(stage[key] for stage in stages) for key in ("programs", "cached"))
        row |= {"of the run": origin["seconds"], "compiling": compiling, "programs": programs, "from cache": cached}
    return row


def _seconds(words: list[str], folder: str) -> tuple[float, float]:
    """Seconds by the clock and of CPU time that Python takes with these words, in a folder."""
    home = os.fspath(Path(__file__).resolve().parents[3])
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, *words], cwd=folder, env=os.environ | {"PYTHONPATH": home}, check=True, capture_output=True
    )
    clock, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
