"""The command line of a binary: its flags, ``--help``, progress bars, exit statuses."""

import contextlib
import importlib
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jax
from absl import flags as absl_flags
from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from icl_lab import machine
from icl_lab.lab import flags, options, report, stopping
from icl_lab.lab.constraints import Constraint, check
from icl_lab.lab.execution import default_outdir, execute
from icl_lab.lab.experiment import EFFORT, Experiment
from icl_lab.lab.flags import FlagError
from icl_lab.lab.options import Options, check_compiling, check_writable, described, help_text
from icl_lab.lab.plans import Grid, Run, parse_grid
from icl_lab.lab.provenance import code_version, precision
from icl_lab.lab.record import RecordError
from icl_lab.training import effort, finite, memory, processes

DONE, FAILED, REFUSED, RESUMABLE, INTERRUPTED = 0, 1, 2, 75, 130
"""Exit statuses: done; an error in one of several processes or cells; refused, or what went wrong is said; stopped by a
scheduler or for want of another process (EX_TEMPFAIL); stopped by Ctrl-C."""
log = logging.getLogger("icl_lab")
C = TypeVar("C")


class Screen(Console):
    """A console whose reader may go: what then ends the process is ``machine.speaking``, not rich."""

    def on_broken_pipe(self) -> None:
        """Lets the error pass."""
        raise


@machine.speaking()
def main(experiment: Experiment, argv: Sequence[str] | None = None) -> int:
    """A binary's command line; returns the exit status, one of those above. A bug in a single process raises."""
    experiment = _imported(experiment)
    experiment.check_complete()
    words = list(sys.argv if argv is None else argv)
    start_logging()
    if {"-h", "--help"} & set(words[1:]):
        print(help_text(experiment))
        return DONE
    try:
        chosen, target = parse_command_line(experiment, words)
    except (absl_flags.Error, FlagError, OSError) as error:
        return refused(f"{error}\nTry --help.")
    use_compilation_cache()
    with stopping.heeding():
        try:
            return _carry_out(chosen, target)
        except BrokenPipeError:
            raise
        except processes.RefusedError as error:  # by all processes alike, so each ends in peace
            return refused(error)
        except (FlagError, memory.DoesNotFitError, RecordError, OSError) as error:
            return processes.leave(refused(error))
        except KeyboardInterrupt as error:
            return processes.leave(stopped(error))
        except processes.LostError as error:
            refused(error)
            return processes.leave(RESUMABLE)
        except Exception:
            if processes.count() == 1:
                raise
            traceback.print_exc()
            return processes.leave(FAILED)


