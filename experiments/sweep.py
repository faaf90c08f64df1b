"""Runs every cell of a grid of settings as a run of its own, in worker processes or on a cluster.

    python -m experiments.sweep --binary=von_oswald.one_step --grid="learning_rate:1e-4,1e-3;seed:0,1,2" --workers=2

A cell is one setting of the grid. It is run by the ordinary binary in <outdir>/cells/<setting>, so its record is the
one that the binary alone gives, to the last bit; <cell>/log.txt has what the binary said. Any setting of the binary may
be given as well, and holds in every cell. What is finished is never run again, and what is not goes on from its
checkpoint: give the same command again after a crash, give it twice at once, or with more values in the grid and the
same --outdir. A worker that dies is started again, --attempts times in all; then its cell is reported, and the others
go on. Ctrl-C, SIGTERM or SIGUSR1 lets the workers save and stop. At the end all cells become one record in <outdir>,
with a table and a figure of every setting; its bytes do not depend on how it came about. --grid of the binary itself
runs the same cells in one process.

With --executor=slurm every cell is a job of an array (submitit, the extra "cluster"), at most --workers at once. On a
machine with several GPUs worker i sees GPU i modulo their number; workers that share one do not reserve its memory.
Exit status: 0 done; 1 cells failed; 2 refused; 75 stopped by SIGTERM or SIGUSR1 and 130 by Ctrl-C, the same
command goes on.
"""

import dataclasses
import importlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Sequence

from absl import flags as absl_flags
from rich.progress import Progress

from experiments.reproduce import discover, help_text
from icl_lab.lab import command_line as lab
from icl_lab.lab import flags, slurm, stopping, workers
from icl_lab.lab.executors import run_elsewhere
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.flags import FlagError, setting
from icl_lab.lab.options import Options
from icl_lab.lab.plans import Grid, Run
from icl_lab.lab.records import RecordError, is_locked

PASSED_ON = ("checkpoint_seconds", "precision", "memory_gb", "cpu_devices")
"""Options of the binary that every cell is run with; preset, grid and outdir are those of the sweep."""


@dataclasses.dataclass(frozen=True)
class Sweep:
    """The flags of a sweep beside those of its binary."""

    binary: str = setting("", "which binary, as von_oswald.one_step")
    workers: int = setting(2, "cells that run at once", at_least=1)
    executor: str = setting("local", "what runs them", choices=("local", "slurm", "submitit_local"))
    attempts: int = setting(3, "how often a cell is started before it is given up", at_least=1)
    slurm_partition: str = setting("", "partition of SLURM; empty: its default")
    minutes: int = setting(240, "of a cluster job; then it is stopped at a checkpoint and queued again", at_least=2)
    gpus: int = setting(0, "of a cluster job", at_least=0)
    list: bool = setting(False, "name the cells and their state, and stop")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    words = list(sys.argv if argv is None else argv)
    lab.start_logging()
    with stopping.heeding():
        try:
            return _carry_out(words)
        except KeyboardInterrupt as error:
            return lab.stopped(error)
        except (absl_flags.Error, FlagError) as error:
            print(f"error: {error}\nTry --help.", file=sys.stderr)
        except (RecordError, OSError) as error:
            print(f"error: {error}", file=sys.stderr)
        return lab.REFUSED


def _carry_out(words: Sequence[str]) -> int:
    values = absl_flags.FlagValues()
    flags.define(Sweep, values)
    absl_flags.DEFINE_boolean("help", False, "this text", short_name="h", flag_values=values)
    of_binary = values(list(words), known_only=True)
    if values["help"].value:
        print(help_text(f"{__doc__}\nBeside every flag of the binary:", values))
        return lab.DONE
    sweep = flags.parse(Sweep(), values)
    grid = read(sweep.binary, of_binary)
    if sweep.list:
        print("\n".join(f"{state(run):10} {run.name}" for run in grid.runs()))
        return lab.DONE
    launcher = _launcher(sweep, grid)

    def elsewhere(runs: Sequence[Run], progress: Progress) -> dict[Run, str]:
        failed = run_elsewhere(runs, launcher, sweep.attempts, progress)
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # merging leaves a GPU's memory to others
        return failed

    return lab.carry_out_grid(grid, elsewhere)


def read(name: str, words: list[str]) -> Grid:
    """The grid in the command line of a binary.

    Raises:
      absl flags.Error, FlagError: naming the flag, the value and what is allowed.
    """
    command = lab.parse_command_line(binary(name), words)
    if command.grid is None:
        raise FlagError("--grid: not given; allowed is name:value,value;name:value of settings of the binary")
    given = {k: v for k, v in vars(command.options).items() if v != getattr(Options(), k)}
    if other := [k for k in given if k not in (*PASSED_ON, "preset", "grid", "outdir")]:
        raise FlagError(f"--{other[0]}={given[other[0]]}: allowed is with the binary itself")
    return command.grid._replace(options=tuple(f"--{k}={v}" for k, v in given.items() if k in PASSED_ON))


def state(run: Run) -> str:
    """``finished``, ``at work``, ``begun`` or ``waiting``."""
    if run.record() is not None:
        return "finished"
    if is_locked(run.folder):
        return "at work"
    return "begun" if (run.folder / "checkpoints").exists() else "waiting"


def binary(name: str) -> Experiment:
    """The experiment of a binary, imported alone.

    Raises:
      FlagError: where there is none of this name, or a module that it needs is missing.
    """
    paper, _, figure = name.partition(".")
    if paper.isidentifier() and figure.isidentifier():
        try:
            found = getattr(importlib.import_module(f"experiments.{name}"), "EXPERIMENT", None)
        except ModuleNotFoundError as error:
            if error.name not in (f"experiments.{paper}", f"experiments.{name}"):
                raise FlagError(f"--binary={name}: it needs the module {error.name}, which is missing here") from error
            found = None
        if isinstance(found, Experiment):
            return found
    raise FlagError(f"--binary={name}: there is no such binary; there are {', '.join(discover())}")


def _launcher(sweep: Sweep, grid: Grid) -> workers.Workers | slurm.Array:
    if sweep.executor == "local":
        return workers.Workers(sweep.workers, workers.visible_gpus())
    if importlib.util.find_spec("submitit") is None:
        raise FlagError(f"--executor={sweep.executor}: needs submitit: pip install -e '.[cluster]'")
    if sweep.executor == "slurm" and shutil.which("sbatch") is None:
        raise FlagError("--executor=slurm: there is no sbatch here; allowed is a machine of a SLURM cluster")
    kind, folder, runs = sweep.executor.removeprefix("submitit_"), grid.folder() / "submitit", len(grid.runs())
    return slurm.Array(kind, folder, runs, sweep.workers, sweep.minutes, sweep.gpus, sweep.slurm_partition)


if __name__ == "__main__":
    sys.exit(main())
