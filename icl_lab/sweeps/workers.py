"""Tasks as worker processes on this machine."""

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from icl_lab.sweeps.tasks import LOG, Job, Task, claim


class LocalWorkers:
    """Worker processes on this machine, each in a session of its own, so that Ctrl-C reaches the sweep alone.

    They are not bound to cores: XLA divides sums by the number of cores that it sees, so a worker on its share of them
    would give other last bits than the binary alone.
    """

    every_seconds = 0.05

    def __init__(self, workers: int, gpus: Sequence[str] = ()):
        """Args: how many at once; the GPUs that they share, as CUDA_VISIBLE_DEVICES names them."""
        self.slots, self._gpus = workers, gpus
        self._taken: set[int] = set()

    def start(self, tasks: Sequence[Task]) -> list[Job | OSError | None]:
        """Starts tasks; None for one that another process holds, an error where no process could be made."""
        found: list[Job | OSError | None] = []
        for task in tasks:
            try:
                found.append(self._start(task))
            except OSError as error:
                found.append(error)
        return found

    def environment(self, slot: int) -> Mapping[str, str]:
        """What the worker in a slot sees: of several GPUs the one that is its turn, and memory as it needs it."""
        if not self._gpus:
            return {}
        shared = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} if self.slots > len(self._gpus) else {}
        return {"CUDA_VISIBLE_DEVICES": self._gpus[slot % len(self._gpus)], **shared}

    def _start(self, task: Task) -> Job | None:
        if (held := claim(task.folder)) is None:
            return None
        slot = next(i for i in range(self.slots) if i not in self._taken)
        with held, open(task.folder / LOG, "ab") as log:
            process = subprocess.Popen(
                task.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment(slot)},
                pass_fds=(held.fileno(),),
                start_new_session=True,
            )
        self._taken.add(slot)
        return _Process(process, lambda: self._taken.discard(slot))


class _Process:
    def __init__(self, process: subprocess.Popen, freed: Callable[[], None]):
        self._process, self._freed = process, freed

    def status(self) -> int | None:
        status = self._process.poll()
        if status is not None:
            self._freed()
        return status

    def stop(self, now: bool) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL if now else signal.SIGTERM)


def visible_gpus() -> list[str]:
    """The NVIDIA GPUs that this process may use, without waking them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name]
    return sorted(path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*"))
