"""A process of the benchmark of grids: a binary that trains the one-layer network, or one program for each rate.

python -m experiments.benchmarks.grid_run --preset=paper --grid=learning_rate:1e-3,2e-3 --outdir=FOLDER
python -m experiments.benchmarks.grid_run apart FILE BATCH STEPS RATE RATE ...
"""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import optax

from experiments.benchmarks.programs import Program, program
from experiments.von_oswald.common import Setting
from icl_lab.lab import Experiment, Session, main, setting
from icl_lab.lab.experiment import PRESETS
from icl_lab.models import LinearSelfAttention
from icl_lab.training.fitting import fit


@dataclasses.dataclass(frozen=True)
class Cell(Setting):
    """A training of the one-layer network; every seed trains with the same keys."""

    members: int = setting(4, "members", at_least=1)
    steps: int = setting(1000, "training steps", at_least=1)


def run(cell: Cell, session: Session) -> tuple[dict, dict[str, np.ndarray]]:
    """The final weights, by the session's ``fit``: the learning rate is an argument of the program."""
    p = _program(cell)
    return {}, {"weights": flat(session.fit("training", p.init, p.loss, p.optimizer, p.keys, p.settings, **p.options))}


BINARY = Experiment(
    "benchmarks.grid_run", __doc__, dict.fromkeys(PRESETS, Cell()), run, lambda _: {}, (),
    axes={"weights": ("member", "weight")},
)  # fmt: skip


def alone(cell: Cell) -> np.ndarray:
    """The final weights by a program in which the learning rate, and all else, is a constant."""
    p = _program(cell)
    setting = p.first()

    def loss(params: dict, key: jax.Array, _: Any) -> jax.Array:
        return p.loss(params, key, setting)

    optimizer: optax.GradientTransformation = p.optimizer(setting)
    return flat(fit(p.init, loss, optimizer, p.keys, **p.options))


def _program(cell: Cell) -> Program:
    p = program(LinearSelfAttention(layers=1, looped=True), cell, cell.members)
    return p._replace(options=p.options | {"steps": cell.steps, "measure_every": cell.steps})


def flat(fitted: Any) -> np.ndarray:
    """(members, all weights)."""
    return np.concatenate([np.reshape(x, (x.shape[0], -1)) for x in jax.tree.leaves(fitted.params)], axis=1)


def carry_out(words: Sequence[str]) -> int:
    """What the command line asks for; returns the exit status."""
    if words[0] != "apart":
        return main(BINARY, ["grid_run", *words])
    file, batch, steps, *rates = words[1:]
    cells = [Cell(batch=int(batch), steps=int(steps), learning_rate=float(rate)) for rate in rates]
    np.save(file, [alone(cell) for cell in cells])
    return 0


if __name__ == "__main__":
    sys.exit(carry_out(sys.argv[1:]))
