import dataclasses
import logging

import pytest

from icl_lab.lab import flags
from icl_lab.lab.experiment import PRESETS, Experiment
from icl_lab.lab.merging import OF_A_CELL, merged
from icl_lab.lab.plans import Grid
from icl_lab.lab.records import Record

FIRST = {
    "sources": "c0", "versions": {"jax": "1"}, "precision": {"matmul": "high", "x64": True}, "commit": "a1",
    "device": "8 x GPU", "seconds": 2.0,
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = flags.setting(0, "seed", at_least=0)
    members: int = flags.setting(2, "members", at_least=1)


TOY = Experiment("toy.origins", "None.", dict.fromkeys(PRESETS, Config()), lambda *_: ({}, {}), lambda _: {}, ())


def merge(*origins):
    grid = Grid(TOY, "smoke", Config(), {"seed": tuple(range(len(origins)))})
    cells = [
        Record(TOY.name, "smoke", flags.to_json(run.config), {}, {}, origin)
        for run, origin in zip(grid.runs(), origins)
    ]
    return merged(grid, cells, 7.0).provenance


def test_cells_that_agree_say_how_the_whole_was_made(caplog):
    with caplog.at_level(logging.WARNING):
        origin = merge(FIRST, FIRST | {"seconds": 3.0, "cpus": 5})
    assert origin["cells"] == {"seed=0": FIRST, "seed=1": FIRST | {"seconds": 3.0}}
    assert set(FIRST) == set(OF_A_CELL)
    assert {key: origin[key] for key in ("device", "precision", "seconds")} == {
        "device": None, "precision": None, "seconds": 7.0,  # not those of the process that merged
    }  # fmt: skip
    assert not caplog.records


@pytest.mark.parametrize(
    "change", [{"sources": "c1"}, {"versions": {"jax": "2"}}, {"precision": {"matmul": None, "x64": False}}]
)
def test_that_other_code_made_some_cells_is_said(change, caplog):
    with caplog.at_level(logging.WARNING):
        origin = merge(FIRST, FIRST | change, FIRST)
    ((key, value),) = change.items()
    assert [cell[key] for cell in origin["cells"].values()] == [FIRST[key], value, FIRST[key]]
    (warning,) = caplog.messages
    assert f"differ in {key}:" in warning


@pytest.mark.parametrize("change", [{"device": "1 x CPU"}, {"commit": "b2"}])
def test_devices_may_differ_and_commits_of_the_same_code(change, caplog):
    with caplog.at_level(logging.WARNING):
        merge(FIRST, FIRST | change)
    assert not caplog.messages