def _imported(experiment: Experiment) -> Experiment:
    """``python -m`` runs the binary as ``__main__``; ``<figure>_shown`` imports it again under its own name. Returns
    the EXPERIMENT of that second module, so both use one object."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is None or spec.name != f"experiments.{experiment.name}":
        return experiment
    return importlib.import_module(spec.name).EXPERIMENT


def refused(why: object) -> int:
    """Says what is wrong; returns the exit status."""
    print(f"error: {why}", file=sys.stderr)
    return REFUSED


def stopped(error: KeyboardInterrupt) -> int:
    """Says that a run was stopped, by a scheduler or Ctrl-C, and how it goes on; returns the exit status."""
    by_scheduler = isinstance(error, stopping.Stopped)
    print(f"{error if by_scheduler else 'interrupted'}; the same command resumes", file=sys.stderr)
    return RESUMABLE if by_scheduler else INTERRUPTED


def _carry_out(chosen: Options, target: Run | Grid) -> int:
    if chosen.distributed:
        _join(chosen, target)
    finite.check()
    plan = target.runs() if isinstance(target, Grid) else [target]
    if chosen.dry_run:
        from icl_lab.lab import dry_run

        cost = dry_run.cost(target.experiment, target.preset, plan[0].config, memory.limit(chosen.memory_gb))
        _print(dry_run.said(cost, len(plan)))
        return DONE
    if not processes.is_writer():
        log.setLevel(logging.ERROR)
    how = {name: getattr(chosen, name) for name in ("overwrite", "checkpoint_seconds", "memory_gb")}
    if isinstance(target, Grid):
        from icl_lab.lab import executors

        def carry_out(runs: Sequence[Run], progress: Progress) -> Collection[Run]:
            if not options.elsewhere(chosen):
                return executors.run_here(runs, progress, **how)
            if chosen.executor == "local":
                return executors.run_elsewhere(runs, executors.start_here, chosen.workers, progress)
            # SLURM's queue holds what is not its turn
            at_once, seconds = (len(runs), 5.0) if chosen.executor == "slurm" else (chosen.workers, 0.2)
            start = executors.starter(chosen, target.folder / "submitit")
            return executors.run_elsewhere(runs, start, at_once, progress, seconds)

        return carry_out_grid(target, carry_out, again=chosen.overwrite)
    with console_progress() as progress:
        how |= {"progress": progress, "wait": chosen.wait}
        outcome = execute(target.experiment, target.preset, target.config, target.folder, **how)
    if processes.is_writer():
        _print("\n".join(map(report.line, outcome.ledger)))
        state = "ran" if outcome.ran else "finished earlier"
        if chosen.profile:
            from icl_lab.lab import profile

            _print(profile.table(outcome.record.provenance))
        _print(f"{state} in {outcome.seconds:.0f} s; everything is in {target.folder}")
    return DONE


def carry_out_grid(
    grid: Grid, carry_out: Callable[[Sequence[Run], Progress], Collection[Run]], again: bool = False
) -> int:
    """Runs the cells of a grid that are not finished (``again``: all) and merges all; returns the exit status.

    Args:
      grid: of cells.
      carry_out: carries out a plan and returns the runs that failed.
      again: finished cells are run again.

    Raises:
      RecordError: where the folder is no grid's, or a cell's folder holds a run of another configuration.
    """
    from icl_lab.lab import merging

    started, runs = time.monotonic(), grid.runs()
    over = grid.folder / merging.OVER
    processes.led(lambda: merging.check_place(grid))

    def to_run() -> list[int]:
        if again and not over.exists():  # a grid that is stopped and started again keeps the cells of this time
            grid.folder.mkdir(parents=True, exist_ok=True)
            over.touch()
        paths = [run.folder / "record.json" for run in runs]
        stale = [again and path.exists() and path.stat().st_mtime_ns < over.stat().st_mtime_ns for path in paths]
        return [i for i, run in enumerate(runs) if stale[i] or not run.is_finished()]

    left = processes.led(to_run)
    _print(f"{len(runs)} cells, {len(runs) - len(left)} finished earlier; everything is in {grid.folder}")
    with console_progress() as progress:
        failed = carry_out([runs[i] for i in left], progress)
    if failed:
        print(f"cells that failed, so nothing is merged: {', '.join(run.name for run in failed)}", file=sys.stderr)
        return FAILED
    cells = (run.record() for run in runs)  # which process 0 alone reads
    processes.led(lambda: merging.merge(grid, [cell for cell in cells if cell], time.monotonic() - started))
    processes.led(lambda: over.unlink(missing_ok=True))
    _print("what claims are about at each setting: summary.csv and summary.png there")
    return DONE


def _print(shown: Any) -> None:
    """Prints for a person, in the process that does so."""
    if processes.is_writer():
        console = Screen() if sys.stdout.isatty() else Screen(width=160)
        console.print(shown, soft_wrap=isinstance(shown, str), markup=False)


def _join(chosen: Options, target: Run | Grid) -> None:
    """Makes this process one of several, all of which must be of the same command."""
    processes.start(chosen.coordinator, chosen.processes, chosen.process)
    alike = ("preset", "grid", "overwrite", "precision", "memory_gb")
    given = {name: getattr(chosen, name) for name in alike} | flags.to_json(target.config)
    code = {"binary": target.experiment.name, "the code": code_version(target.experiment.source_version())[:12]}
    processes.same_everywhere(code | precision() | {f"--{name}": value for name, value in given.items()})
    processes.led(lambda: check_writable(target.folder))


def console_progress() -> Progress:
    """The progress bars of the binaries (on stderr; silent where it is not a terminal, but for the last state)."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Screen(stderr=True, quiet=not processes.is_writer())
    return Progress(*columns, TimeRemainingColumn(), console=console)


