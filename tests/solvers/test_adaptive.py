"""Learners that are no filter, each against a plain loop in numpy; in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from linear_tasks import a_prompt

from icl_lab.prompts import Prompt
from icl_lab.solvers import (
    centred,
    dmmse,
    dmmse_or_ridge,
    gaussian_smoothing,
    gradient_descent,
    leaky_lms,
    least_squares,
    lms,
    noise_adaptive_ridge,
    recursive_least_squares,
    ridge,
    softmax_regression,
    trace_normalised_gradient_descent,
    weighted_ridge,
    with_intercept,
)

N, D, OUTPUTS = 7, 3, 2


@pytest.fixture
def prompt(x64):
    return a_prompt(0, N, D, OUTPUTS)


def plain(prompt):
    return np.asarray(prompt.x), np.asarray(prompt.y), np.asarray(prompt.x_query)


def test_noise_adaptive_ridge_weighs_by_the_evidence(prompt):
    x, y, q = plain(prompt)
    strengths, expected = np.array([0.1, 1.0, 5.0]), []
    for o in range(OUTPUTS):
        predictions, evidence = [], []
        for k in strengths:
            c = x @ x.T / k + np.eye(N)
            predictions.append(q @ np.linalg.solve(x.T @ x + k * np.eye(D), x.T @ y[:, o]))
            evidence.append(np.linalg.det(c) ** -0.5 * (y[:, o] @ np.linalg.solve(c, y[:, o])) ** (-N / 2))
        expected.append(np.dot(predictions, evidence) / np.sum(evidence))
    np.testing.assert_allclose(noise_adaptive_ridge(jnp.asarray(strengths))(prompt), expected, rtol=1e-10)
    np.testing.assert_allclose(noise_adaptive_ridge(jnp.array([1.0]))(prompt), ridge(1.0)(prompt), rtol=1e-10)


@pytest.mark.parametrize("n", [3, 5, 9])
def test_small_strengths_are_weighed_in_float32_as_in_float64(n):
    """To the error of normal equations, eps cond(X)^2 |q| |W| (seen on 60 prompts of each size: .4 of it)."""
    draw, strengths, tasks = np.random.default_rng(n).normal, np.geomspace(1e-6, 10, 8), np.ones((1, 5, 1))
    learners = [
        jax.jit(lambda p, given: noise_adaptive_ridge(given[0])(p)),
        jax.jit(lambda p, given: dmmse_or_ridge(given[1], 1e-2, 1e-5)(p)),
    ]
    for _ in range(10):
        x, y, q = draw(size=(n, 5)), draw(size=(n, 1)), draw(size=5)
        largest = np.linalg.norm(q) * np.linalg.norm(np.linalg.lstsq(x, y, rcond=None)[0])
        bound = 4 * np.finfo(np.float32).eps * np.linalg.cond(x) ** 2 * largest
        for learner in learners:
            single = learner(*jax.tree.map(np.float32, (Prompt(x, y, q), (strengths, tasks))))
            with jax.enable_x64(True):
                double = learner(Prompt(x, y, q), (strengths, tasks))
            assert np.abs(np.asarray(single) - np.asarray(double)).max() < bound


def test_an_input_of_zero_leaves_the_gradient_finite():
    learn = lms(0.5, normalised=True)
    gradient = jax.grad(lambda x: learn(Prompt(x, jnp.ones((3, 1)), jnp.ones(2)))[0])(jnp.zeros((3, 2)))
    assert jnp.isfinite(gradient).all()


def test_dmmse_is_the_posterior_mean_over_its_tasks(prompt):
    x, y, q = plain(prompt)
    tasks = np.random.default_rng(1).normal(size=(5, D, OUTPUTS))
    weights = np.array([np.exp(-np.sum((y - x @ w) ** 2) / (2 * 3.0)) for w in tasks])
    expected = sum(p * q @ w for p, w in zip(weights / weights.sum(), tasks))
    np.testing.assert_allclose(dmmse(jnp.asarray(tasks), 3.0)(prompt), expected, rtol=1e-10)


def test_dmmse_or_ridge_is_the_posterior_mean_over_a_set_and_a_normal_prior(prompt):
    x, y, _ = plain(prompt)
    tasks, noise, strength = np.random.default_rng(1).normal(size=(5, D, OUTPUTS)), 3.0, 0.4

    def density(miss, c):
        return np.exp(-np.trace(miss.T @ np.linalg.solve(c, miss)) / 2) / np.linalg.det(c) ** (OUTPUTS / 2)

    of_set = np.mean([density(y - x @ w, noise * np.eye(N)) for w in tasks])
    of_all = density(y, noise * (np.eye(N) + x @ x.T / strength))
    p = 0.05 * of_set / (0.05 * of_set + 0.95 * of_all)
    expected = p * dmmse(jnp.asarray(tasks), noise)(prompt) + (1 - p) * ridge(strength)(prompt)
    found = dmmse_or_ridge(jnp.asarray(tasks), noise, strength, np.log(0.05 / 0.95))(prompt)
    assert 0.05 < p < 0.95
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_softmax_regression_sums_its_heads(prompt):
    x, y, q = plain(prompt)
    expected = np.zeros(OUTPUTS)
    for b, c in ((0.5, 2.0), (-1.5, -0.7)):
        weights = np.exp(b * x @ q)
        expected += c * weights @ y / weights.sum()
    np.testing.assert_allclose(softmax_regression([0.5, -1.5], [2.0, -0.7])(prompt), expected, rtol=1e-10)


def test_gaussian_smoothing_weighs_by_distance(prompt):
    x, y, q = plain(prompt)
    weights = np.array([np.exp(-np.sum((one - q) ** 2) / (2 * 0.8**2)) for one in x])
    np.testing.assert_allclose(gaussian_smoothing(0.8, 1.5)(prompt), 1.5 * weights @ y / weights.sum(), rtol=1e-10)


@pytest.mark.parametrize("normalised", [False, True])
def test_lms_takes_one_step_an_example(prompt, normalised):
    x, y, q = plain(prompt)
    w = np.zeros((D, OUTPUTS))
    for one, label in zip(x, y):
        size = one @ one if normalised else 1.0
        w = w + 0.2 / size * np.outer(one, label - one @ w)
    np.testing.assert_allclose(lms(0.2, normalised=normalised)(prompt), q @ w, rtol=1e-10)


def test_recursive_least_squares_minimises_the_weighted_sum(prompt):
    x, y, q = plain(prompt)
    weights = 0.8 ** np.arange(N - 1, -1, -1)
    gram = x.T @ np.diag(weights) @ x + 0.5 * 0.8**N * np.eye(D)
    expected = q @ np.linalg.solve(gram, x.T @ np.diag(weights) @ y)
    np.testing.assert_allclose(recursive_least_squares(0.5, 0.8)(prompt), expected, rtol=1e-9)
    np.testing.assert_allclose(recursive_least_squares(0.5)(prompt), ridge(0.5)(prompt), rtol=1e-9)


def test_centred_takes_means_off_the_context_alone(prompt):
    x, y, q = plain(prompt)
    expected = 0.4 / N * (y - y.mean(0)).T @ (x - x.mean(0)) @ q
    learner = gradient_descent(0.4, 1)
    np.testing.assert_allclose(centred(learner)(prompt), expected, rtol=1e-10)
    np.testing.assert_allclose(centred(learner, add_mean=True)(prompt), expected + y.mean(0), rtol=1e-10)


def test_two_blunt_heads_of_opposite_sign_are_centred_gradient_descent(prompt):
    b = 1e-5
    heads = softmax_regression([b, -b], [1 / (2 * b), -1 / (2 * b)])
    np.testing.assert_allclose(heads(prompt), centred(gradient_descent(1.0, 1))(prompt), rtol=1e-4)


@pytest.mark.parametrize("learner", [ridge(0.7), least_squares()])
def test_an_intercept_follows_the_labels_and_the_origin(prompt, learner):
    learner, c, v = with_intercept(learner), jnp.array([2.0, -3.0]), jnp.array([1.0, -2.0, 0.5])
    found = learner(prompt)
    raised = Prompt(prompt.x, prompt.y + c[None], prompt.x_query)
    np.testing.assert_allclose(learner(raised), found + c, rtol=1e-10)
    np.testing.assert_allclose(learner(Prompt(prompt.x + v[None], prompt.y, prompt.x_query + v)), found, rtol=1e-10)


def test_an_intercept_is_a_constant_input_that_is_not_penalised(prompt):
    x, y, q = plain(prompt)
    more, penalty = np.c_[x, np.ones(N)], np.diag([0.7] * D + [0.0])
    for learner, k in ((ridge(0.7), penalty), (least_squares(), 0 * penalty)):
        expected = np.r_[q, 1] @ np.linalg.solve(more.T @ more + k, more.T @ y)
        np.testing.assert_allclose(with_intercept(learner)(prompt), expected, rtol=1e-9)


def test_leaky_lms_shrinks_before_each_example(prompt):
    x, y, q = plain(prompt)
    w = np.zeros((D, OUTPUTS))
    for xi, yi in zip(x, y):
        w = 0.8 * w
        w = w + 0.1 * np.outer(xi, yi - xi @ w)
    np.testing.assert_allclose(leaky_lms(0.1, 0.2)(prompt), q @ w, rtol=1e-10)
    np.testing.assert_allclose(leaky_lms(0.1, 0.0)(prompt), lms(0.1)(prompt), rtol=1e-12)
    np.testing.assert_allclose(leaky_lms(0.1, 1.0)(prompt), 0.1 * (q @ x[-1]) * y[-1], rtol=1e-12)  # the last alone


def test_weighted_ridge_is_ridge_without_weights_and_forgets_without_bend(prompt):
    x, y, q = plain(prompt)
    np.testing.assert_allclose(weighted_ridge(0.7)(prompt), ridge(0.7)(prompt), rtol=1e-10)
    f = 0.8
    m = np.mean(f ** np.arange(N))
    forgets = recursive_least_squares(0.7 * m / f**N, f)
    np.testing.assert_allclose(weighted_ridge(0.7, -(N - 1) * np.log(f))(prompt), forgets(prompt), rtol=1e-9)
    t = np.linspace(-0.5, 0.5, N)
    c = np.exp(1.5 * t - 4 * t**2)
    c = np.diag(c / c.mean())
    expected = q @ np.linalg.solve(x.T @ c @ x + 0.7 * np.eye(D), x.T @ c @ y)
    np.testing.assert_allclose(weighted_ridge(0.7, 1.5, -4.0)(prompt), expected, rtol=1e-10)


def test_trace_normalised_descent_knows_no_unit_of_inputs(prompt):
    learner, size = trace_normalised_gradient_descent(0.4, 3), float(jnp.mean(prompt.x**2))
    found = learner(prompt)
    np.testing.assert_allclose(found, gradient_descent(0.4 / size, 3)(prompt), rtol=1e-10)
    np.testing.assert_allclose(learner(Prompt(5 * prompt.x, 2 * prompt.y, 5 * prompt.x_query)), 2 * found, rtol=1e-10)
    np.testing.assert_array_equal(learner(Prompt(0 * prompt.x, prompt.y, prompt.x_query)), 0)
