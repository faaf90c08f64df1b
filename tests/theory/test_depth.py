"""Looped and free layers of gradient descent: exact moments, the two optima, and the saddle between them."""

import functools
from fractions import Fraction
from math import comb, prod

import numpy as np
import pytest

from icl_lab.theory import (
    best_gd_plus_plus,
    depth_error,
    depth_gradient,
    depth_hessian,
    free_errors,
    free_rates,
    gram_moments,
    gram_spectrum,
    looped_rate,
    marchenko_pastur,
    power_spectrum,
    saddle_curvature,
)

SIGMAS, TASKS = 4, 20_000
EXACT = gram_spectrum(20, 5, 10)
SPECTRA = {
    "gram": EXACT,
    "short": gram_spectrum(3, 5, 10),
    "two": (np.array([0.3, 2.0]), np.array([0.9, 0.1])),
    "random": (np.random.default_rng(0).gamma(1.0, 1.0, 40), np.full(40, 1 / 40)),
}


@functools.cache
def eigenvalues(n, d):
    """(TASKS, D) of drawn contexts."""
    x = np.random.default_rng(n).normal(size=(TASKS, n, d))
    return np.linalg.eigvalsh(np.einsum("bni,bnj->bij", x, x) / n)


def test_moments_by_hand():
    """One input is chi^2, one example is |x|^2, and the third moment of any Wishart matrix is known."""
    assert gram_moments(7, 1, 4) == [Fraction(prod(7 + 2 * i for i in range(k)), 7**k) for k in range(5)]
    assert gram_moments(1, 3, 4) == [1, *(Fraction(prod(3 + 2 * i for i in range(k)), 3) for k in range(1, 5))]
    n, d = 20, 5
    third = d**2 + d * (3 * n + 3) + n**2 + 3 * n + 4
    assert gram_moments(n, d, 3)[1:] == [1, Fraction(n + d + 1, n), Fraction(third, n**2)]


@pytest.mark.parametrize(("n", "d"), [(20, 5), (3, 4), (6, 2)])
def test_moments_of_drawn_contexts(n, d):
    for k, exact in enumerate(gram_moments(n, d, 4)):
        found = (eigenvalues(n, d) ** k).mean(1)
        assert abs(found.mean() - float(exact)) <= SIGMAS * found.std() / TASKS**0.5 + 1e-12


@pytest.mark.parametrize("degree", [1, 6, 7, 20])
def test_the_spectrum_has_the_moments_of_its_degree(degree):
    nodes, weights = gram_spectrum(20, 5, degree)
    for k, exact in enumerate(gram_moments(20, 5, degree)):
        assert weights @ nodes**k == pytest.approx(float(exact), rel=1e-11)
    assert (weights > 0).all()


def test_the_error_is_that_of_gradient_descent_on_prompts():
    rates, rng = np.array([1.2, 0.5, 0.4]), np.random.default_rng(1)
    x, (task, query) = rng.normal(size=(TASKS, 8, 3)), rng.normal(size=(2, TASKS, 3))
    w, y = np.zeros_like(task), np.einsum("bnd,bd->bn", x, task)
    for rate in rates:
        w = w + rate * np.einsum("bn,bnd->bd", y - np.einsum("bnd,bd->bn", x, w), x) / 8
    found = ((w - task) * query).sum(1) ** 2 / 3
    assert abs(found.mean() - depth_error(rates, gram_spectrum(8, 3, 6))) < SIGMAS * found.std() / TASKS**0.5


def test_numbers():
    """N = 20, D = 5: rates and MSE of both optima; 4 10^6 draws give the same to three digits up to L = 3."""
    assert looped_rate(1, EXACT) == pytest.approx(20 / 26, rel=1e-13)
    np.testing.assert_allclose(free_rates(1, EXACT), 20 / 26, rtol=1e-13)
    for layers, one, looped, each, free in (
        (2, 0.742518, 0.499007, (1.24957, 0.51537), 0.361240),
        (3, 0.715587, 0.268342, (1.71422, 0.68913, 0.42241), 0.133608),
        (4, 0.688953, 0.163253, (2.13885, 0.88898, 0.52050, 0.36206), 0.0549526),
    ):
        assert looped_rate(layers, EXACT) == pytest.approx(one, rel=1e-5)
        assert 5 * depth_error(np.full(layers, one), EXACT) == pytest.approx(looped, rel=1e-5)
        np.testing.assert_allclose(free_rates(layers, EXACT), each, rtol=1e-5)
        assert 5 * depth_error(free_rates(layers, EXACT), EXACT) == pytest.approx(free, rel=1e-5)


