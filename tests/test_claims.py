import dataclasses
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from toys import made_up

from experiments.binaries import discover
from icl_lab.lab import report
from icl_lab.lab.claims import (
    FAILS,
    HOLDS,
    NOT_JUDGED,
    NOT_REACHED,
    NOT_RESOLVED,
    Beside,
    Claim,
    Criterion,
    NotRun,
    Quick,
    claims_of,
    is_identity,
)
from icl_lab.lab.experiment import PRESETS
from icl_lab.lab.intervals import median_interval, t_interval, wilson_interval
from icl_lab.lab.judging import judge
from icl_lab.lab.records import Record

BINARIES = discover()
OPTIONAL = ("control", "beside", "fails_in", "half_step", "criterion", "quick", "published", "falsified_by")
COMMITTED = [(name, claim) for name, experiment in BINARIES.items() for claim in experiment.claims]


def claim(**changes):
    given = {
        "id": "paper.figure.claim",
        "paper": "Paper, Fig. 1",
        "statement": "A sentence.",
        "statistic": lambda record: record.arrays["values"],
        "expected": 1.0,
        "tolerance": 0.1,
        "reason": "a test",
        "expected_verdict": {"lab": HOLDS},
    }
    return Claim(**(given | changes))


def record(values, preset="lab"):
    return Record("paper.figure", preset, {}, {}, {"values": np.asarray(values)})


def verdict(values, preset="lab", **changes):
    return judge(claim(**changes), record(values, preset))["verdict"]


def test_t_interval_by_hand():
    mean, (low, high) = t_interval(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    half = 2.776445 * math.sqrt(2.5 / 5)  # t table, 4 degrees of freedom
    assert mean == 3
    np.testing.assert_allclose([low, high], [3 - half, 3 + half], rtol=1e-6)


@pytest.mark.parametrize(
    ("ones", "members", "low", "high"),
    [(0, 10, 0.0, 0.2775), (8, 10, 0.4902, 0.9433), (10, 10, 0.7225, 1.0), (50, 100, 0.4038, 0.5962)],  # Wilson's table
)
def test_wilson_interval_by_table(ones, members, low, high):
    fraction, interval = wilson_interval(np.repeat([1.0, 0.0], [ones, members - ones]))
    assert fraction == ones / members
    np.testing.assert_allclose(interval, (low, high), atol=5e-5)


def test_wilson_needs_a_yes_or_no():
    with pytest.raises(ValueError, match="0 or 1"):
        wilson_interval(np.array([0.0, 0.5]))


@pytest.mark.parametrize("members", range(6, 41))
def test_the_median_is_covered_by_at_least_95_percent_and_by_no_shorter_interval(members):
    median, (low, high) = median_interval(np.arange(members, dtype=float))
    below = [math.comb(members, k) / 2**members for k in range(members + 1)]  # P(k values are below the median)
    assert low + high == 2 * median == members - 1
    assert math.fsum(below[int(low) + 1 : int(high) + 1]) >= 0.95  # exact, for whatever continuous law
    assert high - low <= 2 or math.fsum(below[int(low) + 2 : int(high)]) < 0.95


def test_the_median_of_a_skewed_law_is_covered():
    """Ten members, for which a percentile bootstrap of the median covers .931."""
    drawn = np.random.default_rng(0).lognormal(sigma=2.0, size=(4000, 10))
    covered = np.mean([low <= 1 <= high for _, (low, high) in map(median_interval, drawn)])
    assert covered == pytest.approx(1 - 22 / 1024, abs=4 * math.sqrt(0.0215 * 0.9785 / 4000))


def test_five_members_resolve_no_median():
    row = judge(claim(interval="median"), record([1.0] * 5))
    assert (row["verdict"], row["interval"]) == (NOT_RESOLVED, [None, None])
    assert row["note"] == "needs at least 6 members with a value"
    assert verdict([1.0] * 6, interval="median") == HOLDS
    assert verdict([1.0] * 6, interval="median", minimum_members=7) == NOT_RESOLVED


def test_one_member_decides_nothing():
    for interval in (t_interval, median_interval):
        assert interval(np.array([2.0])) == (2.0, (-math.inf, math.inf))


@pytest.mark.parametrize(
    ("relation", "values", "expected"),
    [
        ("==", [1.1, 1.1], HOLDS),  # the interval is a point on the edge of the region
        ("==", [0.9, 0.9], HOLDS),
        ("==", [1.1001, 1.1001], FAILS),
        ("==", [0.8999, 0.8999], FAILS),
        ("==", [0.0, 2.0], NOT_RESOLVED),  # wider than the region
        ("<=", [1.1, 1.1], HOLDS),
        ("<=", [-1e9, -1e9], HOLDS),
        ("<=", [1.1001, 1.1001], FAILS),
        ("<=", [1.0, 1.2], NOT_RESOLVED),
        (">=", [0.9, 0.9], HOLDS),
        (">=", [1e9, 1e9], HOLDS),
        (">=", [0.8999, 0.8999], FAILS),
        (">=", [0.8, 1.0], NOT_RESOLVED),
    ],
)
def test_verdicts_at_the_edges_of_the_region(relation, values, expected):
    assert verdict(values, relation=relation) == expected


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=20), st.sampled_from(["==", "<=", ">="]), st.floats(0, 2))
def test_the_verdict_is_where_the_interval_lies(values, relation, tolerance):
    row = judge(claim(relation=relation, tolerance=tolerance), record(values))
    low, high = claim(relation=relation, tolerance=tolerance).region()
    a, b = row["interval"]
    assert a <= row["estimate"] <= b
    assert (row["verdict"] == HOLDS) == (low <= a and b <= high)
    all_beyond = max(values) < low or min(values) > high
    assert (row["verdict"] == FAILS) == (b < low or a > high or all_beyond)
    assert row["verdict"] != NOT_RESOLVED or row["note"]


