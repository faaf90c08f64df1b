import dataclasses

import numpy as np
import pytest
from toys import made_up

from icl_lab.lab import flags, report
from icl_lab.lab.claims import Claim
from icl_lab.lab.execution import Outcome
from icl_lab.lab.judging import judge
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
    assert "toy.curve.broken: 1.00 [0.75, 1.25], expected 1 ± 0.5, 3 members" in broken
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


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (0.00181234, 0.0015174, 0.0020384, "0.00181 [0.00152, 0.00204]"),
        (-0.37083, -0.4184, -0.3287, "−0.371 [−0.418, −0.329]"),
        (2.0, 0.0, 5.0, "2 [0, 5]"), (0.0, 0.0, 0.2775, "0.00 [0.00, 0.28]"),
        (9.4e-7, 8.5e-7, 1e-6, "9.4e−07 [8.5e−07, 1e−06]"),
        (0.25, 0.25, 0.25, "0.25 [0.25, 0.25]"),
    ],
)  # fmt: skip
def test_an_estimate_has_the_digits_that_its_interval_bears(value, low, high, text):
    assert report.estimate({"estimate": value, "interval": [low, high]}) == text


def test_a_number_does_not_begin_with_its_point():
    said = report.with_zeros("To .05, [-.3, .2], at N = .5 of v1.2, a.b and figs. 1.")
    assert said == "To 0.05, [-0.3, 0.2], at N = 0.5 of v1.2, a.b and figs. 1."
