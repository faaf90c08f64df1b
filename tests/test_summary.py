"""What reproduce says at the end: by paper, on one screen, with nothing left unsaid."""

import itertools
from pathlib import Path

import pytest

from experiments.binaries import discover
from experiments.papers import ORDER, paper_of
from experiments.tools import summary
from experiments.tools.reproduce import committed_verdicts
from icl_lab.lab.claims import FAILS, HOLDS, NOT_JUDGED, NOT_REACHED, NOT_RESOLVED
from icl_lab.lab.execution import Outcome

BINARIES, LEDGER, PAGE = discover(), committed_verdicts(), Path("runs/report-quick.html")


def row(claim, verdict, **changes):
    found = {"preset": "quick", "members": 6, "estimate": 0.123456, "interval": [-1.23456, 12345.6], "control": None}
    return claim.described() | found | {"verdict": verdict, "expected_verdict": HOLDS, "note": "a note"} | changes


def outcome(experiment, verdicts):
    """Rows of all claims; those of the headlines have these verdicts in turn, the others are not judged."""
    rows = [row(c, next(verdicts) if c.id in experiment.headlines else NOT_JUDGED) for c in experiment.claims]
    return Outcome(None, rows, [Path("runs/a/b/quick-0/picture.png")], True, 1.0)


def screen(*verdicts, failures=(), ledger=LEDGER):
    turn = itertools.cycle(verdicts)
    results = [(e, outcome(e, turn)) for name, e in BINARIES.items() if name not in failures]
    return summary.screen(results, dict.fromkeys(failures, "RuntimeError: " + 20 * "a word "), ledger, PAGE, 9.5)


@pytest.mark.parametrize(
    ("verdicts", "failures"),
    [
        ([HOLDS], ()),
        ([FAILS], ()),
        ([NOT_REACHED], ()),
        ([NOT_JUDGED], ()),
        ([HOLDS, FAILS, NOT_RESOLVED, NOT_REACHED, NOT_JUDGED], ()),
        ([HOLDS, FAILS, NOT_RESOLVED, NOT_REACHED, NOT_JUDGED], tuple(BINARIES)[::3]),
        ([HOLDS], tuple(BINARIES)),
    ],
)
@pytest.mark.parametrize("ledger", [LEDGER, {}])
def test_all_binaries_fit_one_screen(verdicts, failures, ledger):
    lines = screen(*verdicts, failures=failures, ledger=ledger)
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 100
    text = "\n".join(lines)
    assert all(paper_of(paper).source in text for paper in ORDER)
    assert lines[-1] == "Page: runs/report-quick.html"


def test_the_screen_says_what_held_what_did_not_and_why_something_was_not_judged():
    binary, other = BINARIES["reddy.clamping"], BINARIES["reddy.label_count"]
    verdicts = itertools.cycle([NOT_REACHED, NOT_JUDGED, NOT_JUDGED])
    results = [(binary, outcome(binary, verdicts)), (other, outcome(other, itertools.cycle([HOLDS, FAILS, HOLDS])))]
    text = "\n".join(summary.screen(results, {"reddy.mixtures": "it broke"}, LEDGER, PAGE, 1.0))
    assert "Reddy 2023: 2 of 4 headline claims judged here hold" in text
    assert "  failed       label_count." in text
    assert "  not reached  clamping (before a note)" in text
    assert "  no record    mixtures (it broke)" in text
    assert "claims are not judged by so short a run; at lab: " in text


def test_a_claim_that_is_not_judged_here_is_said_with_its_verdict_at_lab():
    binary = BINARIES["reddy.label_count"]
    held = {"reddy.label_count.delay_4": {"verdict": HOLDS, "estimate": 0.2066, "interval": [0.2063, 0.2069]}}
    found = outcome(binary, itertools.repeat(NOT_JUDGED))
    said = summary.every_claim(found, held)
    assert "  reddy.label_count.delay_4: judged at lab: holds 0.20660 [0.20630, 0.20690]" in said
    assert not any("not judged" in line for line in said)
    assert all(summary.NO_LEDGER in line for line in summary.every_claim(found, {}))
    assert summary.line(binary, found, held).startswith(
        "see lab      reddy.label_count: N = 4: with L > N every network"
    )


def test_the_line_of_a_run_is_about_its_worst_headline():
    binary = BINARIES["von_oswald.one_step"]
    found = outcome(binary, itertools.chain([HOLDS, FAILS], itertools.repeat(NOT_JUDGED)))
    said = summary.line(binary, found, LEDGER)
    assert said.startswith("fails        von_oswald.one_step: ")
    assert ", expected " in said
    assert "; judged at lab: " in said
    assert said.endswith("  runs/a/b/quick-0/picture.png")


def test_a_finding_is_a_sentence_without_its_parentheses_cut_between_words():
    assert summary.finding({"statement": "It holds for all (ratio, median)."}) == "It holds for all"
    assert summary.finding({"statement": "It (this) holds."}) == "It (this) holds"
    assert len(summary.finding({"statement": "word " * 50})) <= 90


def test_an_identity_counts_among_no_verdicts_but_is_said_and_where_it_fails_named():
    binary = BINARIES["von_oswald.one_step"]
    one = next(claim for claim in binary.claims if claim.id in binary.headlines)

    def said(*kinds_and_verdicts):
        rows = [row(one, verdict, kind=kind) for kind, verdict in kinds_and_verdicts]
        return "\n".join(summary.screen([(binary, Outcome(None, rows, [], True, 1.0))], {}, LEDGER, PAGE, 1.0))

    assert "no claim is judged here" in said(("identity", HOLDS))
    assert "  identities   one_step" in said(("identity", HOLDS))
    assert f"  failed       {one.id.split('.', 1)[1]}" in said(("identity", FAILS))
