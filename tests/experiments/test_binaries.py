"""Every binary as its users run it: the smoke preset. Killed and interrupted ones are in test_faults.py."""

from fnmatch import filter as matching
from pathlib import Path

import pytest

from experiments.binaries import discover
from experiments.tools import anchoring
from icl_lab.lab import records
from icl_lab.lab.claims import NOT_JUDGED
from icl_lab.lab.record import below

BINARIES = discover()
GALLERY = Path(__file__).parents[2] / "figures"
WITHOUT_TRAINING = {
    "dai.dual_form": "looks at the networks of dai.pretrain",
    "dai.implicit_finetuning": "fine-tunes the networks of dai.pretrain, a few examples one by one",
    "dai.layers": "fine-tunes the networks of dai.pretrain, a few examples one by one",
    "diversity.alignment": "least squares in closed form, in float64",
    "identification.fingerprint": "looks at the networks of von_oswald.weight_maps",
    "identification.labels": "asks learners whose algorithm is known; trains networks at lab alone",
    "identification.layers": "looks at the networks of von_oswald.multi_step",
    "identification.planted": "asks learners whose algorithm is known",
    "reddy.landscape": "closed forms and gradient flows, in float64",
    "zhang_frei_bartlett.landscape": "gradient flows, in float64",
    "zhang_frei_bartlett.staircase": "gradient flows, in float64",
    "zhang_frei_bartlett.theorems": "gradient flows and closed forms, in float64",
}
"""Binaries that have no training program to lower for accelerators, and why."""
PNG = b"\x89PNG\r\n\x1a\n"


def anchors(name):
    """The anchors of a binary's records; one that was changed by hand raises."""
    return [anchoring.load(path.parent) for path in sorted(GALLERY.joinpath(*name.split(".")).glob("*/anchor"))]


def test_anchors_are_compared_under_the_versions_they_were_made_with():
    reasons = {reason for name in BINARIES for kept in anchors(name) if (reason := anchoring.not_compared(kept))}
    if reasons:
        pytest.skip(f"smoke runs are not compared with their anchors: {'; '.join(sorted(reasons))}")


@pytest.mark.parametrize("name", BINARIES)
def test_smoke_yields_figures_and_claims(name, smoke_run):
    binary = BINARIES[name]
    folder, ledger, figures, unwanted = smoke_run(name)
    record = records.load(folder)
    assert (record.experiment, record.preset) == (name, "smoke")
    assert record.arrays
    assert {array: len(axes) for array, axes in record.axes.items()} == {n: a.ndim for n, a in record.arrays.items()}
    assert [row["id"] for row in ledger] == [claim.id for claim in binary.claims]
    assert {row["verdict"] for row in ledger} == {NOT_JUDGED}
    if "only" in record.config:  # its parts are joined where each is there
        assert [part for part in binary.parts(record.config) if not matching(record.arrays, part)] == []
    table = binary.trainings(binary.presets["smoke"])
    learners = {stage: one.learner for stage, one in table.items() if one.learner is not None}
    assert [name for name in learners if below(record.params, name) is None] == []
    assert figures
    assert all(path.read_bytes().startswith(PNG) for path in figures)
    for kept in anchors(name):
        if not anchoring.not_compared(kept):  # otherwise the test above is skipped with the reason
            assert anchoring.differs_from_anchor(kept, binary, lambda: record.arrays) == []
    assert len(unwanted) == len(record.provenance["stages"])  # every training was lowered for accelerators
    assert set().union(*unwanted) == set()
    assert (not unwanted) == (name in WITHOUT_TRAINING)
