"""Statistics of staircase and landscape on records made by hand."""

import numpy as np
import pytest
from toys import measured_with

from experiments.zhang_frei_bartlett import landscape_shown, staircase, staircase_shown
from experiments.zhang_frei_bartlett.landscape import CURVATURE, ENDS, PAIR, PREDICTED
from experiments.zhang_frei_bartlett.staircase import MERGED, RANK_LEVELS, RANK_LOSS, RANK_TIMES
from icl_lab.lab.claims import NotRun
from icl_lab.theory import Flow


def test_rests_measure_the_time_near_each_level_until_the_optimum():
    """4 units at level 0, 2 on the way, 3 at level 1, then at the end for ever."""
    times = np.arange(1.0, 101.0)
    loss = np.concatenate([np.full(4, 1.0), [0.8, 0.7], np.full(3, 0.5), np.zeros(91)])[None]
    found = staircase_shown.rests(times, loss, np.array([1.0, 0.5, 0.0]))
    np.testing.assert_allclose(found, [[4 / 9, 3 / 9, 0.0]])


def test_rank_statistic_tells_where_the_loss_rests():
    levels, times = np.array([1.0, 0.75, 0.5, 0.25, 0.0]), np.arange(1.0, 41.0)
    even = np.repeat([1.0, 0.5, 0.0], [10, 10, 20])[None]
    odd = np.repeat([1.0, 0.75, 0.5, 0.25, 0.0], [10, 8, 2, 8, 12])[None]
    for loss, expected in ((even, 1.0), (odd, 0.0)):
        pieces = (RANK_LEVELS, levels), (RANK_TIMES, times), (RANK_LOSS.at(rank=2), loss)
        made = measured_with({"ranks": (2,)}, pieces)
        np.testing.assert_allclose(staircase_shown.rest_between(2)(made), expected)
    with pytest.raises(NotRun, match="rank 4"):
        staircase_shown.rest_between(4)(made)


def test_escape_slope_has_the_unit_of_the_theory():
    spectrum, scales = (0.6, 0.8), (1e-6, 1e-4, 1e-2)
    size = np.linalg.norm(np.square(spectrum))
    halves = 7.0 + 1.3 * np.log(1 / np.array(scales)) / size
    both = MERGED.at(of="halves"), np.stack([halves, halves + 2])
    made = measured_with({"spectrum": spectrum, "merged_scales": scales}, [both])
    np.testing.assert_allclose(staircase_shown.escape_slope(made), 1.3)


def test_crossings_are_interpolated_and_absent_where_there_are_none():
    times, values = np.array([1.0, 2.0, 4.0]), np.array([[-1.0, -1.0, 3.0], [-3.0, -2.0, -1.0]])
    np.testing.assert_allclose(staircase._crossing(times, values), [2.5, np.nan])


def test_regrowth_tells_a_second_drop_from_one_that_only_slows():
    times, falling = np.arange(1.0, 7.0), np.array([0.9, 0.8, 0.5, 0.3, 0.1, 0.0])
    flow = Flow(
        times, {}, np.stack([falling, falling]), np.array([[1, 9, 4, 2, 1, 8], [1, 9, 2, 6, 1, 8]]), np.ones((2, 2)),
        np.ones(2, int),
    )  # fmt: skip
    np.testing.assert_allclose(staircase._regrowth(times, flow, np.array([1.0, 1.0]), 0.05), [1, 3])


def test_longest_minimum():
    assert landscape_shown.longest_minimum(np.array([1.0, 0.5, -0.1, -2.0])) == 2
    assert landscape_shown.longest_minimum(np.array([-1.0, -2.0])) == 0
    assert landscape_shown.longest_minimum(np.array([1.0, 2.0])) == 2


def landscape_record():
    """D = 2, flat and steep, one scale, N = 1 (a minimum) and 3 (a saddle), four starts a cell."""
    config = {"dimensions": [2], "lengths": [1, 3], "scales": [0.1], "exponents": [0.0, 2.0]}
    ended = np.zeros((2, 1, 2, 4), int)
    ended[0, 0, 0] = [0, 0, 0, 1]
    ended[1, 0, 0] = [0, 1, 1, 1]
    ended[1, 0, 1, 0] = 2
    predicted = np.array([0.75, 1.0, 0.25, 1.0]).reshape(2, 1, 2)
    told = predicted[..., None] * np.ones(4) > 0.5
    pieces = [
        (ENDS.at(dimension=2), {"ended": ended, "told": told, "above": np.where(ended == 2, -0.1, 0.0)}),
        (CURVATURE.at(dimension=2), np.array([[2.0, 1.0, -1.0], [3.0, -1.0, -1.0]])),
        (PREDICTED.at(dimension=2), predicted),
        (PAIR, {"ended": np.zeros((1, 4), int), "above": np.zeros((1, 4))}),
    ]
    return measured_with(config, pieces)


def test_landscape_pools_minima_and_saddles_apart():
    claims, made = {c.id.split(".")[-1]: c for c in landscape_shown.CLAIMS}, landscape_record()
    at_minima, at_saddles = (claims[name].statistic(made) for name in ("minima_attract", "only_minima"))
    np.testing.assert_array_equal(at_minima, [1, np.nan, 1, np.nan])  # 1 and 3 of 4; saddles
    assert np.nansum(at_saddles) == 0
    assert (~np.isnan(at_saddles)).sum() == 8
    nowhere_else = claims["nowhere_else"]
    assert np.nansum(nowhere_else.statistic(made)) == 0
    assert np.nansum(nowhere_else.control(made)) == 1
    np.testing.assert_array_equal(claims["mixed"].statistic(made), [-0.1])
    np.testing.assert_allclose(claims["race_each"].statistic(made).mean(), 13 / 16)
    np.testing.assert_allclose(claims["flat_is_safer"].statistic(made).mean(), 0.5)
    np.testing.assert_allclose(claims["race"].statistic(made).mean(), -1 / 16)
