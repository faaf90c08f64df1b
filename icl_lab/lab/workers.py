"""Runs as worker processes on this machine."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from icl_lab.lab.plans import LOG, Run


class Workers:
    """Processes on this machine, each in a session of its own, so that Ctrl-C reaches the one that started them alone.

    They are not bound to cores: XLA divides sums by the number of cores that it sees, so a worker on its share of them
    would give other last bits than the binary alone.
    """

    every_seconds = 0.05

    def __init__(self, workers: int, gpus: Sequence[str] = ()):
        """Args: how many at once; the GPUs that they share, as CUDA_VISIBLE_DEVICES names them."""
        self.slots, self._gpus = workers, gpus
        self._in_slot: dict[int, subprocess.Popen] = {}

    def start(self, runs: Sequence[Run]) -> list[subprocess.Popen | OSError]:
        """A process for each run, or why there is none."""
        return [self._start(run) for run in runs]

    def environment(self, slot: int) -> Mapping[str, str]:
        """What the worker in a slot sees: of several GPUs the one that is its turn, and memory as it needs it."""
        if not self._gpus:
            return {}
        shared = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} if self.slots > len(self._gpus) else {}
        return {"CUDA_VISIBLE_DEVICES": self._gpus[slot % len(self._gpus)], **shared}

    def _start(self, run: Run) -> subprocess.Popen | OSError:
        slot = next(i for i in range(self.slots) if i not in self._in_slot or self._in_slot[i].poll() is not None)
        try:
            self._in_slot[slot] = start(run.command(), run.folder, self.environment(slot), start_new_session=True)
        except OSError as error:
            return error
        return self._in_slot[slot]


def start(command: Sequence[str], folder: Path, environment: Mapping[str, str], **how: Any) -> subprocess.Popen:
    """A process that writes to the log in its run folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / LOG, "ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **environment}, **how
        )


def visible_gpus() -> list[str]:
    """The NVIDIA GPUs that this process may use, without waking them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name]
    return sorted(path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*"))
