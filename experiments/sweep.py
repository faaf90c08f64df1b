"""Runs every cell of a grid of settings as a run of its own, in worker processes or on a cluster.

    python -m experiments.sweep --binary=von_oswald.one_step --grid="learning_rate:1e-4,1e-3;seed:0,1,2" --workers=2

A cell is one setting of the grid. It is run by the ordinary binary in <outdir>/cells/<setting>, so its record is the
one that the binary alone gives, to the last bit; <cell>/log.txt has what the binary said. Any setting of the binary may
be given as well, and holds in every cell. What is finished is never run again, and what is not goes on from its
checkpoint: give the same command again after a crash, give it twice at once, or with more values in the grid and the
same --outdir. A worker that dies is started again, --attempts times in all; then its cell is reported, and the others
go on. Ctrl-C, SIGTERM or SIGUSR1 lets the workers save and stop. At the end all cells become one record in <outdir>,
with a table and a figure of every setting; its bytes do not depend on how it came about.

With --executor=slurm every cell is a job of an array (submitit, the extra "cluster"), at most --workers at once. On a
machine with several GPUs worker i sees GPU i modulo their number; workers that share one do not reserve its memory.
Cells whose settings fit into one program run faster in one process: give --grid to the binary itself.
Exit status: 0 done; 1 cells failed; 2 refused; 75 stopped by SIGTERM or SIGUSR1 and 130 by Ctrl-C, the same
command goes on.
"""

import contextlib
import dataclasses
import importlib
import importlib.util
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from absl import flags as absl_flags

from experiments.reproduce import discover
from icl_lab import command_line as lab
from icl_lab import flags, records, stopping
from icl_lab.experiment import PRESETS, Experiment
from icl_lab.flags import FlagError, setting
from icl_lab.grids import cells as grids
from icl_lab.options import Options
from icl_lab.records import RecordError
from icl_lab.sweeps import workers
from icl_lab.sweeps.cluster import Cluster
from icl_lab.sweeps.sweep import Plan, state, sweep
from icl_lab.sweeps.tasks import Launcher

PASSED_ON = ("checkpoint_seconds", "precision", "memory_gb", "cpu_devices")
"""Options of the binary that every cell is run with."""


@dataclasses.dataclass(frozen=True)
class Sweep:
    """The flags of a sweep beside the settings of its binary."""

    binary: str = setting("", "which binary, as von_oswald.one_step")
    preset: str = setting("quick", "size of every run", choices=PRESETS)
    grid: str = setting("", "what varies, as learning_rate:1e-4,1e-3;seed:0,1,2 (quote the ;)")
    workers: int = setting(2, "cells that run at once", at_least=1)
    executor: str = setting("local", "what runs them", choices=("local", "slurm", "submitit_local"))
    outdir: str = setting("", "folder of the sweep; empty: one under runs/ named by preset, configuration and grid")
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
        except KeyboardInterrupt as error:  # before the first worker or after the last one
            return lab.stopped(error)


