"""A grid of learning rates in one process, against a program for each of its cells."""

import dataclasses
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.progress import Progress

from experiments.benchmarks.programs import Program, program
from experiments.benchmarks.timing import Config, Row
from experiments.von_oswald.common import Setting
from icl_lab.lab.executors import run_here
from icl_lab.lab.experiment import PRESETS, Experiment
from icl_lab.lab.flags import setting
from icl_lab.lab.plans import Grid
from icl_lab.lab.session import Session
from icl_lab.models import LinearSelfAttention
from icl_lab.training.fitting import fit

MEMBERS = 4
STEPS = 500


@dataclasses.dataclass(frozen=True)
class Cell:
    """A training of the one-layer network."""

    seed: int = setting(0, "not used: every cell trains with the same keys")
    members: int = setting(MEMBERS, "members", at_least=1)
    steps: int = setting(STEPS, "training steps", at_least=1)
    batch: int = setting(256, "tasks in a training step", at_least=1)
    learning_rate: float = setting(1e-3, "of Adam", above=0)


def grid(config: Config) -> dict[str, list[Row]]:
    """Learning rates of the one-layer network, four members each, 500 steps: seconds of the whole grid.

    All of it counts: tracing, compilation, training, and in the grid also checkpoints, records and reading them. The
    baseline trains one cell after the other in the same process, each with a program in which its learning rate is a
    constant, and keeps nothing.
    """
    rates = tuple(np.geomspace(3e-4, 3e-3, max(2, config.ensemble // 2)).tolist())
    cell = Cell(batch=config.ensemble_batch)
    apart, of_each = _seconds(lambda: [_alone(dataclasses.replace(cell, learning_rate=rate)) for rate in rates])
    together, of_all = _seconds(lambda: _in_a_grid(cell, rates))
    difference = max(float(np.max(np.abs(a - b)) / np.max(np.abs(a))) for a, b in zip(of_each, of_all, strict=True))
    return {
        f"a grid of {len(rates)} learning rates, {MEMBERS} members each, batch {config.ensemble_batch}": [
            Row("a program for each", 1e3 * apart, 1.0),
            Row(
                "a grid in one process", 1e3 * together, apart / together, {"largest difference of weights": difference}
            ),
        ]
    }


def _in_a_grid(cell: Cell, rates: tuple[float, ...]) -> list[np.ndarray]:
    """The final weights of every cell."""

    def run(config: Cell, session: Session) -> tuple[dict, dict[str, np.ndarray]]:
        p = _program(config)
        fitted = session.fit("training", p.init, p.loss, p.optimizer, p.keys, p.settings, **p.options)
        return {}, {"weights": _flat(fitted.params)}

    experiment = Experiment(
        "benchmarks.grid", "A cell.", dict.fromkeys(PRESETS, cell), run, lambda _: {}, (),
        axes={"weights": ("member", "weight")},
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, Progress(console=Console(quiet=True)) as progress:
        runs = Grid(experiment, "paper", cell, {"learning_rate": rates}, Path(folder)).runs()
        run_here(runs, progress)
        return [found.arrays["weights"] for run in runs if (found := run.record())]


def _alone(config: Cell) -> np.ndarray:
    """The final weights of one cell."""
    p = _program(config)
    return _flat(fit(p.init, p.loss, p.optimizer, p.keys, p.settings, **p.options).params)


def _program(config: Cell) -> Program:
    of_paper = dataclasses.replace(Setting(), batch=config.batch, learning_rate=config.learning_rate)
    p = program(LinearSelfAttention(layers=1, looped=True), of_paper, config.members)
    return p._replace(options=p.options | {"steps": config.steps, "measure_every": config.steps})


def _flat(params: Any) -> np.ndarray:
    """(members, all weights)."""
    return np.concatenate([np.reshape(leaf, (leaf.shape[0], -1)) for leaf in jax.tree.leaves(params)], axis=1)


def _seconds(run: Callable[[], list]) -> tuple[float, list]:
    jax.clear_caches()
    started = time.perf_counter()
    found = run()
    return time.perf_counter() - started, found
