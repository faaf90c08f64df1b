"""What a picture says of its bars and bands: all of them, in its own small print, and what they are."""

import re

import numpy as np
import pytest

from experiments.panels import bars, beside, courses, intervals, points_panel, strip, zero_below
from icl_lab.lab.intervals import t_interval, wilson_interval
from icl_lab.lab.meanings import explain, explanations, unexplained
from icl_lab.lab.style import band, panels, save, styled

X = np.arange(1.0, 5.0)
MEMBERS = np.random.default_rng(0).exponential(size=(9, 4))
LOOK = {"color": "black", "marker": "o", "linestyle": "-"}


@pytest.fixture(autouse=True)
def style():
    with styled():
        yield


def alone():
    figure, ((axes,),) = panels(1)
    return figure, axes


def ends(axes):
    """(X, 2) lower and upper ends of the error bars of a panel."""
    (container,) = axes.containers
    return np.array([segment[:, 1] for segment in container[2][0].get_segments()])


def percentiles_said(figure):
    (sentence,) = explanations(figure)
    return [float(number) for number in re.findall(r"(\d+)th", sentence)]


DRAWN = {
    "band": lambda axes: band(axes, X, MEMBERS),
    "bars": lambda axes: bars(axes, X, MEMBERS, "label", LOOK),
    "intervals": lambda axes: intervals(axes, X, MEMBERS.T, **LOOK),
    "lying": lambda axes: intervals(axes, X, MEMBERS.T, lying=True, **LOOK),
    "shares": lambda axes: intervals(axes, X, MEMBERS.T > 1, wilson_interval, "starts", **LOOK),
    "strip": lambda axes: strip(axes, X, MEMBERS, "label", LOOK, width=0.1),
    "courses": lambda axes: courses(axes, X, MEMBERS, "label", LOOK),
    "points": lambda axes: points_panel(axes, X, {"trained": MEMBERS.T}, "label"),
}
BARE = {
    "bars": lambda axes: axes.errorbar(X, X, X, label="a label says nothing of its bars"),
    "bands": lambda axes: axes.fill_between(X, X, 2 * X),
    "boxes": lambda axes: axes.boxplot(MEMBERS, patch_artist=True),
}


@pytest.mark.parametrize("name", DRAWN)
def test_what_the_laboratory_draws_of_members_says_what_it_is(name):
    figure, axes = alone()
    DRAWN[name](axes)
    assert unexplained(figure) == []
    assert len(explanations(figure)) == 1


@pytest.mark.parametrize("name", BARE)
def test_what_nobody_explains_is_found(name):
    figure, axes = alone()
    DRAWN["bars"](axes)
    BARE[name](axes)
    assert [silent.split()[0] for silent in unexplained(figure)] == [name]


def test_a_band_is_explained_by_its_label_or_by_a_sentence():
    figure, axes = alone()
    areas = [axes.fill_between(X, X, factor * X, color="0.8") for factor in (2, 3)]
    areas[1].set_label("between twice and thrice x")  # of both, which look alike
    assert unexplained(figure) == []
    other = axes.fill_between(X, -X, 0 * X, color="blue")
    assert unexplained(figure) != []
    explain([other], "the blue area is below zero")
    assert unexplained(figure) == []
    assert explanations(figure) == ["The blue area is below zero."]


def test_a_colour_bar_needs_no_words():
    figure, axes = alone()
    figure.colorbar(axes.imshow(MEMBERS), extend="both")  # ends in boxes
    assert unexplained(figure) == []


def test_bars_end_at_the_percentiles_that_the_picture_names():
    figure, axes = alone()
    DRAWN["bars"](axes)
    np.testing.assert_allclose(ends(axes).T, np.percentile(MEMBERS, percentiles_said(figure), axis=0))


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_bands_end_at_the_percentiles_that_the_picture_names(share):
    figure, axes = alone()
    band(axes, X, MEMBERS, share=share)
    low, high = np.percentile(MEMBERS, percentiles_said(figure), axis=0)
    (area,) = axes.collections
    corners = area.get_paths()[0].vertices
    np.testing.assert_allclose([corners[:, 1].min(), corners[:, 1].max()], [low.min(), high.max()])


@pytest.mark.parametrize(
    ("interval", "values"), [(t_interval, MEMBERS), (wilson_interval, (MEMBERS > 1).astype(float))]
)
def test_bars_of_intervals_end_where_those_of_claims_do(interval, values):
    _, axes = alone()
    intervals(axes, X, values.T, interval, **LOOK)
    np.testing.assert_allclose(ends(axes), [interval(of_place)[1] for of_place in values.T])


def test_of_a_single_member_an_interval_is_not_drawn():
    _, axes = alone()
    intervals(axes, X, MEMBERS[:1].T, **LOOK)
    np.testing.assert_array_equal(ends(axes), np.stack([MEMBERS[0], MEMBERS[0]], axis=1))


def test_a_strip_draws_every_member_and_their_median():
    _, axes = alone()
    DRAWN["strip"](axes)
    *places, _, medians = axes.lines  # the last but one is that of the legend
    np.testing.assert_array_equal(np.stack([line.get_ydata() for line in places], axis=1), MEMBERS)
    np.testing.assert_array_equal(medians.get_ydata(), np.median(MEMBERS, axis=0))


def test_sentences_name_their_panels_where_there_are_several():
    figure, ((a, b, c),) = panels(3)
    for axes in (a, c):
        DRAWN["bars"](axes)
    assert not any(sentence.startswith("(") for sentence in explanations(figure))
    DRAWN["band"](b.twinx())
    assert sorted(sentence.split(") ")[0] for sentence in explanations(figure)) == ["(a, c", "(b"]


def test_a_picture_says_it_below_its_panels(tmp_path):
    figure, axes = alone()
    DRAWN["bars"](axes)
    save(figure, tmp_path / "picture", "its caption", pdf=False)
    said, caption = figure.texts
    assert " ".join(said.get_text().split()) == " ".join(explanations(figure))
    assert caption.get_text() == "its caption"
    boxes = [text.get_window_extent() for text in (said, caption)]
    assert axes.get_tightbbox().y0 > boxes[0].y1 > boxes[0].y0 > boxes[1].y1


def test_series_stand_beside_one_another_around_their_place():
    for count in (1, 2, 5):
        shifts = beside(range(count), 0.5)
        np.testing.assert_allclose(shifts.sum(), 0, atol=1e-12)
        np.testing.assert_allclose(np.diff(shifts), 0.5)


def test_zero_below_a_cut_keeps_the_scale_of_what_is_above():
    figure, axes = alone()
    axes.set_yscale("log")
    axes.plot(X, [0.2, 1.0, 5.0, 20.0])
    zero_below(axes, 0.05, (0.2, 1, 5, 20))
    figure.canvas.draw()
    assert axes.get_yscale() == "log"
    assert axes.get_ylim()[0] == 0.05
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["0", "0.2", "1", "5", "20"]
