"""What the binaries on momentum share, and what their claims read off records made by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.dai import mixers, momentum_regression
from experiments.dai.linear_mixing import alternating_tokens, joint_tokens, mixed_network, mixed_predictions
from experiments.dai.momentum_regression_claims import CLAIMS as REGRESSION_CLAIMS
from icl_lab.attention import linear_pattern, momentum_attention, momentum_pattern, recent_pattern
from icl_lab.claims import FAILS, HOLDS, judge
from icl_lab.flags import FlagError
from icl_lab.models import LinearSelfAttention, batched_predictions, folded_weights
from icl_lab.prompts import linear_regression
from icl_lab.records import Record

NAMES = ("vanilla", "momentum_0.3", "normalised_0.5", "learned_0.7", "recent_3")


def test_a_member_has_the_mixer_of_its_name():
    T, N = 6, 5
    found = mixers.settings(NAMES, 2, T, N)
    patterns = [
        jnp.zeros((T, N)), momentum_pattern(T, 0.3, keys=N), momentum_pattern(T, 0.5, keys=N, normalised=True),
        momentum_pattern(T, 0.7, keys=N), recent_pattern(T, 3, keys=N),
    ]  # fmt: skip
    for i, pattern in enumerate(patterns):
        for member in (2 * i, 2 * i + 1):
            one = {name: values[member] for name, values in found.items()}
            start = jnp.full((3, 2), one["logit"])
            mixing = mixers.mixing(one, start)
            np.testing.assert_allclose(mixing, jnp.broadcast_to(pattern, (3, 2, T, N)), atol=1e-6)
            moved = mixers.mixing(one, start.at[1, 1].add(1.0)) != mixing
            assert moved.any() == (NAMES[i].startswith("learned"))
            assert not moved.at[1, 1].set(False).any()


@pytest.mark.parametrize("names", [("vanilla", "momentum_1.0"), ("vanilla", "recent_0"), ("momentum_0.5",), NAMES * 2])
def test_what_is_no_mixer_is_refused(names):
    with pytest.raises(FlagError, match="--mixers"):
        mixers.check_mixers(names)


def prompts(n, d, batch=4):
    return linear_regression(context_length=n, input_size=d)(jax.random.key(1), batch).prompt


def test_without_a_mixer_the_network_is_linear_self_attention():
    n, d = 4, 3
    network = mixed_network(1, n, d, 1.0)
    params = network.init(jax.random.key(0), jnp.zeros(()))
    own = {name: values[0] for name, values in mixers.settings(("vanilla",), 1, n + 1, n).items()}
    expected = batched_predictions(LinearSelfAttention(), params, prompts(n, d))
    np.testing.assert_allclose(network.learner(params, own)(prompts(n, d)), expected, rtol=2e-5, atol=1e-6)


def test_layers_are_momentum_attention_one_after_the_other():
    n, d, eta = 3, 2, 0.6
    network = mixed_network(2, n, d, 1.0, alternating=True)
    params = network.init(jax.random.key(0), jnp.zeros(()))
    a, b = folded_weights(params)
    own = {name: values[0] for name, values in mixers.settings(("momentum_0.6",), 1, 2 * n + 1, 2 * n).items()}
    found = network.learner(params, own)(prompts(n, d))
    for one, tokens in zip(found, alternating_tokens(prompts(n, d))):
        for layer in range(2):
            context = tokens[:-1]
            pattern = linear_pattern(tokens @ a[layer, 0], context)
            tokens = tokens + momentum_attention(pattern, context, eta) @ b[layer, 0]
        np.testing.assert_allclose(one, -tokens[-1, -1:], rtol=1e-4, atol=1e-6)


def test_tokens_are_written_in_order():
    given = prompts(2, 3, batch=1)
    x, y, query = (np.asarray(part)[0] for part in (given.x, given.y, given.x_query))
    empty = np.zeros(3)
    expected = [[*x[0], 0], [*empty, *y[0]], [*x[1], 0], [*empty, *y[1]], [*query, 0]]
    np.testing.assert_array_equal(alternating_tokens(given)[0], np.array(expected, np.float32))
    np.testing.assert_array_equal(
        joint_tokens(given)[0], np.array([[*x[0], *y[0]], [*x[1], *y[1]], [*query, 0]], np.float32)
    )


def test_a_shift_in_the_first_layer_makes_the_second_one_a_step_of_gradient_descent():
    """Weights by hand: the first layer brings x_j to the token of y_j, the second reads y_j by x_j.x_q."""
    n, d, rate = 4, 3, 0.7
    on_x, on_y = jnp.diag(jnp.array([1.0, 1, 1, 0])), jnp.diag(jnp.array([0.0, 0, 0, 1]))
    small = 1e-3  # what is copied is weighed back: the tokens of x are barely moved
    weights = {
        "w_kq": jnp.stack([0 * on_x, on_x])[:, None],
        "w_pv": jnp.stack([small * on_x, -rate / (n * small) * on_y])[:, None],
    }
    mixing = jnp.stack([recent_pattern(2 * n + 1, 1, keys=2 * n), jnp.zeros((2 * n + 1, 2 * n))])
    given = prompts(n, d)
    found = mixed_predictions({"params": weights}, mixing, alternating_tokens(given))
    expected = rate / n * jnp.einsum("bno,bnd,bd->bo", given.y, given.x, given.x_query)
    np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-4)


def _regression_record(**changes):
    """Ten members that do what theory says; rows are the mixers."""
    names = ("vanilla", "momentum_0.3", "momentum_0.9", "learned_0.5", "recent_1")
    members, noise = 10, 1 + 0.01 * np.random.default_rng(0).normal(size=(5, 10))
    row = lambda *values: np.array(values)[:, None] * noise  # noqa: E731
    penalty = row(0.0, 0.01, 0.02, 0.01, 0.02)
    a = {
        "joint_final_gd": np.full((5, members), 0.2), "joint_final_without": row(0.22, 0.22, 0.22, 0.22, 0.22),
        "joint_penalty": penalty, "joint_gd_sensitivity_difference": row(0.1, 0.1, 0.1, 0.1, 0.1),
        "joint_heavy_ball_2_sensitivity_difference": row(0.4, 0.4, 0.4, 0.4, 0.4),
        "joint_analogy_sensitivity_difference": row(0.1, 0.12, 0.3, 0.1, 0.1),
        "joint_gd_sensitivity_cosine": np.full((5, members), 0.99),
        "joint_eta": np.broadcast_to(np.array([0.5, 0.4, 0.2])[:, None], (5, members, 3, 1)),
        "alternating_final_gd": np.full((5, members), 0.07), "alternating_final_zero": np.full((5, members), 0.2),
        "alternating_final_trained": row(0.2, 0.075, 0.12, 0.08, 0.06),
    }  # fmt: skip
    a["alternating_final_trained"][0] = 0.2
    a["joint_final_trained"] = a["joint_final_without"] + penalty
    a |= {name: change(a[name]) for name, change in changes.items()}
    return Record("dai.momentum_regression", "lab", {"mixers": names, "descents": (2,), "members": 10}, {}, a, {})


def _verdicts(claims, record):
    rows = [judge(claim, record) for claim in claims]
    return {row["id"].rsplit(".", 1)[1]: row["verdict"] for row in rows}


def test_claims_on_regression_are_judged_as_expected_where_theory_is_right():
    found = [judge(claim, _regression_record()) for claim in REGRESSION_CLAIMS]
    assert {row["id"]: row["verdict"] for row in found} == {row["id"]: row["expected_verdict"] for row in found}


@pytest.mark.parametrize(
    ("array", "change", "name", "verdict"),
    [
        ("joint_penalty", lambda v: 2 * v, "penalty", FAILS),
        ("joint_final_trained", lambda v: v - 0.05, "floor", FAILS),
        ("joint_heavy_ball_2_sensitivity_difference", lambda v: v / 8, "analogy", HOLDS),
        ("joint_analogy_sensitivity_difference", lambda v: v / 8, "pass_over_demonstrations", HOLDS),
        ("joint_gd_sensitivity_cosine", lambda v: v - 0.3, "plain_step", FAILS),
        ("joint_eta", lambda v: v[:, :, ::-1], "learned_falls", FAILS),
        ("alternating_final_trained", lambda v: 0 * v + 0.1, "vanilla_cannot_pair", FAILS),
        ("alternating_final_trained", lambda v: v[::-1], "shift_copies", FAILS),
        ("alternating_final_trained", lambda v: 0 * v + 0.18, "momentum_copies", FAILS),
        ("alternating_final_trained", lambda v: v[[0, 2, 1, 3, 4]], "past_is_noise", FAILS),
        ("alternating_final_trained", lambda v: v[[0, 4, 2, 3, 1]], "shift_suffices", FAILS),
    ],
)
def test_claims_on_regression_tell_another_world(array, change, name, verdict):
    assert _verdicts(REGRESSION_CLAIMS, _regression_record(**{array: change}))[name] == verdict


def test_settings_of_regression_that_do_not_fit_are_refused():
    smoke = momentum_regression.PRESETS["smoke"]
    for changes, named in (
        ({"steps": 5}, "--steps"), ({"alternating_steps": 5}, "--alternating_steps"),
        ({"mixers": ("vanilla", "recent_1")}, "momentum_E"), ({"descents": (2, 2)}, "--descents"),
    ):  # fmt: skip
        with pytest.raises(FlagError, match=named):
            momentum_regression.check(dataclasses.replace(smoke, **changes))
