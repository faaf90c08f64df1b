import csv
import dataclasses
import functools
import io
import os
import sys
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toys import made_up

from icl_lab.lab import command_line, flags, merging, records
from icl_lab.lab.claims import Claim
from icl_lab.lab.execution import execute
from icl_lab.lab.flags import FlagError
from icl_lab.lab.plans import Grid, parse_grid, program_of
from icl_lab.lab.quantities import quantity
from icl_lab.lab.records import Record, RecordError
from icl_lab.lab.runs import FinishedRun
from icl_lab.lab.trainings import Fits
from icl_lab.training import Training


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = flags.setting(0, "seed", at_least=0)
    members: int = flags.setting(2, "members", at_least=1)
    rate: float = flags.setting(0.1, "rate", above=0)
    noise: float = flags.setting(0.5, "noise", at_least=0)
    width: int = flags.setting(3, "width", at_least=1)
    law: str = flags.setting("normal", "law", choices=("normal", "uniform"))
    sizes: tuple[int, ...] = flags.setting((2,), "sizes", at_least=1)


RAN = []


LOSS, WEIGHTS = quantity("loss", "member"), quantity("w_{size}", "member", "width", size="sizes")


def trainings(config):
    def training(size):
        return Training(
            lambda key, _: config.noise * jax.random.normal(key, (config.width,)),
            lambda w, key, _: jnp.sum((w - size * getattr(jax.random, config.law)(key, w.shape)) ** 2),
            optax.sgd(config.rate),
            jax.random.split(jax.random.key(config.seed), config.members),
            steps=4,
            measure_every=2,
        )

    return {f"size_{size}": training(size) for size in config.sizes}


def measured(config, fits):
    RAN.append(config)
    if config.noise == 9.0:
        raise ValueError("no noise is so loud")
    for size in config.sizes:
        yield WEIGHTS.at(size=size), fits[f"size_{size}"].params
    yield LOSS, fits[f"size_{size}"].metrics["train_loss"][:, -1]
    yield "facts", {"width": config.width}


def check(config):
    if config.width == 13:
        raise FlagError("--width=13: allowed is any other")


CLAIM = Claim(
    "toy.grid.small", "Toy", "Small.", lambda record: record.arrays["loss"], 1.0, 0.5, "a test",
    expected_verdict={"lab": "holds"},
)  # fmt: skip
TOY = made_up("toy.grid", Config(), measured, (LOSS, WEIGHTS), trainings=trainings, check=check, claims=(CLAIM,))


def grid_of(text, outdir=Path("never")):
    return Grid(TOY, "smoke", Config(), parse_grid(text, Config), outdir)


@functools.cache
def alone(text):
    """The records of its cells, each trained by itself."""
    return [of_cell(run.config) for run in grid_of(text).runs()]


def of_cell(config):
    """The record of a cell with its axes, as ``execute`` makes it."""
    fits = Fits(trainings(config), lambda stage, training: training.carried_out())
    facts, arrays, _ = TOY.carried_out(config, fits)
    plain = flags.to_json(config)
    return Record("toy.grid", "smoke", plain, facts, arrays, axes=TOY.axes_of(arrays, plain))


def words(folder, grid, *more):
    return ["toy", "--preset=smoke", f"--outdir={folder}", f"--grid={grid}", *more]


def merged_bytes(folder):
    return [(folder / name).read_bytes() for name in ("record.json", "arrays.npz", "config.json", "summary.csv")]


SEEDS = "seed:0,1;rate:0.1,0.2"
SHAPES = "rate:0.1,0.2;width:3,4"


def test_a_grid_is_every_combination_the_last_setting_fastest():
    grid = grid_of("rate:0.1,1e-3; law:normal,uniform ;sizes:2+3,4")
    assert grid.values == {"rate": (0.1, 0.001), "law": ("normal", "uniform"), "sizes": ((2, 3), (4,))}
    assert parse_grid(grid.text(), Config) == grid.values
    runs = grid.runs()
    assert len({run.folder for run in runs}) == 8
    assert runs[1].name == "rate=0.1,law=normal,sizes=4"
    assert runs[1].folder == Path("never/cells/rate=0.1,law=normal,sizes=4")
    assert runs[1].config == Config(rate=0.1, law="normal", sizes=(4,))


