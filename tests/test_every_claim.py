"""No claim is decided by its code: some change of an array that it reads makes it hold, and another makes it fail.

The arrays are those of the committed records, which every claim judges as committed (test_committed_records.py).
"""

import dataclasses
import warnings
from fnmatch import fnmatchcase

import numpy as np
import pytest
from test_headline_controls import BINARIES, at_lab, judged

from icl_lab.lab.claims import FAILS, HOLDS

SEVERAL = (
    "dai.pretrain.follows_meaning_rotary", "depth.looped.free_3_rates", "depth.scaling.extrapolated_8",
    "depth.scaling.finite_tied", "diversity.alignment.below_dmmse", "identification.in_training.*",
    "identification.von_oswald.*", "reddy.data_dependence.reduced_steep_law", "reddy.landscape.cliff_*",
    "von_oswald.label_couplings.trained_targets", "von_oswald.out_of_distribution.*", "von_oswald.task_sets.theory",
    "zhang_frei_bartlett.landscape.*", "zhang_frei_bartlett.nonlinear_transformer.*",
    "zhang_frei_bartlett.shifts.weights_invariant",
)  # fmt: skip
"""Claims that one array does not decide, or in no such simple way."""
OWN = ("correlated", "depth", "diversity", "identification", "long_prompts", "online")
"""Papers whose claims have controls in which they must fail; other controls are there to be compared with."""


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


def of_its_control(claim, record):
    """The claim about its control, which may be one exact value or several of a member."""
    interval = "exact" if np.size(claim.control(record)) == 1 else claim.interval
    return dataclasses.replace(claim, statistic=claim.control, interval=interval, unit="value of the control")


def told_apart(name):
    return name.split(".")[0] in OWN and at_lab(name)[0] and any(one.control for one in BINARIES[name].claims)


@pytest.mark.parametrize("name", [name for name in BINARIES if told_apart(name)])
def test_where_a_claim_holds_its_control_fails(name):
    record, rows = at_lab(name)
    held = [one for one in BINARIES[name].claims if one.control and rows[one.id]["verdict"] == HOLDS]
    found = {one.id: judged(of_its_control(one, record), record)["verdict"] for one in held}
    assert held
    assert [claim for claim, verdict in found.items() if verdict != FAILS] == []
