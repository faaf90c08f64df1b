import dataclasses
import functools
from fnmatch import fnmatchcase

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import measured_with

from experiments.zhang_frei_bartlett import prefix_statistics, prefixes
from experiments.zhang_frei_bartlett.nonlinear_transformer import ERROR, EXPERIMENT, PRESETS, chosen, trainings
from icl_lab.lab import flags
from icl_lab.theory import isotropic_risk

KEY = jax.random.key(5)
N, D = 6, 3


@functools.partial(jax.jit, static_argnums=2)
def tasks(random, dimension, count=20_000):
    return prefixes.training_tasks(KEY, count, N, {"random": random, "dimension": dimension}, D)


def points(samples):
    return jnp.concatenate([samples.prompt.x, samples.prompt.x_query[:, None]], axis=1)


def labels(samples):
    return jnp.concatenate([samples.prompt.y, samples.target[:, None]], axis=1)[:, :, 0]


@pytest.mark.parametrize("random", [False, True])
def test_inputs_beyond_the_dimension_are_zero_the_others_as_they_were_and_labels_follow(random):
    whole, cut = tasks(random, D), tasks(random, 2)
    assert not np.any(points(cut)[:, :, 2:])
    assert np.array_equal(points(cut)[:, :, :2], points(whole)[:, :, :2])
    np.testing.assert_allclose(labels(cut), jnp.einsum("bnd,bd->bn", points(cut), cut.latent["w"][:, :, 0]), atol=1e-5)


def test_random_covariance_has_the_moments_of_exp_1_for_each_task_and_identity_none():
    random, identity = tasks(True, D), tasks(False, D)
    assert np.all(identity.latent["factor"] == 1)
    variances = random.latent["factor"] ** 2
    # E lam = 1, E lam^2 = 2; 60,000 draws: four standard errors fail once in 16,000
    assert variances.mean() == pytest.approx(1, abs=4 / np.sqrt(60_000))
    assert (variances**2).mean() == pytest.approx(2, abs=4 * np.sqrt(20 / 60_000))
    np.testing.assert_allclose(points(random), points(identity) * jnp.sqrt(variances)[:, None], rtol=1e-5)


def test_the_curriculum_starts_small_and_ends_at_the_whole():
    schedule = trainings(dataclasses.replace(PRESETS["paper"], only="40_with"))["40_with"].schedule
    whole = {"random": True, "dimension": 20, "points": 41}
    at = lambda step: {k: int(v) for k, v in schedule(whole, jnp.asarray(step)).items()}  # noqa: E731
    assert at(1999) == {"random": 1, "dimension": 5, "points": 11}
    assert at(2000) == {"random": 1, "dimension": 6, "points": 13}
    assert at(30_000) == at(10**6) == {"random": 1, "dimension": 20, "points": 41}


def test_only_the_first_points_count():
    errors = jnp.arange(12.0).reshape(2, 6)
    assert prefixes.prefix_loss(errors, 2) == pytest.approx(errors[:, :2].mean())
    assert prefixes.prefix_loss(errors, 9) == pytest.approx(errors.mean())


