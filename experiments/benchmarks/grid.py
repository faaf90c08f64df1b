"""A grid of learning rates by the command line, against a program for each of its cells."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.benchmarks.timing import Config, Row
from icl_lab.lab import records


def grid(config: Config) -> dict[str, list[Row]]:
    """Learning rates of the one-layer network, four members each, 1,000 steps: seconds of all, start-up too.

    Everything is a process of its own that finds no compiled program on disk. ``a program for each`` trains one rate
    after the other, each as a constant of a program of its own, and keeps nothing; ``a run for each`` is the binary
    once for every rate, ``a grid`` the binary with ``--grid``: both keep checkpoints and records. Ratios are against
    the first. ``compiled`` is how many of the training programs were compiled, ``training`` the seconds of trainings,
    compilation included.
    """
    rates = np.geomspace(3e-4, 3e-3, max(2, config.ensemble // 2)).round(6).tolist()
    words = [f"--batch={config.batch}", f"--steps={config.grid_steps}"]
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder, "apart.npy")
        apart = _seconds(folder, ["apart", weights.name, config.batch, config.grid_steps, *rates])
        each = [
            _seconds(f"{folder}/{i}", [*words, f"--learning_rate={r}", "--outdir=run"]) for i, r in enumerate(rates)
        ]
        together = _seconds(folder, [*words, f"--grid=learning_rate:{','.join(map(str, rates))}", "--outdir=grid"])
        cells = [Path(folder, "grid", "cells", f"learning_rate={rate}") for rate in rates]
        found = np.stack([records.load(cell).arrays["weights"] for cell in cells])
        expected = np.load(weights, allow_pickle=False)
        difference = float(np.max(np.abs(found - expected)) / np.max(np.abs(expected)))
        of_each, of_grid = (_of(f) for f in ([Path(folder, str(i), "run") for i in range(len(rates))], cells))
    title = f"{len(rates)} learning rates, four members each, {config.grid_steps} steps, batch {config.batch}"
    return {
        title: [
            Row("a program for each", 1e3 * apart, 1.0, {"compiled": len(rates)}),
            Row("a run for each", 1e3 * sum(each), apart / sum(each), of_each),
            Row("a grid", 1e3 * together, apart / together, of_grid | {"largest difference of weights": difference}),
        ]
    }


def _of(runs: Sequence[Path]) -> dict[str, float]:
    """What the provenance of runs says: programs of trainings that were compiled, seconds of trainings."""
    origins = [json.loads((run / "provenance.json").read_bytes()) for run in runs]
    of_training = [origin["compilation"]["stages"]["training"] for origin in origins]
    return {
        "compiled": sum(stage["programs"] - stage["cached"] for stage in of_training),
        "training": sum(origin["stages"]["training"]["seconds"] for origin in origins),
    }


def _seconds(folder: str, words: Sequence[object]) -> float:
    """Seconds by the clock of a process of ``grid_run`` in a folder, where it keeps its compiled programs too."""
    Path(folder).mkdir(exist_ok=True)
    home = os.fspath(Path(__file__).resolve().parents[2])
    kept = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    command = [sys.executable, "-m", "experiments.benchmarks.grid_run", *map(str, words)]
    if words[0] != "apart":
        command.append("--preset=paper")
    started = time.perf_counter()
    subprocess.run(command, cwd=folder, env=kept | {"PYTHONPATH": home}, check=True, capture_output=True)
    return time.perf_counter() - started
