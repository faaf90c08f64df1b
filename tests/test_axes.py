"""Every array of a record names its axes; what has none, or other ones than it says, is refused."""

import dataclasses
import re
import sys

import numpy as np
import pytest
from toys import Config, made_up

from experiments.binaries import GALLERY, belongs, discover
from experiments.tools import gallery
from icl_lab.lab import records
from icl_lab.lab.execution import execute
from icl_lab.lab.experiment import PRESETS
from icl_lab.lab.quantities import AxesError, quantity
from icl_lab.lab.record import RecordError, flat

COMMITTED = sorted(path.parent for path in GALLERY.glob("*/*/*/record.json"))
QUANTITIES = (
    quantity("steps", "step"), quantity("free_{layers}_gamma", "member", "free_{layers}_layer"),
    quantity("{network}_{metric}", "member", "{network}_step", network=("a", "b")), quantity("matrix", "row", "row"),
)  # fmt: skip


def resolved(quantities, arrays, members):
    return made_up("toy.a", Config(), quantities=quantities).axes_of(arrays, {"members": members})


def run_of(tmp_path, arrays, *quantities):
    return execute(made_up("toy.a", Config(), lambda *_: [arrays], quantities), "smoke", Config(), tmp_path)


def test_the_quantity_of_an_array_names_its_axes():
    arrays = {"steps": np.zeros(4), "free_5_gamma": np.zeros((3, 5)), "free_2_gamma": np.zeros((3, 2))}
    arrays |= {"a_loss_b": np.zeros((3, 7)), "b_loss": np.zeros((3, 8))}
    assert resolved(QUANTITIES, arrays, 3) == {
        "steps": ("step",),
        "free_5_gamma": ("member", "free_5_layer"),
        "free_2_gamma": ("member", "free_2_layer"),
        "a_loss_b": ("member", "a_step"),
        "b_loss": ("member", "b_step"),
    }


def test_a_name_is_a_whole_one_and_its_signs_mean_themselves():
    quantities = quantity("gd++", "member"), quantity("{other}", "step")
    arrays = {"gd++": np.zeros(2), "gd+++": np.zeros(3)}
    assert resolved(quantities, arrays, 2) == {"gd++": ("member",), "gd+++": ("step",)}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"loss": np.zeros(3)}, "array loss: no quantity"),
        ({"c_loss": np.zeros(3)}, "array c_loss: no quantity"),
        ({"steps": np.zeros((3, 1))}, r"array steps has shape \(3, 1\), but its axes are step"),
        ({"a_loss": np.zeros((2, 4))}, r"array a_loss has length 2 on its axis member, which is 3 in the config"),
        (
            {"a_b": np.zeros((3, 4)), "a_c": np.zeros((3, 5))},
            r"array a_c .* 5 on its axis a_step, which is 4 in array a_b",
        ),
        ({"matrix": np.eye(2)}, "its axes are row, row"),  # named once in an array
    ],
)
def test_what_does_not_fit_is_refused_by_name(arrays, message):
    with pytest.raises(AxesError, match=message):
        resolved(QUANTITIES, arrays, 3)


def test_a_run_writes_the_axes_of_its_arrays_beside_them(tmp_path):
    arrays = {"loss": np.zeros((3, 2)), "rate": np.array(0.5)}
    found = run_of(tmp_path, arrays, quantity("loss", "member", "step"), quantity("rate")).record
    assert found.axes == records.load(tmp_path).axes == {"loss": ("member", "step"), "rate": ()}


def test_a_run_with_an_array_without_axes_is_finished_once_they_are_named(tmp_path):
    found = {"loss": np.zeros(3), "other": np.zeros(3)}
    with pytest.raises(AxesError, match="array other"):
        run_of(tmp_path, found, quantity("loss", "member"))
    with pytest.raises(RecordError, match="not both values and axes are known of loss, other"):
        next(records.load(tmp_path).table())
    assert gallery.collect(tmp_path, {"toy.a": None}) == {}
    assert not run_of(tmp_path, found, quantity("{name}", "member")).ran
    assert records.load(tmp_path).axes["other"] == ("member",)


