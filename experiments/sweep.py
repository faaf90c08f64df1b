"""Runs every cell of a grid of settings as a run of its own, in worker processes or on a cluster.

    python -m experiments.sweep --binary=von_oswald.one_step --grid="learning_rate:1e-4,1e-3;seed:0,1,2" --workers=2

A cell is one setting of the grid. The ordinary binary runs it in <outdir>/cells/<setting>, so its record is the one
that the binary alone gives, to the last bit; <cell>/log.txt has what the binary said. Any setting of the binary may be
given as well, and holds in every cell. What is finished is never run again, and what is not goes on from its
checkpoint: give the same command again after a crash, give it twice at once, or with more values in the grid and the
same --outdir. A worker that dies is started again, --attempts times in all; then its cell is reported, and the others
go on. Ctrl-C, SIGTERM or SIGUSR1 lets the workers save and stop. At the end all cells become one record in <outdir>,
with a table and a figure; its bytes do not depend on how it came about. --grid of the binary itself runs the same cells
in one process.

With --executor=slurm every cell is a job of an array (submitit, the extra "cluster"), at most --workers at once.
Exit status: 0 done; 1 cells failed; 2 refused; 75 stopped by SIGTERM or SIGUSR1 and 130 by Ctrl-C, the same
command goes on.
"""

import dataclasses
import importlib
import importlib.util
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags as absl_flags
from rich.progress import Progress

from experiments.reproduce import discover, help_text
from icl_lab.lab import command_line as lab
from icl_lab.lab import executors, flags, slurm, stopping
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.flags import FlagError, setting
from icl_lab.lab.options import Options
from icl_lab.lab.plans import Grid, Run
from icl_lab.lab.records import RecordError

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


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    values = absl_flags.FlagValues()
    flags.define(Sweep, values)
    absl_flags.DEFINE_boolean("help", False, "this text", short_name="h", flag_values=values)
    lab.start_logging()
    with stopping.heeding():
        try:
            of_binary = values(list(sys.argv if argv is None else argv), known_only=True)
            if values["help"].value:
                print(help_text(f"{__doc__}\nBeside every flag of the binary:", values))
                return lab.DONE
            sweep = flags.parse(Sweep(), values)
            grid = _grid(sweep.binary, of_binary)
            how = _how(sweep, grid)

            def elsewhere(runs: Sequence[Run], progress: Progress) -> Mapping[Run, str]:
                return executors.run_elsewhere(runs, **how, attempts=sweep.attempts, progress=progress)

            return lab.carry_out_grid(grid, elsewhere)
        except KeyboardInterrupt as error:
            return lab.stopped(error)
        except (absl_flags.Error, FlagError) as error:
            return lab.refused(f"{error}\nTry --help.")
        except (RecordError, OSError) as error:
            return lab.refused(error)


def _grid(name: str, words: list[str]) -> Grid:
    """The grid in the command line of a binary.

    Raises:
      absl flags.Error, FlagError: naming the flag, the value and what is allowed.
    """
    command = lab.parse_command_line(_binary(name), words)
    if command.grid is None:
        raise FlagError("--grid: not given; allowed is name:value,value;name:value of settings of the binary")
    given = {k: v for k, v in vars(command.options).items() if v != getattr(Options(), k)}
    if other := [k for k in given if k not in (*PASSED_ON, "preset", "grid", "outdir")]:
        raise FlagError(f"--{other[0]}={given[other[0]]}: allowed is with the binary itself")
    return command.grid._replace(options=tuple(f"--{k}={v}" for k, v in given.items() if k in PASSED_ON))


def _binary(name: str) -> Experiment:
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


def _how(sweep: Sweep, grid: Grid) -> dict[str, Any]:
    """What starts the cells, for ``run_elsewhere``."""
    if sweep.executor == "local":
        return {"start": executors.start_here, "at_once": sweep.workers}
    if importlib.util.find_spec("submitit") is None:
        raise FlagError(f"--executor={sweep.executor}: needs submitit: pip install -e '.[cluster]'")
    on_cluster = sweep.executor == "slurm"
    if on_cluster and shutil.which("sbatch") is None:
        raise FlagError("--executor=slurm: there is no sbatch here; allowed is a machine of a SLURM cluster")
    start = slurm.starter(
        sweep.executor.removeprefix("submitit_"), grid.folder() / "submitit",
        sweep.workers, sweep.minutes, sweep.gpus, sweep.slurm_partition,
    )  # fmt: skip
    # SLURM's queue holds what is not its turn
    at_once = len(grid.runs()) if on_cluster else sweep.workers
    return {"start": start, "at_once": at_once, "every_seconds": 5.0 if on_cluster else 0.2}


if __name__ == "__main__":
    sys.exit(main())
