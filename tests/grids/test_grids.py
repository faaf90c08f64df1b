import csv
import dataclasses
import functools
import io

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from icl_lab import command_line, flags, records
from icl_lab.axes import resolved
from icl_lab.claims import Claim
from icl_lab.experiment import Experiment
from icl_lab.flags import FlagError
from icl_lab.grids import report as grid_report
from icl_lab.grids.cells import as_text, cells, parse, with_grid, without_grid
from icl_lab.grids.combining import merged
from icl_lab.grids.side_by_side import side_by_side
from icl_lab.records import Record
from icl_lab.training import fit


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = flags.setting(0, "seed", at_least=0)
    members: int = flags.setting(2, "members", at_least=1)
    rate: float = flags.setting(0.1, "rate", above=0)
    noise: float = flags.setting(0.5, "noise", at_least=0)
    width: int = flags.setting(3, "width", at_least=1)
    law: str = flags.setting("normal", "law", choices=("normal", "uniform"))
    sizes: tuple[int, ...] = flags.setting((2,), "sizes", at_least=1)


def run(config, session):
    keys = jax.random.split(jax.random.key(config.seed), config.members)
    found = {}
    for size in config.sizes:
        fitted = session.fit(
            f"size_{size}",
            lambda key, _: config.noise * jax.random.normal(key, (config.width,)),
            lambda w, key, _, size=size: jnp.sum((w - size * getattr(jax.random, config.law)(key, w.shape)) ** 2),
            optax.sgd(config.rate),
            keys,
            steps=4,
            measure_every=2,
        )
        found[f"w_{size}"] = np.asarray(fitted.params)
        found["loss"] = fitted.metrics["train_loss"][:, -1]
    return {"width": config.width}, found


def check(config):
    if config.width == 13:
        raise FlagError("--width=13: allowed is any other")


CLAIM = Claim(
    "toy.grid.small", "Toy", "Small.", lambda record: record.arrays["loss"], 1.0, 0.5, "a test",
    expected_verdict={"lab": "holds"},
)  # fmt: skip
PRESETS = {name: Config() for name in ("smoke", "quick", "lab", "paper")}
AXES = {"loss": ("member",), "w_*": ("member", "width_{0}"), "axis": ("place",)}
TOY = Experiment("toy.grid", "About a toy.", PRESETS, run, lambda record: {}, (CLAIM,), check, axes=AXES)


class Plain:
    """A session that trains at once and keeps nothing."""

    def __init__(self):
        self.members = []

    def fit(self, stage, *args, **arguments):
        fitted = fit(*args, **arguments)
        self.members.append(len(fitted.diverged_at))
        return fitted


def together(text, session):
    """The record of a grid in one process."""
    grid = parse(text, Config)
    metrics, arrays = side_by_side(TOY, grid).run(with_grid(Config(), grid), session)
    return Record("toy.grid", "smoke", flags.to_json(with_grid(Config(), grid)), metrics, arrays)


@functools.cache
def alone(text):
    """The records of its cells, each trained by itself."""
    chosen = cells(parse(text, Config), Config(), TOY)
    return [of_cell(c.config, *TOY.run(c.config, Plain())) for c in chosen]


def of_cell(config, metrics, arrays):
    """The record of a cell with its axes, as ``execute`` makes it."""
    axes = resolved(AXES, arrays, config.members)
    return Record("toy.grid", "smoke", flags.to_json(config), metrics, arrays, axes=axes)


SEEDS = "seed:0,1;rate:0.1,0.2"
SHAPES = "rate:0.1,0.2;width:3,4"


