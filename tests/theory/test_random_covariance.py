import math

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icl_lab.prompts import VARIANCE_LAWS, random_covariance_regression
from icl_lab.theory.linear_attention import closed_forms as fixed
from icl_lab.theory.linear_attention.random_covariance import (
    expected_variance,
    failure_law,
    initial_scale_bound,
    random_covariance_loss,
    random_covariance_optimum,
    random_covariance_risk,
    random_covariance_scale,
    regression_slope,
    variance_moments,
)

SIGMAS = 4  # standard errors
SHAPES = {"gamma": 1.5, "lognormal": 0.3}
SCALES = np.array([2.0, 0.7, 1.0])
EXPONENTIAL = variance_moments("exponential", 5)


def drawn_variances(law, generator, tasks, d):
    """(tasks, D) draws, by numpy."""
    shape, size = SHAPES.get(law, 1.0), (tasks, d)
    draws = {
        "exponential": lambda: generator.exponential(size=size),
        "gamma": lambda: generator.gamma(shape, size=size),
        "uniform": lambda: generator.uniform(size=size),
        "lognormal": lambda: np.exp(shape * generator.normal(size=size)),
        "constant": lambda: np.ones(size),
    }
    return draws[law]()


def errors(a, variances, query_variances, m, noise, generator):
    """(tasks,) squared errors of h^T A x_q."""
    tasks, d = variances.shape
    x = np.sqrt(variances)[:, None] * generator.normal(size=(tasks, m, d))
    w, query = generator.normal(size=(2, tasks, d))
    query = np.sqrt(query_variances) * query
    y = np.einsum("bmd,bd->bm", x, w) + noise * generator.normal(size=(tasks, m))
    h = np.einsum("bm,bmd->bd", y, x) / m
    return (np.einsum("bi,ij,bj->b", h, a, query) - np.einsum("bd,bd->b", w, query)) ** 2


def assert_is_mean(exact, values):
    assert abs(values.mean() - exact) < SIGMAS * values.std() / values.size**0.5


@given(
    law=st.sampled_from(VARIANCE_LAWS),
    m=st.integers(1, 6),
    noise=st.sampled_from([0.0, 0.7]),
    own=st.booleans(),
    seed=st.integers(0, 2**30),
)
def test_risk_is_what_prompts_have(law, m, noise, own, seed):
    generator = np.random.default_rng(seed)
    a = 0.4 * generator.normal(size=(3, 3))
    variances, others = (SCALES * drawn_variances(law, generator, 60_000, 3) for _ in range(2))
    moments = variance_moments(law, 3, shape=SHAPES.get(law, 1.0), scale=SCALES)
    exact = random_covariance_risk(a, moments, m, label_noise=noise, query_moments=None if own else moments)
    assert_is_mean(exact, errors(a, variances, variances if own else others, m, noise, generator))


@pytest.mark.parametrize("law", ["exponential", "lognormal"])
def test_moments_and_loss_are_those_of_the_sampler(law):
    setting = {"law": law, "shape": SHAPES.get(law, 1.0), "scale": 0.8}
    sampler = random_covariance_regression(context_length=3, input_size=2, **setting)
    samples = jax.jit(sampler, static_argnums=1)(jax.random.key(2), 100_000)
    moments = variance_moments(law, 2, shape=setting["shape"], scale=0.8)
    variances = np.asarray(samples.latent["variances"], np.float64)
    for k in (1, 2, 3):
        power = variances[:, 0] ** k
        assert abs(power.mean() - moments[k - 1, 0]) < SIGMAS * power.std() / power.size**0.5 + 1e-6
    x, query, y = (np.asarray(v, np.float64) for v in (samples.prompt.x, samples.prompt.x_query, samples.prompt.y))
    a = np.array([[0.5, 0.1], [-0.2, 0.3]])
    predictions = np.einsum("bno,bni,ij,bj->b", y, x, a, query) / 3
    losses = 0.5 * (predictions - np.asarray(samples.target[:, 0], np.float64)) ** 2
    assert_is_mean(random_covariance_loss(a, moments, 3), losses)