RECORD = records.Record(
    "toy.a", "lab", {"members": 2}, {"rate": 0.5}, {"steps": np.arange(3), "loss": np.arange(6.0).reshape(2, 3)}, {},
    {"steps": ("step",), "loss": ("member", "step")},
)  # fmt: skip


def test_the_table_of_a_record_has_a_row_for_every_number():
    rows = list(RECORD.table())
    assert rows[1] == {"array": "steps", "step": 1, "member": None, "value": 1}
    assert rows[-1] == {"array": "loss", "step": 2, "member": 1, "value": 5.0}
    assert len(rows) == 9
    assert {tuple(row) for row in rows} == {("array", "step", "member", "value")}  # the columns of a file


def test_a_step_axis_is_in_training_steps_and_a_grid_has_a_column_for_each_setting():
    arrays = {"c/loss": np.zeros((2, 2)), "c/set/steps": np.array([0, 50]), "c/other": np.zeros(2)}
    axes = {"c/loss": ("member", "set_step"), "c/set/steps": ("set_step",), "c/other": ("rate",)}
    grid = dataclasses.replace(RECORD, arrays=arrays, axes=axes, metrics={"varied": {"c": {"noise": 0.5, "rate": 2}}})
    assert grid.coordinates().keys() == {"set_step"}
    rows = [row for row in grid.table() if row["array"] == "loss"]
    assert [row["set_step"] for row in rows] == [0, 50, 0, 50]
    assert {(row["noise"], row["--rate"], row["rate"]) for row in rows} == {(0.5, 2, None)}
    two = {"a/steps": np.arange(3), "b/steps": np.arange(1, 4)}  # on one axis: neither is the axis
    assert not dataclasses.replace(RECORD, arrays=two, axes=dict.fromkeys(two, ("step",))).coordinates()


def test_the_dataset_of_a_record_has_its_axes_as_dimensions():
    found = pytest.importorskip("xarray") and RECORD.dataset()
    assert dict(found.sizes) == {"member": 2, "step": 3}
    np.testing.assert_array_equal(found["loss"].sel(member=1), [3, 4, 5])
    assert found.attrs["preset"] == "lab"


def test_a_dataset_without_xarray_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(ImportError, match=r"icl-lab\[xarray\]"):
        RECORD.dataset()


@pytest.mark.parametrize("part", ["arrays", "axes"])
def test_a_record_without_its_arrays_or_axes_has_no_table(part):
    said = {"arrays": "without its arrays", "axes": "known of loss, steps"}
    with pytest.raises(records.RecordError, match=said[part]):
        list(dataclasses.replace(RECORD, **{part: {}}).table())


@pytest.mark.parametrize("folder", COMMITTED, ids=lambda folder: str(folder.relative_to(GALLERY)))
def test_committed_arrays_have_the_axes_of_their_binary(folder):
    kept = (folder / "arrays.npz").exists()
    record = records.load(folder, arrays=kept)
    binary = discover()[record.experiment]
    if folder.name in PRESETS and not belongs(binary, folder.name, record.preset, record.config):
        pytest.skip("of an earlier preset: out of date, and in no ledger")
    arrays = record.arrays
    if not kept:  # what they would be; a record made before arrays had axes names none
        lengths = {name: 2 + i for i, name in enumerate({axis for axes in record.axes.values() for axis in axes})}
        lengths["member"] = record.config["members"]
        arrays = {n: np.broadcast_to(0.0, [lengths[axis] for axis in axes]) for n, axes in record.axes.items()}
    assert record.axes == binary.axes_of(arrays, record.config)
    assert not [name for name, axes in record.axes.items() if len(axes) > 1 and name in axes]  # xarray refuses them
    assert not [axis for axes in record.axes.values() for axis in axes if re.search("/.*member$", axis)]  # one of each


@pytest.mark.parametrize("tree", [{"a/b": 1, "a": {"b": 2}}, {"a": {"b": {"c": 1}, "b/c": 2}}])
def test_a_name_that_two_arrays_have_is_refused(tree):
    with pytest.raises(ValueError, match="given twice; every array needs a name of its own"):
        flat(tree)
    assert flat({"a": {"b": 1}, "b": 2, "c/d": 3}) == {"a/b": 1, "b": 2, "c/d": 3}
