"""``online.delta_rule``: closed forms, walking tasks, and layers that are built as an algorithm."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.binaries import GALLERY
from experiments.online import delta_rule as binary
from experiments.online.delta_rule import Case
from experiments.online.delta_rule_shown import CLAIMS
from icl_lab.lab import records
from icl_lab.solvers import lms, ridge
from icl_lab.theory import lms_errors, optimum, risk

CONFIG = binary.PRESETS["lab"]
SMALL = dataclasses.replace(CONFIG, input_size=3, walk_size=3, lengths=(4, 6), walk_length=6, walk=0.1)
TASKS = 20_000


def test_closed_forms():
    forms = {stage: binary.closed_form(CONFIG, case) for stage, case in binary.cases(CONFIG).items()}
    expected = [0.5238, 0.4189, 0.3487, 0.2157, 0.0308, 0.2081]
    np.testing.assert_allclose([*forms.values()], expected, atol=5e-5)
    one = np.eye(10)
    assert risk(optimum(one, 10), test_length=10, covariance=one) / 10 == pytest.approx(forms["linear_10"])


def test_walking_tasks_are_those_of_the_theory():
    """LMS on what is drawn leaves the error of the recursion; without a walk it is another one."""
    case = binary.cases(SMALL)["walking"]
    drawn = binary.sampler(SMALL, case)(jax.random.key(0), TASKS)
    errors = (jax.vmap(lms(0.2))(drawn.prompt) - drawn.target)[:, 0] ** 2
    exact = {q: lms_errors(3, np.full(6, 0.2), label_noise=0.5, walk=q)[-1] for q in (0.1, 0.0)}
    near = 4 * errors.std() / TASKS**0.5
    assert abs(errors.mean() - exact[0.1]) < near < abs(errors.mean() - exact[0.0])
    reached = (drawn.prompt.x_query * drawn.latent["w"][:, :, 0]).sum(1)
    np.testing.assert_allclose(reached, drawn.target[:, 0], rtol=1e-4, atol=1e-5)


def by_hand(rate, d):
    """The layer whose keys are the inputs alone and whose values are the labels."""
    inputs, label = np.eye(d + 1, d) * rate**0.5, np.zeros((d + 1, d + 1))
    label[-1, -1] = 1
    return {"params": {name: jnp.asarray(w[None, None]) for name, w in
                       {"w_q": inputs, "w_k": inputs, "w_pv": label}.items()}}  # fmt: skip


def test_a_layer_by_hand_is_lms_and_its_weights_are_the_rate():
    params = by_hand(0.2, 3)
    for matrix in binary.weights(params, 3).values():
        np.testing.assert_allclose(matrix, 0.2 * np.eye(3), atol=1e-7)
    prompts = binary.sampler(SMALL, Case("delta", 4))(jax.random.key(1), 3).prompt
    found = binary.learner(SMALL, "delta", 3, params)(prompts)
    np.testing.assert_allclose(found, jax.vmap(lms(0.2))(prompts), rtol=1e-5, atol=1e-6)


def test_built_layers_are_their_algorithms():
    prompts = binary.sampler(SMALL, Case("delta", 4))(jax.random.key(2), 3).prompt
    one = lambda p: p.x_query @ p.x.T @ p.y / 8  # noqa: E731
    expected = {"gd": one, "lms": lms(1 / 5), "nlms": lms(1.0, normalised=True), "ridge": ridge(3.0)}
    for name, algorithm in expected.items():
        found = binary.built_learner(SMALL, name, jnp.asarray(1.0))(prompts)
        np.testing.assert_allclose(found, jax.vmap(algorithm)(prompts), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("algorithm", binary.ALGORITHMS)
def test_built_layers_get_their_own_name_and_no_other(algorithm):
    config = dataclasses.replace(CONFIG, members=1, input_size=3, lengths=(6,), walk=0.0)
    found = binary.names(config, partial(binary.built_learner, config, algorithm), np.array([1.3]))
    assert {name: value.tolist() for name, value in found.items()} == {
        name: [float(name == algorithm)] for name in binary.ALGORITHMS
    }
    record = records.load(GALLERY / "online" / "delta_rule" / "lab")  # ten factors at D = 10
    named = {name: binary.NAMED(record, who=f"built_{algorithm}", name=name).mean() for name in binary.ALGORITHMS}
    assert named == found


def test_members_on_the_plateau_are_counted_and_left_out():
    """A layer that predicts zero is on it; the other claims are of those that are not."""
    record = records.load(GALLERY / "online" / "delta_rule" / "lab")
    claims = {claim.id.rsplit(".", 1)[1]: claim for claim in CLAIMS}
    zero = {"error_40/delta_40": 1.0, "walking/error": 1 + 0.04 * 30}
    for name, of, array in (
        ("learned_40", "ratio_40", "error_40/delta_40"),
        ("learned_walking", "walking", "walking/error"),
    ):
        for errors, share in ((np.full(10, zero[array]), 0), (np.full(10, record.arrays[array].min()), 1)):
            changed = dataclasses.replace(record, arrays={**record.arrays, array: errors})
            assert claims[name].statistic(changed).mean() == share
            assert np.isfinite(claims[of].statistic(changed)).mean() == share
