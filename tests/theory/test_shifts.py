import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icl_lab.theory import isotropic_risk, optimum, orthant_risk, orthogonal_query_prediction, risk, subspace_risk

SIGMAS = 4  # standard errors
TASKS = 60_000


def predictions_and_answers(a, x, query, generator):
    """(tasks,) h^T A x_q and <w, x_q> of contexts (tasks, M, D)."""
    w = generator.normal(size=query.shape)
    y = np.einsum("bmd,bd->bm", x, w)
    h = np.einsum("bm,bmd->bd", y, x) / x.shape[1]
    return np.einsum("bi,ij,bj->b", h, a, query), np.einsum("bd,bd->b", w, query)


def assert_is_mean(exact, values):
    assert abs(values.mean() - exact) < SIGMAS * values.std() / values.size**0.5


def covariance(generator, d):
    turn = np.linalg.qr(generator.normal(size=(d, d)))[0]
    return turn @ np.diag(generator.uniform(0.1, 2, d)) @ turn.T


@given(d=st.integers(1, 4), m=st.integers(1, 5), seed=st.integers(0, 2**30))
def test_context_in_an_orthant(d, m, seed):
    generator = np.random.default_rng(seed)
    a, lam = 0.5 * generator.normal(size=(d, d)), covariance(generator, d)
    draws = generator.normal(size=(TASKS, m + 1, d)) @ np.linalg.cholesky(lam).T
    x = generator.choice([-1, 1], size=(TASKS, 1, d)) * np.abs(draws[:, :m])
    seen, answer = predictions_and_answers(a, x, draws[:, m], generator)
    assert_is_mean(orthant_risk(a, test_length=m, covariance=lam), (seen - answer) ** 2)


@given(d=st.integers(1, 4), m=st.integers(1, 5), seed=st.integers(0, 2**30), data=st.data())
def test_prompts_in_a_subspace(d, m, seed, data):
    k = data.draw(st.integers(1, d))
    generator = np.random.default_rng(seed)
    a = 0.5 * generator.normal(size=(d, d))
    basis = np.linalg.qr(generator.normal(size=(TASKS, d, k)))[0]
    c = data.draw(st.sampled_from([1.0, 1.3]))
    points = c * np.einsum("bdk,bmk->bmd", basis, generator.normal(size=(TASKS, m + 1, k)))
    seen, answer = predictions_and_answers(a, points[:, :m], points[:, m], generator)
    assert_is_mean(subspace_risk(a, test_length=m, subspace_size=k, input_scale=c), (seen - answer) ** 2)
    whole = risk(a, test_length=m, covariance=np.eye(d))
    assert subspace_risk(a, test_length=m, subspace_size=d) == pytest.approx(whole, rel=1e-12)


@given(d=st.integers(2, 5), seed=st.integers(0, 2**30), data=st.data())
def test_query_orthogonal_to_the_context(d, seed, data):
    m = data.draw(st.integers(1, d - 1))
    generator = np.random.default_rng(seed)
    a, x = 0.5 * generator.normal(size=(d, d)), generator.normal(size=(TASKS, m, d))
    basis, query = np.linalg.qr(x.swapaxes(1, 2))[0], generator.normal(size=(TASKS, d))
    query = query - np.einsum("bdk,bek,be->bd", basis, basis, query)
    seen, answer = predictions_and_answers(a, x, query, generator)
    exact = orthogonal_query_prediction(a, test_length=m)
    assert_is_mean(exact, seen**2)
    assert_is_mean(exact + d - m, (seen - answer) ** 2)


def test_the_best_layer_predicts_zero_for_orthogonal_queries_only_if_isotropic():
    for n in (5, 1000):
        isotropic, stretched = (optimum(lam, n) for lam in (2 * np.eye(4), np.diag([2.0, 1.0, 0.5, 0.2])))
        assert orthogonal_query_prediction(isotropic, test_length=3) == pytest.approx(0, abs=1e-14)
        assert orthogonal_query_prediction(stretched, test_length=3) > 0.1


def test_long_prompts_help_in_a_subspace_and_not_in_an_orthant():
    d, n = 20, 1e9
    a = n / (n + d + 1) * np.eye(d)
    assert subspace_risk(a, test_length=math.inf, subspace_size=d // 2) < 1e-12
    rescaled = subspace_risk(a, test_length=math.inf, subspace_size=5, input_scale=2.0) / 20
    assert rescaled == pytest.approx((1 - 4) ** 2, rel=1e-6)
    orthant = orthant_risk(a, test_length=math.inf, covariance=np.eye(d)) / d
    assert orthant == pytest.approx(4 / np.pi**2 * (d - 1), rel=1e-6)
    assert isotropic_risk(d, n, math.inf) < 1e-12
    one = orthant_risk(
        a[:1, :1], test_length=3, covariance=np.eye(1)
    )  # a symmetric law has no orthants in one dimension
    assert one == pytest.approx(risk(a[:1, :1], test_length=3, covariance=np.eye(1)), rel=1e-12)


@pytest.mark.parametrize("c", [0.0, 0.5, 2.0, 3.0])
def test_limit_of_inputs_scaled_at_test_time(c):
    lam, n = np.diag([2.0, 1.5, 0.3]), 10**9
    error = risk(optimum(lam, n), test_length=math.inf, covariance=c**2 * lam) / np.trace(lam)
    assert error == pytest.approx(c**2 * (1 - c**2) ** 2, rel=1e-6)


def test_members_are_leading_axes():
    members = np.random.default_rng(0).normal(size=(3, 4, 4))
    for form in (
        lambda a: orthant_risk(a, test_length=3, covariance=np.diag([1.0, 2.0, 0.5, 0.1])),
        lambda a: subspace_risk(a, test_length=3, subspace_size=2),
        lambda a: orthogonal_query_prediction(a, test_length=3),
    ):
        np.testing.assert_allclose(form(members), [form(a) for a in members], rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: orthant_risk(np.eye(2), test_length=0, covariance=np.eye(2)), "test_length must be at least 1"),
        (lambda: orthant_risk(np.eye(2), test_length=3, covariance=-np.eye(2)), "covariance must be positive definite"),
        (lambda: orthant_risk(np.eye(3), test_length=3, covariance=np.eye(2)), r"a must be .*\(..., 2, 2\)"),
        (lambda: subspace_risk(np.eye(3), test_length=3, subspace_size=4), "subspace_size must be from 1 to D = 3"),
        (lambda: subspace_risk(np.eye(3), test_length=0.5, subspace_size=2), "test_length must be at least 1"),
        (lambda: subspace_risk(np.eye(3), test_length=3, subspace_size=2, input_scale=0.0), "input_scale must be pos"),
        (lambda: subspace_risk(np.ones((2, 3)), test_length=3, subspace_size=2), r"a must be .*\(..., D, D\)"),
        (lambda: orthogonal_query_prediction(np.eye(3), test_length=3), "test_length must be from 1 to D - 1 = 2"),
        (lambda: orthogonal_query_prediction(np.full((2, 2), np.nan), test_length=1), "a must be finite"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