@pytest.mark.parametrize("preset", ["quick", "lab", "paper"])
def test_the_curriculum_ends_inside_the_run(preset):
    config = PRESETS[preset]
    for stage, (length, *_) in chosen(config).items():
        last = trainings(config)[stage].schedule({}, jnp.asarray(config.steps // 2))
        assert (last["dimension"], last["points"]) == (config.input_size, length + 1)


def test_least_squares_is_exact_from_d_examples_and_leaves_what_it_has_not_seen_before():
    scales, draws = jnp.array([0.0, 4.0]), (N, D, 60, 50)
    found = prefixes.tested(prefixes.least_squares_errors, jnp.zeros(1), KEY[None], scales, *draws)[:, 0]
    assert found.shape == (2, 60, N + 1)
    assert not np.any(found[:, :, D:])
    isotropic = np.asarray(found[0])  # the share of w outside the span of k inputs: 1 - k / D (Garg et al. 2022)
    for k in range(D):
        error = 4 * isotropic[:, k].std() / np.sqrt(60)
        assert isotropic[:, k].mean() == pytest.approx(1 - k / D, abs=error)


def test_every_scale_sees_the_same_tasks():
    square = lambda _, samples: labels(samples) ** 2  # noqa: E731
    found = prefixes.tested(square, jnp.zeros(2), jax.random.split(KEY, 2), jnp.array([1.0, 9.0]), N, D, 5, 4)
    np.testing.assert_allclose(found[1], 9 * found[0], rtol=1e-4)
    assert not np.allclose(found[0, 0], found[0, 1])  # members see different ones


def test_the_interval_is_that_of_the_mean_over_covariances():
    values = np.random.default_rng(1).normal(3.0, 1.0, (1, 400, 2))
    low, high = prefixes.bootstrapped(values, 2000)[0]
    np.testing.assert_allclose((low + high) / 2, values[0].mean(0), atol=0.01)
    np.testing.assert_allclose(high - low, 2 * 1.645 / 20, rtol=0.1)


def test_linear_attention_has_the_published_limits_on_random_covariance():
    error = lambda c: prefixes.linear_attention_error(1, np.inf, c, np.inf, 5)  # noqa: E731
    assert [c * error(c) for c in (1, 4, 9)] == pytest.approx([1 / 3, 76 / 3, 387])
    found = prefixes.linear_attention_error(0, 20, 0, 10, 5)
    assert found == pytest.approx(isotropic_risk(5, 20, 10))


def test_a_test_is_that_of_its_scale_to_the_last_digit():
    assert list(prefixes.tests_of((1.0, 1.23456789)).values()) == [0.0, 1.0, 1.23456789]


def record(errors):
    """Errors of networks trained on identity covariance, by N, on c = 1."""
    one = ERROR.at(covariance="identity", positions="with", test="exp_1")
    pieces = [(one.at(length=n), np.asarray(values, float)) for n, values in errors.items()]
    return measured_with({"lengths": [2, 3], "test_length": 6, "input_size": 2}, pieces)


def test_a_rise_is_the_mean_beyond_n_over_the_error_there_pooled_over_n():
    curve = [[1, 1, 1, 0.1, 2, 1, 0], [1, 1, 1, 0.5, 0.05, 0.05, 0.05]]
    same = np.ones((2, 7))
    made = record({3: curve, 2: same})
    np.testing.assert_allclose(
        prefix_statistics.rise("identity", "exp_1")(made), [0.5, -0.5]
    )  # the mean over N = 2 and 3


def test_arrays_of_a_training_that_was_not_run_are_left_out_not_wrong():
    def left_out(kind, test="exp_1", length=20, **changes):
        name = f"random/{length}_{kind}/error/{test}"
        patterns = EXPERIMENT.left_out(flags.to_json(dataclasses.replace(PRESETS["lab"], **changes)))
        return any(fnmatchcase(name, pattern) for pattern in patterns)

    assert left_out("with", only="20_without")
    assert not left_out("without", only="20_without")
    elsewhere = {"length": 5, "lengths": (5,), "positions": ("with",), "scales": (1.0,)}  # N of no preset
    assert left_out("without", **elsewhere)
    assert left_out("with", "exp_9", **elsewhere)
    assert not left_out("with", **elsewhere)


def test_a_trained_network_is_a_learner_whose_error_is_that_of_the_longest_prefix():
    smoke = PRESETS["smoke"]
    (_, _, network), trained = chosen(smoke)["4_with"], trainings(smoke)["4_with"]
    draw = jax.jit(lambda key: (trained.init(key, None), prefixes.drawn(key, 3, 4, jnp.ones_like, smoke.input_size)))
    params, samples = draw(KEY)
    found = jax.jit(trained.learner(params))(samples.prompt)
    assert found.shape == samples.target.shape
    expected = jax.jit(functools.partial(prefixes.errors, network))(params, samples)[:, -1]
    np.testing.assert_allclose(((found - samples.target) ** 2)[:, 0], expected, rtol=1e-6)


def test_one_training_can_be_chosen():
    lab = PRESETS["lab"]
    assert list(chosen(lab)) == [f"{n}_{kind}" for n in (10, 20) for kind in ("with", "without", "offset")]
    ((length, _, network),) = chosen(dataclasses.replace(lab, only="20_without")).values()
    assert (length, network.positions) == (20, 0)


def test_reused_rows_are_trained_ones_of_the_same_kind_of_token():
    table = jnp.arange(13.0)[:, None]  # N = 2: rows 0 to 4 are trained
    found = prefixes.reused({"params": {"position": table}}, 2)["params"]["position"][:, 0]
    assert found.tolist() == [0, 1, 2, 3, 4, 1, 2, 3, 0, 1, 2, 3, 0]


def test_at_random_offsets_every_row_is_trained_and_inputs_stay_on_even_rows():
    params = {"params": {"position": jnp.arange(13)[:, None]}}
    starts = {
        tuple(prefixes.offset(params, 2, key)["params"]["position"][:5, 0].tolist())
        for key in jax.random.split(KEY, 200)
    }
    assert starts == {tuple(range(start, start + 5)) for start in range(0, 9, 2)}