def test_cells_have_folders_of_their_own_on_every_file_system():
    @dataclasses.dataclass(frozen=True)
    class Named(Config):
        title: str = flags.setting("", "title")

    titles = ("a", "A", "a/b", "a b", "x" * 300, "x" * 301)
    runs = Grid(TOY, "smoke", Named(), {"title": titles}, Path("out")).runs()
    names = [run.folder.name.lower() for run in runs]
    assert len(set(names)) == len(titles)
    assert all(run.folder.parent == Path("out/cells") and len(run.folder.name) < 100 for run in runs)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no setting ''; there are seed, members"),
        ("rat:1", "there is no setting 'rat'"),
        ("rate", "rate has no values; allowed is rate:value,value"),
        ("rate:", "rate has no values"),
        ("rate:1,x", "rate=x: allowed is number > 0"),
        ("rate:1,0", "rate=0.0: allowed is number > 0"),
        ("rate:1,1.0", "a value of rate is given twice"),
        ("rate:1;rate:2", "rate is given twice"),
        ("law:gamma", "law=gamma: allowed is one of normal, uniform"),
        (
            f"seed:{','.join(map(str, range(101)))};width:{','.join(map(str, range(1, 101)))}",
            "10100 cells; allowed are",
        ),
    ],
)
def test_a_bad_grid_is_refused(text, message):
    with pytest.raises(FlagError, match="--grid") as raised:
        parse_grid(text, Config)
    assert message in str(raised.value)


def test_a_cell_that_is_not_allowed_is_refused_before_anything_is_written(tmp_path, capsys):
    assert command_line.main(TOY, words(tmp_path / "run", "width:3,13;rate:0.1")) == command_line.REFUSED
    assert "--width=13: allowed is any other (in the cell width=13,rate=0.1 of --grid)" in capsys.readouterr().err
    assert command_line.main(TOY, words(tmp_path / "run", "rate:1,2", "--rate=3")) == command_line.REFUSED
    assert "--rate=3: allowed is what does not vary in --grid" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_cell_is_the_run_of_the_binary_alone_to_the_last_bit(tmp_path):
    assert command_line.main(TOY, words(tmp_path / "all", "rate:0.1,0.2;width:3,4")) == 0
    whole = records.load(tmp_path / "all")
    for i, cell in enumerate(grid_of("rate:0.1,0.2;width:3,4", tmp_path / "all").runs()):
        execute(TOY, "smoke", cell.config, tmp_path / str(i))
        for name in ("record.json", "arrays.npz", "config.json"):
            assert (tmp_path / str(i) / name).read_bytes() == (cell.folder / name).read_bytes()
        for name, values in cell.record().arrays.items():
            np.testing.assert_array_equal(whole[cell.folder.name][name], values)


def test_seeds_are_pooled_as_members():
    record = merging.merged(grid_of(SEEDS), alone(SEEDS))
    rows = record.metrics["settings"]
    assert [row["setting"] for row in rows] == [{"rate": 0.1}, {"rate": 0.2}]
    for rate, row in enumerate(rows):
        pooled = np.concatenate([alone(SEEDS)[2 * seed + rate].arrays["loss"] for seed in range(2)])
        found = row["claims"]["toy.grid.small"]
        assert found["members"] == 4
        np.testing.assert_allclose(found["estimate"], pooled.mean(), rtol=1e-5)


def test_networks_that_are_given_are_no_more_members_with_another_seed():
    given = grid_of(SEEDS)._replace(experiment=dataclasses.replace(TOY, given=True))
    rows = merging.merged(given, alone(SEEDS)).metrics["settings"]
    assert [row["setting"]["seed"] for row in rows] == [0, 0, 1, 1]
    assert {row["claims"]["toy.grid.small"]["members"] for row in rows} == {2}


def test_a_grid_that_is_done_over_again_and_stopped_goes_on_where_it_was(tmp_path):
    grid = grid_of(SEEDS, tmp_path)

    def some(count):
        def carry_out(runs, progress):
            for run in runs[:count]:
                execute(TOY, "smoke", run.config, run.folder, overwrite=True)
            ran.append([run.folder.name for run in runs[:count]])
            if count < len(runs):
                raise KeyboardInterrupt
            return []

        return carry_out

    ran = []
    assert command_line.carry_out_grid(grid, some(4)) == 0
    with pytest.raises(KeyboardInterrupt):
        command_line.carry_out_grid(grid, some(3), again=True)
    assert command_line.carry_out_grid(grid, some(4), again=True) == 0
    assert ran[0] == ran[1] + ran[2]
    assert command_line.carry_out_grid(grid, some(4), again=True) == 0
    assert ran[3] == ran[0]


def test_records_of_cells_make_one_record(tmp_path):
    one = merging.merged(grid_of(SHAPES), alone(SHAPES))
    records.save(one, tmp_path, [])
    loaded = records.load(tmp_path)
    assert loaded.metrics == one.metrics
    cells = [run.folder.name for run in grid_of(SHAPES).runs()]
    assert loaded.arrays.keys() == {f"{cell}/{name}" for cell in cells for name in ("loss", "w_2")}
    assert loaded.metrics["cells"] == {cell: {"width": width} for cell, width in zip(cells, (3, 4, 3, 4))}
    assert loaded.axes == one.axes
    assert loaded.axes["rate=0.2,width=4/w_2"] == ("member", "width")
    rows = list(loaded.table())
    assert len(rows) == 4 * 2 + 2 * (3 + 4) * 2
    assert {(row["array"], row["rate"], row["--width"]) for row in rows} == {
        (name, rate, width) for name in ("loss", "w_2") for rate in (0.1, 0.2) for width in (3, 4)
    }
    with pytest.raises(RecordError, match=r"in cells/ of its folder: rate=0\.1,width=3, "):
        FinishedRun(loaded, grid_of(SHAPES).experiment).stages()
    with pytest.raises(ValueError, match="shorter"):
        merging.merged(grid_of(SHAPES), alone(SHAPES)[:3])


