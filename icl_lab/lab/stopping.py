"""Stopping when a scheduler or a person asks: at the next checkpoint where one is near, and never inside a write."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

HEEDED = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
"""What a scheduler sends at the end, what SLURM can be told to send ahead of it (``--signal``), and Ctrl-C."""

_asked: list[int] = []  # the signals that came
_holding = 0  # how many sections are open in which they wait


class Stopped(KeyboardInterrupt):
    """A scheduler asked the run to stop; what was trained is in its checkpoints. No ``except Exception`` takes it."""


@contextlib.contextmanager
def heeding() -> Iterator[None]:
    """For the time of a run, signals stop it where nothing is lost; a signal that is ignored stays ignored.

    Elsewhere than in the main thread, where Python allows no handlers, this does nothing.

    Raises:
      Stopped: after SIGTERM or SIGUSR1: after a training's next checkpoint or after a write (``held``), else at once.
      KeyboardInterrupt: after Ctrl-C, in the same places; a second Ctrl-C waits for nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _asked.clear()
    before = {number: signal.getsignal(number) for number in HEEDED}
    before = {number: handler for number, handler in before.items() if handler not in (signal.SIG_IGN, None)}
    try:
        for number in before:
            signal.signal(number, _heed)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _asked.clear()


def requested() -> bool:
    """Whether the run was asked to stop."""
    return bool(_asked)


def stop() -> NoReturn:
    """Raises what the signal stands for; called where everything is saved."""
    if signal.SIGINT in _asked and len(set(_asked)) == 1:
        raise KeyboardInterrupt
    by = next((signal.Signals(number).name for number in _asked if number != signal.SIGINT), None)
    raise Stopped(f"stopped by {by}" if by else "stopped with another process of the run")


def check() -> None:
    """Stops here if the run was asked to and no section holds it."""
    if _asked and not _holding:
        stop()


@contextlib.contextmanager
def held() -> Iterator[None]:
    """A training or a write: a signal takes effect at its end, or after ``Checkpoint.save``."""
    global _holding
    _holding += 1
    try:
        yield
    finally:
        _holding -= 1
    check()


def _heed(number: int, _: FrameType | None) -> None:
    first, again = not _asked, number == signal.SIGINT and signal.SIGINT in _asked
    _asked.append(number)
    if again or (first and not _holding):  # a second SIGTERM finds it on its way out
        stop()
    elif number == signal.SIGINT and _holding:  # print could meet itself inside a signal handler
        os.write(2, b"\nstopping after the next checkpoint; Ctrl-C again stops at once\n")
