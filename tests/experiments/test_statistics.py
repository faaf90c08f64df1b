"""Statistics of claims on records whose answer is known."""

import dataclasses

import numpy as np
import pytest
from toys import measured_with

from experiments.onsets import at_exact_start, half_drop_times
from experiments.von_oswald import (
    layer_norm,
    phase_transitions,
    phase_transitions_shown,
    softmax,
    softmax_shown,
    task_sets,
    task_sets_shown,
)
from icl_lab.lab.judging import judge

STEPS = np.arange(0, 100, 10)


def drop(at, start=0.4, end=0.2):
    """A loss curve that drops at a step; never, if that is beyond the last."""
    return np.where(STEPS < at, start, end)  # noqa: SIM300


def claim(module, name):
    return next(c for c in module.EXPERIMENT.claims if c.id.endswith(f".{name}"))


def test_half_drop_is_the_first_measurement_past_the_middle():
    curves = np.stack([drop(30), drop(35), drop(1000)])
    np.testing.assert_array_equal(half_drop_times(curves, STEPS, 0.4, 0.2), [30, 40, np.inf])
    noisy = at_exact_start(1.1 * curves, 0.4)
    np.testing.assert_allclose(noisy, curves)


def phases(one, two, fresh=(), own=()):
    pieces = [
        *(
            (phase_transitions.LOSS.at(heads=h), np.stack([drop(t) for t in times]))
            for h, times in ((1, one), (2, two))
        ),
        (phase_transitions.STEPS, STEPS),
        (phase_transitions.SET_STEPS, STEPS),
        (phase_transitions.OF_SET, {"loss": np.array(fresh), "train_loss": np.array(own)}),
        ("facts", {"predict_zero": 0.4, "closed_form": 0.2}),
    ]
    return measured_with({}, pieces)


def test_two_heads_sooner_and_together():
    late = 10_000
    r = phases([50] * 40 + [late] * 20, [30] * 59 + [late])
    sooner = dataclasses.replace(claim(phase_transitions, "two_heads_sooner"), control=None)  # no block was trained
    assert judge(sooner, r)["estimate"] == pytest.approx(59 / 60)
    assert judge(sooner, r)["verdict"] == "holds"
    assert phase_transitions_shown.is_late(r, 1).sum() == 20
    assert judge(claim(phase_transitions, "two_heads_together"), r)["verdict"] == "holds"
    assert judge(claim(phase_transitions, "one_head_waits"), r)["verdict"] == "holds"
    same = phases([50] * 60, [50] * 60)
    assert judge(sooner, same)["verdict"] == "fails"
    nowhere = judge(sooner, phases([late] * 60, [late] * 60))  # no step is before one that never comes
    assert nowhere["estimate"] == 0


def test_grokking_is_told_from_overfitting_and_from_nothing():
    shoots = np.where(STEPS < 20, 0.4, np.where(STEPS < 80, 0.6, 0.2))
    overfits = np.where(STEPS < 20, 0.4, np.where(STEPS < 60, 0.2, 0.24))
    own = np.where(STEPS < 20, np.nan, np.where(STEPS < 40, 0.3, 0.1))
    still = np.full(STEPS.shape, 0.4)
    r = phases([50], [50], [shoots, overfits, still], [own, own, still])
    np.testing.assert_allclose(phase_transitions_shown.shoots_up(r), [1.5, 1, 1])
    np.testing.assert_array_equal(phase_transitions_shown.lags(r), [1, 0, np.nan])
    np.testing.assert_allclose(claim(phase_transitions, "set_generalises").statistic(r), [1, 1.2, 2])


def heads(one, two, cosine):
    found = {1: {"trained": np.array(one)}, 2: {"trained": np.array(two)}}
    maps = np.random.default_rng(0).normal(size=(len(two), 4, 4))
    pieces = [(softmax.FINAL.at(heads=h), losses | {"gd": np.full(len(two), 0.2)}) for h, losses in found.items()]
    pieces += [(softmax.CURVE.at(heads=h, metric="loss"), np.full((len(two), 1), 0.4)) for h in found]
    pieces += [
        (softmax.CURVE.at(heads=2, metric="gd_sensitivity_cosine"), np.array(cosine)[:, None]),
        (softmax.MAPS.at(heads=2), np.stack([maps, np.eye(4) - maps], axis=1)),
        ("facts", {"closed_form": 0.2, "centred": 0.21}),
    ]
    return measured_with({"input_size": 3}, pieces)


def test_members_on_the_plateau_are_counted_apart():
    r = heads([0.3, 0.4, 0.3], [0.21, 0.21, 0.39], [0.96, 0.96, 0.2])
    np.testing.assert_array_equal(claim(softmax, "past_plateau").statistic(r), [1, 1, 0])
    np.testing.assert_allclose(claim(softmax, "two_heads_centred").statistic(r), [1, 1, np.nan])
    np.testing.assert_allclose(claim(softmax, "two_heads_cosine").statistic(r), [0.96, 0.96, np.nan])
    np.testing.assert_allclose(claim(softmax, "gap_closed").statistic(r), [0.9, np.nan, np.nan])
    np.testing.assert_allclose(softmax_shown.maps_off_diagonal(r, summed=True), 0, atol=1e-12)
    assert (softmax_shown.maps_off_diagonal(r, summed=False) > 0.1).all()


def test_excess_of_a_fixed_set_is_measured_against_the_gd_step_on_the_same_tasks():
    losses = {"trained": np.array([0.22, 0.21]), "gd": np.array([0.2, 0.2])}
    facts = {"closed_form": 0.2, "coefficient": 0.01 * 8192}
    r = measured_with({}, [(task_sets.FINAL.at(tasks=8192), losses), ("facts", facts)])
    np.testing.assert_allclose(task_sets_shown.excess_over_theory(8192)(r), [2, 1])


def test_far_out_is_the_largest_range_wherever_it_stands():
    losses = {"trained": np.array([[4.0, 1.0]]), "gd": np.array([[8.0, 1.0]])}
    config = {"ranges": [2.0, 1.0], "networks": ["looped_1"], "only": "all", "input_range": 1.0}
    r = measured_with(config, [(layer_norm.RANGE.at(network="looped_1"), losses)])
    np.testing.assert_allclose(claim(layer_norm, "one_robust").statistic(r), [0.5])