def test_only_presets_with_a_committed_verdict_are_judged():
    assert verdict([1.0, 1.0], preset="quick") == NOT_JUDGED
    assert verdict([1.0, 1.0], preset="lab with steps=3") == NOT_JUDGED
    row = judge(claim(), record([3.0, 3.0]))
    assert (row["verdict"], row["expected_verdict"]) == (FAILS, HOLDS)


@pytest.mark.parametrize("values", [[0.8, 1.1, 1.0, 1.2, 0.9, 1.3], [0.96, 1.04, 1.12, 1.22] * 30])
def test_the_note_says_how_many_members_would_do(values):
    """So many of the same mean and spread have an interval inside the bounds, and one less has not."""
    note = judge(claim(), record(values))["note"]
    needed = int(re.fullmatch(r"about (\d+) members would resolve it at this estimate", note)[1])
    estimate, spread = np.mean(values), np.std(values, ddof=1)

    def half(members):
        return stats.t.ppf(0.975, members - 1) * spread / math.sqrt(members)

    assert half(needed) <= 1.1 - estimate < half(needed - 1)


def test_where_no_number_of_members_would_do_the_note_says_so():
    assert "no number of members" in judge(claim(tolerance=0.0), record([0.9, 1.0, 1.1]))["note"]


def test_a_claim_that_every_member_violates_on_the_same_side_fails():
    """However far the worst member is: with a t interval alone a worse member would make a safer verdict."""
    below = claim(relation="<=", expected=0.03, tolerance=0.0)
    diverging = [0.116, 0.2, 0.4, 1.0, 2.0, 3.6, 10.0, 20.0, 24.0, 100.0]
    for worst in (100.0, 1e3, 1e6):
        row = judge(below, record([*diverging[:-1], worst]))
        assert row["interval"][0] < 0.03
        assert row["verdict"] == FAILS
    assert judge(below, record([0.02, *diverging[1:]]))["verdict"] == NOT_RESOLVED
    assert judge(claim(expected=0.0, tolerance=1.0), record([-9.0, 9.0] * 5))["verdict"] == NOT_RESOLVED  # two sides
    share = claim(interval="wilson", relation=">=", expected=0.9, tolerance=0.05)
    assert judge(share, record([1.0] * 10))["verdict"] == NOT_RESOLVED


