"""What carries out a plan: this process, or others that a launcher starts (``workers.Workers``, ``slurm.Array``)."""

import collections
import logging
import signal
import time
from collections.abc import Sequence
from typing import Any

import jax
from rich.progress import Progress

from icl_lab.lab import stopping
from icl_lab.lab.experiment import Outcome, execute
from icl_lab.lab.plans import LOG, Run
from icl_lab.lab.records import LockedError, is_locked
from icl_lab.training import processes

log = logging.getLogger("icl_lab")
AGAIN_SECONDS = 1.0
"""How long until a run that another process holds, or that could not be started, is looked at again."""
GRACE_SECONDS = 120.0
"""What children have to save their state and end before they are killed."""


def run_here(plan: Sequence[Run], progress: Progress, **how: Any) -> list[Outcome | Exception]:
    """Carries out a plan in this process, one run after the other; one that raises does not stop the others.

    Args:
      plan: what is run.
      progress: for a bar of all runs beside those of each.
      how: options of ``execute``.

    Returns:
      For each run its outcome, or what it raised. What several processes share raises here.
    """
    found: dict[Run, Outcome | Exception] = {}
    overall, waiting = progress.add_task("all runs", total=len(plan)), collections.deque(plan)
    while waiting:
        run = waiting.popleft()
        progress.update(overall, description=run.name)
        try:
            found[run] = outcome = execute(run.experiment, run.preset, run.config, run.folder, progress=progress, **how)
            said = f"ran in {outcome.seconds:.0f} s" if outcome.ran else "finished earlier"
            progress.console.print(f"{run.name}: {said}, {run.folder}", markup=False, highlight=False, soft_wrap=True)
        except LockedError:  # another process is at work on it
            waiting.append(run)
            time.sleep(AGAIN_SECONDS)
            continue
        except Exception as error:  # whatever one run raises, the others are worth running
            if processes.count() > 1:
                raise
            found[run] = error
            log.exception("%s did not finish", run.name)
        finally:
            for task in set(progress.task_ids) - {overall}:
                progress.remove_task(task)
        progress.advance(overall)
        if waiting and waiting[0].experiment is not run.experiment:
            jax.clear_caches()  # the programs of one binary are of no use to the next
    progress.update(overall, description="all runs")
    return [found[run] for run in plan]


def run_elsewhere(plan: Sequence[Run], launcher: Any, attempts: int, progress: Progress) -> dict[Run, str]:
    """Carries out a plan in processes of its own; one that dies is started again, at no cost to the others.

    A run that another process holds is waited for. Where this process is asked to stop, so are the children; a second
    Ctrl-C kills them.

    Args:
      plan: what is run.
      launcher: ``workers.Workers`` or ``slurm.Array``; ``start(runs)`` gives for each a child, with ``poll``,
        ``terminate`` and ``kill`` of ``subprocess.Popen``, or an OSError that says why there is none.
      attempts: how often a run is started before it is given up.
      progress: for a bar of all runs, and for what happened to each.

    Returns:
      The runs that failed, and what is known of it.
    """
    waiting, running, failed = collections.deque(plan), dict[Run, Any](), dict[Run, str]()
    tries: collections.Counter[Run] = collections.Counter()
    bar = progress.add_task("all runs", total=len(plan))

    def say(run: Run, words: str, done: int = 0) -> None:
        progress.console.print(f"{run.name}: {words}", markup=False, highlight=False, soft_wrap=True)
        progress.advance(bar, done)

    def ready() -> list[Run]:
        found: list[Run] = []
        for _ in range(len(waiting)):
            if len(running) + len(found) >= launcher.slots:
                break
            run = waiting.popleft()
            if is_locked(run.folder):
                waiting.append(run)
            elif not tries[run] and run.record() is not None:
                say(run, "finished by another process", done=1)
            else:
                found.append(run)
        return found

    def ended(run: Run, status: int | OSError) -> None:
        if run.record() is not None and (status == 0 or tries[run] >= attempts):
            say(run, "finished", done=1)
        elif is_locked(run.folder):
            tries[run] -= 1  # another process is at work on it, and this one gave way
            waiting.append(run)
        elif tries[run] < attempts:
            say(run, f"restarted ({_in_words(status)}; attempt {tries[run] + 1} of {attempts})")
            waiting.append(run)
        else:
            failed[run] = f"{_in_words(status)}, attempt {attempts} of {attempts}"
            path = run.folder / LOG
            end = path.read_text(errors="replace").splitlines()[-15:] if path.exists() else ["(there is none)"]
            say(run, "\n".join([f"failed ({failed[run]})", f"  the end of {path}:", *end]), done=1)

    try:
        while waiting or running:
            if runs := ready():
                with stopping.held():  # no child is started that is not written down here
                    running |= dict(zip(runs, launcher.start(runs), strict=True))
                    tries.update(runs)
            time.sleep(launcher.every_seconds)
            for run, child in list(running.items()):
                status = child if isinstance(child, OSError) else child.poll()
                if status is not None:
                    del running[run]
                    ended(run, status)
                if isinstance(status, OSError):
                    time.sleep(AGAIN_SECONDS)
    finally:
        _end([child for child in running.values() if not isinstance(child, OSError)])
    return failed


def _end(children: Sequence[Any]) -> None:
    """Asks children to save and end, and waits; what takes too long, or a second Ctrl-C, kills them."""
    deadline = time.monotonic() + GRACE_SECONDS
    try:
        for child in children:
            child.terminate()
        while any(child.poll() is None for child in children) and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        while alive := [child for child in children if child.poll() is None]:
            for child in alive:
                child.kill()
            time.sleep(0.05)


def _in_words(status: int | OSError) -> str:
    """An exit status, or why there is none."""
    if isinstance(status, OSError):
        return f"could not be started: {status}"
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return "ended without a result" if status == 0 else f"ended with status {status}"
