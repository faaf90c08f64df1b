"""A whole experiment: ``one_step`` at the paper preset, all panels but the sweep over sizes."""

import dataclasses
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmarks.timing import Config, Row
from experiments.von_oswald import one_step
from icl_lab.lab import flags
from icl_lab.lab.experiment import draw
from icl_lab.lab.record import Record, flat
from icl_lab.lab.session import Session
from icl_lab.training.fitting import Fit


class _Timed(Session):
    """A session that keeps the seconds of its trainings, by the clock and of CPU time."""

    def __init__(self, folder: Path):
        super().__init__(folder, "benchmark", 15.0, None)
        self.seconds: dict[str, np.ndarray] = {}

    def fit(self, stage: str, *args: Any, **options: Any) -> Fit:
        started = _clocks()
        result = super().fit(stage, *args, **options)
        self.seconds[stage] = _clocks() - started
        return result


def whole(_: Config) -> dict[str, list[Row]]:
    """One run by part, compilation included, as a user waits for it. The sweep is cut to one member at N = D = 2.

    The published panels are those of Fig. 2 but the sweep; the rows after them are the ensembles that show when losses
    drop, which the paper does not have.
    CPU seconds are those of all cores; where other work shares the machine they say more than the clock.
    """
    cut = dataclasses.replace(one_step.PRESETS["paper"], sizes=(2,), sweep_members=1)
    with tempfile.TemporaryDirectory() as folder:
        session = _Timed(Path(folder))
        started = _clocks()
        metrics, arrays = one_step.run(cut, session)
        ran = _clocks() - started
        record = Record(one_step.EXPERIMENT.name, "benchmark", flags.to_json(cut), metrics, flat(arrays), {})
        started = _clocks()
        draw(one_step.EXPERIMENT, record, Path(folder))
        pictures = _clocks() - started
    session_total = np.sum(list(session.seconds.values()), axis=0)
    trainings = {
        stage: seconds for stage, seconds in session.seconds.items() if stage not in {f"size_{n}" for n in cut.sizes}
    }
    published = {
        "training, measured on the way": trainings.pop("training"),
        "final losses, weights, larger inputs": ran - session_total,
        "figures": pictures,
    }
    published["published panels"] = np.sum(list(published.values()), axis=0)
    total = published["published panels"] + np.sum(list(trainings.values()), axis=0)
    parts = published | trainings | {"all": total}
    rows = [_row(name, seconds, total) for name, seconds in parts.items()]
    return {"one_step, paper preset without the sweep": rows}


def _row(name: str, seconds: np.ndarray, total: np.ndarray) -> Row:
    return Row(name, 1e3 * float(seconds[0]), None, {"CPU s": float(seconds[1]), "share": float(seconds[0] / total[0])})


def _clocks() -> np.ndarray:
    return np.array([time.perf_counter(), time.process_time()])