def start_logging() -> None:
    """Warnings of the laboratory go to stderr in one form, also above a progress bar."""
    log.handlers[:] = [RichHandler(console=Screen(stderr=True), show_path=False, show_time=False)]
    log.setLevel(logging.INFO)
    log.propagate = False


def use_compilation_cache(root: Path = Path("runs")) -> None:
    """Keeps compiled programs on disk, so that repeats start at once (never changes a number).

    Each kind of processor has a folder of its own below ``root``. Where JAX has been told of a folder
    (``JAX_COMPILATION_CACHE_DIR``) they are kept there.
    """
    config: Any = jax.config  # whose names no type checker knows
    if not config.jax_compilation_cache_dir:
        jax.config.update("jax_compilation_cache_dir", os.fspath(machine.compiled_programs(root)))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    # diffrax checks its arguments by calls back into Python, and such programs are not kept; ours are checked before
    os.environ.setdefault("EQX_ON_ERROR", "off")


def parse_command_line(experiment: Experiment, words: list[str]) -> tuple[Options, Run | Grid]:
    """How to run and what, from the command line; settles how JAX computes.

    Raises:
      absl flags.Error, FlagError: naming the flag, the value and what is allowed.
    """
    check_compiling()
    values = absl_flags.FlagValues()
    flags.define(Options, values)
    flags.define(type(experiment.presets["paper"]), values)
    _read(values, words)
    chosen = flags.parse(Options(), values)
    check(chosen, options.CONSTRAINTS)
    effort.whole_process(EFFORT.get(chosen.preset, "full"))
    config = flags.parse(experiment.presets[chosen.preset], values)
    experiment.validate(config)
    outdir = Path(chosen.outdir) if chosen.outdir else default_outdir(experiment, chosen.preset, config)
    target: Run | Grid = Run(experiment.name, experiment, chosen.preset, config, outdir)
    if chosen.grid:
        varying = parse_grid(chosen.grid, type(config))
        if twice := [name for name in varying if values[name].present]:
            raise FlagError(f"--{twice[0]}={values[twice[0]].value}: allowed is what does not vary in --grid")
        target = Grid(experiment, chosen.preset, config, varying, outdir if chosen.outdir else None)
        target = target._replace(outdir=target.folder.absolute(), options=options.of_cells(chosen))
        target.runs()  # each is checked
    if not chosen.distributed:  # of several processes only the first one writes
        check_writable(target.folder)
    jax.config.update("jax_default_matmul_precision", chosen.precision)
    if (devices := options.cpu_devices(chosen)) > 1:
        with contextlib.nullcontext() if chosen.cpu_devices else contextlib.suppress(RuntimeError):  # JAX has begun
            jax.config.update("jax_num_cpu_devices", devices)
    return chosen, target


@machine.speaking()
def command(
    about: str | None,
    usual: C,
    run: Callable[[C], int],
    argv: Sequence[str] | None = None,
    constraints: Iterable[Constraint] = (),
) -> int:
    """The command line of anything else: ``run`` with what flags make of ``usual``; returns the exit status.

    ``usual`` is a dataclass of settings as that of a binary, between which ``constraints`` must hold. What ``run``
    refuses by FlagError, RecordError or OSError is said too.
    """
    words, values = list(sys.argv if argv is None else argv), absl_flags.FlagValues()
    flags.define(type(usual), values)
    if {"-h", "--help"} & set(words[1:]):
        print("\n".join([(about or "").strip(), "", *described(usual, {"": usual})]))
        return DONE
    try:
        _read(values, words)
        options = flags.parse(usual, values)
        check(options, constraints)
        return run(options)
    except BrokenPipeError:
        raise
    except (absl_flags.Error, FlagError, RecordError, OSError) as error:
        return refused(f"{error}\nTry --help.")


def _read(values: absl_flags.FlagValues, words: Sequence[str]) -> None:
    """Reads flags, and refuses any other word."""
    if rest := values(list(words))[1:]:
        raise FlagError(f"unexpected argument {rest[0]!r}; settings are given as --name=value")
