"""What a running experiment may use beside its configuration: resumable training and progress bars."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.progress import Progress

from icl_lab import memory, processes, records, stopping
from icl_lab.checkpoints import Checkpoint
from icl_lab.devices import member_mesh
from icl_lab.shared_checkpoint import SharedCheckpoint
from icl_lab.training import Fit, fit

log = logging.getLogger("icl_lab")


class Session:
    """What a running experiment may use beside its configuration: resumable training and progress bars.

    Attributes:
      stages: of every training so far: ``seconds`` in this process, ``memory`` in bytes on each device.
    """

    def __init__(
        self,
        folder: Path,
        fingerprint: str,
        checkpoint_seconds: float,
        progress: Progress | None,
        memory_gb: float = 0.0,
    ):
        self._folder, self._fingerprint, self._every, self._progress = folder, fingerprint, checkpoint_seconds, progress
        self._memory_limit = memory.limit(memory_gb)
        self.stages: dict[str, dict[str, float]] = {}

    def fit(self, stage: str, *args, **options) -> Fit:
        """``training.fit`` with this stage's checkpoint and progress bar. A finished stage is not trained again.

        Raises:
          ValueError: for a stage that this run has trained: its checkpoint would stand for this training too.
        """
        if stage in self.stages:
            raise ValueError(f"stage {stage!r} is trained twice in one run; every training needs a name of its own")
        checkpoint = Checkpoint(
            self._folder / "checkpoints" / stage, records.digest([self._fingerprint, stage]), self._every
        )
        began = time.monotonic()
        with self.bar(stage, options["steps"]) as advance, stopping.training():
            resume = checkpoint if processes.count() == 1 else SharedCheckpoint(checkpoint)
            result = fit(
                *args, resume=resume, progress=advance, mesh=member_mesh(), memory_limit=self._memory_limit, **options
            )
        self.stages[stage] = {"seconds": round(time.monotonic() - began, 1), "memory": result.memory}
        stopped = np.flatnonzero(result.diverged_at >= 0)
        if stopped.size:
            steps = ", ".join(f"{m} at step {result.diverged_at[m]}" for m in stopped[:8])
            log.warning(
                "%s: %d of %d members diverged and were stopped (member %s%s)",
                stage,
                stopped.size,
                result.diverged_at.size,
                steps,
                ", ..." if stopped.size > 8 else "",
            )
        return result

    def bar(self, label: str, total: int) -> "_Bar":
        """A progress bar as a context; call what it gives with ``(done, total)``."""
        return _Bar(self._progress, label, total)


class _Bar:
    def __init__(self, progress: Progress | None, label: str, total: int):
        self._progress, self._label, self._total = progress, label, total

    def __enter__(self) -> Callable[[int, int], None]:
        if self._progress is None:
            return lambda done, total: stopping.check()
        task = self._progress.add_task(self._label, total=self._total)

        def advance(done: int, total: int) -> None:
            self._progress.update(task, completed=done, total=total)  # type: ignore[union-attr]
            stopping.check()

        return advance

    def __exit__(self, *exception) -> None:
        return None
