"""Median and Huber regression against linear programmes, least squares and each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

from icl_lab.prompts import Prompt
from icl_lab.solvers import huber_regression, least_squares, median_regression

MEDIAN, LEAST_SQUARES = (jax.jit(jax.vmap(learner)) for learner in (median_regression(), least_squares()))
HUBER = jax.jit(jax.vmap(lambda prompt, k: huber_regression(k)(prompt), (0, None)))


def prompts(n=20, d=5, count=30, noise=0.5):
    """Prompts whose noise has heavy tails, the query's true label, in the precision that is on; and (B,) w.x_q."""
    rng = np.random.default_rng(n * d)
    x, q, w = rng.normal(size=(count, n, d)), rng.normal(size=(count, d)), rng.normal(size=(count, d)) / d**0.5
    y = np.einsum("cnd,cd->cn", x, w) + noise * rng.standard_t(2, size=(count, n))
    return Prompt(jnp.asarray(x), jnp.asarray(y)[..., None], jnp.asarray(q)), (w * q).sum(1)


def programme(x, y):
    n, d = x.shape
    of = np.concatenate([x, -x, np.eye(n), -np.eye(n)], 1)
    cost = np.concatenate([np.zeros(2 * d), np.ones(2 * n)])
    found = linprog(cost, A_eq=of, b_eq=y, bounds=(0, None), method="highs").x
    return found[:d] - found[d : 2 * d]


@pytest.mark.parametrize(("n", "d"), [(20, 5), (40, 10)])
def test_median_regression_is_the_linear_programme(n, d):
    with jax.enable_x64(True):
        prompt, _ = prompts(n, d)
        found = MEDIAN(prompt)[:, 0]
    expected = np.stack([programme(*pair) for pair in zip(np.asarray(prompt.x), np.asarray(prompt.y)[..., 0])])
    expected = (expected * np.asarray(prompt.x_query)).sum(1)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7)
    assert np.quantile(np.abs(MEDIAN(prompts(n, d)[0])[:, 0] - expected), 0.9) < 1e-3


def test_huber_regression_is_where_its_gradient_is_zero(x64):
    prompt, _ = prompts()
    for k in (0.02, 0.3, 2.0):
        at = [Prompt(prompt.x, prompt.y, jnp.tile(q, (30, 1))) for q in jnp.eye(5)]
        w = jnp.stack([HUBER(one, k)[:, 0] for one in at], 1)
        slope = jnp.einsum(
            "bnd,bn->bd", prompt.x, jnp.clip(prompt.y[..., 0] - (prompt.x @ w[..., None])[..., 0], -k, k)
        )
        np.testing.assert_allclose(slope, 0, atol=1e-5)


def test_huber_regression_lies_between_the_median_and_least_squares(x64):
    prompt, _ = prompts()
    most, least = HUBER(prompt, 1e3), HUBER(prompt, 1e-6)
    np.testing.assert_allclose(most, LEAST_SQUARES(prompt), atol=1e-8)
    np.testing.assert_allclose(least, MEDIAN(prompt), atol=1e-4)
    assert np.abs(most - least).max() > 0.1


@pytest.mark.parametrize("double", [False, True])
def test_one_label_far_off_among_exact_ones_changes_nothing(double):
    with jax.enable_x64(double):
        prompt, right = prompts(noise=0.0)
        off = Prompt(prompt.x, prompt.y.at[:, 3].add(1000.0), prompt.x_query)
        np.testing.assert_allclose(MEDIAN(off)[:, 0], right, atol=1e-7 if double else 0.02)
        assert np.abs(LEAST_SQUARES(off)[:, 0] - right).max() > 10


@pytest.mark.parametrize(("n", "d"), [(1, 4), (3, 4), (4, 4)])
def test_with_no_more_examples_than_inputs_every_label_is_met_by_the_smallest_task(x64, n, d):
    prompt, _ = prompts(n, d)
    for found in (MEDIAN(prompt), HUBER(prompt, 0.1)):
        np.testing.assert_allclose(found, LEAST_SQUARES(prompt), rtol=1e-6, atol=1e-8)


def test_contexts_that_determine_nothing_leave_predictions_finite():
    prompt, _ = prompts()
    for still in (Prompt(prompt.x, 0 * prompt.y, prompt.x_query), Prompt(0 * prompt.x, prompt.y, prompt.x_query)):
        np.testing.assert_allclose(MEDIAN(still), 0, atol=1e-5)
    assert np.isfinite(HUBER(Prompt(jnp.repeat(prompt.x[..., :1], 5, 2), prompt.y, prompt.x_query), 0.3)).all()
