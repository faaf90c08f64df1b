"""What carries out a plan: this process, processes that it starts, or jobs of a cluster through submitit (an extra)."""

import collections
import dataclasses
import importlib.util
import logging
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.progress import Progress

from icl_lab.lab import stopping
from icl_lab.lab.execution import execute
from icl_lab.lab.flags import FlagError
from icl_lab.lab.options import Options
from icl_lab.lab.plans import Run
from icl_lab.lab.records import LOG
from icl_lab.training import processes

log = logging.getLogger("icl_lab")
GRACE_SECONDS = 120.0
"""What children have to save their state and end before they are killed."""


def say(progress: Progress, run: Run, words: str) -> None:
    """Prints what became of a run, above the bars."""
    progress.console.print(f"{run.name}: {words}", markup=False, highlight=False, soft_wrap=True)


def run_here(plan: Sequence[Run], progress: Progress, **how: Any) -> dict[Run, str]:
    """Carries out a plan in this process, with these options of ``execute``; one that raises does not stop the others.

    A run that another process holds is waited for (but not where several processes share this one).

    Returns:
      The runs that failed, and what they raised. What several processes share raises here.
    """
    failed: dict[Run, str] = {}
    how |= {"progress": progress, "wait": processes.count() == 1}
    bar = progress.add_task("all runs", total=len(plan))
    for run in plan:
        try:
            outcome = execute(run.experiment, run.preset, run.config, run.folder, **how)
            say(progress, run, f"{'ran' if outcome.ran else 'finished earlier'}, {run.folder}")
        except Exception as error:  # whatever one run raises, the others are worth running
            if processes.count() > 1:
                raise
            failed[run] = f"{type(error).__name__}: {error}"
            log.exception("%s did not finish", run.name)
        finally:
            for task in set(progress.task_ids) - {bar}:
                progress.remove_task(task)
        progress.advance(bar)
    return failed


def run_elsewhere(
    plan: Sequence[Run],
    start: Callable[[Sequence[Run]], Iterable[Any]],
    at_once: int,
    progress: Progress,
    every_seconds: float = 0.05,
    tell: Callable[[Progress, Run, str], None] = say,
) -> dict[Run, str]:
    """Carries out a plan in processes of its own; one that dies does not stop the others.

    Where this process is asked to stop, so are the children; a second Ctrl-C kills them.

    Args:
      plan: what is run.
      start: ``start_here``, or what ``starter`` returns: gives for each of some runs a child, with ``poll``,
        ``terminate`` and ``kill`` of ``subprocess.Popen``.
      at_once: how many children there are at once.
      progress: for a bar of all runs, and for what happened to each.
      every_seconds: between two looks at the children.
      tell: is called when a run has ended, with words that begin with "finished" or "failed".

    Returns:
      The runs that failed, and what is known of it.

    Raises:
      OSError: where a child cannot be started; the others have been asked to stop.
    """
    waiting, running, failed = collections.deque(plan), dict[Run, Any](), dict[Run, str]()
    bar = progress.add_task("all runs", total=len(plan))
    try:
        while waiting or running:
            ready = [waiting.popleft() for _ in range(min(len(waiting), at_once - len(running)))]
            with stopping.held():  # no child is started that is not written down here
                for run, child in zip(ready, start(ready) if ready else (), strict=True):
                    running[run] = child
            time.sleep(every_seconds)
            for run, child in list(running.items()):
                if (status := child.poll()) is None:
                    continue
                del running[run]
                words = "finished"
                if status or run.record() is None:
                    reason = f"status {status}" if status else "no record"
                    reason = f"killed by {signal.Signals(-status).name}" if status < 0 else reason
                    failed[run] = words = f"failed ({reason}); the end of {run.folder / LOG}:\n{_end_of_log(run)}"
                tell(progress, run, words)
                progress.advance(bar)
    finally:
        _end(list(running.values()))
    return failed


