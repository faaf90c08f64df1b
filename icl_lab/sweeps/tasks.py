"""Tasks: commands with a folder of their own, held by one process at a time, that go on when they are run again."""

import dataclasses
import fcntl
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Protocol

LOG = "log.txt"
LOOKS, LOOK_SECONDS = 100, 0.01
"""How often, and how far apart, a claim lets pass who only looks whether the folder is held."""


@dataclasses.dataclass(frozen=True)
class Task:
    """One command with a folder of its own, whose log and lock lie there. Run again, the command goes on."""

    name: str
    folder: Path
    command: tuple[str, ...]

    def tail(self, lines: int = 15) -> str:
        """The end of the log."""
        try:
            return "\n".join((self.folder / LOG).read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""


class Job(Protocol):
    """A task that was started."""

    def status(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""

    def stop(self, now: bool) -> None:
        """Asks it to save and end; or ends it now."""


class Launcher(Protocol):
    """Starts tasks: on this machine, or on a cluster (``icl_lab.sweeps.cluster``)."""

    slots: int
    every_seconds: float

    def start(self, tasks: Sequence[Task]) -> "Sequence[Job | OSError | None]":
        """Starts tasks, at most as many as there are free slots.

        Returns:
          One of each: the job, None where another process holds the task, or why it could not be started this time.

        Raises:
          OSError: where none can be started, now or later.
        """


def claim(folder: Path) -> IO | None:
    """Holds a task's folder for this process and every one that inherits the file; None where another has it.

    The claim goes with the last process that has the file open, however it ends: a worker outlives the sweep that
    started it, and the next sweep waits for it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = open(folder / ".claim", "w+")  # noqa: SIM115
    if not _taken(handle) or _is_locked(folder / ".lock"):  # or: a run by hand
        handle.close()
        return None
    return handle


def is_held(folder: Path) -> bool:
    """Whether a sweep, a worker of one, or a run by hand is at work in the folder.

    To look is to hold a lock for a moment. While ``.lock`` is looked at nobody can claim the folder, so no worker finds
    its lock held by someone who only looks; who claims lets lookers pass.
    """
    try:
        with open(folder / ".claim") as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return _is_locked(folder / ".lock")
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return _is_locked(folder / ".lock")


def _taken(handle: IO) -> bool:
    """Takes the claim; False where another process has it, which one that only looks (with a shared lock) has not."""
    for _ in range(LOOKS):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            pass
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(handle, fcntl.LOCK_UN)
        time.sleep(random.uniform(0.5, 1.5) * LOOK_SECONDS)  # two who claim at once do not stay in step
    return False


def _is_locked(path: Path) -> bool:
    try:
        with open(path) as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False