@given(
    law=st.sampled_from(VARIANCE_LAWS),
    n=st.sampled_from([1, 5, 40, math.inf]),
    seed=st.integers(0, 2**30),
)
def test_the_optimum_is_where_the_loss_is_least(law, n, seed):
    step = np.random.default_rng(seed).normal(size=(4, 4))
    moments = variance_moments(law, 4, shape=SHAPES.get(law, 1.0), scale=[1.0, 2.0, 0.5, 0.1])
    best = random_covariance_optimum(moments, n)
    here, up, down = random_covariance_loss(np.stack([best, best + step, best - step]), moments, n)
    assert up > here
    np.testing.assert_allclose(up, down, rtol=1e-12)  # stationary, as the loss is quadratic
    assert random_covariance_scale(moments, n) ** 2 == pytest.approx(np.linalg.norm(best))


def test_variances_that_never_change_are_a_fixed_covariance():
    spectrum = [2.0, 1.0, 0.3]
    moments, lam = variance_moments("constant", 3, scale=spectrum), np.diag(spectrum)
    a = np.random.default_rng(0).normal(size=(3, 3))
    np.testing.assert_allclose(random_covariance_optimum(moments, 7), fixed.optimum(lam, 7), atol=1e-14)
    assert random_covariance_loss(a, moments, 7) == pytest.approx(fixed.population_loss(a, lam, 7), rel=1e-12)
    query = variance_moments("constant", 3, scale=[1.0, 0.2, 3.0])
    for other, queries in ((None, None), (query, np.diag(query[0]))):
        exact = fixed.risk(a, test_length=4, covariance=lam, query_covariance=queries, label_noise=0.3)
        found = random_covariance_risk(a, moments, 4, label_noise=0.3, query_moments=other)
        assert found == pytest.approx(exact, rel=1e-12)
    assert np.abs(failure_law(moments)).max() < 1e-12


@pytest.mark.parametrize(("n", "value"), [(40, 0.275862), (70, 0.297872), (100, 0.307692), (math.inf, 1 / 3)])
def test_exponential_variances_at_the_published_size(n, value):
    best = random_covariance_optimum(variance_moments("exponential", 20), n)
    np.testing.assert_allclose(best, value * np.eye(20), atol=5e-7)
    if n < math.inf:
        np.testing.assert_allclose(best, n / (3 * n + 25) * np.eye(20), atol=1e-15)


def test_limit_of_the_product_and_of_u():
    best = random_covariance_optimum(EXPONENTIAL, 20)
    assert random_covariance_scale(EXPONENTIAL, 20) == pytest.approx(0.79930, abs=5e-6)
    assert np.trace(best) ** 0.25 == pytest.approx(1.09327, abs=5e-6)  # what (C.15) prints, and is not the limit


def test_risk_at_larger_scales():
    def per_coordinate(c, n, m):
        a = random_covariance_optimum(EXPONENTIAL, n)
        return random_covariance_risk(a, variance_moments("exponential", 5, scale=c), m) / 5

    assert per_coordinate(1, 20, 30) == pytest.approx(0.4014, abs=5e-5)
    assert per_coordinate(4, 20, 30) == pytest.approx(20.54, abs=5e-3)
    limits = [per_coordinate(c, math.inf, math.inf) for c in (1, 4, 9)]
    np.testing.assert_allclose(limits, [1 / 3, 76 / 3, 387], rtol=1e-12)
    a, m, c = 0.2, 30, 4
    law = c - 4 * a * c**2 + a**2 * c**3 * (6 + (2 * 5 + 10) / m)
    scaled = variance_moments("exponential", 5, scale=c)
    assert random_covariance_risk(a * np.eye(5), scaled, m) / 5 == pytest.approx(law, rel=1e-12)
    identity = variance_moments("constant", 5)
    assert random_covariance_risk(np.eye(5) / 3, identity, math.inf) / 5 == pytest.approx(4 / 9, rel=1e-12)