@pytest.mark.parametrize("name", SPECTRA)
def test_derivatives(name):
    """Against differences of fourth order."""
    spectrum, rates, h = SPECTRA[name], np.array([0.9, 0.3, 0.5]), 1e-3
    for analytic, of in ((depth_gradient, depth_error), (depth_hessian, depth_gradient)):
        shifts = h * np.eye(3)
        differences = [
            (8 * (of(rates + e, spectrum) - of(rates - e, spectrum)) - of(rates + 2 * e, spectrum)
             + of(rates - 2 * e, spectrum)) / (12 * h)
            for e in shifts
        ]  # fmt: skip
        np.testing.assert_allclose(analytic(rates, spectrum), differences, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("layers", [2, 3, 5])
@pytest.mark.parametrize("name", SPECTRA)
def test_the_best_equal_rates_are_a_strict_saddle(name, layers):
    spectrum = SPECTRA[name]
    rate = looped_rate(layers, spectrum)
    equal = np.full(layers, rate)
    assert np.abs(depth_gradient(equal, spectrum)).max() < 1e-12 * max(1, spectrum[0].max() ** layers)
    curvature, values = saddle_curvature(rate, layers, spectrum), np.linalg.eigvalsh(depth_hessian(equal, spectrum))
    assert curvature < 0
    np.testing.assert_allclose(values[:-1], curvature, rtol=1e-9)
    assert values[-1] == pytest.approx(-(2 * layers - 1) * curvature, rel=1e-9)
    for other in (0.98 * rate, 1.02 * rate):
        assert depth_error(np.full(layers, other), spectrum) > depth_error(equal, spectrum)


@pytest.mark.parametrize(("name", "layers"), [("gram", 2), ("gram", 4), ("short", 3), ("random", 5), ("two", 1)])
def test_free_rates_are_the_least_polynomial(name, layers):
    spectrum = nodes, weights = SPECTRA[name]
    rates = free_rates(layers, spectrum)
    powers = -np.sqrt(weights)[:, None] * nodes[:, None] ** np.arange(1, layers + 1)
    coefficients = np.linalg.lstsq(powers, np.sqrt(weights), rcond=None)[0]
    least = np.sum((np.sqrt(weights) - powers @ coefficients) ** 2)
    assert depth_error(rates, spectrum) == pytest.approx(least, rel=1e-8)
    assert (np.diff(rates) < 0).all()
    assert rates[-1] > 0
    assert np.linalg.eigvalsh(depth_hessian(rates, spectrum))[0] > 0
    assert layers == 1 or least < 0.95 * depth_error(np.full(layers, looped_rate(layers, spectrum)), spectrum)


def test_gd_plus_plus():
    rates, gammas, error = best_gd_plus_plus(1, *EXACT)
    assert (rates[0], gammas[0], error) == (pytest.approx(20 / 26, rel=1e-6), 0, pytest.approx(6 / 26, rel=1e-9))
    rates, gammas, error = best_gd_plus_plus(2, *EXACT)
    np.testing.assert_allclose([*rates, gammas[0], 5 * error], [0.51676, 3.47466, 0.44879, 0.0575012], rtol=1e-4)


@pytest.mark.parametrize("name", SPECTRA)
def test_errors_of_all_depths_are_those_of_the_best_rates(name):
    spectrum = SPECTRA[name]
    layers = min(5, np.count_nonzero(spectrum[0]) - 1)
    found = free_errors(layers, spectrum)
    assert found[0] == 1
    for depth in range(1, layers + 1):
        assert found[depth] == pytest.approx(depth_error(free_rates(depth, spectrum), spectrum), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("ratio", [0.5, 1.0, 3.0])
def test_the_isotropic_limit(ratio):
    """Moments of Marchenko and Pastur, those of large Wishart matrices, and the free errors."""
    nodes, weights = spectrum = marchenko_pastur(ratio, 20)
    c = 1 / ratio
    for k, exact in enumerate((1, 1, 1 + c, 1 + 3 * c + c**2)):
        assert weights @ nodes**k == pytest.approx(exact, rel=1e-12)
        assert float(gram_moments(int(1e6 * ratio), 10**6, 3)[k]) == pytest.approx(exact, rel=1e-5)
    exact = 1 / np.cumsum(ratio ** np.arange(10.0))
    np.testing.assert_allclose(free_errors(9, spectrum), exact, rtol=1e-12)


@pytest.mark.parametrize("layers", [1, 2, 3, 8, 16])
def test_tied_layers_at_ratio_one_leave_a_binomial(layers):
    spectrum = marchenko_pastur(1.0, 2 * layers)
    assert looped_rate(layers, spectrum) == pytest.approx(0.5, rel=1e-12)
    error = depth_error(np.full(layers, 0.5), spectrum)
    assert error == pytest.approx(comb(2 * layers, layers) / 4**layers, rel=1e-12)


def test_the_power_law_by_hand():
    nodes, weights = power_spectrum(3, 2.0, 0.5)
    np.testing.assert_allclose(nodes, (1, 1 / 4, 1 / 9), rtol=1e-14)
    np.testing.assert_allclose(weights, np.array([1, 1 / 4, 1 / 9]) / (49 / 36), rtol=1e-14)


def test_45_modes():
    """Errors of tied and free layers, and the e-folds of Bordelon et al.: rate 3 on A_j = L a_j, a 45th to each a_j."""
    spectrum = power_spectrum(45, 1.75, 0.5)
    rates = {layers: looped_rate(layers, spectrum) for layers in (1, 2, 4, 8, 16)}
    found = [depth_error(np.full(layers, rate), spectrum) for layers, rate in rates.items()]
    np.testing.assert_allclose(found, (0.30646, 0.21663, 0.13941, 0.08794, 0.05357), rtol=1e-4)
    free = free_errors(16, spectrum)[[*rates]]
    np.testing.assert_allclose(free, (0.30646, 0.14123, 0.04410, 0.0048598, 4.0765e-6), rtol=1e-4)
    steps = [-15 * layers**2 / saddle_curvature(rates[layers], layers, spectrum) for layers in (2, 4)]
    np.testing.assert_allclose(steps, (419.8, 9014.7), rtol=1e-4)


def test_many_modes_have_the_exponents():
    """Here of decay 1.25 and task decay .8: -beta (2 + alpha) = -2.6 free, -.8 tied."""
    spectrum, depths = power_spectrum(30_000, 1.25, 0.8), np.array([8, 16])
    tied = [depth_error(np.full(layers, looped_rate(layers, spectrum)), spectrum) for layers in depths]
    assert np.diff(np.log2(tied))[0] == pytest.approx(-0.8, abs=0.1)
    assert np.diff(np.log2(free_errors(16, spectrum)[depths]))[0] == pytest.approx(-2.6, abs=0.3)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda: gram_moments(0, 5, 2), "context_length"),
        (lambda: gram_spectrum(20, 5, 0), "degree"),
        (lambda: looped_rate(0, EXACT), "layers"),
        (lambda: free_rates(6, EXACT), "layers must be fewer than the 6 nodes above 0, got 6"),
        (lambda: free_errors(0, EXACT), "layers"),
        (lambda: free_errors(6, EXACT), "layers must be fewer than the 6 nodes, got 6"),
        (lambda: marchenko_pastur(0.0, 4), "ratio"),
        (lambda: marchenko_pastur(1.0, 0), "degree"),
        (lambda: power_spectrum(0, 1.75, 0.5), "modes"),
        (lambda: power_spectrum(45, -1.0, 0.5), "decay"),
        (lambda: power_spectrum(45, 1.75, float("nan")), "task_decay"),
        (lambda: best_gd_plus_plus(2, *EXACT, starts=0), "starts"),
    ],
)
def test_refused(wrong, named):
    with pytest.raises(ValueError, match=named):
        wrong()
