"""Runs of single parts become the record of the whole preset, or none."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from experiments.binaries import discover
from experiments.tools import gallery
from experiments.tools.joining import joined
from icl_lab.lab import Record, records
from icl_lab.lab.combining import combine
from icl_lab.lab.flags import to_json

EXPERIMENT = discover()["von_oswald.multi_step"]
PAPER = to_json(EXPERIMENT.presets["paper"])


def part(name, *, sources="s", seconds=1.0, **changed):
    provenance = {
        "command": ["multi_step.py", "--preset=paper", f"--only={name}"], "sources": sources, "versions": {"jax": "1"},
        "seconds": seconds, "commit": "c", "seed": 0, "stages": {name: {}},
    }  # fmt: skip
    arrays = {f"{name}/steps": np.arange(3), f"{name}/loss": np.ones((10, 3)), f"{name}/final/trained": np.ones(10)}
    axes = EXPERIMENT.axes_of(arrays, PAPER)
    config = {**PAPER, "only": name} | changed
    return Record("von_oswald.multi_step", "paper", config, {name: {}}, arrays, provenance, axes)


PARTS = [part("looped_2"), part("free_5", seconds=2.0), part("looped_10", seconds=3.0)]


def test_all_parts_together_are_the_preset():
    whole = joined(EXPERIMENT, "paper", PARTS)
    assert dict(whole.config) == PAPER
    assert set(whole.arrays) == set(whole.axes) == {name for one in PARTS for name in one.arrays}
    assert set(whole.metrics) == set(whole.provenance["stages"]) == {"looped_2", "free_5", "looped_10"}
    assert whole.provenance["seconds"] == 6.0
    assert whole.provenance["command"] == ["multi_step.py", "--preset=paper"]
    assert whole.provenance["parts"]["free_5"]["seconds"] == 2.0


def test_a_training_that_parts_do_each_in_its_own_way_is_counted_twice_and_has_no_parameters():
    took = lambda seconds: {"members": 10, "steps": 8, "seconds": seconds, "memory": 100 * seconds}  # noqa: E731
    with_it = []
    for number, one in enumerate(PARTS):
        stages = {"shared": took(2.0 + number)} | one.provenance["stages"]
        params = {
            "shared/w": np.full(3, number > 0),
            "shared/b": np.zeros(3),
            "same/w": np.ones(3),
            f"own_{number}/w": np.ones(2),
        }
        with_it.append(dataclasses.replace(one, provenance=one.provenance | {"stages": stages}, params=params))
    whole = joined(EXPERIMENT, "paper", with_it)
    assert whole.provenance["stages"]["shared"] == took(9.0) | {"members": 30, "memory": 400.0}
    assert set(whole.params) == {"same/w", "own_0/w", "own_1/w", "own_2/w"}


def test_what_has_the_axis_is_put_together_and_the_rest_is_one():
    def one(number, grid=(0.0, np.nan)):
        arrays = {"loss": np.full((2, 1 + number), number), "rotary/end": np.array([number]), "grid": np.array(grid)}
        axes = {"loss": ("step", "member"), "rotary/end": ("rotary_member",), "grid": ("place",)}
        took = {"seconds": 1.5, "stages": {"fit": {"members": 1 + number, "memory": number}}}
        return Record("a.b", "lab", {"n": number}, {str(number): 1}, arrays, took, axes, {"fit/w": np.full(2, number)})

    found = combine([one(1), one(0)], along="member")
    np.testing.assert_array_equal(found.arrays["loss"], [[1, 1, 0], [1, 1, 0]])
    np.testing.assert_array_equal(found.arrays["rotary/end"], [1, 0])
    np.testing.assert_array_equal(found.arrays["grid"], [0, np.nan])
    np.testing.assert_array_equal(found.params["fit/w"], [1, 1, 0, 0])
    assert (found.config, found.metrics) == ({"n": 1}, {"0": 1, "1": 1})
    assert found.provenance == {"seconds": 3.0, "stages": {"fit": {"members": 3, "memory": 1}}}
    with pytest.raises(ValueError, match="the array grid is not the same"):
        combine([one(1), one(0, grid=(1.0, 2.0))], along="member")
    with pytest.raises(ValueError, match="the array loss is not the same"):
        combine([one(1), one(0)], along="part")


WHOLE = dataclasses.replace(joined(EXPERIMENT, "paper", PARTS), metrics={})


@pytest.mark.parametrize(
    ("found", "only"),
    [
        (PARTS, "all"),
        ([*PARTS, WHOLE], "all"),
        ([part("looped_2", members=20), WHOLE], "all"),
        (PARTS[:1], "looped_2"),
        (PARTS[:2], None),
    ],
    ids=["all parts", "whole and parts", "a part with more members", "a part alone", "two parts"],
)
def test_a_whole_run_is_taken_before_parts_and_parts_that_are_no_whole_are_not(found, only, tmp_path, capsys):
    for number, one in enumerate(found):
        records.save(one, tmp_path / str(number), claims=[])
    taken = list(gallery.collect(tmp_path, {EXPERIMENT.name: EXPERIMENT}).values())
    assert [one.config["only"] for one in taken] == [only] * (only is not None)
    assert ("not one record: not run: looped_10" in capsys.readouterr().err) == (only is None)


def test_of_runs_with_as_many_members_the_last_is_taken(tmp_path):
    last = "2026-02-01T00:00:00+00:00"
    for folder, when in (("a", {}), ("b", {"finished": last}), ("c", {"finished": "2026-01-31T23:59:59+00:00"})):
        run = dataclasses.replace(WHOLE, provenance=WHOLE.provenance | when)
        records.save(run, tmp_path / folder, claims=[])
    (found,) = gallery.collect(tmp_path, {EXPERIMENT.name: EXPERIMENT}).values()
    assert found.provenance["finished"] == last


def test_a_part_replaces_no_record_of_the_gallery(tmp_path, monkeypatch, capsys):
    records.save(PARTS[0], tmp_path / "runs", claims=[])
    kept = tmp_path / "figures/von_oswald/multi_step/paper"
    records.save(WHOLE, kept, claims=[])
    before = (kept / "record.json").read_bytes()
    pages = {page: page.read_bytes() for page in Path().glob("experiments/*/README.md")}
    monkeypatch.setattr(gallery, "ledger", lambda *_: [])
    assert gallery.main(["", f"--runs={tmp_path / 'runs'}", f"--figures={tmp_path / 'figures'}", "--readme=none"]) == 0
    assert "left out: a run of a part, looped_2" in capsys.readouterr().err
    assert (kept / "record.json").read_bytes() == before
    assert pages == {page: page.read_bytes() for page in pages}  # without a README no page is written


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (PARTS[:2], "not run: looped_10"),
        ([*PARTS, part("free_5")], "run twice: free_5"),
        ([*PARTS[:2], part("looped_10", sources="other")], "they differ in sources"),
        ([part(one.config["only"], sources=None) for one in PARTS], "neither their sources nor a commit"),
        ([*PARTS[:2], part("looped_10", seed=1)], "more than only"),
        (
            [*PARTS[:2], dataclasses.replace(PARTS[2], provenance=PARTS[2].provenance | {"versions": {}})],
            "differ in",
        ),
        (
            [*PARTS[:2], dataclasses.replace(PARTS[2], arrays=PARTS[2].arrays | {"free_5/loss": np.array(0.0)})],
            "free_5/loss is",
        ),
    ],
)
def test_what_is_not_the_whole_by_the_same_sources_is_not_joined(found, said):
    with pytest.raises(ValueError, match=said):
        joined(EXPERIMENT, "paper", found)


def test_parts_that_name_one_commit_and_no_sources_are_one_record():
    clean = {"sources": None, "commit": "a" * 40, "uncommitted_changes": False}
    found = [dataclasses.replace(one, provenance=one.provenance | clean) for one in PARTS]
    assert joined(EXPERIMENT, "paper", found).arrays.keys() == WHOLE.arrays.keys()


def test_arrays_that_all_parts_share_are_one():
    shared = [dataclasses.replace(one, arrays=one.arrays | {"grid": np.array([0.0, np.nan])}) for one in PARTS]
    assert set(joined(EXPERIMENT, "paper", shared).arrays) == {*WHOLE.arrays, "grid"}
