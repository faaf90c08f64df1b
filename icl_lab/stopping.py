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

_asked: list[signal.Signals] = []
_training: list[object] = []  # lists, as a signal may come between any two lines: append and remove are one step each
_writing: list[object] = []
_raised: list[bool] = []


class Stopped(KeyboardInterrupt):
    """A scheduler asked the run to stop; what was trained is in its checkpoints. No ``except Exception`` takes it."""


@contextlib.contextmanager
def heeding() -> Iterator[None]:
    """For the time of a run, signals stop it where nothing is lost; a signal that is ignored stays ignored.

    Elsewhere than in the main thread, where Python allows no handlers, this does nothing.

    Raises:
      Stopped: after SIGTERM or SIGUSR1: during a training after the checkpoint at the end of the present chunk, during
        a write after it, otherwise at once.
      KeyboardInterrupt: after Ctrl-C, in the same places; a second Ctrl-C does not wait for the chunk.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _forget()
    before = {number: signal.getsignal(number) for number in HEEDED}
    mine = [number for number, handler in before.items() if handler not in (signal.SIG_IGN, None)]
    try:
        for number in mine:
            signal.signal(number, _heed)
        yield
    finally:
        for number in mine:
            signal.signal(number, before[number])
        _forget()


def requested() -> bool:
    """Whether the run was asked to stop."""
    return bool(_asked)


def stop() -> NoReturn:
    """Raises what the signal stands for; called where everything is saved."""
    _raised.append(True)
    schedulers = [number for number in _asked if number != signal.SIGINT]
    if schedulers:
        raise Stopped(f"stopped by {schedulers[0].name}")
    raise KeyboardInterrupt


def check() -> None:
    """Stops here if the run was asked to and is neither in a training nor in a write."""
    if _asked and not _training and not _writing:
        stop()


@contextlib.contextmanager
def training() -> Iterator[None]:
    """A section that saves its state now and then: it is stopped right after it has (``Checkpoint.save``)."""
    with _section(_training):
        yield
    check()


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """A section that no signal breaks; a signal that came takes effect at its end."""
    with _section(_writing):
        yield
    check()


@contextlib.contextmanager
def _section(open_sections: list[object]) -> Iterator[None]:
    token = object()
    open_sections.append(token)
    try:
        yield
    finally:
        open_sections.remove(token)


def _heed(number: int, _: FrameType | None) -> None:
    again = signal.SIGINT in _asked
    _asked.append(signal.Signals(number))
    if _writing or (_raised and number != signal.SIGINT):  # it is on its way out: nothing more to raise
        return
    if _training and not (number == signal.SIGINT and again):
        if number == signal.SIGINT:  # print could meet itself inside a signal handler
            os.write(2, b"\nstopping after the next checkpoint; Ctrl-C again stops at once\n")
        return
    stop()


def _forget() -> None:
    for state in (_asked, _training, _writing, _raised):
        state.clear()
