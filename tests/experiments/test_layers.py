"""``identification.layers``: what is read of layers that are built as gradient descent."""

import jax
import jax.numpy as jnp
import numpy as np

from experiments.identification import layers as binary
from experiments.identification.layers import after_each, flat
from experiments.identification.networks import sampler_of
from experiments.von_oswald import multi_step
from experiments.von_oswald.common import Task, constructed, model
from icl_lab.constructions import gd_plus_plus_weights
from icl_lab.identify import battery, fingerprint, in_units
from icl_lab.identify.filters import gd, newton
from icl_lab.lab.flags import to_json
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts import Prompt


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
