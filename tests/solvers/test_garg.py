"""The solvers of Garg et al. 2022 that are no other's: nearest neighbours, averaging, the lasso."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import Lasso

from icl_lab.prompts import Prompt
from icl_lab.solvers import averaging, lasso, nearest_neighbours


def drawn(n, d, o=1, seed=0):
    draw = np.random.default_rng(seed).normal
    return draw(size=(n, d)), draw(size=(n, o)), draw(size=d)


@pytest.mark.parametrize(("n", "d"), [(12, 4), (3, 5)])
@pytest.mark.parametrize("strength", [0.02, 0.3])
def test_the_lasso_is_that_of_scikit_learn(n, d, strength, x64):
    x, y, query = drawn(n, d, 2)
    found = jax.jit(lasso(strength, sweeps=2000))(Prompt(*map(jnp.asarray, (x, y, query))))
    expected = Lasso(alpha=strength, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(x, y).predict(query[None])
    np.testing.assert_allclose(found, expected[0], atol=1e-7)


def test_enough_penalty_makes_every_weight_zero_and_no_feature_is_no_weight(x64):
    x, y, query = drawn(6, 3)
    at = np.abs(x.T @ y / 6).max()
    prompt = Prompt(*map(jnp.asarray, (x, y, query)))
    assert lasso(1.001 * at)(prompt) == 0 != lasso(0.999 * at)(prompt)
    assert np.isfinite(lasso(0.01)(prompt.replace(x=prompt.x.at[:, 1].set(0)))).all()


def test_neighbours_are_the_nearest_and_all_where_there_are_fewer():
    x, y, query = drawn(7, 3, 2)
    nearest = np.argsort(np.linalg.norm(x - query, axis=1))
    prompt = Prompt(*(jnp.asarray(part, jnp.float32) for part in (x, y, query)))
    for count, used in ((1, 1), (3, 3), (20, 7)):
        np.testing.assert_allclose(nearest_neighbours(count)(prompt), y[nearest[:used]].mean(0), rtol=1e-5)


def test_averaging_is_the_mean_of_labels_times_inputs():
    x, y, query = drawn(7, 3, 2)
    prompt = Prompt(*(jnp.asarray(part, jnp.float32) for part in (x, y, query)))
    np.testing.assert_allclose(averaging()(prompt), (y[:, None] * x[..., None]).mean(0).T @ query, rtol=1e-5)