@pytest.mark.parametrize(
    ("law", "shape", "value"),
    [
        ("exponential", 1.0, 1 / 3),
        ("gamma", 2.5, 1 / 4.5),
        ("uniform", 1.0, 1 / 9),
        ("lognormal", 0.5, 1 - math.exp(-0.25)),
        ("constant", 1.0, 0.0),
    ],
)
def test_failure_law_is_the_limit_of_the_risk(law, shape, value):
    moments = variance_moments(law, 3, shape=shape, scale=1.7)
    np.testing.assert_allclose(failure_law(moments), value, atol=1e-12)
    best = random_covariance_optimum(moments, math.inf)
    error = random_covariance_risk(best, moments, math.inf) / moments[0].sum()
    assert error == pytest.approx(value, abs=1e-12)
    assert regression_slope(best, moments) == pytest.approx(1 - value, abs=1e-12)
    far = random_covariance_risk(random_covariance_optimum(moments, 1e8), moments, 1e8) / moments[0].sum()
    assert far == pytest.approx(value, abs=1e-6)


def test_slope_is_two_thirds_unless_the_query_has_a_covariance_of_its_own():
    generator = np.random.default_rng(3)
    tasks, a = 200_000, np.eye(2) / 3
    lam, other = generator.exponential(size=(2, tasks, 2))
    moments = variance_moments("exponential", 2)
    w, z = generator.normal(size=(2, tasks, 2))
    for variances, query_moments, value in ((lam, None, 2 / 3), (other, moments, 1 / 3)):
        query = np.sqrt(variances) * z
        target, mean = (w * query).sum(1), (lam * w * query).sum(1) / 3  # E[y_hat | lam, x_q, w]
        assert regression_slope(a, moments, query_moments) == pytest.approx(value, rel=1e-12)
        assert_is_mean(0.0, (mean - value * target) * target)
    size = np.abs(np.sqrt(lam) * z)
    for low, high in ((0.0, 0.05), (0.5, 0.7), (2.0, 3.0)):
        inside = (size > low) & (size < high)
        assert_is_mean(0.0, lam[inside] - expected_variance(size[inside]))


def test_bound_of_the_initial_scale():
    d, n = 4, 10
    theta = np.eye(d) / d**0.25
    exact = (2 / (d * (1 + (d + 1) / n))) ** 0.5
    assert initial_scale_bound(theta, np.ones((1, d)), n) == pytest.approx(exact, rel=1e-12)
    variances = np.random.default_rng(0).exponential(size=(1000, d))
    bound = initial_scale_bound(theta, variances, n)
    assert bound < exact  # variances that change call for a smaller start
    assert initial_scale_bound(theta, 4 * variances, n) == pytest.approx(bound / 2, rel=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: variance_moments("pareto", 3), "law must be one whose moments are known.*'pareto'"),
        (lambda: variance_moments("gamma", 3, shape=0.0), "shape must be positive"),
        (lambda: variance_moments("uniform", 3, scale=[1.0, -1.0, 1.0]), "scale must be positive"),
        (lambda: variance_moments("uniform", 3, scale=[1.0, 1.0]), r"scale must be a number or have shape \(3,\)"),
        (lambda: variance_moments("uniform", 0), "input_size must be at least 1, got 0"),
        (lambda: variance_moments("lognormal", 2, shape=20.0), "moments of every variance must exist and be finite"),
        (lambda: failure_law([[1.0], [2.0], [math.inf]]), "moments of every variance must exist and be finite"),
        (lambda: failure_law([[1.0], [0.5], [1.0]]), r"a positive law has m1 > 0, m1\^2 <= m2"),
        (lambda: failure_law([[1.0], [2.0], [3.0]]), r"a positive law has m1 > 0, m1\^2 <= m2"),
        (lambda: failure_law([1.0, 2.0, 6.0]), r"moments must have shape \(3, D\)"),
        (lambda: random_covariance_optimum(EXPONENTIAL, 0), "length must be at least 1"),
        (lambda: random_covariance_loss(np.eye(3), EXPONENTIAL, 4), r"a must be finite and have shape \(..., 5, 5\)"),
        (lambda: random_covariance_risk(np.eye(5), EXPONENTIAL, 4, label_noise=-1.0), "label_noise"),
        (lambda: regression_slope(np.eye(5), EXPONENTIAL, EXPONENTIAL[:, :4]), "query_moments must be"),
        (lambda: random_covariance_risk(np.eye(5), EXPONENTIAL, 4, query_moments=EXPONENTIAL[:, :4]), "query_moments"),
        (lambda: initial_scale_bound(np.eye(2), np.ones((3, 2)), 4), "theta must have"),
        (lambda: initial_scale_bound(np.eye(2), np.zeros((3, 2)), 4), "variances must be"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
