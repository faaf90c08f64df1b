"""What it costs to be stopped and resumed, and to write checkpoints and records."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmarks.programs import program
from experiments.benchmarks.timing import Config, Row
from experiments.von_oswald.common import Setting
from icl_lab.lab import records, stopping
from icl_lab.lab.checkpoints import Checkpoint
from icl_lab.lab.options import Options
from icl_lab.lab.records import Record
from icl_lab.lab.session import Session
from icl_lab.models import LinearSelfAttention
from icl_lab.training.fitting import Fit


class _Timed(Session):
    """A session that notes when its training begins and can end it by SIGTERM in the middle.

    Attributes:
      ready_after: seconds from the call until the first chunk: initialisation, compilation, loading.
      seconds: of the call, however it ended.
    """

    def __init__(self, folder: Path, stop_at: float = 2.0):
        super().__init__(folder, "benchmark", Options().checkpoint_seconds, None)
        self._stop_at, self._started = stop_at, 0.0
        self.ready_after = self.seconds = 0.0

    @contextlib.contextmanager
    def _heard(self) -> Iterator[Callable[[int, int], None]]:
        def progress(done: int, total: int) -> None:
            self.ready_after = self.ready_after or time.perf_counter() - self._started
            if done >= self._stop_at * total and not stopping.requested():
                os.kill(os.getpid(), signal.SIGTERM)

        yield progress

    def bar(self, label: str, total: int) -> Any:
        """Hears of progress and shows none."""
        return self._heard()

    def train(self, config: Config, steps: int) -> Fit | None:
        """The lab's ensemble; None if it was stopped."""
        setting = Setting(batch=config.batch)
        p = program(LinearSelfAttention(layers=1, looped=True), setting, config.large_ensemble)
        options = p.options | {"steps": steps, "measure_every": config.chunk}
        self._started = time.perf_counter()
        try:
            with stopping.heeding():
                return self.fit("training", p.init, p.loss, p.optimizer, p.keys, p.settings, **options)
        except stopping.Stopped:
            return None
        finally:
            self.seconds = time.perf_counter() - self._started


@contextlib.contextmanager
def _spent(owner: Any, name: str) -> Iterator[list[float]]:
    """Seconds of every call of a function, while this lasts."""
    found: list[float] = []
    plain = getattr(owner, name)

    def timed(*args: Any, **options: Any) -> Any:
        started = time.perf_counter()
        try:
            return plain(*args, **options)
        finally:
            found.append(time.perf_counter() - started)

    setattr(owner, name, timed)
    try:
        yield found
    finally:
        setattr(owner, name, plain)


def resuming(config: Config) -> Iterator[tuple[str, list[Row]]]:
    """A training of ``run_seconds`` by the clock, once undisturbed and once stopped in the middle and resumed.

    The difference of the two is smaller than the noise of a shared machine, so what a stop adds is timed itself: the
    checkpoint at the stop, and loading it. With set-up: the second tracing and compilation too, and then the start of a
    second process. Shares are of the undisturbed training without its set-up. A kill loses, beside this, what was
    trained since the last checkpoint.
    """
    with tempfile.TemporaryDirectory() as root:
        trial = _Timed(Path(root, "trial"))
        chunks = 4
        trial.train(config, chunks * config.chunk)
        a_chunk = (trial.seconds - trial.ready_after) / chunks
        steps = config.chunk * max(4, round(config.run_seconds / a_chunk))

        whole = _Timed(Path(root, "whole"))
        with _spent(Checkpoint, "_write") as writes:
            fitted = whole.train(config, steps)
        run = whole.seconds - whole.ready_after
        saved, of_arrays = _saving(config, fitted, Path(root, "record"))
        title = f"{config.large_ensemble} members at batch {config.batch}, {steps} steps"
        yield f"writes of a run: {title}", _writes(run, writes, saved, of_arrays)

        half = _Timed(Path(root, "half"), stop_at=0.5)
        with _spent(Checkpoint, "_write") as stops:
            half.train(config, steps)
        rest = _Timed(Path(root, "half"))
        with _spent(Checkpoint, "load") as loads:
            rest.train(config, steps)
    extra = stops[-1] + sum(loads)
    both = (half.seconds - half.ready_after) + (rest.seconds - rest.ready_after) + sum(loads)
    again = extra + rest.ready_after - sum(loads)
    shares = {
        "checkpoint at the stop, and loading it": extra,
        "and tracing and compiling again": again,
        "and starting a process again": again + _start_of_a_process(),
        "the two trainings less the undisturbed one (noise included)": both - run,
    }
    rows = [Row("undisturbed, without set-up", 1e3 * run, None, {"share": 1.0})]
    rows += [Row(name, 1e3 * s, None, {"share": s / run, "2 % of a run of s": 50 * s}) for name, s in shares.items()]
    yield f"stopped and resumed: {title}", rows


def _writes(run: float, writes: list[float], saved: float, of_arrays: float) -> list[Row]:
    every = f"{len(writes)} checkpoints, one every {Options().checkpoint_seconds:g} s and the last"
    sums = {every: sum(writes), f"the record ({of_arrays:.2g} MB of arrays)": saved}
    sums["all writes"] = sum(sums.values())
    rows = [Row("the run", 1e3 * run, None, {"share": 1.0})]
    return rows + [Row(name, 1e3 * s, None, {"share": s / run}) for name, s in sums.items()]


def _saving(config: Config, fitted: Fit | None, folder: Path) -> tuple[float, float]:
    """Seconds of writing a record of a training, and its megabytes."""
    assert fitted is not None
    arrays = {"steps": fitted.steps} | {name: np.asarray(value) for name, value in fitted.metrics.items()}
    started = time.perf_counter()
    records.save(Record("benchmark", "benchmark", {}, {}, arrays), folder, claims=[])
    return time.perf_counter() - started, 1e-6 * sum(value.nbytes for value in arrays.values())


def _start_of_a_process() -> float:
    """Seconds until a binary has imported what it needs; the median of three."""
    times = []
    for _ in range(3):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import experiments.von_oswald.roll_out"], check=True)
        times.append(time.perf_counter() - started)
    return float(np.median(times))
