"""Errors of linear attention on tasks seen and unseen: by hand, published numbers, limits, sampled covariances."""

import numpy as np
import pytest

from icl_lab.theory import diversity_error, task_resolvent

ONE, INF = np.eye(1), np.inf


def of_power(d, exponent):
    values = np.arange(1, d + 1.0) ** -exponent
    return values / values.mean()


def error(diversity, prompts, *, context=10.0, noise=0.01, train=ONE, test=None):
    return diversity_error(
        train, test, context=context, diversity=diversity, prompts=prompts, noise_variance=noise
    )  # fmt: skip


def test_isotropic_resolvent_by_hand():
    """kappa = 1, v = 2: 2 M^2 + 2 M = 1, and its derivative gives M2 = (M^2 + M) / (2 v M + v)."""
    found = task_resolvent(ONE, 1.0, 2.0)
    assert found.mean == pytest.approx((np.sqrt(3) - 1) / 2, rel=1e-14)
    assert found.mean_square == pytest.approx(0.5 / (2 * np.sqrt(3)), rel=1e-14)
    assert task_resolvent(ONE, INF, 2.0).mean_square == pytest.approx(1 / 9, rel=1e-14)


@pytest.mark.parametrize(("diversity", "shift"), [(0.5, 0.3), (1.0, 1e-3), (4.0, 0.5), (0.2, 1e-9)])
def test_the_square_is_minus_the_derivative(diversity, shift):
    c, step = np.diag(of_power(12, 0.9)), 1e-4 * shift
    found = task_resolvent(c, diversity, shift)
    ends = [task_resolvent(c, diversity, shift + s).first for s in (-step, step)]
    np.testing.assert_allclose((ends[0] - ends[1]) / (2 * step), found.second, rtol=1e-6, atol=1e-8 / shift**2)
    assert np.trace(found.first) / 12 == pytest.approx(found.mean, rel=1e-12)
    assert np.trace(found.second) / 12 == pytest.approx(found.mean_square, rel=1e-12)


@pytest.mark.parametrize("diversity", [0.5, 2.0])
def test_resolvents_are_those_of_sampled_covariances(diversity):
    """d = 150, in a basis that is not that of C; what is left falls as 1/d."""
    rng, d, shift = np.random.default_rng(0), 150, 0.4
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    c = (basis * of_power(d, 0.5)) @ basis.T
    found, tasks = task_resolvent(c, diversity, shift), np.linalg.cholesky(c)
    means = []
    for _ in range(10):
        w = tasks @ rng.standard_normal((d, round(diversity * d)))
        r = np.linalg.inv(w @ w.T / w.shape[1] + shift * np.eye(d))
        means.append([np.trace(a) / d for a in (r, r @ r, c @ r, c @ r @ r)])
    wanted = [found.mean, found.mean_square, np.trace(c @ found.first) / d, np.trace(c @ found.second) / d]
    np.testing.assert_allclose(np.mean(means, axis=0), wanted, rtol=0.02)


def test_published_numbers():
    """Lu et al. 2025, from the code of their figures: alpha = 10, rho = .01."""
    peak = [error(2.0, tau).unseen for tau in (0.5, 0.9, 0.99, 1.01, 1.1, 1.5, 4.0)]
    assert peak == pytest.approx([0.681, 1.54, 15.5, 15.7, 1.68, 0.432, 0.1714], rel=3e-3)
    few = [error(k, 10.0).unseen for k in (0.2, 0.4, 0.6, 0.8, 1, 1.2, 1.6, 2, 4, 8, 32)]
    wanted = [0.858, 0.684, 0.509, 0.358, 0.257, 0.200, 0.153, 0.137, 0.120, 0.116, 0.114]
    assert few == pytest.approx(wanted, abs=6e-4)
    assert error(4.0, 4.0, context=2.0, noise=0.05).unseen == pytest.approx(0.5587, abs=5e-5)


def test_the_published_form_for_more_prompts_than_features():
    """For covariances that do not commute, written out with F and F2."""
    rng, d, tau, alpha, kappa, rho = np.random.default_rng(1), 6, 2.5, 1.5, 0.7, 0.2
    c, c_test = (a @ a.T / d for a in rng.standard_normal((2, d, d)))
    r, r_test = np.trace(c) / d + rho, np.trace(c_test) / d + rho
    nu = r / alpha
    _, _, m, m2 = task_resolvent(c, kappa, nu)
    f = np.linalg.inv((1 - 1 / kappa + nu * m / kappa) * c + nu * np.eye(d))
    f2 = f @ ((m / kappa - nu * m2 / kappa) * c + np.eye(d)) @ f
    g = (rho + nu - nu**2 * m) / (tau - 1)
    wanted = rho + r_test / alpha * (1 + (g - 2 * nu) * m + nu**2 * m2)
    wanted += g * np.trace(c_test @ f) / d + nu**2 * np.trace(c_test @ f2) / d
    found = error(kappa, tau, context=alpha, noise=rho, train=c, test=c_test).unseen
    assert found == pytest.approx(wanted, rel=1e-12)


def test_limits():
    q = 1.01 / 10  # all tasks, all prompts: one step of gradient descent
    assert error(INF, INF) == pytest.approx((0.01 + q / (1 + q),) * 2, rel=1e-12)
    for kappa in (0.2, 0.8, 1.05, 2.0):  # the transition: rho + max(0, 1 - kappa)
        found = error(kappa, 1e12, context=1e6).unseen
        assert found == pytest.approx(0.01 + max(0, 1 - kappa), abs=2e-4)
    assert error(2.0, 1e-6) == pytest.approx((1.01, 1.01), rel=1e-4)  # no prompts: it predicts 0
    c, c_test = np.diag([2.0, 1.0, 0.5]), np.diag([0.5, 1.0, 2.0])
    one, many = error(INF, 3.0, train=c), error(1e9, 3.0, train=c)
    assert one.seen == pytest.approx(one.unseen, rel=1e-12)
    assert one == pytest.approx(many, rel=1e-7)
    scaled = error(0.7, 0.4, train=3 * c, test=3 * c_test, noise=0.03)
    assert scaled == pytest.approx([3 * e for e in error(0.7, 0.4, train=c, test=c_test)], rel=1e-10)
    rank_one = np.diag([3.0, 0.0, 0.0])  # nothing is learned of other directions
    assert error(INF, INF, train=rank_one, test=np.diag([0.0, 2.0, 1.0])).unseen > 1.0


def test_it_rises_on_both_sides_of_as_many_prompts_as_features():
    taus = [0.3, 0.6, 0.8, 0.95, 1.05, 1.3, 2.0, 4.0]
    unseen = [error(4.0, tau, context=2.0, noise=0.05).unseen for tau in taus]
    assert unseen[:4] == sorted(unseen[:4])
    assert unseen[4:] == sorted(unseen[4:], reverse=True)


def test_aligned_tasks_are_easier():
    c = np.diag(of_power(24, 0.5))
    found = [
        error(4.0, 4.0, context=2.0, noise=0.05, train=c, test=aim).unseen for aim in (c, np.eye(24), c[::-1, ::-1])
    ]
    assert found == sorted(found)
    assert found == pytest.approx([0.536, 0.579, 0.612], abs=1e-3)
