"""Closed forms of correlated contexts against sums written out, and against Monte Carlo."""

import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icl_lab.theory import correlation_of, effective_length, effective_noise, optimum, risk

SIGMAS = 4  # standard errors
TASKS = 60_000


def rows(n, c):
    return float(c) ** np.abs(np.subtract.outer(np.arange(n), np.arange(n)))


@given(n=st.integers(1, 30), c=st.floats(-1, 1))
def test_effective_length_is_of_the_whole_matrix(n, c):
    assert effective_length(n, c) == pytest.approx(n**2 / np.sum(rows(n, c) ** 2), rel=1e-12)
    if abs(c) < 0.99:
        r = c**2
        closed = n * (1 + r) / (1 - r) - 2 * r * (1 - r**n) / (1 - r) ** 2
        assert effective_length(n, c) == pytest.approx(n**2 / closed, rel=1e-10)


def test_known_numbers():
    """D = 5, N = 20: the losses at c = 0, .5 and .8 to five digits; four inputs by hand."""
    lengths = [effective_length(20, c) for c in (0, 0.5, 0.8)]
    assert [6 / (n + 6) for n in lengths] == pytest.approx([0.23077, 0.32735, 0.54925], abs=1e-5)
    assert effective_length(4, 0.5) == pytest.approx(16 / (4 + 2 * (3 / 4 + 2 / 16 + 1 / 64)), rel=1e-14)
    assert [effective_length(7, c) for c in (1, -1)] == pytest.approx([1, 1], rel=1e-14)


@pytest.mark.parametrize(("n", "effective"), [(20, 10.0), (40, 10.0), (10, 10.0), (12, 1.0), (15, 1.3), (1, 1.0)])
def test_the_correlation_of_an_effective_length(n, effective):
    assert effective_length(n, correlation_of(n, effective)) == pytest.approx(effective, rel=1e-9)


@functools.cache
def drawn(n, c, spectrum, noise):
    """Contexts, h = X^T y / N, tasks and queries of correlated inputs, by a root of K that is no autoregression."""
    generator, scale = np.random.default_rng(n), np.sqrt(spectrum)
    values, vectors = np.linalg.eigh(rows(n, c))
    root = vectors * np.sqrt(np.maximum(values, 0))
    x = np.einsum("ij,bjd->bid", root, generator.normal(size=(TASKS, n, len(spectrum)))) * scale
    w, query = generator.normal(size=(2, TASKS, len(spectrum)))
    y = np.einsum("bnd,bd->bn", x, w) + noise * generator.normal(size=(TASKS, n))
    return x, np.einsum("bn,bnd->bd", y, x) / n, w, query * scale


SETTINGS = [
    (6, 0.0, (1.0, 1.0, 1.0), 0.0),
    (8, 0.7, (1.0, 1.0, 1.0), 0.0),
    (5, -0.8, (2.0, 0.5), 0.6),
    (7, 1.0, (1.0,), 1.0),
]


@pytest.mark.parametrize("setting", SETTINGS)
def test_second_moment_of_the_gram_matrix(setting):
    n, c, spectrum, _ = setting
    x, *_ = drawn(*setting)
    s = np.einsum("bni,bnj->bij", x, x) / n
    found, t, lam = s @ s, 1 / effective_length(n, c), np.diag(spectrum)
    expected = (1 + t) * lam**2 + t * np.trace(lam) * lam
    assert (np.abs(found.mean(0) - expected) < SIGMAS * found.std(0) / TASKS**0.5 + 1e-12).all()


@pytest.mark.parametrize("setting", SETTINGS)
def test_risk_at_the_effective_length(setting):
    """Any A on any correlated context, with noise: ``risk`` at N_eff and the noise that goes with it."""
    n, c, spectrum, noise = setting
    _, h, w, query = drawn(*setting)
    a = 0.4 * np.random.default_rng(1).normal(size=(len(spectrum),) * 2) + 0.5 * np.eye(len(spectrum))
    errors = (np.einsum("bi,ij,bj->b", h, a, query) - (w * query).sum(1)) ** 2
    sizes = {"test_length": effective_length(n, c), "label_noise": effective_noise(n, c, noise)}
    exact = risk(a, covariance=np.diag(spectrum), **sizes)
    assert abs(errors.mean() - exact) < SIGMAS * errors.std() / TASKS**0.5
    if c == 1:  # inputs all alike, but the noise is averaged over all the labels
        wrong = risk(a, covariance=np.diag(spectrum), **sizes | {"label_noise": noise})
        assert abs(errors.mean() - wrong) > SIGMAS * errors.std() / TASKS**0.5


@given(d=st.integers(1, 8), n=st.integers(1, 30), c=st.floats(-1, 1), noise=st.floats(0, 2))
def test_isotropic_optimum(d, n, c, noise):
    """A* = a* I and MSE/D = 1 - a*, a* = 1 / (1 + (D + 1) tr K^2/N^2 + s^2/N)."""
    length, added = effective_length(n, c), effective_noise(n, c, noise)
    best = 1 / (1 + (d + 1) * np.sum(rows(n, c) ** 2) / n**2 + noise**2 / n)
    a = optimum(np.eye(d), length, label_noise=added)
    np.testing.assert_allclose(a, best * np.eye(d), rtol=1e-10, atol=1e-12)
    found = risk(a, test_length=length, covariance=np.eye(d), label_noise=added)
    assert found / d == pytest.approx(1 - best, rel=1e-10)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda: effective_length(0, 0.5), "context_length"),
        (lambda: effective_length(5, 1.5), "correlation must be a number from -1 to 1, got 1.5"),
        (lambda: effective_noise(5, 0.5, -1.0), "label_noise"),
        (lambda: correlation_of(5, 6.0), "effective must be from 1 to N = 5, got 6.0"),
    ],
)
def test_refused(wrong, named):
    with pytest.raises(ValueError, match=named):
        wrong()