def test_another_grid_is_another_folder():
    one, two = grid_of("noise:0,1", None), grid_of("noise:0,2", None)
    assert one.as_config() == flags.to_json(Config()) | {"noise": [0.0, 1.0], "grid": "noise:0.0,1.0"}
    assert one.folder != two.folder
    assert one.folder.parent == Path("runs/toy/grid")


def test_the_command_line_prints_the_table_and_writes_it_and_a_killed_grid_resumes(tmp_path, capsys):
    killed, whole = tmp_path / "killed", tmp_path / "whole"

    def stopped_at_the_third(config, fits):
        if len(RAN) == 2:
            raise KeyboardInterrupt
        return measured(config, fits)

    RAN.clear()
    broken = dataclasses.replace(TOY, measured=stopped_at_the_third)
    assert command_line.main(broken, words(killed, SEEDS)) == command_line.INTERRUPTED
    assert not (killed / "record.json").exists()
    RAN.clear()
    for folder in (killed, whole):
        assert command_line.main(TOY, words(folder, SEEDS)) == 0
    assert len(RAN) == 2 + 4
    assert merged_bytes(killed) == merged_bytes(whole)
    capsys.readouterr()
    assert command_line.main(TOY, words(whole, SEEDS)) == 0
    assert len(RAN) == 2 + 4
    shown = capsys.readouterr().out
    assert "4 cells, 4 finished earlier" in shown
    assert "summary.csv" in shown
    assert command_line.main(TOY, words(whole, SEEDS, "--overwrite")) == 0
    assert len(RAN) == 2 + 4 + 4
    rows = list(csv.DictReader(io.StringIO((whole / "summary.csv").read_text())))
    assert [(row["quantity"], row["rate"], row["members"]) for row in rows[:2]] == [
        ("small", "0.1", "4"),
        ("small", "0.2", "4"),
    ]
    assert float(rows[0]["low"]) < float(rows[0]["estimate"]) < float(rows[0]["high"])
    assert {path.name for path in whole.glob("*.png")} == {"summary.png"}


def test_a_cell_that_fails_is_named_and_the_others_finish(tmp_path, capsys):
    assert command_line.main(TOY, words(tmp_path, "noise:9,0.5")) == command_line.FAILED
    said = capsys.readouterr().err
    assert "ValueError: no noise is so loud" in said
    assert "nothing is merged: noise=9.0\n" in said
    assert not (tmp_path / "record.json").exists()
    assert [run.record() is None for run in grid_of("noise:9,0.5", tmp_path).runs()] == [True, False]


def test_a_cell_at_work_elsewhere_is_waited_for(tmp_path):
    RAN.clear()
    lock = records.locked(grid_of("rate:0.1,0.2", tmp_path).runs()[0].folder)
    lock.__enter__()
    threading.Timer(0.5, lambda: lock.__exit__(None, None, None)).start()
    assert command_line.main(TOY, words(tmp_path, "rate:0.1,0.2")) == 0
    assert [config.rate for config in RAN] == [0.1, 0.2]


def test_a_panel_shows_every_cell_with_its_interval():
    text = "rate:0.1,0.2;width:3,4"
    record = merging.merged(grid_of(text), alone(text))
    axes, *_ = merging.figures(record)["summary"].axes
    assert axes.get_xlabel() == "rate"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.1", "0.2"]
    assert [line.get_label() for line in axes.containers] == ["width=3", "width=4"]
    for drawn, width in zip(axes.containers, (3, 4)):
        rows = [r["claims"]["toy.grid.small"] for r in record.metrics["settings"] if r["setting"]["width"] == width]
        np.testing.assert_array_equal(drawn.lines[0].get_xdata(), [0, 1])
        np.testing.assert_array_equal(drawn.lines[0].get_ydata(), [row["estimate"] for row in rows])
        (bars,) = drawn.lines[2]
        np.testing.assert_allclose([bar[:, 1] for bar in bars.get_segments()], [row["interval"] for row in rows])


def test_a_cell_of_a_file_of_ones_own_is_started_by_that_file(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["mine.py", "--grid=.."])
    assert program_of(TOY) == [os.path.abspath("mine.py")]
    assert program_of(dataclasses.replace(TOY, name="reddy.transition", claims=())) == [
        "-m", "experiments.reddy.transition",
    ]  # fmt: skip
