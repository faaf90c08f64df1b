"""Members that take their names late and keep them hold every claim of ``in_training``, and its controls do not."""

import functools

import jax
import numpy as np
import pytest
from toys import inside, measured_at_lab

from experiments.identification import in_training as binary
from experiments.identification.in_training import AGREES, ANSWER, FULL, LOSS, NAMES, NONE, STEPS, TIMES
from experiments.identification.in_training_shown import CLAIMS, before_the_name, stays
from icl_lab.identify import FAMILIES

CONFIG = binary.PRESETS["lab"]
SMALL = binary.PRESETS["smoke"]
PATHS = {  # at eight times; the loss falls evenly from the first to the last
    "one_layer": ["zero", None, None, "preconditioned GD", None, "GD", "GD", "GD"],
    "two_loops": ["zero", None, None, None, "GD", "GD", "GD++", "GD++"],
    "softmax_heads": ["zero", None, None, None, None, None, "softmax regression", "softmax regression"],
    "five_layers": ["zero", None, None, "GD", "GD++", "GD++", "least squares", "least squares"],
    "delta_net": ["zero", None, None, None, None, "LMS", "LMS", "LMS"],
}


def record(paths=None, members=3, full=True, waiting=0):
    """Members of every network with the same path; some are on the plateau at the end."""
    pieces = []
    for network, path in (PATHS | (paths or {})).items():
        places = np.array([NONE if name is None else NAMES.index(name) for name in path], float)
        steps = 10 * np.arange(len(path))
        pieces += [(STEPS.at(network=network), steps), (TIMES.at(network=network), steps)]
        pieces += [(LOSS.at(network=network), np.tile(1 - steps / steps[-1], (members, 1)))]
        answers = {name: np.tile(places, (members, 1)) for name in binary.ANSWERS} | {"wavers": np.zeros((members, 8))}
        turned = np.linspace(0.95, 0.05, 8)[:, None] * np.ones(members)
        turned[-1, :waiting] = 0.95  # one direction of ten
        answers["asymmetry"] = turned.T
        pieces += [(ANSWER.at(network=network), answers), (AGREES.at(network=network), np.full(members, float(full)))]
        pieces += [(FULL.at(network=network), {name: values[:, -1] for name, values in answers.items()})]
    return measured_at_lab(binary, pieces)


@functools.cache
def made():
    return record()


def test_late_names_that_stay_hold_and_the_control_fails():
    assert [claim.id for claim in CLAIMS if not inside(claim, claim.statistic, made())] == []
    assert [c.id for c in CLAIMS if c.control and inside(c, c.control, made())] == []


@pytest.mark.parametrize(
    ("paths", "full", "broken"),
    [
        ({}, False, {"short_list"}),
        ({"one_layer": ["GD", "GD", None, "GD", None, "GD", "GD", "GD"]}, True,
         {"after_half", "before_one_layer", "plateau", "falling_one_layer", "stays_one_layer"}),
        ({"two_loops": [None, None, None, "GD++", "GD++", "GD++", "GD++", "GD"]}, True,
         {"order_two_loops", "ends_two_loops"}),
        ({"five_layers": [None] * 8}, True, {"order_five_layers", "ends_five_layers"}),
        ({"delta_net": [None, None, None, None, None, "LMS", None, None]}, True, {"stays_delta_net", "ends_delta_net"}),
    ],
)  # fmt: skip
def test_other_paths_break_the_claims_on_them(paths, full, broken):
    changed = record(paths, full=full)
    assert {claim.id.rsplit(".", 1)[1] for claim in CLAIMS if not holds(claim, changed)} == broken


def test_members_on_the_plateau_are_counted_once_and_left_out_elsewhere():
    waiting = record(waiting=1)
    for claim in CLAIMS:
        values = claim.statistic(waiting).reshape(-1, 3)
        if claim.id.endswith(".learned"):
            assert (values == [0, 1, 1]).all()
        else:
            assert np.isnan(values[:, 0]).all(), claim.id
            np.testing.assert_array_equal(values[:, 1:], claim.statistic(made()).reshape(-1, 3)[:, 1:], claim.id)


def holds(claim, of):
    """Whether every member that has a value is in the region of the claim."""
    values, (low, high) = claim.statistic(of), claim.region()
    values = values[~np.isnan(values)]
    return bool(np.all((values >= low) & (values <= high)))


def test_the_name_comes_after_what_is_done_at_the_answer_before_it():
    np.testing.assert_allclose(before_the_name("two_loops")(made()), 5 / 7)  # GD++ is the seventh of eight answers
    without = record({"two_loops": ["zero"] * 8})
    assert np.isnan(before_the_name("two_loops")(without)).all()
    assert np.isnan(stays("two_loops", "GD")(without)).all()


def test_weights_are_those_of_the_last_step():
    """The last measurement holds the parameters with which a training ends; an earlier one holds others."""
    fit = binary.trainings(SMALL)["delta_net"].carried_out()
    last, first = (binary.weights_at(fit, r) for r in (-1, 0))
    same = jax.tree.map(lambda a, b: bool((a == b).all()), last, fit.params)
    assert all(jax.tree.leaves(same))
    assert not all(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a == b).all()), first, fit.params)))


def test_times_begin_with_the_untrained_network_and_end_with_training():
    at = binary.asked_at(CONFIG)
    assert (at[0], at[-1]) == (0, CONFIG.measurements)
    assert 0.8 * CONFIG.times < len(at) <= CONFIG.times  # early ones fall on one measurement
    assert (np.diff(at) > 0).all()
    assert (np.diff(np.log(at[1:]))[3:] < 0.6).all()


def test_the_short_list_is_of_families_and_has_what_is_expected():
    assert set(binary.SHORT) <= set(FAMILIES)
    assert {name for path in PATHS.values() for name in path if name} <= set(binary.SHORT)
