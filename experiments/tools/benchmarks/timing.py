"""Timing in rounds: what is compared takes turns, so that another process on the machine slows all of it alike."""

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from icl_lab.lab.flags import setting

PARTS = ("steps", "others", "induction", "members", "startup", "page")
Train = Callable[[Callable[[int, int], None]], Any]
"""``progress -> fit(..., progress=progress)``."""


@dataclasses.dataclass(frozen=True)
class Config:
    """What is timed, and how often."""

    only: tuple[str, ...] = setting(
        PARTS[:3], "parts to run; members, for accelerators, joins the default there", choices=PARTS
    )
    networks: tuple[str, ...] = setting(
        ("looped_1", "looped_2", "free_5"), "networks to train", choices=("looped_1", "looped_2", "free_5")
    )
    rounds: int = setting(9, "rounds in which everything that is compared takes turns", at_least=1)
    batch: int = setting(2048, "tasks in a training step", at_least=1)
    other_batch: int = setting(256, "tasks in a training step of the part others", at_least=1)
    chunk: int = setting(100, "training steps of a compiled chunk of fit", at_least=1)
    loop_steps: int = setting(6, "steps of the plain loop in a round", at_least=1)
    induction_members: int = setting(16, "members of the ensemble of induction networks", at_least=1)
    members: tuple[int, ...] = setting((1, 64, 1024), "members in one program, in the part members", at_least=1)


@dataclasses.dataclass(frozen=True)
class Timing:
    """Milliseconds of one unit of work (a training step of one member, a draw ...), one value a round.

    Attributes:
      compile_ms: of the first call beyond the median later one: tracing and compilation.
      rounds: (R,) milliseconds.
    """

    compile_ms: float
    rounds: np.ndarray

    @property
    def ms(self) -> float:
        """The median round."""
        return float(np.median(self.rounds))


def ratio(slow: Timing, fast: Timing) -> float:
    """How many times faster: the median over rounds of the ratio within a round."""
    return float(np.median(slow.rounds / fast.rounds))


Row = dict[str, Any]
"""One line of the record: milliseconds of a unit of work, how often it fits into its baseline's, other columns."""


def row(name: str, timing: Timing, base: Timing | None = None, **columns: float | str) -> Row:
    """A row with its fastest round and its compilation."""
    times = {"milliseconds": timing.ms, "ratio": None if base is None else ratio(base, timing)}
    return {"name": name, **times, "best ms": float(timing.rounds.min()), "compile ms": timing.compile_ms, **columns}


def take_turns(contenders: Mapping[str, tuple[Callable[[], Any], int]], rounds: int) -> dict[str, Timing]:
    """Times every contender once a round.

    Args:
      contenders: by name, a function that does its work to the end, and how many units of work that is. What it returns
        is waited for.
      rounds: R, after one call that compiles and one that warms up.
    """
    first, times = {}, {name: np.empty(rounds) for name in contenders}
    for name, (run, _) in contenders.items():
        first[name] = _milliseconds(run)
        _milliseconds(run)
    for r in range(rounds):
        for name, (run, units) in contenders.items():
            times[name][r] = _milliseconds(run) / units
    return {
        name: Timing(max(0.0, first[name] - float(np.median(times[name])) * units), times[name])
        for name, (_, units) in contenders.items()
    }


def _milliseconds(run: Callable[[], Any]) -> float:
    started = time.perf_counter()
    jax.block_until_ready(run())
    return 1e3 * (time.perf_counter() - started)


class _Stop(Exception):  # noqa: N818
    pass


class _Chunks:
    """A call of ``fit`` on a thread of its own, held at every chunk boundary until it is called again."""

    def __init__(self, train: Train):
        self._go, self._there = threading.Semaphore(0), threading.Semaphore(0)
        self._stopping = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(train,), daemon=True)
        self._thread.start()

    def _run(self, train: Train) -> None:
        try:
            self._go.acquire()
            if not self._stopping:  # before its first call, where another contender has failed
                train(self._boundary)
        except _Stop:
            pass
        except BaseException as error:
            self._error = error
        self._there.release()

    def _boundary(self, done: int, total: int) -> None:
        if done == 0:  # compiled initialisation; on to the first chunk
            return
        self._there.release()
        self._go.acquire()
        if self._stopping:
            raise _Stop

    def __call__(self) -> None:
        """Runs one chunk."""
        self._go.release()
        self._there.acquire()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Ends the training."""
        self._stopping = True
        self._go.release()
        self._thread.join()


@contextmanager
def chunks_of_fit(trains: Mapping[str, Train]) -> Iterator[dict[str, Callable]]:
    """Trainings that run one chunk of ``fit`` at each call, so that they can take turns.

    Args:
      trains: by name, ``progress -> fit(..., progress=progress)``.
    """
    running = {name: _Chunks(train) for name, train in trains.items()}
    try:
        yield dict(running)
    finally:
        for chunks in running.values():
            chunks.stop()
