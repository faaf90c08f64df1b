"""What every binary has beside its configuration: which preset and grid are run, how, and where that is possible."""

import dataclasses
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax

from icl_lab.lab import flags
from icl_lab.lab.constraints import Constraint, holds
from icl_lab.lab.experiment import EFFORT, PRESETS, Experiment
from icl_lab.lab.flags import FlagError, setting
from icl_lab.lab.report import with_zeros
from icl_lab.machine import cores

OF_JOBS = ("slurm_partition", "minutes", "gpus")
PASSED_ON = ("overwrite", "checkpoint_seconds", "precision", "memory_gb", "cpu_devices")


@dataclasses.dataclass(frozen=True)
class Options:
    """Flags of every binary. Beside the preset and the grid, none changes a number by more than rounding."""

    preset: str = setting("quick", "size of the run", choices=PRESETS)
    grid: str = setting("", "settings to run one after the other, as learning_rate:1e-4,1e-3;seed:0,1 (quote the ;)")
    outdir: str = setting("", "run folder; empty: a folder under runs/ named by preset and configuration", path=True)
    overwrite: bool = setting(False, "run again over a finished run")
    wait: bool = setting(False, "if another run works in the folder, wait for its end instead of refusing")
    dry_run: bool = setting(False, "estimate what the run would cost, by timing its trainings for a second, and stop")
    profile: bool = setting(False, "print what was compiled, for how long, and the steps a second of each training")
    checkpoint_seconds: float = setting(15.0, "seconds between checkpoints", at_least=0)
    precision: str = setting(
        "highest", "precision of float32 products on accelerators (recorded)", choices=("highest", "high", "default")
    )
    memory_gb: float = setting(
        0.0, "GiB for training on each accelerator, or on the CPU (members take turns within it); 0: all", at_least=0
    )
    cpu_devices: int = setting(
        0, "devices that a CPU counts as, which share the members; 0: at lab and paper one a core, else 1", at_least=0
    )
    workers: int = setting(
        1, "cells of --grid that run at once, each in a process of its own; 1: one after the other in this process",
        at_least=1,
    )  # fmt: skip
    executor: str = setting(
        "local", "what runs the cells of --grid: processes here, or jobs (extra: cluster), --workers at once",
        choices=("local", "slurm", "submitit_local"),
    )  # fmt: skip
    slurm_partition: str = setting("", "partition of SLURM; empty: its default")
    minutes: int = setting(
        240, "minutes of a cluster job; then it stops at a checkpoint and is queued again", at_least=2
    )
    gpus: int = setting(0, "GPUs of a cluster job", at_least=0)
    distributed: bool = setting(
        False, "one of several processes that share the members (SLURM, Open MPI, Kubernetes and Cloud TPU are found)"
    )
    coordinator: str = setting("", "host:port of process 0, if --distributed finds no cluster by itself")
    processes: int = setting(0, "number of processes, with --coordinator", at_least=0)
    process: int = setting(-1, "number of this process, from 0, with --coordinator", at_least=-1)


def elsewhere(options: Options) -> bool:
    """Whether the cells of a grid run in processes of their own."""
    return options.workers > 1 or options.executor != "local"


def cpu_devices(options: Options) -> int:
    """As how many devices a CPU counts in this process."""
    alone = not (options.preset in EFFORT or options.distributed or elsewhere(options))
    return options.cpu_devices or (cores() if alone else 1)


def of_cells(options: Options) -> tuple[str, ...]:
    """The words with which every cell of a grid is run in a process of its own; preset and folder are those of Run."""
    given = {name: getattr(options, name) for name in PASSED_ON}
    if options.workers > 1 and options.executor == "local":  # they share the cores
        given["cpu_devices"] = options.cpu_devices or 1
    return tuple(f"--{name}={value}" for name, value in given.items() if value != getattr(Options(), name))


def _named(options: Options) -> bool:
    """Whether the place of this process among others is given whole, or not at all."""
    given, usual = ((o.coordinator, o.processes, o.process) for o in (options, Options()))
    whole = re.fullmatch(r".+:\d+", options.coordinator) and 0 <= options.process < options.processes
    return given == usual or bool(options.distributed and whole)


def _of_jobs(name: str) -> Constraint:
    usual = getattr(Options(), name)
    return holds(
        "with --executor=slurm, submitit_local", name,
        when=lambda o: o.executor != "local" or getattr(o, name) == usual,
    )  # fmt: skip


_OF_GRIDS = "with --grid, and without --distributed"
CONSTRAINTS = (
    holds("a single process, without --distributed", "dry_run", when=lambda o: not (o.dry_run and o.distributed)),
    holds("a run, without --dry_run", "profile", when=lambda o: not (o.profile and o.dry_run)),
    holds("a single run, without --grid", "profile", when=lambda o: not (o.profile and o.grid)),
    *map(_of_jobs, OF_JOBS),
    holds(_OF_GRIDS, "executor", when=lambda o: o.executor == "local" or (o.grid and not o.distributed)),
    holds(_OF_GRIDS, "workers", when=lambda o: not elsewhere(o) or (o.grid and not o.distributed)),
    holds(
        "with --distributed, as host:port, a number P >= 1, and one from 0 to P - 1",
        "coordinator", "processes", "process", when=_named,
    ),
)  # fmt: skip


def check_compiling() -> None:
    """Refuses an environment in which JAX compiles nothing, before any work."""
    config: Any = jax.config  # whose names no type checker knows
    if config.jax_disable_jit:
        raise FlagError("JAX_DISABLE_JIT is set: a training is one compiled program; allowed is JAX_DISABLE_JIT=0")


def check_writable(outdir: Path, flag: str = "outdir") -> None:
    """Refuses an outdir that is a file or cannot be written, before any work."""
    existing = next(p for p in (outdir, *outdir.absolute().parents) if p.exists())
    if not existing.is_dir():
        raise FlagError(f"--{flag}={outdir}: {existing} is not a folder")
    try:  # in /proc everything may be written, and nothing can be made
        tempfile.TemporaryFile(dir=existing).close()
    except OSError as error:
        problem = f"{existing} cannot be written ({error.strerror}); allowed is a folder you can write"
        raise FlagError(f"--{flag}={outdir}: {problem}") from error


def help_text(experiment: Experiment) -> str:
    """What ``--help`` prints: the science, the flags with their presets, what is allowed."""
    return with_zeros("\n".join([
        experiment.about.strip(), "", f"python -m experiments.{experiment.name} --preset=quick", "",
        "How it is run (beside --preset and --grid, none of these changes a number by more than rounding):",
        *described(Options(), {"": Options()}),
        f"Settings, which --preset chooses together ({', '.join(PRESETS)}):",
        *described(experiment.presets["paper"], experiment.presets, experiment.unused),
    ]))  # fmt: skip


def described(of: Any, configs: Mapping[str, Any], hidden: Collection[str] = ()) -> Iterator[str]:
    """Two lines for each flag: what it means; its value in each of some configurations, and what is allowed."""
    for field in (field for field in dataclasses.fields(of) if field.name not in hidden):
        shown = {name: flags.text(getattr(config, field.name), ",") or "empty" for name, config in configs.items()}
        same = f"{next(iter(shown.values()))}{' in every preset' if len(shown) > 1 else ''}"
        values = same if len(set(shown.values())) == 1 else "; ".join(f"{k} {v}" for k, v in shown.items())
        yield f"  --{field.name}: {field.metadata['about']}"
        yield f"      {values}. Allowed: {flags.allowed(field)}"
