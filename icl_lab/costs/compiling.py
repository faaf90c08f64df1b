"""Seconds of tracing and compilation."""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax


class Compiled:
    """Seconds that this process has traced and compiled for, counted while it lasts."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._spans: list[tuple[float, float]] = []

    def __call__(self, event: str, start_time: float, end_time: float, **_: Any) -> None:
        """Hears of an event that has ended."""
        if not event.startswith("/jax/core/compile/"):
            return
        while self._spans and self._spans[-1][0] >= start_time:  # tracing inside tracing: each moment counts once
            inner = self._spans.pop()
            self.seconds -= inner[1] - inner[0]
        self._spans.append((start_time, end_time))
        self.seconds += end_time - start_time


@contextlib.contextmanager
def compiling() -> Iterator[Compiled]:
    """Counts seconds of tracing and compilation; programs kept on disk are left out, so that all is compiled."""
    counted, kept = Compiled(), jax.config.jax_enable_compilation_cache  # type: ignore[attr-defined]
    jax.config.update("jax_enable_compilation_cache", False)
    jax.monitoring.register_event_time_span_listener(counted)
    try:
        yield counted
    finally:
        jax.monitoring.unregister_event_time_span_listener(counted)
        jax.config.update("jax_enable_compilation_cache", kept)
