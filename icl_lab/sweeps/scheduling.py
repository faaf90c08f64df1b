"""Runs tasks, as many at once as there are slots; each is started again when it dies, and can go on when stopped."""

import collections
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence

from icl_lab.sweeps.tasks import Job, Launcher, Task, is_held

AGAIN_SECONDS = 1.0
"""How long until a task that another process holds, or that could not be started, is looked at again."""
GRACE_SECONDS = 120.0
"""What a task that is asked to stop has for its checkpoint before it is killed."""

Tell = Callable[[str, Task, str], None]
"""``tell(what, task, details)``; what is finished, restarted, failed or "elsewhere" (finished by another sweep)."""


def run_all(
    tasks: Iterable[Task],
    launcher: Launcher,
    finished: Callable[[Task], bool],
    *,
    attempts: int,
    tell: Tell,
    asked_to_stop: Callable[[], int],
) -> list[Task]:
    """Runs tasks until each is finished or has died too often; the death of one costs the others nothing.

    Args:
      tasks: what is to be run.
      launcher: what starts them.
      finished: whether a task's result is there, whoever made it.
      attempts: how often a task is started before it is given up.
      tell: hears what happened to each task.
      asked_to_stop: how often the sweep was asked to stop. At the first time workers are asked in turn, and waited for;
        at the second they are killed.

    Returns:
      The tasks that failed, in the order in which they did. Whoever asked it to stop knows that others are missing.

    Raises:
      OSError: from a launcher that can start no task at all.
    """
    waiting, not_before = collections.deque(tasks), collections.defaultdict[str, float](float)
    running: dict[Task, Job] = {}
    tries: collections.Counter[str] = collections.Counter()
    failed: list[Task] = []

    def ended(task: Task, status: int | OSError) -> None:
        if finished(task) and (status == 0 or tries[task.name] >= attempts):
            tell("finished", task, "")
        elif is_held(task.folder):
            tries[task.name] -= 1  # another process is at work on it, and this worker gave way
            try_later(task)
        elif tries[task.name] < attempts:
            tell("restarted", task, f"{said(status)}; attempt {tries[task.name] + 1} of {attempts}")
            (try_later if isinstance(status, OSError) else waiting.append)(task)
        else:
            failed.append(task)
            tell("failed", task, f"{said(status)}, {attempts} times")

    def try_later(task: Task) -> None:
        not_before[task.name] = time.monotonic() + AGAIN_SECONDS
        waiting.append(task)

    def start_waiting() -> None:
        ready: list[Task] = []
        for _ in range(len(waiting)):
            if len(running) + len(ready) >= launcher.slots:
                break
            task = waiting.popleft()
            if time.monotonic() < not_before[task.name]:
                waiting.append(task)
            elif not tries[task.name] and finished(task):
                tell("elsewhere", task, "")
            else:
                ready.append(task)
        for task, job in zip(ready, launcher.start(ready) if ready else ()):
            if job is None:
                try_later(task)
                continue
            tries[task.name] += 1
            if isinstance(job, OSError):
                ended(task, job)
            else:
                running[task] = job

    try:
        while (waiting or running) and not asked_to_stop():
            start_waiting()
            time.sleep(launcher.every_seconds)
            for task, job in list(running.items()):
                if (status := job.status()) is not None:
                    del running[task]
                    ended(task, status)
    finally:
        _stop(list(running.values()), asked_to_stop)
    return failed


def _stop(jobs: Sequence[Job], asked_to_stop: Callable[[], int]) -> None:
    """Asks jobs to stop and waits for them; kills what takes too long, or at the second time of asking."""
    for job in jobs:
        job.stop(now=False)
    deadline = time.monotonic() + GRACE_SECONDS
    left = [job for job in jobs if job.status() is None]
    while left:
        if asked_to_stop() > 1 or time.monotonic() > deadline:
            for job in left:
                job.stop(now=True)
        time.sleep(0.05)
        left = [job for job in left if job.status() is None]


def said(status: int | OSError) -> str:
    """An exit status, or why there is none, in words."""
    if isinstance(status, OSError):
        return f"could not be started: {status}"
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(-status).name}"
    if status == 0:
        return "ended without a result"
    return f"stopped (status {status})" if status in (os.EX_TEMPFAIL, 130) else f"ended with status {status}"