def start_here(runs: Sequence[Run]) -> Iterator[subprocess.Popen]:
    """A process on this machine for each run. Ctrl-C does not reach it: it has its own session.

    It is not bound to cores: XLA divides sums by the number of cores that it sees, so the last bits would be others.
    """
    for run in runs:
        yield start_process(run.command(), run.folder, start_new_session=True)


def start_process(command: Sequence[str], folder: Path, **how: Any) -> subprocess.Popen:
    """A process that writes to the log in its run folder, and takes of a GPU's memory what it needs."""
    folder.mkdir(parents=True, exist_ok=True)
    env = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ, "PYTHONIOENCODING": "utf-8"}
    with open(folder / LOG, "ab") as log_file:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log_file, stderr=log_file, env=env, **how)


def _end_of_log(run: Run) -> str:
    path = run.folder / LOG
    return "\n".join(path.read_text("utf-8", "replace").splitlines()[-15:]) if path.exists() else "(there is none)"


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


@dataclasses.dataclass(frozen=True)
class Job:
    """What a job calls: the command as a child, which is asked to save and end when the job is."""

    command: Sequence[str]
    folder: Path

    def __call__(self) -> None:
        """Waits for the child; the record shows how it ended."""
        # SLURM sends the signal that is meant for submitit to every process of a job
        with start_process(["sh", "-c", 'trap "" USR2; exec "$@"', "sh", *self.command], self.folder) as child:
            try:
                child.wait()
            finally:
                child.terminate()

    def checkpoint(self) -> Any:
        """What submitit calls before the job's time is over or it is preempted, and puts into the queue again."""
        import submitit

        return submitit.helpers.DelayedSubmission(self)


def starter(chosen: Options, folder: Path) -> Callable:
    """The ``start`` of ``run_elsewhere`` that submits runs together, to SLURM or submitit's stand-in.

    At most ``workers`` jobs of an array run at once, so many ``minutes`` before they are put into the queue again.
    submitit hands a job over as a pickle in ``folder``; nothing of it is read back here.

    Raises:
      FlagError: where submitit or ``sbatch`` is missing.
    """
    on_cluster = chosen.executor == "slurm"
    if importlib.util.find_spec("submitit") is None:
        raise FlagError(f"--executor={chosen.executor}: needs submitit: pip install -e '.[cluster]'")
    if on_cluster and shutil.which("sbatch") is None:
        raise FlagError("--executor=slurm: there is no sbatch here; allowed is a machine of a SLURM cluster")
    os.environ.setdefault("SUBMITIT_LOG_LEVEL", "NOCONFIG")  # it would close every handler of this process
    import submitit

    extras = {"slurm_max_num_timeout": 1000} if on_cluster else {}  # a long run goes on until it is finished
    executor = submitit.AutoExecutor(folder, cluster=chosen.executor.removeprefix("submitit_"), **extras)
    executor.update_parameters(timeout_min=chosen.minutes, name="grid", gpus_per_node=chosen.gpus or None)
    if on_cluster:
        executor.update_parameters(
            slurm_array_parallelism=chosen.workers, slurm_signal_delay_s=90,
            slurm_partition=chosen.slurm_partition or None,
        )  # fmt: skip

    def start(runs: Sequence[Run]) -> list[Any]:
        try:
            with executor.batch():
                jobs = [executor.submit(Job(run.command(), run.folder)) for run in runs]
        except RuntimeError as error:  # submitit's errors
            raise OSError(f"the cluster refused the jobs: {error}") from error
        return list(map(Submitted, jobs))

    return start


@dataclasses.dataclass(frozen=True)
class Submitted:
    """A job of a cluster, asked as a process is (``run_elsewhere``)."""

    job: Any

    def poll(self) -> int | None:
        """None while it runs or waits."""
        return 0 if self.job.done() else None

    def terminate(self) -> None:
        """Asks the cluster to end it."""
        self.job.cancel(check=False)

    kill = terminate
