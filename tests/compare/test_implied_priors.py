"""Roll-outs of a learner's own predictions: exact ones of Bayes predictors, and what is refused."""

import jax
import numpy as np
import pytest

from experiments.diversity.implied_prior import dmmse, ridge
from icl_lab.compare import implied_prior
from icl_lab.prompts import gaussian_regression
from icl_lab.solvers import dmmse as posterior_mean
from icl_lab.solvers import ridge as solver

D, N, NOISE, KEY = 2, 6, 0.5, jax.random.key(3)
COVARIANCE = np.array([[1.0, 0.4], [0.4, 0.5]])
SAMPLER = gaussian_regression(context_length=N, covariance=COVARIANCE)
TASKS = np.array([[3.0, 0.0], [-1.0, 2.0], [0.0, -3.0]])


def bayes(prompts):
    return ridge(NOISE, False, prompts)


def silent(prompts):
    """Says nothing but noise: outputs are the noise of the roll-out itself."""
    return np.zeros((len(prompts.x), 1)), np.ones((len(prompts.x), 1))


def test_a_roll_out_of_ridge_is_a_cholesky_factor_times_the_same_noise():
    """Its densities multiply to N(0, X X^T + s^2 I), example by example: an identity, for every roll-out."""
    noise, found = implied_prior(silent, SAMPLER, KEY, 50), implied_prior(bayes, SAMPLER, KEY, 50)
    assert np.array_equal(noise.x, found.x)
    root = np.linalg.cholesky(found.x @ found.x.swapaxes(1, 2) + NOISE * np.eye(N))
    np.testing.assert_allclose(found.y, np.einsum("rst,rt->rs", root, noise.y), rtol=0, atol=1e-12)
    fitted = [np.linalg.lstsq(x, y, rcond=None)[0] for x, y in zip(found.x, found.y)]
    np.testing.assert_allclose(found.tasks, fitted, rtol=1e-9, atol=1e-12)


def test_their_tasks_have_the_prior_s_covariance_and_that_of_the_fits():
    """For correlated inputs too: I + s^2 Sigma^-1 / (n - D - 1); with another noise, or none, it is not so."""
    r = 100_000
    fitted = implied_prior(bayes, SAMPLER, KEY, r).tasks
    products = np.einsum("ri,rj->rij", fitted, fitted)
    wanted = np.eye(D) + NOISE * np.linalg.inv(COVARIANCE) / (N - D - 1)
    spread = products.std(axis=0) / np.sqrt(r)
    assert np.all(np.abs(products.mean(axis=0) - wanted) < 4.5 * spread)
    assert np.all(np.abs(np.diag(np.eye(D) - wanted)) > 10 * np.diag(spread))


@pytest.mark.parametrize("said", [0.0, NOISE])
def test_a_point_predictor_has_no_prior(said):
    """Variance 0 gives back the answer to nothing, and that of the noise alone far less than the prior."""
    found = implied_prior(lambda p: (ridge(NOISE, True, p)[0], np.full((len(p.x), 1), said)), SAMPLER, KEY, 4000)
    assert np.all(found.y == 0) if said == 0 else 0 < found.tasks.var() < 0.6 * (1 + NOISE / (N - D - 1))


def test_noise_alone_makes_a_narrower_prior_of_known_covariance():
    """The factor's columns are all of the noise's size then, whatever was predicted: an identity again."""
    noise, found = (implied_prior(one, SAMPLER, KEY, 50) for one in (silent, lambda p: ridge(NOISE, True, p)))
    root = np.linalg.cholesky(found.x @ found.x.swapaxes(1, 2) + NOISE * np.eye(N))
    unit = np.sqrt(NOISE) * root / np.diagonal(root, axis1=1, axis2=2)[:, None]
    np.testing.assert_allclose(found.y, np.einsum("rst,rt->rs", unit, noise.y), rtol=0, atol=1e-12)


def test_dmmse_takes_each_task_as_often_and_noise_alone_does_not():
    r = 20_000
    for alone, most in ((False, 4.5), (True, np.inf)):
        found = implied_prior(lambda p, alone=alone: dmmse(TASKS, 0.1, alone, p), SAMPLER, KEY, r)
        nearest = np.sum((found.tasks[:, None] - TASKS) ** 2, axis=2).argmin(axis=1)
        off = np.abs(np.bincount(nearest, minlength=3) / r - 1 / 3) / np.sqrt(2 / 9 / r)
        assert np.all(off < most)
    assert off.max() > 10


def test_predictions_are_those_of_the_solvers():
    prompts = SAMPLER(KEY, 20).prompt
    np.testing.assert_allclose(bayes(prompts)[0], jax.vmap(solver(NOISE))(prompts), atol=1e-4)
    means, variance, weights = dmmse(TASKS, NOISE, False, prompts)
    wanted = jax.vmap(posterior_mean(TASKS[:, :, None].astype(np.float32), NOISE))(prompts)
    np.testing.assert_allclose(np.sum(means * weights, 1, keepdims=True), wanted, atol=1e-4)
    np.testing.assert_allclose(dmmse(TASKS, NOISE, True, prompts)[0], wanted, atol=1e-4)
    assert np.all(variance == NOISE)


def test_a_mixture_draws_its_parts_by_their_weights():
    def two(prompts):
        b = len(prompts.x)
        return np.tile([-1.0, 5.0], (b, 1)), np.zeros((b, 2)), np.tile([0.25, 0.75], (b, 1))

    y = implied_prior(two, SAMPLER, KEY, 4000).y
    assert set(np.unique(y)) == {-1.0, 5.0}
    assert np.mean(y == 5) == pytest.approx(0.75, abs=4.5 * np.sqrt(3 / 16 / y.size))


def test_what_is_no_distribution_is_refused_with_the_number_of_examples_behind_which_it_was_said():
    with pytest.raises(ValueError, match="after 2 examples"):
        implied_prior(lambda p: (np.full((7, 1), np.inf if p.x.shape[1] == 2 else 0), np.ones((7, 1))), SAMPLER, KEY, 7)