@pytest.mark.parametrize("values", [[1.0, 1.1, 1.04], [1.0] * 5 + [1.3] * 5, [1.0, 1.01, 1.02, 1.03, 1.04, 1.9]])
def test_no_number_of_members_is_said_of_few_of_two_groups_or_of_a_tail(values):
    note = judge(claim(), record(values))["note"]
    assert note
    assert "would resolve it at this estimate" not in note


def test_values_chosen_from_a_grid_have_an_interval_of_its_step():
    row = judge(claim(half_step=lambda record: 0.04), record([1.08] * 6))
    assert row["interval"] == pytest.approx([1.04, 1.12])
    assert row["verdict"] == NOT_RESOLVED


def test_members_without_a_value_are_dropped():
    row = judge(claim(), record([np.nan, 1.0, np.nan, 1.0]))
    assert (row["members"], row["without"], row["estimate"], row["verdict"]) == (2, 2, 1.0, HOLDS)
    assert row["values"] == [1.0, 1.0]
    for values in ([np.nan, np.nan], [np.nan, 1.0]):
        row = judge(claim(), record(values))
        assert (row["verdict"], row["note"]) == (NOT_RESOLVED, "needs at least 2 members with a value")


@pytest.mark.parametrize("interval", ["t", "median"])
def test_an_infinite_value_speaks_against_a_bound_and_never_for_it(interval):
    row = judge(claim(interval=interval), record([1.0] * 5 + [np.inf]))
    assert row["verdict"] == NOT_RESOLVED
    assert "infinite" in row["note"]
    below = claim(interval=interval, relation="<=", expected=2.0, tolerance=0.0)
    assert judge(below, record([1.0] * 5 + [np.inf]))["verdict"] == NOT_RESOLVED
    assert judge(below, record([3.0] * 9 + [np.inf]))["verdict"] == FAILS
    assert judge(below, record([np.inf] * 9))["verdict"] == FAILS
    assert judge(below, record([-np.inf] * 9))["verdict"] == HOLDS


def test_equal_members_are_judged_by_their_value_and_not_by_the_rounding_of_its_mean():
    for value, relation in ((0.1, ">="), (0.7, "<=")):
        row = judge(claim(relation=relation, expected=value, tolerance=0.0), record([value] * 6))
        assert (row["verdict"], row["interval"]) == (HOLDS, [value, value])


def test_the_control_of_a_median_is_a_median():
    control = lambda record: np.array([1.0, 1.0, 1.0, 1.0, 9.0])  # noqa: E731
    assert judge(claim(interval="median", control=control), record([1.0] * 6))["control"] == 1.0
    assert judge(claim(control=control), record([1.0] * 6))["control"] == pytest.approx(2.6)


def test_an_exact_quantity_is_one_value_without_an_interval():
    assert verdict([1.0], interval="exact") == HOLDS
    assert verdict([1.0]) == NOT_RESOLVED
    assert verdict([3.0], interval="exact") == FAILS
    with pytest.raises(ValueError, match="one value"):
        verdict([1.0, 1.0], interval="exact")


def not_run(record):
    raise NotRun("other part")


@pytest.mark.parametrize("statistic", [lambda record: record.arrays["other_values"], not_run])
def test_a_part_that_is_left_out_is_not_judged_and_said(statistic):
    row = judge(claim(statistic=statistic), record([1.0, 1.0]), left_out={"other_*", "another_*"})
    assert row["verdict"] == NOT_JUDGED
    assert row["expected_verdict"] is None
    assert "other" in row["note"]


@pytest.mark.parametrize("preset", ["lab", "smoke"])
@pytest.mark.parametrize("which", ["statistic", "control"])
def test_a_misspelt_name_is_an_error_that_names_claim_and_array(which, preset):
    wrong = claim(**{which: lambda record: record.arrays["valeus"]})
    with pytest.raises(ValueError, match=r"paper\.figure\.claim.*'valeus'"):
        judge(wrong, record([1.0, 1.0], preset), left_out={"other_*"})


