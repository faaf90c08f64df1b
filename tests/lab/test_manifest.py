"""A manifest holds what decides verdicts, and one digest for the same claims."""

import dataclasses
import hashlib
import json

import numpy as np
import pytest

from icl_lab.claims import HOLDS, Claim, Criterion, digest, manifest

CLAIM = Claim(
    "paper.figure.claim", "Paper, Fig. 1", "A sentence.", np.ones, 1.0, 0.1, "a reason",
    expected_verdict={"lab": HOLDS},
)  # fmt: skip
OTHER = dataclasses.replace(CLAIM, id="paper.figure.other", relation="<=")
RUN = {"preset": "lab", "members": 10, "commit": "abc"}


def test_it_is_hashed_by_canonical_json_whatever_the_order_of_claims():
    found = manifest([CLAIM, OTHER], **RUN)
    assert manifest([OTHER, CLAIM], **RUN)["sha256"] == found["sha256"] == digest(found)
    read = json.loads(json.dumps(found))  # as a stranger has it
    read.pop("sha256")
    text = json.dumps(read, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert hashlib.sha256(text.encode()).hexdigest() == found["sha256"]
    assert found["claims"]["paper.figure.other"]["bounds"] == [None, 1.1]


@pytest.mark.parametrize(
    "change",
    [
        {"statement": "Another."}, {"expected": 1.5}, {"tolerance": 0.2}, {"relation": ">="}, {"interval": "median"},
        {"minimum_members": 9}, {"unit": "flow"}, {"expected_verdict": {"lab": "fails"}}, {"id": "paper.figure.new"},
        {"criterion": Criterion("the loss is still", bool)},
    ],
)  # fmt: skip
def test_what_decides_a_verdict_changes_its_digest(change):
    changed = manifest([dataclasses.replace(CLAIM, **change)], **RUN)
    assert changed["sha256"] != manifest([CLAIM], **RUN)["sha256"]


@pytest.mark.parametrize("change", [{"preset": "paper"}, {"members": 9}, {"commit": None}])
def test_so_does_another_run(change):
    assert manifest([CLAIM], **RUN | change)["sha256"] != manifest([CLAIM], **RUN)["sha256"]


def test_claims_that_are_not_judged_there_are_left_out():
    assert manifest([CLAIM], preset="quick", members=10)["claims"] == {}


def test_two_claims_of_one_id_are_refused():
    with pytest.raises(ValueError, match=r"called paper\.figure\.claim"):
        manifest([CLAIM, dataclasses.replace(CLAIM, expected=2.0)], **RUN)
