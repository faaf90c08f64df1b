"""Tasks as jobs of a cluster, through submitit (an optional extra): a SLURM array, or submitit's local stand-in.

submitit hands a job over as a pickle in a folder of its own; nothing of it is read back here: whether a task is
finished is told by its folder.
"""

import contextlib
import importlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from icl_lab.sweeps.tasks import LOG, Job, Task, claim

STOPPING_SECONDS = 60
"""What a command has to save its state where the cluster asks a job to leave."""
POLL_SECONDS = 0.2
"""How often a job looks whether its command has ended."""


class Command:
    """What a job calls: the task's command as a child, which is asked to save and end when the job is preempted."""

    def __init__(self, task: Task):
        self.task = task
        self._child: subprocess.Popen | None = None

    def __call__(self) -> int | None:
        """The command's exit status; None where another process is at work on the task."""
        if (held := claim(self.task.folder)) is None:
            return None
        with held, open(self.task.folder / LOG, "ab") as log, _deaf_to_submitit():
            self._child = child = subprocess.Popen(
                self.task.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(held.fileno(),),
            )
        try:
            while (status := _ended(child)) is None:
                time.sleep(POLL_SECONDS)
            return status
        finally:
            self._end_child()

    def checkpoint(self) -> Any:
        """What submitit calls before the job's time is over or it is preempted, and puts into the queue again."""
        self._end_child()
        self._child = None
        return _submitit().helpers.DelayedSubmission(self)

    def _end_child(self) -> None:
        if self._child is not None and self._child.poll() is None:
            self._child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(STOPPING_SECONDS)


def _ended(child: subprocess.Popen) -> int | None:
    """The exit status, None while it runs.

    ``Popen`` holds a lock while it asks. submitit calls ``checkpoint`` from a signal handler of this same thread: if it
    came in between, or in a ``wait`` without end, the handler could never learn that the child has ended.
    """
    with _deaf_to_submitit():
        return child.poll()


@contextlib.contextmanager
def _deaf_to_submitit() -> Iterator[None]:
    """What is done here is not broken by the signal that is meant for submitit, and processes started never get it.

    SLURM sends it to every process of a job; it would end the command before that is asked to save.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Cluster:
    """Jobs of a cluster; an array where several are submitted together."""

    def __init__(self, kind: str, folder: Path, workers: int, tasks: int, minutes: int, gpus: int, partition: str):
        """Args: of a job.

        kind: "slurm", or "local" for submitit's stand-in.
        folder: for submitit's own files.
        workers: how many jobs run at once.
        tasks: how many there are.
        minutes: after which a job is stopped at a checkpoint and put into the queue again.
        gpus: of a job.
        partition: of SLURM; empty for the default.
        """
        submitit, slurm = _submitit(), kind == "slurm"
        self.slots = max(tasks, 1) if slurm else workers  # SLURM's queue holds what is not its turn
        self.every_seconds = 5.0 if slurm else 0.2
        extras = {"slurm_max_num_timeout": 1000} if slurm else {}  # a long cell goes on until it is finished
        self._executor = submitit.AutoExecutor(folder, cluster=kind, **extras)
        wanted: dict[str, Any] = {"timeout_min": minutes, "name": "sweep"}
        if gpus:
            wanted["gpus_per_node"] = gpus
        if slurm:
            wanted |= {"slurm_array_parallelism": workers, "slurm_signal_delay_s": STOPPING_SECONDS + 30}
            if partition:
                wanted["slurm_partition"] = partition
        self._executor.update_parameters(**wanted)
        self._took_some = False

    def start(self, tasks: Sequence[Task]) -> list[Job | OSError | None]:
        """Submits tasks, together; an error for each where the cluster that took others does not take these.

        A job finds out by itself whether another process holds its task.

        Raises:
          OSError: with the cluster's words where it refuses the first ones.
        """
        try:
            with self._executor.batch():
                jobs = [self._executor.submit(Command(task)) for task in tasks]
        except (RuntimeError, OSError) as error:  # submitit's errors, or no process for sbatch
            refused = OSError(f"the cluster refused the jobs: {error}")
            if not self._took_some:
                raise refused from error
            return [refused] * len(tasks)
        self._took_some = True
        return [_Submitted(job) for job in jobs]


def _submitit() -> Any:
    """submitit, kept from setting up logging when it is imported: that would close every handler of this process."""
    before = os.environ.get("SUBMITIT_LOG_LEVEL")
    os.environ["SUBMITIT_LOG_LEVEL"] = "NOCONFIG"
    try:
        return importlib.import_module("submitit")
    finally:
        del os.environ["SUBMITIT_LOG_LEVEL"]  # jobs do set it up
        if before is not None:
            os.environ["SUBMITIT_LOG_LEVEL"] = before


class _Submitted:
    def __init__(self, job: Any):
        self._job = job

    def status(self) -> int | None:
        return 0 if self._job.done() else None  # what came of it is told by the task's folder

    def stop(self, now: bool) -> None:
        self._job.cancel(check=False)
