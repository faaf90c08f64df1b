import dataclasses

import numpy as np
import pytest
from toys import made_up

from icl_lab.lab import flags, report
from icl_lab.lab.claims import Claim, judge
from icl_lab.lab.execution import Outcome
from icl_lab.lab.records import Record


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = flags.setting(0, "seed")
    members: int = flags.setting(3, "members", at_least=1)
    rates: tuple[float, ...] = flags.setting((0.1, 0.2), "rates")


def claim(name, verdict, **changes):
    settings = {"expected": 1.0, "tolerance": 0.5, "reason": "a & b", "expected_verdict": {"lab": verdict}}
    statistic = lambda record: record.arrays["error"]  # noqa: E731
    return Claim(f"toy.curve.{name}", "Toy <1>", "It is <b>one</b>.", statistic, **settings | changes)


CLAIMS = (claim("kept", "holds"), claim("broken", "fails"), claim("bound", "holds", relation=">=", expected=1.2))
EXPERIMENT = made_up("toy.curve", Config(), about="A curve of <script>.", claims=CLAIMS)


@pytest.fixture(scope="module")
def outcome():
    config = {"seed": 0, "members": 3, "rates": [0.1, 0.3]}
    record = Record("toy.curve", "lab", config, {}, {"error": np.array([0.9, 1.0, 1.1])}, {"python": "3"})
    return Outcome(record, [judge(c, record) for c in CLAIMS], [], True, 2.0)


def test_command_names_only_what_differs_from_the_preset(outcome):
    words = "python -m experiments.toy.curve --preset=lab --rates=0.1,0.3"
    assert report.command(EXPERIMENT, outcome.record) == words


def test_only_a_surprise_is_marked(outcome):
    kept, broken, _ = map(report.line, outcome.ledger)
    assert broken.startswith("holds !")
    assert "toy.curve.broken: 1 [0.7516, 1.248], expected 1 ± 0.5, 3 members" in broken
    assert "!" not in kept


def test_a_line_says_why_a_claim_is_not_resolved_and_a_record_prints_no_array(outcome):
    few = judge(claim("few", "holds", minimum_members=4), outcome.record)
    assert report.line(few).endswith("3 members; needs at least 4 members with a value")
    assert repr(outcome.record) == "Record(toy.curve, lab, 1 arrays)"


@pytest.mark.parametrize(
    ("relation", "tolerance", "text"),
    [("==", 0.02, "0.5 ± 0.02"), ("<=", 0.02, "≤ 0.5 (+ 0.02)"), (">=", 0.02, "≥ 0.5 (− 0.02)"), ("<=", 0, "≤ 0.5")],
)
def test_expected_shows_the_relation(relation, tolerance, text):
    assert report.expected({"relation": relation, "expected": 0.5, "tolerance": tolerance}) == text


def test_estimate_of_nothing_is_a_dash():
    assert report.estimate({"estimate": -0.25, "interval": [None, None]}) == "−0.25 [–, –]"
