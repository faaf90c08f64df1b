"""Numbers, formulas and drawings of the page."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.page import numbers
from experiments.page.drawing import AXIS, UNIT, WIDTH, dots, on_common_axis, region
from experiments.page.words import worded


def claim_row(relation, expected, tolerance, members):
    values = np.asarray(members)
    return {
        "relation": relation, "expected": expected, "tolerance": tolerance,
        "estimate": float(values.mean()), "interval": [float(values.min()), float(values.max())],
    }  # fmt: skip


@given(
    st.sampled_from(["==", "<=", ">="]),
    st.floats(-5, 5),
    st.floats(0.01, 2),
    st.lists(st.floats(-8, 8), min_size=1, max_size=40),
)
def test_a_dot_lies_on_the_region_exactly_where_its_member_does(relation, expected, tolerance, members):
    drawing = dots(claim_row(relation, expected, tolerance, members), np.array(members))
    low = -np.inf if relation == "<=" else expected - tolerance
    high = np.inf if relation == ">=" else expected + tolerance
    places = [float(x) for x in re.findall(r"M([\d.]+) ", drawing.path)]
    assert len(places) == len(members)
    for x, value in zip(places, sorted(members)):
        edge = 0.11  # places are rounded to a tenth
        assert 0 <= x <= WIDTH
        if low <= value <= high:
            assert drawing.region[0] - edge <= x <= drawing.region[1] + edge
        else:
            assert x <= drawing.region[0] + edge or x >= drawing.region[1] - edge


def test_dots_of_many_members_are_order_statistics_and_their_number_is_said():
    members = np.random.default_rng(0).normal(size=5000)
    drawing = dots(claim_row("==", 0.0, 1.0, members), members)
    inside = int((abs(members) <= 1).sum())
    assert drawing.path.count("M") < 100
    assert drawing.label.startswith("5000 members from ")
    assert f"; {inside} of them in the region" in drawing.label


def test_nothing_is_drawn_where_nothing_was_measured():
    row = claim_row("==", 0.0, 1.0, [0.0]) | {"estimate": None, "interval": [None, None]}
    assert dots(row, np.array([])) is None


def ledger_row(estimate, interval, relation="<=", expected=0.0, tolerance=0.01, kind="t"):
    return {
        "estimate": estimate, "interval": interval, "relation": relation, "expected": expected, "tolerance": tolerance,
        "interval_kind": kind,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("row", "measured", "bound"),
    [
        (ledger_row(0.0018123, [0.0015, 0.0021]), "0.00181 [0.00150, 0.00210]", "at most 0.01"),
        (ledger_row(1.0 / 3, [0.31, 0.36], "==", 0.5, 0.02), "0.333 [0.310, 0.360]", "0.5 ± 0.02"),
        (ledger_row(2.0, [0.0, 5.0], ">=", 1.0, 0.0), "2 [0, 5]", "at least 1"),
        (ledger_row(1e6, [1e6, 1e6], ">=", 1.1, 0.0, "median"), "at least 10⁶", "at least 1.1"),
        (ledger_row(2.6e-7, [2.4e-7, 2.8e-7], "<=", 0.0, 1e-5), "2.6×10⁻⁷ [2.4×10⁻⁷, 2.8×10⁻⁷]", "at most 10⁻⁵"),
        (ledger_row(None, [None, None], ">=", 1.001, 0.0), "–", "at least 1.001"),
    ],
)
def test_numbers_are_rounded_to_their_interval_and_a_bound_is_said_in_words(row, measured, bound):
    assert numbers.estimate(row) == measured
    assert numbers.bound(row) == bound


@pytest.mark.parametrize(
    ("plain", "typeset"),
    [
        ("u U11 = Gam^-1", "u U<sub>11</sub> = Γ<sup>−1</sup>"), ("e^beta_1", "e<sup>β<sub>1</sub></sup>"),
        ("x_{j+1}, $\\beta_2$ = .5", "x<sub>j+1</sub>, β<sub>2</sub> = 0.5"), ("N <= 2 -> 3", "N ≤ 2 → 3"),
        ("(1-N/L)^(-1/2)", "(1-N/L)<sup>−1/2</sup>"), ("a < b & <i>", "a &lt; b &amp; &lt;i&gt;"),
        ("free_5/train_loss of looped_2 (von_oswald.one_step.cosine)",) * 2,
        ("Figs. 1, 2.5 and 10^6", "Figs. 1, 2.5 and 10<sup>6</sup>"),
        ("2.5e-07", "2.5×10⁻⁷"), ("1e+12", "1×10¹²"), ("-0.25", "−0.25"), ("2.3e−16", "2.3×10⁻¹⁶"),
        ("0.1 [-2, 3e-05]", "0.1 [−2, 3×10⁻⁵]"), ("N-1", "N-1"), ("2020-2021", "2020-2021"),
    ],
)  # fmt: skip
def test_ascii_formulas_are_typeset_and_names_stay(plain, typeset):
    assert str(numbers.formula(plain)) == typeset


@given(
    st.sampled_from(["==", "<=", ">="]), st.floats(-5, 5), st.sampled_from([0.0, 0.01, 1.0]), st.floats(-9, 9),
)  # fmt: skip
def test_on_the_common_axis_an_estimate_lies_on_the_shade_exactly_where_it_lies_in_the_region(rel, at, slack, value):
    row = ledger_row(value, [value - 0.1, value + 0.1], rel, at, slack)
    place, (low, high) = on_common_axis(row), region(row)
    edge = 0.11  # places are rounded to a tenth
    assert 0 <= place.region[0] <= place.region[1] <= AXIS
    if low <= value <= high:
        assert place.region[0] - edge <= place.estimate <= place.region[1] + edge
    else:
        assert place.estimate <= place.region[0] + edge or place.estimate >= place.region[1] - edge
    if rel == "==" and slack:
        assert place.region == (AXIS / 2 - UNIT, AXIS / 2 + UNIT)


def sentence_row(estimate, low=None, high=None, members=10, kind="t"):
    return {"id": "a.b.c", "estimate": estimate, "interval": [low, high], "members": members, "interval_kind": kind}


def said(form, *row, **more):
    return worded(f"{{c{form}}}", "a.b", {("a.b.c", "lab"): sentence_row(*row, **more)}).replace(
        "\N{NO-BREAK SPACE}", " "
    )


def test_sentences_take_numbers_of_lab_and_of_paper():
    known = {("c", "lab"): 0.5, ("c", "paper"): 0.25, ("none", "lab"): None}
    ledger = {(f"a.b.{name}", preset): sentence_row(value) for (name, preset), value in known.items()}
    sentence = "{c:.0%} and {at_paper.c}, {none:%} and {unknown:of}"
    assert worded(sentence, "a.b", ledger) == "50\N{NO-BREAK SPACE}% and 0.25, – and –"
    assert worded("{b.c:.1f}", "a", ledger) == "0.5"


@given(st.floats(1e-4, 1e5), st.floats(1e-3, 1), st.floats(1, 3))
def test_a_sentence_prints_no_digit_that_the_interval_does_not_bear(value, width, longer):
    arm = value * width
    printed = said("", value, value - arm, value + longer * arm)
    number, last = float(printed.replace(",", "")), 10.0 ** -len(printed.partition(".")[2])
    assert abs(number - value) <= 0.1 * max(value, last)  # two digits, or what the interval bears
    assert last > 0.0499 * arm or "." not in printed


@pytest.mark.parametrize(
    ("value", "arm", "printed"),
    [
        (0.9992, 0.0001, "0.9992"), (1.00044, 0.00018, "1.0004"), (49.43, 0.2, "49"), (1663.2, 352, "1,700"),
        (0.3334, 5e-5, "0.33"), (3.3e-5, 1.5e-5, "3.3×10⁻⁵"), (-0.0129, 0.0176, "−0.013"), (0.0, 0.1, "0"),
        (-1.003, 0.004, "−1.003"), (0.9367, 0.237, "0.9"), (1 + 3e-10, 2e-10, "1.0000"),
    ],
)  # fmt: skip
def test_two_digits_are_enough_of_a_number_or_of_its_distance_from_one(value, arm, printed):
    assert said("", value, value - arm, value + arm) == printed


@pytest.mark.parametrize(
    ("form", "row", "words"),
    [
        (":of", (0.0, 0.0, 0.2, 16, "wilson"), "none of 16"), (":of", (1.0, 0.7, 1.0, 2520, "wilson"), "all 2,520"),
        (":of", (0.7, 0.4, 0.9, 10, "wilson"), "7 of 10"), (":of", (0.836, 0.76, 0.89, 128, "wilson"), "84 % of 128"),
        (":count", (0.0,), "none"), (":count", (3.0,), "3"), (":times", (2.3155, 1.77, 2.86), "5.0 times"),
        (":times", (-1.167, -1.46, -0.87), "0.45 times"), (":earlier", (-0.37, -0.42, -0.33), "37 % earlier"),
        (":earlier", (0.047, 0.013, 0.084), "5 % later"), (":+", (0.0063, -0.001, 0.0135), "+0.006"),
        (":%", (0.0046, 0.003, 0.0061), "0.46 %"), (":%", (0.99792, 0.99743, 0.99841), "99.79 %"),
    ],
)  # fmt: skip
def test_a_sentence_says_counts_factors_and_times_in_words(form, row, words):
    assert said(form, *row) == words


def test_what_is_no_share_of_members_is_not_said_as_one():
    with pytest.raises(ValueError, match=r"a\.b\.c is no share of members"):
        said(":of", 0.5, 0.4, 0.6)
