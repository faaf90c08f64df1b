"""What a running experiment may use beside its configuration: resumable training and progress bars."""

import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
from rich.progress import Progress

from icl_lab.lab import stopping
from icl_lab.lab.checkpoints import Checkpoint
from icl_lab.lab.profile import Profile
from icl_lab.lab.provenance import digest
from icl_lab.lab.trainings import Fits, Table
from icl_lab.training import memory
from icl_lab.training.ensembles import member_mesh
from icl_lab.training.fitting import Fit
from icl_lab.training.plans import Training
from icl_lab.training.progress import lines

log = logging.getLogger("icl_lab")


@dataclasses.dataclass
class Session:
    """What a running experiment may use beside its configuration: resumable training and progress bars.

    ``stages`` says of every training so far ``members``, ``steps`` taken, ``seconds`` in this process and ``memory`` in
    bytes on each device, and of a resumed one ``resumed``, the steps that earlier processes had taken.
    """

    folder: Path
    fingerprint: str
    checkpoint_seconds: float
    progress: Progress | None
    memory_gb: float = 0.0
    stages: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    profile: Profile = dataclasses.field(default_factory=Profile)

    def fits(self, table: Table) -> Fits:
        """The trainings of a table, carried out here as they are asked for."""
        return Fits(table, self.fit, bar=self.bar, checkpoint=self.checkpoint)

    def fit(self, stage: str, training: Training) -> Fit:
        """Carries a training out with this stage's checkpoint and progress bar. A finished stage is not trained again.

        Raises:
          ValueError: for a stage that this run has trained: its checkpoint would stand for this training too.
        """
        if stage in self.stages:
            raise ValueError(f"stage {stage!r} is trained twice in one run; every training needs a name of its own")
        began = time.monotonic()
        with self.bar(stage, training.steps) as advance, stopping.held(), self.profile.training(stage):
            result = training.carried_out(
                resume=self.checkpoint(stage), mesh=member_mesh(),
                watch=lambda done, row: advance(done, training.steps, row),
                memory_limit=memory.limit(self.memory_gb), warn=False,
            )  # fmt: skip
        self.stages[stage] = taken(result, time.monotonic() - began)
        stopped = np.flatnonzero(result.diverged_at >= 0)
        if stopped.size:
            named = [f"{m} at step {result.diverged_at[m]}" for m in stopped[:8]] + ["..."] * (stopped.size > 8)
            counts = (stage, stopped.size, result.diverged_at.size)
            log.warning("%s: %d of %d members diverged and were stopped (member %s)", *counts, ", ".join(named))
        return result

    def checkpoint(self, stage: str) -> Checkpoint:
        """Where a stage, a training (``fit``) or other work, keeps ``{"state": pytree, "metrics": arrays}``."""
        fingerprint = digest([self.fingerprint, stage])
        return Checkpoint(self.folder / "checkpoints" / stage, fingerprint, self.checkpoint_seconds)

    @contextlib.contextmanager
    def bar(self, label: str, total: int) -> Iterator[Callable[..., None]]:
        """A progress bar as a context, where it cannot move one line a minute.

        Call what it gives with ``(done, total)`` and, after them, what was measured then by name, (M, ...).
        """
        progress = self.progress or Progress(disable=True)
        task, console = progress.add_task(label, total=total), progress.console
        silent, say = progress.disable or console.quiet or console.is_terminal, lines(label)

        def advance(done: int, total: int, row: Mapping[str, np.ndarray] = MappingProxyType({})) -> None:
            progress.update(task, completed=done, total=total)
            if not silent:
                say(done, total, row)
            stopping.check()

        yield advance


def taken(fit: Fit, seconds: float) -> dict[str, float]:
    """What a training took, as ``Session.stages`` has it."""
    stage = {"members": fit.diverged_at.size, "steps": int(fit.steps[-1]), "seconds": round(seconds, 1)}
    return stage | {"memory": fit.memory} | ({"resumed": fit.resumed} if fit.resumed else {})