def test_a_grid_is_every_combination_the_last_setting_fastest():
    grid = parse("rate:0.1,1e-3; law:normal,uniform ;sizes:2+3,4", Config)
    assert grid == {"rate": (0.1, 0.001), "law": ("normal", "uniform"), "sizes": ((2, 3), (4,))}
    assert parse(as_text(grid), Config) == grid
    chosen = cells(grid, Config(), TOY)
    assert len({cell.folder for cell in chosen}) == 8
    assert chosen[1].label == "rate=0.1,law=normal,sizes=4"
    assert chosen[1].config == Config(rate=0.1, law="normal", sizes=(4,))


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
        parse(text, Config)
    assert message in str(raised.value)


def test_a_cell_that_is_not_allowed_is_refused_before_anything_is_written(tmp_path, capsys):
    words = ["toy", "--preset=smoke", f"--outdir={tmp_path / 'run'}", "--grid=width:3,13;rate:0.1"]
    assert command_line.main(TOY, words) == command_line.REFUSED
    assert "--width=13: allowed is any other (in the cell width=13,rate=0.1 of --grid)" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "programs"),
    [(SHAPES, [4, 4]), (SEEDS, [8]), ("noise:0,0.5;sizes:2,2+3", [8, 4]), ("law:normal,uniform", [2, 2])],
)
def test_the_cells_of_a_grid_are_what_each_is_alone_in_few_programs(text, programs):
    session = Plain()
    one = together(text, session)
    for i, record in enumerate(alone(text)):
        for name, values in record.arrays.items():
            found = one.arrays[name][i] if name in one.arrays else one.arrays[f"{name}[{i}]"]
            np.testing.assert_allclose(found, values, rtol=2e-5)
    assert [cell["metrics"]["width"] for cell in one.metrics["cells"]] == [r.metrics["width"] for r in alone(text)]
    assert session.members == programs


def test_seeds_are_pooled_as_members():
    record = merged(TOY, "smoke", Config(), parse(SEEDS, Config), alone(SEEDS))
    rows = record.metrics["settings"]
    assert [row["setting"] for row in rows] == [{"rate": 0.1}, {"rate": 0.2}]
    for rate, row in enumerate(rows):
        pooled = np.concatenate([alone(SEEDS)[2 * seed + rate].arrays["loss"] for seed in range(2)])
        for found in (row["claims"]["toy.grid.small"], row["outcomes"]["loss"]):
            assert found["members"] == 4
            np.testing.assert_allclose(found["estimate"], pooled.mean(), rtol=1e-5)


def test_an_array_that_has_by_chance_as_many_values_as_members_has_no_interval():
    chosen = cells(parse(SEEDS, Config), Config(), TOY)
    found = [
        of_cell(cell.config, {}, {**record.arrays, "axis": np.array([1.0, 2.0 + i])})
        for i, (cell, record) in enumerate(zip(chosen, alone(SEEDS), strict=True))
    ]
    one = merged(TOY, "smoke", Config(), parse(SEEDS, Config), found)
    assert all(set(row["outcomes"]) == {"loss"} for row in one.metrics["settings"])
    assert one.axes["axis"] == ("cell", "place")
    assert one.axes["loss"] == ("cell", "member")


def test_an_ensemble_of_another_size_has_an_interval_over_its_own_members():
    toy = dataclasses.replace(TOY, axes={"onset": ("onset_member",)})
    found = [
        Record("toy.grid", "smoke", flags.to_json(cell.config), {}, {"onset": np.arange(5.0) + i}, axes=toy.axes)
        for i, cell in enumerate(cells(parse("rate:0.1,0.2", Config), Config(), TOY))
    ]
    rows = merged(dataclasses.replace(toy, claims=()), "smoke", Config(), parse("rate:0.1,0.2", Config), found)
    assert [row["outcomes"]["onset"]["estimate"] for row in rows.metrics["settings"]] == [2, 3]
    assert [row["outcomes"]["onset"]["members"] for row in rows.metrics["settings"]] == [5, 5]


