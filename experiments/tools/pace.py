"""How long the rest of a plan takes: committed seconds, scaled by how fast runs went here."""

import json
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.progress import ProgressColumn, Task
from rich.text import Text

from icl_lab.lab.plans import Run


def committed_seconds(names: Iterable[str], preset: str, gallery: Path) -> dict[str, float]:
    """Seconds of every binary at a preset as committed: of ``seconds.json``, else of the record's provenance.

    A binary of which neither is there gets the median of the others.
    """
    path = gallery / "seconds.json"
    listed = json.loads(path.read_bytes()).get(preset, {}) if path.exists() else {}

    def seconds(name: str) -> float | None:
        origin = gallery.joinpath(*name.split("."), preset, "provenance.json")
        return listed.get(name) or (json.loads(origin.read_bytes()).get("seconds") if origin.exists() else None)

    times = {name: seconds(name) for name in names}
    usual = statistics.median([value for value in times.values() if value] or [60.0])
    return {name: value or usual for name, value in times.items()}


class Pace:
    """What has ended, what runs, what waits; ``expected`` are seconds of each run."""

    def __init__(self, expected: Mapping[Run, float], workers: int, clock: Callable[[], float] = time.monotonic):
        self._expected, self._workers, self._clock = dict(expected), workers, clock
        self._began: dict[Run, float] = {}
        self._took: dict[Run, float] = {}
        self._finished: set[Run] = set()

    def begins(self, run: Run) -> None:
        """A run has started."""
        self._began[run] = self._clock()

    def ends(self, run: Run, finished: bool = True) -> None:
        """A run has ended; what one took that did not finish says nothing of the others."""
        self._took[run] = self._clock() - self._began.pop(run, self._clock())
        self._finished |= {run} if finished else set()

    def seconds(self, run: Run) -> float:
        """What an ended run took."""
        return self._took[run]

    def ratio(self) -> float:
        """Seconds here over committed ones, of what has ended; before that at least what is running shows."""
        if self._finished:
            return sum(self._took[run] for run in self._finished) / sum(self._expected[run] for run in self._finished)
        now = self._clock()
        return max([1.0, *((now - began) / self._expected[run] for run, began in self._began.items())])

    def left(self) -> float:
        """Seconds until all have ended: the work that is left over the workers, at least the longest run of it.

        A run that takes longer than it should is given another tenth of what it has taken.
        """
        now, ratio = self._clock(), self.ratio()
        taken = {run: now - began for run, began in self._began.items()}
        running = [max(ratio * self._expected[run] - s, s / 10) for run, s in taken.items()]
        waiting = [ratio * s for run, s in self._expected.items() if run not in self._began and run not in self._took]
        return max([(sum(running) + sum(waiting)) / self._workers, *running, *waiting])

    def words(self) -> str:
        """``about 4 min left``."""
        left = self.left()
        return f"about {left / 60:.0f} min left" if left >= 90 else f"about {max(10 * round(left / 10), 10)} s left"


class Left(ProgressColumn):
    """A column of a progress bar that says how long the plan still takes."""

    max_refresh = 1.0

    def __init__(self, pace: Pace):
        super().__init__()
        self._pace = pace

    def render(self, task: Task) -> Text:
        """What is left, nothing once all have ended."""
        return Text("" if task.finished else self._pace.words())


def timed(start: Callable[[Any], Iterable[Any]], pace: Pace) -> Callable[[Any], Iterable[Any]]:
    """A ``start`` of an executor that tells the pace when it starts a run."""

    def begin(runs: Any) -> Iterable[Any]:
        for run, child in zip(runs, start(runs), strict=True):
            pace.begins(run)
            yield child

    return begin