@pytest.mark.parametrize("values", [np.ones((3, 2)), np.ones((1, 3)), np.float64(1), np.ones(1), np.ones(4)])
def test_a_statistic_that_is_not_one_value_a_member_is_refused(values):
    of_three = dataclasses.replace(record([1.0]), config={"members": 3})
    with pytest.raises(ValueError, match=r"paper\.figure\.claim.*one value a member, of 3"):
        judge(claim(statistic=lambda record: values), of_three)
    if values.size == 1:
        assert judge(claim(statistic=lambda record: values, interval="exact"), of_three)["members"] == 1


def test_more_values_than_members_need_a_unit_of_their_own_which_is_shown():
    of_three = dataclasses.replace(record([0.8, 1.1, 1.0, 1.3, 0.9, 1.2]), config={"members": 3})
    row = judge(claim(unit="flow"), of_three)
    assert report.size(row) == "6 flows"
    assert "flows would resolve it" in row["note"]
    assert report.size(judge(claim(), record([1.0]))) == "1 member"


@pytest.mark.parametrize(("control", "shown"), [([1.0, np.nan, 3.0], 2.0), ([np.nan], None), ([np.inf], None)])
def test_the_control_is_shown_beside(control, shown):
    assert judge(claim(control=lambda record: np.array(control)), record([1.0, 1.0]))["control"] == shown


def test_a_value_beside_a_claim_is_shown_with_its_reason_and_is_no_control():
    other = claim(beside=Beside(lambda record: np.array([3.0, 5.0]), "another quantity"))
    row = judge(other, record([1.0, 1.0]))
    assert (row["beside"], row["control"], row["verdict"]) == (4.0, None, HOLDS)
    assert other.about()["beside_reason"] == "another quantity"


def test_a_control_of_a_part_that_was_not_run_is_not_shown():
    row = judge(claim(control=lambda record: record.arrays["other"]), record([1.0, 1.0]), left_out={"other"})
    assert (row["control"], row["verdict"], row["note"]) == (None, HOLDS, "")


def test_a_row_says_where_it_is_of_an_identity():
    own = judge(claim(kind="identity"), record([1.0, 1.0]))
    assert (own["kind"], is_identity(own)) == ("identity", True)
    assert not is_identity(judge(claim(), record([1.0, 1.0])))  # and so are the rows of older records


@pytest.mark.parametrize("wrong", [{"relation": "<"}, {"interval": "normal"}, {"tolerance": -0.1}, {"kind": "theorem"}])
def test_a_claim_that_means_nothing_is_refused(wrong):
    with pytest.raises(ValueError, match=r"paper\.figure\.claim"):
        claim(**wrong)


def at_quick(values, tolerance=0.2, relation="==", preset="quick", at_lab=None, **quick):
    """The row of a headline, whose tolerance at lab is .1; ``at_lab`` is its criterion there."""
    one = claim(relation=relation, criterion=at_lab, quick=Quick(tolerance, "a test", **quick))
    return made_up("paper.figure", {}, claims=(one,)).judged(record(values, preset))[0]


def test_at_quick_a_headline_is_judged_by_its_own_tolerance():
    row = at_quick([1.15] * 6)
    assert (row["verdict"], row["expected_verdict"], row["tolerance"]) == (HOLDS, HOLDS, 0.2)
    assert row["reason"] == "a test (at lab 0.1: a test)"
    assert at_quick([1.25] * 6)["verdict"] == FAILS
    assert at_quick([1.15] * 6, preset="lab")["verdict"] == FAILS
    assert at_quick([1.15] * 6, preset="quick with steps=3")["verdict"] == NOT_JUDGED


def test_at_quick_other_claims_are_not_judged():
    figure = made_up("paper.figure", {}, claims=(claim(),))
    assert figure.judged(record([1.0] * 6, "quick"))[0]["verdict"] == NOT_JUDGED


