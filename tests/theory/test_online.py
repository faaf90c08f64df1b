"""Errors of learners that take one example after the other, against Monte Carlo and against numbers by hand."""

import functools

import numpy as np
import pytest

from icl_lab.theory import best_lms_rates, lms_errors, momentum_map, tracking

SIGMAS = 4  # standard errors
TASKS = 40_000


@functools.cache
def simulated(d, n, rate, noise, walk, normalised, momentum):
    """(TASKS,) |w - S|^2 after n examples."""
    rng = np.random.default_rng(d + n)
    w, state, velocity = rng.normal(size=(TASKS, d)), np.zeros((TASKS, d)), np.zeros((TASKS, d))
    for _ in range(n):
        x = rng.normal(size=(TASKS, d))
        y = (x * w).sum(1) + noise * rng.normal(size=TASKS)
        if normalised:
            size = np.linalg.norm(x, axis=1)
            x, y = x / size[:, None], y / size
        velocity = momentum * velocity + rate * x * (y - (x * state).sum(1))[:, None]
        state = state + velocity
        w = w + walk**0.5 * rng.normal(size=w.shape)
    return ((w - state) ** 2).sum(1)


CASES = [
    (3, 4, 0.2, 0.0, 0.0, False, 0.0),
    (3, 6, 0.15, 0.7, 0.05, False, 0.0),
    (4, 5, 1.0, 0.0, 0.0, True, 0.0),
    (5, 6, 0.6, 0.8, 0.1, True, 0.0),
    (3, 6, 0.1, 0.5, 0.02, False, 0.5),
    (2, 5, 0.08, 0.0, 0.0, False, -0.4),
]


@pytest.mark.parametrize("case", CASES)
def test_errors(case):
    d, n, rate, noise, walk, normalised, momentum = case
    options = {"label_noise": noise, "walk": walk, "normalised": normalised, "momentum": momentum}
    exact, found = lms_errors(d, np.full(n, rate), **options)[-1], simulated(*case)
    assert abs(found.mean() - exact) < SIGMAS * found.std() / TASKS**0.5


def test_numbers_by_hand():
    """D = N = 10: .4189 by LMS, .3487 by normalised LMS, .5238 = 11/21 by one linear layer; all equal at N = 1."""
    best = best_lms_rates(10, 10)
    np.testing.assert_allclose(best, 1 / 12, rtol=1e-14)
    assert lms_errors(10, best)[-1] / 10 == pytest.approx((11 / 12) ** 10, rel=1e-12)
    assert round((11 / 12) ** 10, 4) == 0.4189
    assert lms_errors(10, np.ones(10), normalised=True)[-1] / 10 == pytest.approx(0.9**10, rel=1e-12)
    assert lms_errors(10, best[:1])[-1] / 10 == pytest.approx(11 / (1 + 11), rel=1e-12)
    rate, error = tracking(5, 0.5, 0.01)
    assert (rate, error) == (pytest.approx(0.10413, abs=1e-5), pytest.approx(0.480, abs=5e-4))
    assert tracking(5, 0.0, 0.01)[0] == pytest.approx(1 / 7, rel=1e-14)


@pytest.mark.parametrize(("noise", "walk"), [(0.5, 0.01), (1.0, 0.3), (0.0, 0.1)])
def test_tracking_is_where_the_error_settles_and_no_other_rate_is_better(noise, walk):
    rate, error = tracking(5, noise, walk)
    assert lms_errors(5, np.full(3000, rate), label_noise=noise, walk=walk)[-1] == pytest.approx(error, rel=1e-9)
    for other in (0.95 * rate, 1.05 * rate):
        assert lms_errors(5, np.full(3000, other), label_noise=noise, walk=walk)[-1] > error * (1 + 1e-4)
    adaptive = lms_errors(5, best_lms_rates(5, 3000, label_noise=noise, walk=walk), label_noise=noise, walk=walk)
    assert adaptive[-1] == pytest.approx(error, rel=1e-9)


@pytest.mark.parametrize(("noise", "walk"), [(0.0, 0.0), (0.8, 0.0), (0.3, 0.02)])
def test_the_best_rates_are_best(noise, walk):
    options, rng = {"label_noise": noise, "walk": walk}, np.random.default_rng(0)
    rates = best_lms_rates(4, 8, **options)
    best = lms_errors(4, rates, **options)
    for _ in range(20):
        other = lms_errors(4, rates * np.exp(0.2 * rng.normal(size=8)), **options)
        assert other[-1] > best[-1]


@pytest.mark.parametrize("d", [1, 5, 10])
def test_momentum_gains_nothing_on_independent_examples(d):
    """The spectral radius is least without momentum, at the best rate of LMS; negative momentum is no better."""
    c = d + 2

    def radius(rate, momentum):
        return np.abs(np.linalg.eigvals(momentum_map(d, rate, momentum))).max()

    assert radius(1 / c, 0.0) == pytest.approx(1 - 1 / c, rel=1e-12)
    rates, momenta = np.linspace(0.02, 2.5, 80) / c, np.linspace(-0.6, 0.9, 61)
    grid = np.array([[radius(rate, momentum) for rate in rates] for momentum in momenta])
    best = momenta[np.argmin(grid.min(axis=1))]
    assert abs(best) < 0.03
    assert grid.min() > 1 - 1 / c - 1e-9


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda: lms_errors(5, 0.1), "rates must be finite"),
        (lambda: lms_errors(2, [0.5], label_noise=1.0, normalised=True), "input_size must be at least 3"),
        (lambda: lms_errors(5, [0.5], normalised=True, momentum=0.1), "momentum must be 0"),
        (lambda: tracking(5, 0.5, 0.0), "walk must be a variance above 0"),
        (lambda: best_lms_rates(5, 0), "examples must be at least 1"),
        (lambda: momentum_map(5, np.nan, 0.0), "rate and momentum must be finite"),
        (lambda: lms_errors(5, [0.1], walk=-1.0), "walk must be a variance"),
    ],
)
def test_refused(wrong, named):
    with pytest.raises(ValueError, match=named):
        wrong()
