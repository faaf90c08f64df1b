"""The smoke run of a binary, made once for all tests and all workers of pytest (fixture ``smoke_run``)."""

import fcntl
import pickle
import sys
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from accelerators import lowering

from experiments.binaries import discover
from icl_lab.lab import Session, style
from icl_lab.lab.execution import execute
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.meanings import unexplained


class SmokeRun(NamedTuple):
    """What came of ``execute``: many tests read the folder, none writes into it."""

    folder: Path
    ledger: list[dict]
    figures: list[Path]  # see ``sketched``
    unwanted: list[set[str]]  # of each training, what its programs hold that accelerators must not be given


def sketched(figure, path: Path, caption: str, **_) -> list[Path]:
    """Stands for ``style.save``: every figure is laid out and drawn, in few pixels; test_style.py tests its files."""
    style.finish(figure)
    assert unexplained(figure) == []
    figure.savefig(path.with_suffix(".png"), dpi=30)
    return [path.with_suffix(".png")]


def seeing_nothing(carried_out):
    """``Experiment.carried_out`` while what the binary shows cannot be imported: what runs must not need it."""

    def alone(experiment, config, fits):
        shown = f"experiments.{experiment.name}_shown"
        before = {shown: sys.modules[shown]} if shown in sys.modules else {}
        sys.modules[shown] = None
        try:
            return carried_out(experiment, config, fits)
        finally:
            del sys.modules[shown]
            sys.modules.update(before)

    return alone


def made(root: Path, name: str) -> SmokeRun:
    """The smoke run of a binary below ``root``; another process that makes it is waited for."""
    root.mkdir(exist_ok=True)
    told = root / f"{name}.pickle"
    with open(root / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not told.exists():
            binary, unwanted = discover()[name], []
            lowered = mock.patch.object(Session, "fit", lowering(Session.fit, unwanted))
            alone = mock.patch.object(Experiment, "carried_out", seeing_nothing(Experiment.carried_out))
            with lowered, alone, mock.patch.object(style, "save", sketched):
                outcome = execute(binary, "smoke", binary.presets["smoke"], root / name)
            told.write_bytes(pickle.dumps(SmokeRun(root / name, outcome.ledger, outcome.figures, unwanted)))
        return pickle.loads(told.read_bytes())
