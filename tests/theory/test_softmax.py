"""The exact error of a softmax head: against Monte Carlo, its limits, and the tilted mean that it rests on."""

import numpy as np
import pytest

from icl_lab.theory import softmax_expansion, softmax_optimum, softmax_risk, softmax_scale, softmax_spread

SIGMAS = 4  # standard errors


@pytest.mark.parametrize(
    ("n", "d", "c", "rate", "prompts"),
    [(3, 2, 0.9, 1.3, 40_000), (40, 5, 0.45, 1.9, 8000), (1, 4, 0.5, 0.7, 40_000), (8, 4, 3.0, 1.0, 40_000)],
)
def test_the_exact_error_is_that_of_monte_carlo(n, d, c, rate, prompts):
    rng = np.random.default_rng(n)
    x, query = rng.standard_normal((prompts, n, d)), rng.standard_normal((prompts, d))
    logits = c * np.einsum("bnd,bd->bn", x, query)
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    mean = np.einsum("bn,bnd->bd", shares / shares.sum(axis=1, keepdims=True), x)
    errors = np.sum((rate * mean - query) ** 2, axis=1) / d
    with np.errstate(over="raise", invalid="raise"):  # at c = 3 nearly all attention is on one example
        exact = softmax_risk(n, d, c, rate)
    assert abs(errors.mean() - exact) < SIGMAS * errors.std() / np.sqrt(prompts)


def test_one_example_is_copied():
    """p = 1: the mean is the only input, so MSE / D = eta^2 + 1."""
    assert softmax_risk(1, 3, 0.7, 1.5) == pytest.approx(1.5**2 + 1, rel=1e-10)


def test_uniform_attention_is_the_mean_label():
    """Small c: p = 1/N, |m|^2 / D = 1/N."""
    assert softmax_risk(20, 3, 1e-6, 2.0) == pytest.approx(1 + 4 / 20, rel=1e-4)


def test_the_expansion_is_the_limit_of_long_prompts():
    """What is left falls as 1/N^2, so that its product with N falls tenfold."""
    c, rate = 0.25, 3.6
    left = [n * abs(softmax_risk(n, 3, c, rate) - softmax_expansion(n, 3, c, rate)) for n in (1000, 10_000)]
    assert left[1] < 0.15 * left[0]
    assert softmax_expansion(10_000, 3, c, rate) == pytest.approx((rate * c - 1) ** 2, abs=5e-3)


def test_known_numbers():
    """D = 5, N = 200: more than the first order says of the scale, less of the error."""
    scale, rate, error = softmax_optimum(200, 5)
    assert (scale, rate, error) == pytest.approx((0.396, 2.355, 0.0827), rel=2e-3)
    assert softmax_risk(200, 5, scale, rate) == pytest.approx(error, rel=1e-9)
    assert error < min(softmax_risk(200, 5, c) for c in (0.9 * scale, 1.1 * scale))
    c, v = softmax_scale(5)
    assert (c, v) == pytest.approx((0.3505, softmax_spread(c, 5) / c**2), rel=1e-4)
    assert 1 / (1 + 200 / v) == pytest.approx(0.0874, abs=1e-4)


def test_a_head_needs_e_times_the_examples_of_a_linear_layer():
    ratios = [softmax_scale(d)[1] / (d + 1) for d in (5, 10, 20, 50, 200, 10**6)]
    assert ratios[:5] == pytest.approx([3.19, 2.97, 2.85, 2.77, 2.73], abs=0.005)
    assert ratios[5] == pytest.approx(np.e, rel=1e-5)


def tilted_mean(nodes, weights, u):
    """E x exp(u x) / E exp(u x) of one coordinate."""
    tilt = weights * np.exp(u * nodes)
    return (tilt @ nodes) / tilt.sum()


def test_the_tilted_mean_of_gaussian_inputs_is_linear_and_of_uniform_ones_is_not():
    """E[y exp(u.x)] / E[exp(u.x)] = w.u for N(0, I); coordinates are independent, so one is enough."""
    gaussian, uniform = np.polynomial.hermite_e.hermegauss(60), np.polynomial.legendre.leggauss(60)
    for u in (0.3, 1.0, 2.5):
        assert tilted_mean(*gaussian, u) == pytest.approx(u, rel=1e-12)
    of_variance_one = (np.sqrt(3) * uniform[0], uniform[1])
    assert abs(tilted_mean(*of_variance_one, 1.0) - 1.0) > 0.1
