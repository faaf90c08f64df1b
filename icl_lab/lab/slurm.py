"""Runs as jobs of a cluster, through submitit (an optional extra): a SLURM array, or submitit's local stand-in.

submitit hands a job over as a pickle in a folder of its own; nothing of it is read back here: whether a run is finished
is told by its record.
"""

import contextlib
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from icl_lab.lab.plans import Run
from icl_lab.lab.workers import start

STOPPING_SECONDS = 60
"""What a run has to save its state where the cluster asks its job to leave."""


class Job:
    """What a job calls: the command as a child, which is asked to save and end when the job is preempted."""

    def __init__(self, command: Sequence[str], folder: Path):
        self.command, self.folder = command, folder
        self._child: subprocess.Popen | None = None

    def __call__(self) -> int:
        """The command's exit status."""
        # SLURM sends the signal that is meant for submitit to every process of a job
        deaf = ["sh", "-c", 'trap "" USR2; exec "$@"', "sh", *self.command]
        try:
            self._child = start(deaf, self.folder, {})
            return self._child.wait()
        finally:
            self._end_child()

    def checkpoint(self) -> Any:
        """What submitit calls before the job's time is over or it is preempted, and puts into the queue again."""
        import submitit  # an optional extra

        self._end_child()
        return submitit.helpers.DelayedSubmission(Job(self.command, self.folder))

    def _end_child(self) -> None:
        """Waits without ``Popen.wait``, whose lock is taken where a signal handler came in between."""
        child, deadline = self._child, time.monotonic() + STOPPING_SECONDS
        if child is None or child.returncode is not None:
            return
        child.terminate()
        with contextlib.suppress(ChildProcessError):
            while not os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
                if time.monotonic() > deadline:
                    break
                time.sleep(0.1)
        child.kill()


class Array:
    """Jobs of a cluster; an array where several are submitted together."""

    def __init__(self, kind: str, folder: Path, runs: int, workers: int, minutes: int, gpus: int, partition: str):
        """Args: ``slurm`` or ``local``, submitit's folder, how many runs; at once; of a job."""
        slurm = kind == "slurm"
        self.slots = max(runs, 1) if slurm else workers  # SLURM's queue holds what is not its turn
        self.every_seconds = 5.0 if slurm else 0.2
        os.environ.setdefault("SUBMITIT_LOG_LEVEL", "NOCONFIG")  # it would close every handler of this process
        import submitit  # an optional extra

        extras = {"slurm_max_num_timeout": 1000} if slurm else {}  # a long run goes on until it is finished
        self._executor = submitit.AutoExecutor(folder, cluster=kind, **extras)
        self._executor.update_parameters(timeout_min=minutes, name="sweep", gpus_per_node=gpus or None)
        if slurm:
            self._executor.update_parameters(
                slurm_array_parallelism=workers,
                slurm_signal_delay_s=STOPPING_SECONDS + 30,
                slurm_partition=partition or None,
            )

    def start(self, runs: Sequence[Run]) -> list[Any]:
        """Submits runs together; the cluster's words for each where it refuses."""
        try:
            with self._executor.batch():
                jobs = [self._executor.submit(Job(run.command(), run.folder)) for run in runs]
        except (RuntimeError, OSError) as error:  # submitit's errors, or no process for sbatch
            return [OSError(f"the cluster refused the jobs: {error}")] * len(runs)
        return [_Submitted(job) for job in jobs]


class _Submitted:
    def __init__(self, job: Any):
        self._job = job

    def poll(self) -> int | None:
        return 0 if self._job.done() else None  # what came of it is told by the record

    def terminate(self) -> None:
        self._job.cancel(check=False)

    kill = terminate