def _carry_out(words: Sequence[str]) -> int:
    try:
        command = read(words)
        if command is None:
            print(help_text())
            return lab.DONE
        options, plan = command
        states = [(state(plan.experiment, cell, task), task.name) for cell, task in plan.cells()]
        if options.list:
            print("\n".join(f"{what:10} {name}" for what, name in states))
            return lab.DONE
        launcher = _launcher(options, plan.outdir, len(states))
    except (absl_flags.Error, FlagError, RecordError, OSError) as error:
        print(f"error: {error}\nTry --help.", file=sys.stderr)
        return lab.REFUSED
    try:
        return sweep(plan, launcher, options.attempts)
    except (RecordError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return lab.REFUSED


def read(words: Sequence[str]) -> tuple[Sweep, Plan] | None:
    """The sweep's own flags and what it runs; None where help is asked for.

    Raises:
      absl flags.Error, FlagError: naming the flag, the value and what is allowed.
      OSError: for an outdir that cannot be written.
    """
    values, settings = absl_flags.FlagValues(), absl_flags.FlagValues()
    flags.define(Sweep, values)
    absl_flags.DEFINE_boolean("help", False, "this text", short_name="h", flag_values=values)
    others = values(list(words), known_only=True)
    if values["help"].value:
        return None
    options = flags.parse(Sweep(), values)
    experiment = binary(options.binary)
    preset = experiment.presets[options.preset]
    flags.define(type(preset), settings)
    fields = [field for field in dataclasses.fields(Options) if field.name in PASSED_ON]
    for field in fields:
        absl_flags.DEFINE_string(field.name, None, field.metadata["about"], flag_values=settings)
    if rest := settings(others)[1:]:
        raise FlagError(f"unexpected argument {rest[0]!r}; settings are given as --name=value")
    config = flags.parse(preset, settings)
    if not options.grid:
        raise FlagError("--grid: not given; allowed is name:value,value;name:value of settings of the binary")
    grid = grids.parse(options.grid, type(preset))
    if twice := [name for name in grid if settings[name].present]:
        raise FlagError(f"--{twice[0]}={settings[twice[0]].value}: allowed is a setting that does not vary in --grid")
    given = [(field, str(settings[field.name].value)) for field in fields if settings[field.name].present]
    passed_on = tuple(f"--{field.name}={flags.read(field, value)}" for field, value in given)
    key = records.digest(flags.to_json(config) | {"grid": grids.as_text(grid)})[:8]
    default = Path("runs").joinpath(*experiment.name.split(".")) / f"{options.preset}-sweep-{key}"
    outdir = Path(options.outdir) if options.outdir else default
    lab.check_writable(outdir)
    plan = Plan(experiment, options.preset, config, grid, outdir, passed_on)
    folders = [task.folder for _, task in plan.cells()]  # every cell is checked here
    if len({str(folder).lower() for folder in folders}) < len(folders):
        raise FlagError(f"--grid={options.grid}: two cells would have the same folder")
    return options, plan


def binary(name: str) -> Experiment:
    """The experiment of a binary, imported alone.

    Raises:
      FlagError: where there is none of this name.
    """
    paper, _, figure = name.partition(".")
    if paper.isidentifier() and figure.isidentifier():
        with contextlib.suppress(ModuleNotFoundError):
            if importlib.util.find_spec(f"experiments.{name}") is not None:
                found = getattr(importlib.import_module(f"experiments.{name}"), "EXPERIMENT", None)
                if isinstance(found, Experiment):
                    return found
    raise FlagError(f"--binary={name}: there is no such binary; there are {', '.join(discover())}")


def _launcher(options: Sweep, outdir: Path, cells: int) -> Launcher:
    if options.executor == "local":
        return workers.LocalWorkers(options.workers, workers.visible_gpus())
    if importlib.util.find_spec("submitit") is None:
        raise FlagError(f"--executor={options.executor}: needs submitit: pip install -e '.[cluster]'")
    if options.executor == "slurm" and shutil.which("sbatch") is None:
        raise FlagError("--executor=slurm: there is no sbatch here; allowed is a machine of a SLURM cluster")
    kind, folder = options.executor.removeprefix("submitit_"), outdir / "submitit"
    return Cluster(kind, folder, options.workers, cells, options.minutes, options.gpus, options.slurm_partition)


def help_text() -> str:
    """What ``--help`` prints."""
    lines = [(__doc__ or "").strip(), ""]
    for field in dataclasses.fields(Sweep):
        shown = field.default if field.default != "" else "empty"
        lines.append(f"  --{field.name}: {field.metadata['about']} (default: {shown}; allowed: {flags.allowed(field)})")
    for field in dataclasses.fields(Options):
        if field.name in PASSED_ON:
            lines.append(f"  --{field.name}: {field.metadata['about']} (of every cell)")
    lines.append("  and every setting of the binary: python -m experiments.<binary> --help")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
