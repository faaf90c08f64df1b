import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layer import covariance, deviation, draws, predictions
from scipy.linalg import sqrtm

from icl_lab.theory import (
    gamma,
    isotropic_risk,
    optimal_loss,
    optimum,
    population_loss,
    principal_components_loss,
    risk,
    spurious_loss,
)

SPECTRUM = np.diag([2, 1.5, 1, 0.6, 0.3])
FEW = settings(max_examples=10)
SEEDS = st.integers(0, 2**30)


@FEW
@given(size=st.integers(1, 5), n=st.integers(1, 7), seed=SEEDS)
def test_population_loss_is_that_of_the_layer(size, n, seed):
    rng = np.random.default_rng(seed)
    lam, a, zero = covariance(rng, size), 0.5 * rng.normal(size=(size, size)), np.zeros(size)
    x, y, query, target, _ = draws(rng, 60_000, n, lam)
    losses = 0.5 * (predictions(a / 2, 2.0, zero, zero, x, y, query) - target) ** 2
    assert abs(deviation(losses, population_loss(a, lam, n))) < 4


@settings(max_examples=12)
@given(
    size=st.integers(1, 4),
    m=st.integers(1, 7),
    noise=st.floats(0.0, 1.5),
    noisy_query=st.booleans(),
    rank=st.integers(1, 4),
    seed=SEEDS,
)
def test_risk_is_that_of_the_layer_under_all_shifts_at_once(size, m, noise, noisy_query, rank, seed):
    rng = np.random.default_rng(seed)
    lam, query_covariance = covariance(rng, size), covariance(rng, size, least=0.0)
    root = rng.normal(size=(size, rank))
    moment, a, zero = root @ root.T, 0.5 * rng.normal(size=(size, size)), np.zeros(size)
    x, y, query, target, _ = draws(rng, 60_000, m, lam, query_covariance, moment, noise)
    if noisy_query:
        target = target + noise * rng.normal(size=len(target))
    errors = (predictions(a, 1.0, zero, zero, x, y, query) - target) ** 2
    exact = risk(
        a, test_length=m, covariance=lam, query_covariance=query_covariance, task_moment=moment, label_noise=noise,
        noisy_query=noisy_query,
    )  # fmt: skip
    assert abs(deviation(errors, exact)) < 4


