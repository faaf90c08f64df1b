"""Functions that run side by side and wait for each other where they ask for something, so that it is done for all."""

import contextlib
import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

Answer = TypeVar("Answer")
Ask = Callable[[Any], Any]


class _Abandoned(BaseException):
    """Raised inside a function that will not be answered any more."""


class _Runner:
    """One function on a thread of its own, of which one at a time runs."""

    def __init__(self, function: Callable[[Ask], Any]):
        self._turn, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._stop = self._busy = False
        self.request: Any = None
        self.answer: Any = None
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False
        self._thread = threading.Thread(target=self._run, args=(function,), daemon=True)
        self._thread.start()

    def _run(self, function: Callable[[Ask], Any]) -> None:
        self._turn.acquire()
        try:
            if not self._stop:
                self.result = function(self._ask)
        except _Abandoned:
            pass
        except BaseException as error:
            self.error = error
        self.done = True
        self._back.release()

    def _ask(self, request: Any) -> Any:
        self.request = request
        self._back.release()
        self._turn.acquire()
        if self._stop:
            raise _Abandoned
        return self.answer

    def advance(self) -> None:
        """Lets the function run until it asks or ends."""
        self._busy = True
        self._turn.release()
        while not self._back.acquire(timeout=0.2):
            pass  # a signal that another thread got is handled here, between two tries
        self._busy = False
        if self.error is not None:
            raise self.error

    def abandon(self) -> None:
        """Ends the function where it asks, or before it begins; where it is at work, as soon as it runs Python."""
        self._stop = True
        if self._busy and not self.done and (thread := self._thread.ident) is not None:
            # A signal came while it was at work. Python has no other way to end a thread that does not look.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(_Abandoned))
        if not self.done:
            self._turn.release()
            self._thread.join()


def in_lockstep(
    functions: Sequence[Callable[[Ask], Answer]], serve: Callable[[list[tuple[int, Any]]], Sequence[Any]]
) -> list[Answer]:
    """What the functions return; each is given ``ask(request) -> answer``.

    All run until they ask or end, one after the other; then ``serve`` answers all that asked at once. Nothing runs at
    the same time as anything else, so the order of events is always the same. ``serve`` runs on the calling thread.

    Args:
      functions: C functions.
      serve: ``[(which function, its request), ...] -> answers`` in that order.

    Raises:
      Whatever a function or ``serve`` raises; the other functions end where they ask.
    """
    runners = [_Runner(function) for function in functions]
    try:
        waiting = list(range(len(runners)))
        while waiting:
            for i in waiting:
                runners[i].advance()
            waiting = [i for i in waiting if not runners[i].done]
            if waiting:
                for i, answer in zip(waiting, serve([(i, runners[i].request) for i in waiting]), strict=True):
                    runners[i].answer = answer
        return [runner.result for runner in runners]
    finally:
        for runner in runners:
            with contextlib.suppress(Exception):
                runner.abandon()
