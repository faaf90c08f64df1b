"""Layers that take steps of GD hold every claim of ``identification.layers``; Newton's and idle ones do not."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import inside

from experiments.identification import layers as binary
from experiments.identification.layers import FACTOR, GRID, LOW, READ, after_each, flat, learners
from experiments.identification.layers_shown import CLAIMS, figures, steps
from experiments.identification.networks import sampler_of
from experiments.von_oswald import multi_step
from experiments.von_oswald.common import Task, constructed, model
from icl_lab.constructions import gd_plus_plus_weights
from icl_lab.identify import battery, fingerprint, in_units
from icl_lab.identify.filters import gd, newton
from icl_lab.lab.flags import FlagError, to_json
from icl_lab.lab.record import Record
from icl_lab.lab.trainings import collected
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts import Prompt

CONFIG = binary.PRESETS["lab"]
GRID_POINTS, LOWEST, RATE = np.geomspace(0.005, 8, 24), 0.01, 0.4


def record(response=gd, count=lambda j: j, members=3):
    """Every network applies a filter so many times after layer j; its error is that of the filter at the mean."""
    pieces = []
    for name in learners(CONFIG.networks):
        layer = np.arange(1, 1 + (5 if name.startswith("free") else CONFIG.loops))
        idle = name.endswith("_untrained")
        r = np.stack([1 - GRID_POINTS * response(GRID_POINTS, count(j), 1e-9 if idle else RATE) for j in layer])
        gains = np.where(layer < 5, 2.0, 1.0)
        errors = np.ones(len(layer)) if idle else (2.0 if name.endswith("_reversed") else 1.0) * 0.5**layer
        each = {"gain": gains, "error": errors}
        pieces += [(GRID.at(learner=name), GRID_POINTS), (LOW.at(learner=name), np.array(LOWEST))]
        pieces += [(FACTOR.at(learner=name), np.tile(r, (members, 1, 1)))]
        pieces += [(READ.at(learner=name), {read: np.tile(value, (members, 1)) for read, value in each.items()})]
    metrics, arrays, _ = collected(pieces)
    return Record("identification.layers", "lab", to_json(CONFIG), metrics, arrays)


@functools.cache
def made():
    return record()


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id.rsplit(".", 1)[1])
def test_layers_of_gradient_descent_hold_and_the_control_fails(claim):
    assert inside(claim, claim.statistic, made())
    assert not inside(claim, claim.control, made())


def test_layers_of_newton_fail_what_is_said_of_growth():
    doubling = record(newton, lambda j: j - 1)
    failed = {claim.id.rsplit(".", 1)[1] for claim in CLAIMS if not inside(claim, claim.statistic, doubling)}
    assert failed == {"growth_free", "growth_loops_2", "growth_loops_10"}
    np.testing.assert_allclose(steps(doubling, "free_5"), np.tile(2.0 ** np.arange(5), (3, 1)), rtol=5e-3)


def test_so_many_steps_of_newton_are_gradient_descent():
    l = np.geomspace(1e-3, 4, 30)  # noqa: E741
    for k in range(5):
        np.testing.assert_allclose(newton(l, k, 0.3), gd(l, 2**k, 0.3), rtol=1e-12)


def test_equal_layers_leave_the_power_of_one_factor(x64):
    (n, d), rate = (8, 5), 0.6
    x = np.random.default_rng(0).normal(size=(n, d))
    l, v = np.linalg.eigh(x.T @ x / n)  # noqa: E741
    parts = (np.broadcast_to(x, (d, n, d)), (x @ v).T[:, :, None], v.T)  # the task and the query are v_i
    asked = Prompt(*map(jnp.asarray, parts))
    of = Task(context_length=n, input_size=d)
    for j in range(1, 6):
        weights = gd_plus_plus_weights(np.full(j, rate), 0.0, context_length=n, input_size=d)
        said = model(LinearSelfAttention(layers=j), of).learner(weights)(asked)[:, 0]
        np.testing.assert_allclose(1 - said, (1 - rate * l) ** j, rtol=1e-12, atol=1e-14)


def test_layers_built_as_gradient_descent_are_read_as_it():
    of = multi_step.PRESETS["lab"]
    config = binary.Config(members=1)
    rates = np.array([0.3, 0.6, 0.2, 0.5, 0.4])
    built = jax.tree.map(np.asarray, constructed(of, rates))
    n, d = of.context_length, of.input_size
    units, _, _ = battery(sampler_of(to_json(of)), n, d, 0)
    for j, (member, _, turned) in enumerate(after_each(config, of, "free_5", [built]), 1):
        for learner, order in ((member, rates), (turned, rates[::-1])):
            found = fingerprint(in_units(flat(learner), units), units, n, d, 0)
            exact = np.prod([1 - rate * units.eigenvalue * found["grid"] for rate in order[:j]], axis=0)
            np.testing.assert_allclose(found["r"], exact, atol=2e-4 * np.abs(exact).max())


def test_a_network_that_is_named_twice_is_refused():
    for preset in binary.PRESETS.values():
        binary.EXPERIMENT.validate(preset)
    with pytest.raises(FlagError, match="--networks=free_5,free_5"):
        binary.EXPERIMENT.validate(binary.Config(networks=("free_5", "free_5")))


def test_the_figure_shows_all_layers():
    axes = figures(made())["layers"].axes
    assert [one.get_title() for one in axes] == ["residual factor", "equivalent steps", "error of the read-out"]
    assert len(axes[0].lines) >= 5
