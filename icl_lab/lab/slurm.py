"""Runs as jobs of a cluster, through submitit (an optional extra): a SLURM array, or submitit's local stand-in."""

import dataclasses
import importlib.util
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from icl_lab.lab.executors import start_process
from icl_lab.lab.flags import FlagError
from icl_lab.lab.options import Options
from icl_lab.lab.plans import Run


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
        import submitit  # an optional extra

        return submitit.helpers.DelayedSubmission(self)


def starter(chosen: Options, folder: Path) -> Callable:
    """The ``start`` of ``executors.run_elsewhere`` that submits runs together, to SLURM or submitit's stand-in.

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
    import submitit  # an optional extra

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
        return [_child(job) for job in jobs]

    return start


def _child(job: Any) -> Any:
    def cancel() -> None:
        job.cancel(check=False)

    return SimpleNamespace(poll=lambda: 0 if job.done() else None, terminate=cancel, kill=cancel)