def test_a_verdict_at_quick_that_would_be_passed_over_is_refused():
    with pytest.raises(ValueError, match=r"paper\.figure\..*: its verdict at quick is given by quick="):
        made_up("paper.figure", {}, claims=(claim(expected_verdict={"quick": HOLDS}),))


def test_at_quick_five_members_are_too_few():
    row = at_quick([1.0] * 5)
    assert (row["verdict"], row["note"]) == (NOT_RESOLVED, "needs at least 6 members with a value")


@pytest.mark.parametrize(("relation", "farthest"), [("==", 0.5), ("<=", 1.3), (">=", 0.5)])
def test_an_identity_is_judged_by_the_member_that_is_farthest_from_it(relation, farthest):
    row = at_quick([1.0, 1.3, np.nan, 0.5], relation=relation, identity=True)
    assert (row["estimate"], row["interval"], row["members"]) == (farthest, [farthest] * 2, 1)
    assert row["verdict"] == FAILS
    assert at_quick([1.0], relation=relation, identity=True)["verdict"] == HOLDS
    assert at_quick([np.nan], relation=relation, identity=True)["verdict"] == NOT_RESOLVED


def test_a_run_that_stops_before_the_criterion_has_not_reached_the_claim():
    learned = Criterion("the loss has halved", lambda record: record.arrays["values"].min() > 1)
    row = at_quick([0.9] * 6, criterion=learned)
    assert (row["verdict"], row["note"], row["estimate"]) == (NOT_REACHED, "the loss has halved", pytest.approx(0.9))
    assert at_quick([1.1] * 6, criterion=learned)["verdict"] == HOLDS
    assert at_quick([2.0] * 6, criterion=learned)["verdict"] == FAILS
    for preset in ("quick", "lab"):
        assert at_quick([0.9] * 6, at_lab=learned, preset=preset)["verdict"] == NOT_REACHED
        assert at_quick([1.1] * 6, at_lab=learned, preset=preset)["verdict"] == HOLDS


def test_a_tolerance_at_quick_of_more_than_three_times_that_at_lab_is_refused():
    with pytest.raises(ValueError, match=r"paper\.figure\.claim.* 3 times"):
        claim(quick=Quick(0.31, ""))
    assert claim(quick=Quick(0.3, "")).at_quick().tolerance == 0.3


def test_headlines_are_in_the_order_of_their_places():
    claims = [claim(id=f"paper.figure.{name}", headline=place) for name, place in (("b", 2), ("c", 0), ("a", 1))]
    assert made_up("paper.figure", {}, claims=tuple(claims)).headlines == ("paper.figure.a", "paper.figure.b")


def test_claims_of_a_figure_say_once_what_recurs():
    make = claims_of("paper.figure", "Paper, ", {"slow": FAILS, "tie": None}, minimum_members=6)
    common = {"where": "Fig. 1", "reason": "a test"}
    fast, slow, tie = (make(name, "A sentence.", np.ones, near=1.0, **common) for name in ("fast", "slow", "tie"))
    assert (fast.id, fast.paper, fast.tolerance, fast.minimum_members) == ("paper.figure.fast", "Paper, Fig. 1", 0.0, 6)
    assert fast.expected_verdict == {"lab": HOLDS, "paper": HOLDS}
    assert slow.expected_verdict == {"lab": FAILS, "paper": HOLDS}
    assert tie.expected_verdict == {"paper": HOLDS}
    own = make("own", "A sentence.", np.ones, near=1.0, tolerance=0.1, minimum_members=7, expected_verdict={}, **common)
    assert (own.tolerance, own.reason, own.minimum_members, own.expected_verdict) == (0.1, "a test", 7, {})


