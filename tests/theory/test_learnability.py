import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layer import covariance, deviation, normal, predictions

from icl_lab.theory import (
    JointLaw,
    best_linear_predictor,
    error_floor,
    error_floor_bound,
    floor_exponent,
    gamma,
    gaussian_labels,
    joint_risk,
    linear_labels,
    optimum,
    prompt_length,
    prompt_length_bound,
    risk,
    risk_bound,
    worst_risk,
)

SEEDS = st.integers(0, 2**30)


def curved(x):
    """The nonlinear labels of Theorem 4.2's check."""
    return x[..., 0] ** 2 + 0.5 * x[..., 1] + np.sin(x[..., 2])


def sampled_law(x, y):
    products = x * y[:, None]
    return JointLaw(x.T @ x / len(x), products.mean(0), float((y**2).mean()), np.cov(products.T, bias=True))


@settings(max_examples=6)
@given(size=st.integers(3, 5), m=st.integers(1, 6), noise=st.floats(0.0, 1.0), seed=SEEDS)
def test_joint_risk_is_that_of_the_layer_on_nonlinear_labels(size, m, noise, seed):
    rng = np.random.default_rng(seed)
    lam, a, zero = covariance(rng, size), 0.5 * rng.normal(size=(size, size)), np.zeros(size)
    x = normal(rng, (60_000, m + 1), lam)
    y = curved(x) + noise * rng.normal(size=x.shape[:2])
    errors = (predictions(a, 1.0, zero, zero, x[:, :m], y[:, :m], x[:, m]) - y[:, m]) ** 2
    assert abs(deviation(errors, joint_risk(a, gaussian_labels(curved, lam, 3, noise), m))) < 4


def test_joint_risk_needs_no_gaussian_inputs():
    rng = np.random.default_rng(0)
    x = rng.exponential(size=(400_000, 4, 2))
    x[..., 1] += 0.5 * x[..., 0] - 1
    y = np.sin(x[..., 0]) * x[..., 1] + 0.3
    law, a = sampled_law(x.reshape(-1, 2), y.reshape(-1)), np.array([[0.2, 0.1], [-0.1, 0.3]])
    errors = (predictions(a, 1.0, np.zeros(2), np.zeros(2), x[:, :3], y[:, :3], x[:, 3]) - y[:, 3]) ** 2
    assert abs(deviation(errors, joint_risk(a, law, 3))) < 4


