"""No claim is decided by its code: some change of an array that it reads makes it hold, and another makes it fail.

The arrays are those of the committed records, which every claim judges as committed (test_committed_records.py).
"""

import dataclasses
import json
import warnings
from fnmatch import fnmatchcase

import numpy as np
import pytest
from test_headline_controls import BINARIES, GALLERY, at_lab, judged

from icl_lab.lab import records
from icl_lab.lab.claims import FAILS, HOLDS, NOT_RESOLVED

SEVERAL = (
    "depth.looped.free_3_*", "depth.looped.inputs_2_error", "depth.looped.loops_[45]",
    "dai.pretrain.follows_meaning_rotary", "depth.scaling.extrapolated_8",
    "depth.scaling.finite_tied", "diversity.alignment.below_dmmse", "identification.in_training.*",
    "identification.noise.*learned",
    "identification.von_oswald.*", "reddy.data_dependence.reduced_steep_law", "reddy.landscape.cliff_*",
    "von_oswald.curvature.off_plateau", "von_oswald.label_couplings.trained_targets", "von_oswald.one_step.off_plateau",
    "von_oswald.out_of_distribution.*", "von_oswald.task_sets.theory",
    "zhang_frei_bartlett.landscape.*", "zhang_frei_bartlett.nonlinear_transformer.*",
    "zhang_frei_bartlett.shifts.weights_invariant",
)  # fmt: skip
"""Claims that one array does not decide, or in no such simple way."""
WITHOUT = 38
"""Claims that hold at lab and may have neither a control nor a record in which they fail."""


class Noticing(dict):
    """Arrays by name, and which of them were read."""

    def __init__(self, arrays):
        super().__init__(arrays)
        self.seen = set()

    def __getitem__(self, name):
        self.seen.add(name)
        return super().__getitem__(name)


def changed(array, claim, estimate):
    """The array scaled, moved, reversed and tilted, of members as they are and of equal ones; of truths all or none."""
    if array.dtype.kind == "b":
        yield from (np.zeros_like(array), np.ones_like(array))
    scale = claim.expected / estimate if estimate else 1.0
    for values in (array, np.broadcast_to(np.nanmean(array, 0), array.shape)):
        yield from (factor * values for factor in (scale, 0.5, 2.0, 0.0, -1.0))
        yield from (values + by for by in (claim.expected - (estimate or 0.0), 1.0, -1.0))
        for axis, length in enumerate(array.shape):
            tilt = np.expand_dims(np.linspace(-1, 1, length), [*range(axis), *range(axis + 1, array.ndim)])
            yield from (np.flip(values, axis), values + tilt, values - tilt, values * (1 + tilt), values * (1 - tilt))


def reached(claim, record):
    """The verdicts that single changes of what the claim reads lead to."""
    arrays = Noticing(record.arrays)
    now = judged(claim, dataclasses.replace(record, arrays=arrays))
    found = {now["verdict"]}
    for name in sorted(arrays.seen):
        if record.arrays[name].dtype.kind not in "bfiu" or not record.arrays[name].ndim:
            continue
        for other in changed(record.arrays[name], claim, now["estimate"]):
            if found >= {HOLDS, FAILS}:
                return found
            try:
                found.add(judged(claim, dataclasses.replace(record, arrays={**record.arrays, name: other}))["verdict"])
            except (ValueError, ArithmeticError, IndexError, TypeError):
                continue  # of no record: a share above one, an index that is no whole number
    return found


@pytest.mark.parametrize("name", [name for name in BINARIES if at_lab(name)[0] and at_lab(name)[0].arrays])
def test_a_change_of_what_it_reads_makes_a_claim_hold_and_another_fail(name):
    record, rows = at_lab(name)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = {one.id: reached(one, record) for one in BINARIES[name].claims if rows[one.id]["estimate"] is not None}
    one_way = [claim for claim, verdicts in found.items() if not verdicts >= {HOLDS, FAILS}]
    assert [claim for claim in one_way if not any(fnmatchcase(claim, pattern) for pattern in SEVERAL)] == []


def test_every_pattern_is_of_a_claim():
    claims = [one.id for binary in BINARIES.values() for one in binary.claims]
    assert [pattern for pattern in SEVERAL if not any(fnmatchcase(claim, pattern) for claim in claims)] == []


def at_presets(name):
    """Records of a binary that are of its present presets, and have their arrays."""
    for preset in ("lab", "paper"):
        record, rows = at_lab(name, preset)
        if record is not None and record.arrays:
            yield record, rows


def of_its_control(claim, record):
    """The claim about its control, which may be one exact value or several of a member, and has converged or not."""
    interval = "exact" if np.size(claim.control(record)) == 1 else claim.interval
    changed = {"statistic": claim.control, "interval": interval, "unit": "value of the control", "criterion": None}
    return dataclasses.replace(claim, **changed, minimum_members=2, half_step=None)


def has_controls(name):
    """Whether some claim has a control, and some record its arrays: those of one record are too large to be kept."""
    return any(one.control for one in BINARIES[name].claims) and any(at_presets(name))


@pytest.mark.parametrize("name", [name for name in BINARIES if has_controls(name)])
def test_every_control_violates_the_bound_of_its_claim(name):
    checked, wrong = 0, []
    for record, rows in at_presets(name):
        for one in BINARIES[name].claims:
            if one.control and rows.get(one.id, {}).get("control") is not None:
                checked += 1
                found = judged(of_its_control(one, record), record)
                wrong += [(one.id, record.preset, found["interval"])] if found["verdict"] != FAILS else []
    assert checked
    assert wrong == []


@pytest.mark.parametrize("name", [name for name in BINARIES if any(one.fails_in for one in BINARIES[name].claims)])
def test_a_claim_fails_in_the_record_that_it_names(name):
    for one in (one for one in BINARIES[name].claims if one.fails_in):
        other = records.load(GALLERY / one.fails_in)
        always = dataclasses.replace(one, control=None, beside=None, criterion=None)
        row = judged(dataclasses.replace(always, expected_verdict={other.preset: HOLDS}), other)
        assert row["verdict"] == FAILS, one.id


def test_no_claim_gets_by_without_a_way_to_fail_that_could_have_one():
    """Claims that hold at lab with neither control nor a record in which they fail: they become fewer."""
    held = [
        one
        for name, binary in BINARIES.items()
        for one in binary.claims
        if at_lab(name)[0] and one.kind == "claim" and at_lab(name)[1][one.id]["verdict"] == HOLDS
    ]
    without = [one.id for one in held if not one.control and not one.fails_in]
    assert len(without) <= WITHOUT


def test_no_claim_that_all_members_violate_is_left_open():
    """On the same side of its bound, whatever the interval; shares are of members, whose values are 0 and 1."""
    for row in json.loads((GALLERY / "claims.json").read_text("utf-8")):
        if row["verdict"] == NOT_RESOLVED and row["interval_kind"] != "wilson" and row.get("values"):
            (low, high), values = row["region"], [float(value) for value in row["values"]]
            assert not (low is not None and max(values) < low), row["id"]
            assert not (high is not None and min(values) > high), row["id"]
