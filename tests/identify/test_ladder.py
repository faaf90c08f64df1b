"""The probes of identify, and the rules by which one fit is named rather than another."""

import numpy as np
import pytest
from stranger_learners import descent

from icl_lab.identify import FAMILIES, decision, identify
from icl_lab.identify.fitting import Fit, free_filter
from icl_lab.identify.probes import FIT, JUDGE, battery, inputs_with, rotations, spectrum
from icl_lab.prompts import linear_regression

N, D = 8, 3
SIZES = {"context_length": N, "input_size": D}
SAMPLER = linear_regression(**SIZES, input_range=2.0)
UNIT = 1 / 3  # mean eigenvalue: the variance of U(-1, 1)


@pytest.mark.parametrize("size", [1, 3, 5, 8])
def test_the_mean_over_rotations_leaves_of_a_matrix_a_multiple_of_the_identity(size):
    draw = np.random.default_rng(0).normal(size=(size, size))
    for half in rotations(np.random.default_rng(1), size):
        np.testing.assert_allclose(half @ half.swapaxes(1, 2), np.broadcast_to(np.eye(size), half.shape), atol=1e-12)
        mean = (half.swapaxes(1, 2) @ (draw + draw.T) @ half).mean(0)
        np.testing.assert_allclose(mean, 2 * np.trace(draw) / size * np.eye(size), atol=1e-12)


def test_probes_have_the_spectrum_that_they_are_given():
    rng, values = np.random.default_rng(0), np.array([[0.2, 1.0, 2.5]])
    q, v = (np.linalg.qr(rng.normal(size=(1, size, 3)))[0] for size in (N, D))
    x = inputs_with(values, q, v)
    np.testing.assert_allclose(np.linalg.eigvalsh(x[0].T @ x[0] / N), values[0], rtol=1e-10)


def test_the_free_filter_follows_any_smooth_filter():
    _, on, _ = battery(SAMPLER, N, D, 0)
    seen = spectrum(on.x, on.y, on.q)
    target = (seen.weights @ np.sqrt(seen.eigenvalues)[..., None])[..., 0]
    assert np.median(free_filter(seen, target, FIT, JUDGE)) < 1e-3


def fit_of(name, residual, own=False, steps=None, on_raw=None, shift=0.0):
    """A fit of that residual; its predictions differ from those of others by ``shift``."""
    model = next(m for m in FAMILIES[name].models if m.own == own and (steps is None or m.steps == steps))
    predictions, theta = np.full((10, 4), 1.0 + shift), np.full(model.size, 0.1)
    raw = residual if on_raw is None else on_raw
    return Fit(model, theta, residual, residual, predictions, np.full(10, residual), raw, FAMILIES[name].raw)


def names(fits, noise=0.0):
    return [fit.model.family for fit in decision.remaining(fits, noise)]


def test_a_larger_model_replaces_a_smaller_one_only_by_a_tenth_and_by_two_thousandths():
    assert names([fit_of("GD", 0.010, steps=2), fit_of("heavy ball", 0.0085, steps=2)]) == ["GD"]
    assert names([fit_of("GD", 0.040, steps=2), fit_of("heavy ball", 0.037, steps=2)]) == ["GD"]
    assert names([fit_of("GD", 0.010, steps=2), fit_of("heavy ball", 0.007, steps=2)]) == ["heavy ball"]


def test_free_gd_plus_plus_is_not_named_against_a_smaller_model_that_is_close():
    flexible = fit_of("GD++", 0.0001, own=True, steps=4)
    assert names([fit_of("ridge", 0.009), flexible]) == ["ridge"]
    assert names([fit_of("ridge", 0.03), flexible]) == ["GD++"]
    assert names([fit_of("ridge", 0.03), flexible], noise=0.02) == ["ridge"]


def test_nothing_above_five_percent_is_named():
    assert names([fit_of("ridge", 0.051)]) == []


def test_unequal_fits_that_are_equally_good_are_two_classes():
    a, b = fit_of("ridge", 0.0100), fit_of("gradient flow", 0.0105, shift=0.05)
    assert len(decision.classes(decision.remaining([a, b], 0.0))) == 2
    same = fit_of("gradient flow", 0.0105, shift=0.005)
    assert len(decision.classes(decision.remaining([a, same], 0.0))) == 1


def test_a_family_of_the_basis_is_named_only_where_symmetric_ones_miss_the_learner():
    gd, power = fit_of("GD", 0.001, steps=1, on_raw=0.05), fit_of("preconditioned GD", 0.0)
    assert names([gd, power]) == ["GD"]
    gd = fit_of("GD", 0.001, steps=1, on_raw=0.10)
    assert names([gd, power]) == ["preconditioned GD"]


@pytest.mark.parametrize("size", [3, 5, 10])
def test_chance_is_how_much_of_random_couplings_no_symmetric_matrix_fits(size):
    couplings = np.random.default_rng(0).normal(size=(20_000, size, size))
    couplings -= np.trace(couplings, axis1=1, axis2=2)[:, None, None] / size * np.eye(size)
    antisymmetric = (couplings - couplings.swapaxes(1, 2)) / 2
    share = np.linalg.norm(antisymmetric, axis=(1, 2)) / np.linalg.norm(couplings, axis=(1, 2))
    below = (share < decision.by_chance(size * (size + 1) // 2)).mean()
    assert below == pytest.approx(decision.CHANCE, abs=4 * (decision.CHANCE / 20_000) ** 0.5)


def test_a_mild_preconditioner_is_not_called_gd_and_couplings_as_large_are():
    """Both 4 % from a multiple of the identity; one is symmetric, the other is any matrix, as training leaves it."""
    size = 5
    drawn = np.random.default_rng(3).normal(size=(size, size))
    drawn -= np.trace(drawn) / size * np.eye(size)
    symmetric = (drawn + drawn.T) / 2
    matrices = [0.6 / UNIT * (np.eye(size) + 0.04 * size**0.5 * m / np.linalg.norm(m)) for m in (symmetric, drawn)]
    sampler = linear_regression(context_length=N, input_size=size, input_range=2.0)
    found = identify([descent([1.0], m) for m in matrices], context_length=N, input_size=size, sampler=sampler)
    mild, coupled = found.members
    assert 0.03 < mild.asymmetry < decision.LEFT
    assert mild.family == "preconditioned GD"
    assert mild.residual < 1e-3
    assert coupled.family == "GD"


def test_gd_plus_plus_with_a_large_rate_is_said_to_be_gradient_descent_too():
    fit = fit_of("GD++", 0.0, steps=2)
    small, large = (Fit(fit.model, np.array([rate, 0.1]), *list(vars(fit).values())[2:]) for rate in (0.6, 0.7))
    assert small.model.also(small.theta) == ()
    assert large.model.also(large.theta) == ("GD",)
    assert decision.named([[small], [large]]) == [{"GD++"}, {"GD++", "GD"}]


def test_the_ladder_holds_the_smallest_model_within_each_bound():
    fits = [fit_of("GD", 0.07, steps=2), fit_of("heavy ball", 0.015, steps=2), fit_of("GD++", 0.001, own=True, steps=3)]
    expected = {0.10: "GD, 2 steps", 0.05: "heavy ball, 2 steps", 0.01: "GD++, 3 steps of their own"}
    assert expected.items() <= decision.ladder(fits).items()
