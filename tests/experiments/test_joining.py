"""Runs of single parts become the record of the whole preset, or none."""

import dataclasses

import numpy as np
import pytest

from experiments import gallery
from experiments.joining import joined
from experiments.reproduce import discover
from icl_lab.lab import Record, records
from icl_lab.lab.flags import to_json

EXPERIMENT = discover()["von_oswald.multi_step"]
PAPER = to_json(EXPERIMENT.presets["paper"])


def part(name, *, sources="s", seconds=1.0, **changed):
    provenance = {
        "command": ["multi_step.py", "--preset=paper", f"--only={name}"], "sources": sources, "versions": {"jax": "1"},
        "seconds": seconds, "commit": "c", "seed": 0, "stages": {name: {}},
    }  # fmt: skip
    arrays = {f"{name}/steps": np.arange(3), f"{name}/loss": np.ones((10, 3))}
    axes = {f"{name}/steps": (f"{name}_step",), f"{name}/loss": ("member", f"{name}_step")}
    config = {**PAPER, "only": name} | changed
    return Record("von_oswald.multi_step", "paper", config, {name: {}}, arrays, provenance, axes)


PARTS = [part("looped_2"), part("free_5", seconds=2.0), part("looped_10", seconds=3.0)]


def test_all_parts_together_are_the_preset():
    whole = joined(EXPERIMENT, PARTS)
    assert dict(whole.config) == PAPER
    assert set(whole.arrays) == set(whole.axes) == {name for one in PARTS for name in one.arrays}
    assert set(whole.metrics) == set(whole.provenance["stages"]) == {"looped_2", "free_5", "looped_10"}
    assert whole.provenance["seconds"] == 6.0
    assert whole.provenance["command"] == ["multi_step.py", "--preset=paper"]
    assert whole.provenance["parts"]["free_5"]["seconds"] == 2.0


def test_the_gallery_collects_the_whole(tmp_path):
    for one in PARTS:
        records.save(one, tmp_path / one.config["only"], claims=[])
    (found,) = gallery.collect(tmp_path, {EXPERIMENT.name: EXPERIMENT}).values()
    assert found.config["only"] == "all"
    assert set(found.arrays) == {name for one in PARTS for name in one.arrays}


@pytest.mark.parametrize(
    "found",
    [
        [],
        PARTS[:2],
        [*PARTS, part("free_5")],
        [*PARTS[:2], part("looped_10", sources="other")],
        [*PARTS[:2], part("looped_10", seed=1)],
        [*PARTS[:2], dataclasses.replace(PARTS[2], provenance=PARTS[2].provenance | {"versions": {"jax": "2"}})],
    ],
    ids=["none", "one is missing", "one twice", "other sources", "another seed", "other versions"],
)
def test_what_is_not_the_whole_by_the_same_sources_is_not_joined(found):
    assert joined(EXPERIMENT, found) is None