@given(size=st.integers(1, 5), n=st.integers(1, 30), m=st.integers(1, 30), noise=st.floats(0.0, 2.0), seed=SEEDS)
def test_linear_labels_give_the_master_formula_and_theorem_4_2(size, n, m, noise, seed):
    rng = np.random.default_rng(seed)
    lam, w = covariance(rng, size), rng.normal(size=size)
    law = linear_labels(w, lam, noise)
    setting = {"covariance": lam, "task_moment": np.outer(w, w), "label_noise": noise, "noisy_query": True}
    any_a = rng.normal(size=(size, size))
    np.testing.assert_allclose(joint_risk(any_a, law, m), risk(any_a, test_length=m, **setting), rtol=1e-9)
    np.testing.assert_allclose(best_linear_predictor(law)[0], w, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(best_linear_predictor(law)[1], noise**2, atol=1e-9)
    one, two, three = (np.linalg.matrix_power(lam, k) for k in (1, 2, 3))
    t, squared = np.trace(lam), np.linalg.inv(gamma(lam, n) @ gamma(lam, n))
    printed = noise**2 + np.trace(law.product_covariance @ squared @ lam) / m
    printed += (w @ squared @ (three + 2 * t * two + t**2 * one) @ w) / n**2
    np.testing.assert_allclose(joint_risk(optimum(lam, n), law, m), printed, rtol=1e-8)


def test_quadrature_gives_the_moments():
    rng = np.random.default_rng(1)
    lam = covariance(rng, 4)
    law, x = gaussian_labels(curved, lam, 3, label_noise=0.5), normal(rng, (400_000,), lam)
    y = curved(x) + 0.5 * rng.normal(size=len(x))
    best, least = best_linear_predictor(law)
    for samples, exact in (
        (y**2, law.label_moment),
        (y * x[:, 3], law.cross_moment[3]),
        ((y - x @ best) ** 2, least),
        ((y * x[:, 0] - law.cross_moment[0]) * (y * x[:, 3] - law.cross_moment[3]), law.product_covariance[0, 3]),
    ):
        assert abs(deviation(samples, exact)) < 4
    linear = gaussian_labels(lambda x: x @ np.array([1.0, -2.0, 0.0, 0.0]), lam, 2, label_noise=0.3)
    for moment, exact in zip(linear, linear_labels([1.0, -2.0, 0.0, 0.0], lam, 0.3)):
        np.testing.assert_allclose(moment, exact, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(gaussian_labels(lambda x: x[..., 0] ** 2, lam, 1).cross_moment, 0, atol=1e-12)


@given(size=st.integers(1, 6), n=st.integers(1, 60), excess=st.floats(0.01, 1.0), seed=SEEDS)
def test_the_trained_layer_learns_the_class_within_the_papers_bounds(size, n, excess, seed):
    lam = covariance(np.random.default_rng(seed), size)
    curve = partial(lambda m, a, lam: risk(a, test_length=m, covariance=lam), a=optimum(lam, n), lam=lam)
    floor, length = error_floor(curve), prompt_length(curve, excess)
    assert floor <= error_floor_bound(lam, n) * (1 + 1e-9)
    assert length <= math.ceil(prompt_length_bound(lam, excess)) + 1
    assert curve(length) <= floor + excess
    assert length == 1 or curve(length - 1) > floor + excess
    for m in (1, n, 1000):
        assert curve(m) <= risk_bound(lam, n, m) * (1 + 1e-9)
        np.testing.assert_allclose(m * (curve(m) - floor), curve(1) - floor, rtol=1e-6)  # the rate is exactly 1/M


@given(size=st.integers(1, 5), m=st.integers(1, 30), noise=st.floats(0.0, 1.0), radius=st.floats(0.5, 3), seed=SEEDS)
def test_no_task_of_the_class_is_worse_than_the_worst(size, m, noise, radius, seed):
    rng = np.random.default_rng(seed)
    lam, a = covariance(rng, size), rng.normal(size=(size, size))
    worst = worst_risk(a, test_length=m, covariance=lam, radius=radius, label_noise=noise)
    tasks = rng.normal(size=(200, size))
    tasks *= radius / np.linalg.norm(tasks, axis=1, keepdims=True)
    one = partial(risk, a, test_length=m, covariance=lam, label_noise=noise)
    w = max(tasks, key=lambda w: one(task_moment=np.outer(w, w)))
    for _ in range(300):  # power iteration on the shifted form from the best of them
        gradient = [
            one(task_moment=np.outer(w + e, w + e)) - one(task_moment=np.outer(w - e, w - e)) for e in np.eye(size)
        ]
        w = w + 0.25 * np.array(gradient)
        w *= radius / np.linalg.norm(w)
    found = one(task_moment=np.outer(w, w))
    assert found <= worst * (1 + 1e-9)
    np.testing.assert_allclose(found, worst, rtol=0.01)


@given(size=st.integers(1, 6), n=st.integers(1, 200), seed=SEEDS)
def test_the_floor_falls_with_its_local_exponent(size, n, seed):
    lam = covariance(np.random.default_rng(seed), size)
    floor = lambda n: risk(optimum(lam, n), test_length=math.inf, covariance=lam)  # noqa: E731
    step = 0.01 * n
    slope = math.log(floor(n + step) / floor(n + 0.0)) / math.log((n + step) / n)
    middle = floor_exponent(lam, n + step / 2)
    assert -2 < middle < 0
    np.testing.assert_allclose(slope, middle, rtol=1e-3)
    np.testing.assert_allclose(floor_exponent(np.eye(size), n), -2 * n / (n + size + 1))
    np.testing.assert_allclose(floor_exponent(lam, 1e9), -2, rtol=1e-4)


def test_bad_arguments():
    eye = np.eye(2)
    with pytest.raises(ValueError, match="task"):
        linear_labels(np.ones(3), eye)
    with pytest.raises(ValueError, match="coordinates"):
        gaussian_labels(curved, eye, 3)
    for labels in (lambda x: 1 / x[..., 0], lambda x: np.exp(x[..., 0] ** 2)):
        with pytest.raises(ValueError, match="do they exist"):
            gaussian_labels(labels, eye, 1)
    law = linear_labels(np.ones(2), eye)
    for change, name in (
        ({"second_moment": np.diag([1.0, 0.0])}, "second_moment"),
        ({"label_moment": 1.0}, "label_moment"),
        ({"label_moment": math.nan}, "label_moment"),
        ({"product_covariance": -eye}, "product_covariance"),
    ):
        with pytest.raises(ValueError, match=name):
            joint_risk(eye, law._replace(**change), 3)
    with pytest.raises(ValueError, match="test_length"):
        joint_risk(eye, law, 0)
    with pytest.raises(ValueError, match="excess"):
        prompt_length(lambda m: 1 / m, 0.0)
    with pytest.raises(ValueError, match="excess"):
        prompt_length_bound(eye, -1.0)
    with pytest.raises(ValueError, match="radius"):
        worst_risk(eye, test_length=1, covariance=eye, radius=0)
    with pytest.raises(ValueError, match="train_length"):
        risk_bound(eye, 0, 1)
