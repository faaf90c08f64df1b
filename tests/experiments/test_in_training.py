"""Members that take their names late and keep them hold every claim of ``in_training``, and its controls do not."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from toys import inside

from experiments.identification import in_training as binary
from experiments.identification.in_training import AGREES, ANSWER, LOSS, NAMES, NONE, STEPS, TIMES
from experiments.identification.in_training_shown import CLAIMS, before_the_name, figures, stays
from icl_lab.identify import FAMILIES
from icl_lab.lab.flags import FlagError, to_json
from icl_lab.lab.record import Record
from icl_lab.lab.trainings import collected

CONFIG = binary.PRESETS["lab"]
SMALL = binary.PRESETS["smoke"]
PATHS = {  # at eight times; the loss falls evenly from the first to the last
    "one_layer": ["zero", None, None, "preconditioned GD", None, "GD", "GD", "GD"],
    "two_loops": ["zero", None, None, None, "GD", "GD", "GD++", "GD++"],
    "softmax_heads": ["zero", None, None, None, None, None, "softmax regression", "softmax regression"],
    "five_layers": ["zero", None, None, "GD", "GD++", "GD++", "least squares", "least squares"],
    "delta_net": ["zero", None, None, None, None, "LMS", "LMS", "LMS"],
}


def record(paths=None, members=3, full=True):
    """Members of every network with the same path."""
    pieces = []
    for network, path in (PATHS | (paths or {})).items():
        places = np.array([NONE if name is None else NAMES.index(name) for name in path], float)
        steps = 10 * np.arange(len(path))
        pieces += [(STEPS.at(network=network), steps), (TIMES.at(network=network), steps)]
        pieces += [(LOSS.at(network=network), np.tile(1 - steps / steps[-1], (members, 1)))]
        answers = {name: np.tile(places, (members, 1)) for name in binary.ANSWERS} | {"wavers": np.zeros((members, 8))}
        pieces += [(ANSWER.at(network=network), answers), (AGREES.at(network=network), np.full(members, float(full)))]
    metrics, arrays, _ = collected(pieces)
    return Record("identification.in_training", "lab", to_json(CONFIG), metrics, arrays)


@functools.cache
def made():
    return record()


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id.rsplit(".", 1)[1])
def test_late_names_that_stay_hold_and_the_control_fails(claim):
    assert inside(claim, claim.statistic, made())
    assert claim.control is None or not inside(claim, claim.control, made())


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


def test_a_figure_has_the_loss_above_the_names():
    figure = figures(made())["in_training"]
    labels = [axis.get_ylabel() for axis in figure.axes if axis.has_data()]
    assert sorted(labels) == ["loss"] * 5 + ["member"] * 5


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"steps": (7, 4, 4)}, "--steps=7,4,4"), ({"batches": (16,)}, "--batches"), ({"times": 3}, "--times=3"),
        ({"networks": ("one_layer",) * 3}, "--networks"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_are_refused_by_name(changes, named):
    for preset in binary.PRESETS.values():
        binary.EXPERIMENT.validate(preset)
    with pytest.raises(FlagError, match=named):
        binary.EXPERIMENT.validate(dataclasses.replace(SMALL, **changes))