def test_cells_of_other_members_keep_their_axes_apart():
    text = "members:3,4"
    one = merged(TOY, "smoke", Config(), parse(text, Config), alone(text))
    assert one.axes["loss[1]"] == ("cell_1_member",)
    assert one.axes["w_2[0]"] == ("cell_0_member", "cell_0_width_2")
    alone_there = merged(TOY, "smoke", Config(), parse("members:3", Config), alone(text)[:1])
    assert alone_there.axes["loss"] == ("cell", "cell_member")


def test_records_of_cells_make_one_record(tmp_path):
    one = merged(TOY, "smoke", Config(), parse(SHAPES, Config), alone(SHAPES))
    records.save(one, tmp_path, [])
    loaded = records.load(tmp_path)
    assert loaded.metrics == one.metrics
    assert loaded.arrays.keys() == {"loss", "w_2[0]", "w_2[1]", "w_2[2]", "w_2[3]"}
    assert loaded.arrays["loss"].shape == (4, 2)
    assert loaded.axes == one.axes
    assert loaded.axes["w_2[3]"] == ("cell_3_member", "cell_3_width_2")
    with pytest.raises(ValueError, match="shorter"):
        merged(TOY, "smoke", Config(), parse(SHAPES, Config), alone(SHAPES)[:3])


def test_the_configuration_of_a_grid_is_another_and_comes_back():
    whole = with_grid(Config(rate=0.3), parse("noise:0,1", Config))
    assert flags.to_json(whole) == flags.to_json(Config(rate=0.3)) | {"grid": "noise:0.0,1.0"}
    assert without_grid(whole) == Config(rate=0.3)


def test_the_command_line_prints_the_table_and_writes_it_and_a_killed_grid_resumes(tmp_path, capsys, monkeypatch):
    def words(folder):
        return ["toy", "--preset=smoke", f"--outdir={tmp_path / folder}", "--grid=seed:0,1;rate:0.1,0.2"]

    with monkeypatch.context() as patched:
        patched.setattr("icl_lab.grids.side_by_side.combined", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert command_line.main(TOY, words("killed")) == command_line.INTERRUPTED
    assert len(list((tmp_path / "killed" / "checkpoints").iterdir())) == 1
    for folder in ("killed", "whole"):
        assert command_line.main(TOY, words(folder)) == 0
    for name in ("record.json", "arrays.npz", "summary.csv"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    capsys.readouterr()
    assert command_line.main(TOY, words("whole")) == 0
    shown = capsys.readouterr().out
    assert "finished earlier" in shown
    assert "rate=0.2" in shown
    rows = list(csv.DictReader(io.StringIO((tmp_path / "whole" / "summary.csv").read_text())))
    assert [(row["quantity"], row["rate"], row["members"]) for row in rows[:2]] == [
        ("small", "0.1", "4"),
        ("small", "0.2", "4"),
    ]
    assert float(rows[0]["low"]) < float(rows[0]["estimate"]) < float(rows[0]["high"])
    assert {path.name for path in (tmp_path / "whole").glob("*.png")} == {"claims.png", "outcomes.png"}


def test_a_panel_shows_every_cell_with_its_interval():
    text = "rate:0.1,0.2;width:3,4"
    record = merged(TOY, "smoke", Config(), parse(text, Config), alone(text))
    (axes,) = grid_report.figures(record, TOY)["claims"].axes
    assert axes.get_xlabel() == "rate"
    assert [line.get_label() for line in axes.containers] == ["width=3", "width=4"]
    for drawn, width in zip(axes.containers, (3, 4)):
        rows = [r["claims"]["toy.grid.small"] for r in record.metrics["settings"] if r["setting"]["width"] == width]
        np.testing.assert_array_equal(drawn.lines[0].get_xdata(), [0.1, 0.2])
        np.testing.assert_array_equal(drawn.lines[0].get_ydata(), [row["estimate"] for row in rows])
        (bars,) = drawn.lines[2]
        np.testing.assert_allclose([bar[:, 1] for bar in bars.get_segments()], [row["interval"] for row in rows])