@given(size=st.integers(1, 8), n=st.integers(1, 50), seed=SEEDS)
def test_identities_of_the_merged_forms(size, n, seed):
    rng = np.random.default_rng(seed)
    lam, a = covariance(rng, size), rng.normal(size=(size, size))
    gam, best = gamma(lam, n), optimum(lam, n)
    np.testing.assert_allclose(best @ gam, np.eye(size), atol=1e-9)
    least, loss = optimal_loss(lam, n), population_loss(a, lam, n)
    np.testing.assert_allclose(population_loss(best, lam, n), least, rtol=1e-9)
    excess = 0.5 * np.linalg.norm(sqrtm(gam) @ (sqrtm(lam) @ a @ sqrtm(lam) - lam @ best)) ** 2
    np.testing.assert_allclose(loss - least, excess, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(risk(a, test_length=n, covariance=lam), 2 * loss, rtol=1e-9)
    np.testing.assert_allclose(principal_components_loss(lam, n, size), least, rtol=1e-9)
    assert principal_components_loss(lam, n, 0) == pytest.approx(np.trace(lam) / 2)
    assert least <= spurious_loss(lam, n) + 1e-12


@given(size=st.integers(1, 6), n=st.integers(1, 30), m=st.integers(1, 30), noise=st.floats(0.0, 2.0))
def test_isotropic_risk_is_the_master_formula(size, n, m, noise):
    a, lam = optimum(np.eye(size), n), np.eye(size)
    for length in (m, math.inf):
        per_coordinate = risk(a, test_length=length, covariance=lam, label_noise=noise) / size
        np.testing.assert_allclose(isotropic_risk(size, n, length, noise), per_coordinate, rtol=1e-9)


@given(size=st.integers(1, 6), n=st.integers(1, 30), noise=st.floats(0.0, 2.0), seed=SEEDS)
def test_the_optimum_has_the_least_risk_of_its_law(size, n, noise, seed):
    rng = np.random.default_rng(seed)
    law = {"covariance": covariance(rng, size), "task_moment": covariance(rng, size), "label_noise": noise}
    best = optimum(context_length=n, **law)
    direction = rng.normal(size=(size, size))
    at = lambda step: risk(best + step * direction, test_length=n, **law)  # noqa: E731
    slope, curvature = (at(1e-3) - at(-1e-3)) / 2e-3, (at(1e-3) + at(-1e-3) - 2 * at(0.0)) / 1e-6
    assert curvature > 0
    assert abs(slope) < 1e-7 * (1 + curvature)


def test_the_optimum_for_tasks_of_a_subspace_stays_in_it():
    rng = np.random.default_rng(0)
    lam, basis = covariance(rng, 4), np.linalg.qr(rng.normal(size=(4, 2)))[0]
    best = optimum(lam, 5, task_moment=basis @ basis.T)
    np.testing.assert_allclose(basis @ basis.T @ best, best, atol=1e-12)
    for i in range(4):
        moved = best + 0.1 * np.outer(rng.normal(size=4), rng.normal(size=4))
        law = {"test_length": 5, "covariance": lam, "task_moment": basis @ basis.T}
        assert risk(moved, **law) > risk(best, **law), i


@given(size=st.integers(1, 6), n=st.integers(1, 30), noise=st.floats(0.0, 2.0), seed=SEEDS)
def test_tasks_that_whiten_the_inputs_are_learned_by_a_preconditioned_step(size, n, noise, seed):
    lam = covariance(np.random.default_rng(seed), size)
    best = optimum(lam, n, task_moment=np.linalg.inv(lam), label_noise=noise)
    np.testing.assert_allclose(best, np.linalg.inv(lam) * n / (n + size + 1 + noise**2), rtol=1e-7, atol=1e-9)


def test_published_and_tabulated_values():
    table = {5: 1.38411, 10: 0.94977, 20: 0.59065, 40: 0.33929, 160: 0.09636}
    np.testing.assert_allclose([optimal_loss(SPECTRUM, n) for n in table], list(table.values()), atol=5e-6)
    norm = float(np.linalg.norm(optimum(SPECTRUM, 20))) ** 0.5
    np.testing.assert_allclose(norm, 1.5103, atol=5e-5)  # |u| and |U11|_F where the paper's gradient flow ends
    np.testing.assert_allclose(spurious_loss(np.diag([1.5, 0.5]), 6), 0.460, atol=5e-4)
    np.testing.assert_allclose(optimal_loss(np.diag([1.5, 0.5]), 6), 0.3236, atol=5e-5)
    lengths = np.array([40, 40, 100]), np.array([40, 100, 100])
    np.testing.assert_allclose(isotropic_risk(20, *lengths), [0.344262, 0.208815, 0.173554], atol=5e-7)
    np.testing.assert_allclose(isotropic_risk(20, np.array([40, 100]), np.inf), [0.118517, 0.030121], atol=5e-7)
    staircase = [2 * principal_components_loss(np.diag([0.4, 0.3, 0.2, 0.1]), 31, m) for m in range(5)]
    np.testing.assert_allclose(staircase, [1, 0.64058, 0.37737, 0.20981, 0.13600], atol=6e-6)


@given(d=st.integers(1, 40), m=st.integers(1, 200), others=st.lists(st.integers(1, 400), max_size=8))
def test_no_training_length_is_better_than_the_test_length(d, m, others):
    assert isotropic_risk(d, m, m) <= isotropic_risk(d, np.array([m, *others]), m).min() + 1e-15


def test_256_dimensions():
    best = optimum(np.eye(256), 20)
    np.testing.assert_allclose(risk(best, test_length=30, covariance=np.eye(256)) / 256, isotropic_risk(256, 20, 30))


def test_bad_arguments():
    eye = np.eye(2)
    for bad in (
        [[1, 0.5], [0, 1]],
        np.diag([1.0, 0.0]),
        np.diag([1.0, -1.0]),
        np.ones((2, 3)),
        np.full((2, 2), np.nan),
    ):
        for function in (gamma, optimum, optimal_loss, spurious_loss):
            with pytest.raises(ValueError, match="covariance"):
                function(bad, 3)
    for n in (0, -1, math.inf, math.nan):
        with pytest.raises(ValueError, match="context_length"):
            gamma(eye, n)
    with pytest.raises(ValueError, match=r"a must be .*2, 2"):
        population_loss(np.eye(3), eye, 3)
    with pytest.raises(ValueError, match="task_moment"):
        optimum(eye, 3, task_moment=np.zeros((2, 2)))
    with pytest.raises(ValueError, match="label_noise"):
        optimum(eye, 3, label_noise=-1.0)
    with pytest.raises(ValueError, match="components"):
        principal_components_loss(eye, 3, 3)
    with pytest.raises(ValueError, match="train_length"):
        isotropic_risk(2, 0, 1)
    with pytest.raises(ValueError, match="label_noise"):
        isotropic_risk(2, 1, 1, -1)
    good = {"test_length": 3, "covariance": eye}
    wrong = {
        "test_length": 0, "covariance": np.diag([1.0, -1.0]), "query_covariance": np.eye(3), "task_moment": -eye,
        "label_noise": math.nan,
    }  # fmt: skip
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=name):
            risk(eye, **(good | {name: value}))
