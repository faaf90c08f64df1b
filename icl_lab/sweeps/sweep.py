"""A sweep: every cell of a grid is a run of the ordinary binary in a folder of its own; all cells become one record."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from icl_lab import command_line as lab
from icl_lab import flags, records, stopping
from icl_lab.experiment import Experiment, draw
from icl_lab.grids import cells as grids
from icl_lab.grids import report as grid_report
from icl_lab.grids.combining import merged
from icl_lab.grids.side_by_side import side_by_side
from icl_lab.records import Record, RecordError
from icl_lab.sweeps.scheduling import run_all
from icl_lab.sweeps.tasks import LOG, Launcher, Task, is_held

FAILED = 1
"""Exit status where cells failed."""


class Plan(NamedTuple):
    """What a sweep runs.

    Attributes:
      experiment: the binary.
      preset: which preset ``config`` started from.
      config: what the cells change.
      grid: what varies.
      outdir: of the sweep.
      options: more words for every cell's command line.
    """

    experiment: Experiment
    preset: str
    config: Any
    grid: grids.Grid
    outdir: Path
    options: tuple[str, ...] = ()

    def cells(self) -> list[tuple[grids.Cell, Task]]:
        """Every cell, with the command that runs it."""
        found = []
        for cell in grids.cells(self.grid, self.config, self.experiment):
            folder = self.outdir / "cells" / cell.folder
            program = (sys.executable, "-m", f"experiments.{self.experiment.name}", f"--preset={self.preset}")
            words = (*flags.to_flags(cell.config), *self.options, f"--outdir={folder}")
            found.append((cell, Task(cell.label, folder, (*program, *words))))
        return found


def sweep(plan: Plan, launcher: Launcher, attempts: int, cells: Sequence[tuple[grids.Cell, Task]] | None = None) -> int:
    """Runs what is not finished and merges all; returns the exit status.

    Args:
      plan: what to run.
      launcher: what runs it.
      attempts: how often a cell is started before it is given up.
      cells: with other commands than those of the binary.

    Raises:
      RecordError: where a cell's folder holds a run of another configuration.
    """
    started = time.monotonic()
    cells = plan.cells() if cells is None else cells
    configs = {task: cell for cell, task in cells}
    unfinished = [task for cell, task in cells if record_of(plan.experiment, cell, task) is None]
    with asked_to_stop() as asked, lab.console_progress() as progress:
        bar = progress.add_task(plan.experiment.name, total=len(cells), completed=len(cells) - len(unfinished))

        def say(line: str) -> None:
            progress.console.print(line, markup=False, highlight=False, soft_wrap=True)

        def tell(what: str, task: Task, details: str) -> None:
            if what in ("finished", "elsewhere"):
                progress.advance(bar)
            words = "finished by another sweep" if what == "elsewhere" else what
            say(f"{task.name}: {words}{f' ({details})' if details else ''}")
            if what == "failed":
                say(f"  the end of {task.folder / LOG}:\n{task.tail() or '(empty: the command did not start)'}")

        say(f"{len(cells)} cells, {len(cells) - len(unfinished)} finished earlier; everything is in {plan.outdir}")
        failed = run_all(
            unfinished,
            launcher,
            lambda task: record_of(plan.experiment, configs[task], task) is not None,
            attempts=attempts,
            tell=tell,
            asked_to_stop=lambda: len(asked),
        )
    if asked:
        print(f"stopped by {asked[0].name}; the same command goes on", file=sys.stderr)
        return lab.INTERRUPTED if asked[0] == signal.SIGINT else lab.RESUMABLE
    if failed:
        print(f"cells that failed, so nothing is merged: {', '.join(task.name for task in failed)}", file=sys.stderr)
        return FAILED
    found = [record_of(plan.experiment, *cell) for cell in cells]
    conclude(plan, [record for record in found if record is not None], time.monotonic() - started)
    return lab.DONE


def record_of(experiment: Experiment, cell: grids.Cell, task: Task) -> Record | None:
    """The record of a finished cell, None where there is none that can be used.

    Raises:
      RecordError: where the folder holds a run of another configuration.
    """
    try:
        record = records.load(task.folder)
    except RecordError:
        return None
    if record.experiment != experiment.name or dict(record.config) != flags.to_json(cell.config):
        raise RecordError(f"{task.folder} holds a run of another configuration; choose another --outdir")
    return record


def state(experiment: Experiment, cell: grids.Cell, task: Task) -> str:
    """What ``--list`` says of a cell."""
    if record_of(experiment, cell, task) is not None:
        return "finished"
    if is_held(task.folder):
        return "at work"
    return "begun" if (task.folder / "checkpoints").exists() else "waiting"


def conclude(plan: Plan, found: list[Record], seconds: float) -> None:
    """One record of all cells, its table and figures; a record of another grid in the folder is set aside."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # a GPU's memory is left to workers of other sweeps
    record = merged(plan.experiment, plan.preset, plan.config, plan.grid, found, seconds)
    with _locked_soon(plan.outdir):
        with contextlib.suppress(RecordError):
            if dict(records.load(plan.outdir).config) != dict(record.config):
                aside = records.set_record_aside(plan.outdir)
                lab.log.warning("the record of another grid is kept as %s", ", ".join(path.name for path in aside))
        records.save(record, plan.outdir, claims=[])
        grid_report.write(record, plan.outdir)
        draw(side_by_side(plan.experiment, plan.grid), record, plan.outdir)
    console = Console() if sys.stdout.isatty() else Console(width=160)
    console.print(grid_report.table(record))
    console.print(f"done in {seconds:.0f} s; everything is in {plan.outdir}")


@contextlib.contextmanager
def asked_to_stop() -> Iterator[list[signal.Signals]]:
    """The signals that asked this process to stop, as they come; outside the main thread there are none."""
    asked: list[signal.Signals] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = {number: signal.getsignal(number) for number in stopping.HEEDED}
    for number, handler in before.items():
        if handler not in (signal.SIG_IGN, None):
            signal.signal(number, lambda number, _: asked.append(signal.Signals(number)))
    try:
        yield asked
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


@contextlib.contextmanager
def _locked_soon(folder: Path, seconds: float = 60.0) -> Iterator[None]:
    """The folder's lock; another sweep that has come to its end has it for a moment."""
    deadline = time.monotonic() + seconds
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(records.locked(folder))
                break
            except RecordError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        yield