def test_a_claim_names_its_bound_by_a_keyword():
    make = claims_of("paper.figure", "Paper, ", presets=("lab",), reason="a test")
    low, high, near = (make("a", "It is.", np.ones, **{key: 2.0}) for key in ("at_most", "at_least", "near"))
    assert [one.relation for one in (low, high, near)] == ["<=", ">=", "=="]
    assert {(one.expected, one.tolerance) for one in (low, high, near)} == {(2.0, 0.0)}
    assert low.expected_verdict == {"lab": HOLDS}
    own = make("a", "It is.", np.ones, near=1.0, at_lab=FAILS, at_paper=HOLDS)
    assert own.expected_verdict == {"lab": FAILS, "paper": HOLDS}
    assert make("a", "It is.", np.ones, near=1.0, at_lab=None).expected_verdict == {}
    placed = make("a", "It is.", np.ones, near=1.0, where="Fig. 1", published=(1.1, "Fig. 1"), falsified_by="a two")
    assert placed.paper == "Paper, Fig. 1"
    assert (placed.about(), low.about()) == ({"published": (1.1, "Fig. 1"), "falsified_by": "a two"}, {})
    assert not placed.about().keys() & placed.described().keys()
    for wrong in ({}, {"at_most": 1.0, "near": 1.0}):
        with pytest.raises(ValueError, match="one of at_most, at_least and near"):
            make("a", "It is.", np.ones, **wrong)


def test_committed_claims_have_names_of_their_own():
    ids = [claim.id for _, claim in COMMITTED]
    assert len(set(ids)) == len(ids)
    assert all(claim.id.startswith(f"{name}.") for name, claim in COMMITTED)


@pytest.mark.parametrize("claim", [claim for _, claim in COMMITTED], ids=lambda claim: claim.id)
def test_committed_claims_say_what_is_expected(claim):
    assert set(claim.expected_verdict) <= set(PRESETS) - {"smoke"}
    assert set(claim.expected_verdict.values()) <= {HOLDS, FAILS, NOT_RESOLVED, NOT_REACHED}
    assert all(
        getattr(claim, field.name) not in ("", None)
        for field in dataclasses.fields(claim)
        if field.name not in OPTIONAL
    )
    assert math.isfinite(claim.expected)
    assert math.isfinite(claim.tolerance)
    assert claim.minimum_members >= 2


@pytest.mark.parametrize("name", BINARIES)
def test_every_binary_is_summed_up_by_one_to_three_claims_of_six_members_at_quick(name):
    binary = BINARIES[name]
    headlines = [claim for claim in binary.claims if claim.headline]
    assert sorted(claim.headline for claim in headlines) == list(range(1, len(headlines) + 1))
    assert 1 <= len(headlines) <= 3
    assert [claim.id for claim in binary.claims if claim.quick and not claim.headline] == []
    for one in headlines:
        if one.quick is not None and one.quick.criterion is None:
            exact = one.quick.identity or one.interval == "exact"
            assert exact or binary.presets["quick"].members >= 6, one.id
            assert one.quick.reason
            low, high = one.at_quick().region()
            assert one.relation != "==" or exact or not low <= 0 <= high or one.id in ZERO, one.id


def test_no_headline_is_judged_more_strictly_by_a_short_run_than_at_lab():
    assert [one.id for _, one in COMMITTED if one.quick and one.quick.tolerance < one.tolerance] == []


def test_what_is_said_of_a_share_of_members_has_the_interval_of_a_share():
    shares = [one for _, one in COMMITTED if re.search(r"\(share of (the )?members|% of the members", one.statement)]
    assert len(shares) > 10
    assert [one.id for one in shares if one.interval != "wilson"] == []


ZERO = ("zhang_frei_bartlett.landscape.race",)
"""Differences that are expected to be zero; where nothing was predicted they would be a half."""


def test_thirty_binaries_judge_a_headline_at_quick_and_at_most_seven_stop_before_a_criterion():
    found = []
    for binary in BINARIES.values():
        claims = [claim.at_quick() for claim in binary.claims]
        found.append([claim.criterion for claim in claims if claim.expected_verdict])
    assert sum(None in criteria for criteria in found) >= 30
    assert sum(any(criteria) for criteria in found) <= 7
