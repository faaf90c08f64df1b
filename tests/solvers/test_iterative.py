"""Each iteration against a plain loop in numpy, and the equivalences that identification rests on; in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from linear_tasks import a_prompt

from icl_lab.prompts import Prompt
from icl_lab.solvers import (
    chebyshev,
    conjugate_gradients,
    gd_plus_plus,
    gradient_descent,
    gradient_flow,
    heavy_ball,
    least_squares,
    nesterov,
    newton,
    preconditioned_gradient_descent,
)

N, D, OUTPUTS = 9, 4, 2


@pytest.fixture
def prompt(x64):
    return a_prompt(0, N, D, OUTPUTS)


def moments(prompt):
    x, y = np.asarray(prompt.x), np.asarray(prompt.y)
    return x.T @ x / N, x.T @ y / N


def close(learner, prompt, w):
    np.testing.assert_allclose(learner(prompt), np.asarray(prompt.x_query) @ w, rtol=1e-9)


def test_nesterov_looks_ahead(prompt):
    s, b = moments(prompt)
    before, w = np.zeros((D, OUTPUTS)), np.zeros((D, OUTPUTS))
    for _ in range(5):
        ahead = w + 0.3 * (w - before)
        before, w = w, ahead - 0.2 * (s @ ahead - b)
    close(nesterov(0.2, 0.3, 5), prompt, w)
    np.testing.assert_allclose(nesterov(0.2, 0.0, 5)(prompt), gradient_descent(0.2, 5)(prompt), rtol=1e-12)
    assert not np.allclose(nesterov(0.2, 0.3, 5)(prompt), heavy_ball(0.2, 0.3, 5)(prompt), rtol=1e-3)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_chebyshev_is_gradient_descent_with_the_roots_of_the_chebyshev_polynomial(prompt, steps):
    low, high = 0.2, 3.0
    nodes = np.cos((2 * np.arange(steps) + 1) * np.pi / (2 * steps))
    roots = (high + low) / 2 + (high - low) / 2 * nodes
    np.testing.assert_allclose(chebyshev(low, high, steps)(prompt), gradient_descent(1 / roots)(prompt), rtol=1e-9)


@pytest.mark.parametrize("of", ["identity", "covariance"])
@pytest.mark.parametrize("normalised", [False, True])
def test_newton_follows_its_residual_factor(prompt, of, normalised):
    s, b = moments(prompt)
    values, vectors = np.linalg.eigh(s)
    unit = values[-1] if normalised else 1.0
    seen = values / unit if of == "identity" else (values / unit) ** 2
    h = (1 - (1 - 0.4 * seen) ** 8) / values
    close(newton(0.4, 3, of=of, normalised=normalised), prompt, vectors @ np.diag(h) @ vectors.T @ b)


def test_newton_from_the_identity_is_gradient_descent_with_two_to_the_k_steps(prompt):
    np.testing.assert_allclose(newton(0.3, 3)(prompt), gradient_descent(0.3, 8)(prompt), rtol=1e-10)


def test_conjugate_gradients_minimise_over_the_krylov_space(prompt):
    s, b = moments(prompt)
    for steps in (1, 2, 3):
        w = np.zeros((D, OUTPUTS))
        for o in range(OUTPUTS):
            space = np.stack([np.linalg.matrix_power(s, k) @ b[:, o] for k in range(steps)], 1)
            w[:, o] = space @ np.linalg.solve(space.T @ s @ space, space.T @ b[:, o])
        close(conjugate_gradients(steps), prompt, w)
    np.testing.assert_allclose(conjugate_gradients(D + 3)(prompt), least_squares()(prompt), rtol=1e-6)


def test_conjugate_gradients_solved_early_have_the_gradient_of_least_squares():
    """One eigenvalue, one step: what the second step would do is nothing, and so would be its derivative."""
    draw = np.random.default_rng(0).normal
    orthogonal = np.tile([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]], (2, 1))
    at = tuple(jnp.asarray(v, jnp.float32) for v in (orthogonal, draw(size=(8, 1)), draw(size=4)))
    of = lambda learner: jax.grad(lambda x, y: learner(Prompt(x, y, at[2]))[0], (0, 1))(*at[:2])  # noqa: E731
    for found, expected in zip(of(conjugate_gradients(2)), of(least_squares())):
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(
    "learner", [newton(0.1, 30), newton(1.0, 40, of="covariance", normalised=True), gradient_flow(1e8)]
)
def test_with_fewer_examples_than_inputs_the_limit_is_the_smallest_solution_in_float32_too(learner):
    """A null space multiplies rounding by 2^K, or by t, unless the iteration is on X X^T."""
    draw = np.random.default_rng(0).normal
    few = Prompt(*(jnp.asarray(draw(size=shape), jnp.float32) for shape in ((5, 10), (5, 1), (10,))))
    np.testing.assert_allclose(learner(few), least_squares()(few), rtol=1e-3)


def test_few_examples_follow_the_same_residual_factor(x64):
    draw = np.random.default_rng(0).normal
    few = Prompt(*(jnp.asarray(draw(size=shape)) for shape in ((5, 10), (5, 1), (10,))))
    np.testing.assert_allclose(newton(0.05, 2)(few), gradient_descent(0.05, 4)(few), rtol=1e-10)
    coarse, fine = (gradient_descent(0.7 / k, k)(few) - gradient_flow(0.7)(few) for k in (40, 80))
    np.testing.assert_allclose(fine, coarse / 2, rtol=0.1)


def test_labels_or_inputs_of_zero_are_answered_by_zero_with_finite_gradients():
    x, q = jnp.ones((5, 3)), jnp.ones(3)
    gradient = jax.grad(lambda y: conjugate_gradients(3)(Prompt(x, y, q))[0])(jnp.zeros((5, 1)))
    assert jnp.isfinite(gradient).all()
    assert newton(1.0, 3, normalised=True)(Prompt(0 * x, jnp.ones((5, 1)), q)) == 0


def test_gradient_flow_is_gradient_descent_with_tiny_steps(prompt):
    s, b = moments(prompt)
    values, vectors = np.linalg.eigh(s)
    h = (1 - np.exp(-0.7 * values)) / values
    close(gradient_flow(0.7), prompt, vectors @ np.diag(h) @ vectors.T @ b)
    for eigenvalue in np.geomspace(1e-9, 1e-4, 11):  # where 1 - exp(-t l) over l is the first terms of its series
        near_zero = Prompt(jnp.sqrt(eigenvalue) * jnp.ones((1, 1)), jnp.ones((1, 1)), jnp.ones(1))
        exact = -np.expm1(-0.7 * eigenvalue) / np.sqrt(eigenvalue)
        np.testing.assert_allclose(gradient_flow(0.7)(near_zero), exact, rtol=1e-14)
    coarse, fine = (gradient_descent(0.7 / k, k)(prompt) - gradient_flow(0.7)(prompt) for k in (20, 40))
    np.testing.assert_allclose(fine, coarse / 2, rtol=0.1)  # Euler's method: the error falls like the step


def test_a_preconditioner_multiplies_the_gradient(prompt):
    s, b = moments(prompt)
    draw = np.random.default_rng(1).normal(size=(D, D))
    p, w = 0.1 * draw @ draw.T, np.zeros((D, OUTPUTS))
    for _ in range(3):
        w = w - p @ (s @ w - b)
    close(preconditioned_gradient_descent(jnp.asarray(p), 3), prompt, w)
    with pytest.raises(AssertionError, match="preconditioner"):
        preconditioned_gradient_descent(jnp.eye(D + 1), 1)(prompt)


def test_heavy_ball_with_two_steps_is_gradient_descent_with_two_positive_rates(prompt):
    eta, m = 0.3, 0.2  # r = 1 - (2 + m) eta l + eta^2 l^2: rates are the roots of z^2 - (2 + m) eta z + eta^2
    rates = np.roots([1, -(2 + m) * eta, eta**2])
    assert rates.min() > 0
    np.testing.assert_allclose(heavy_ball(eta, m, 2)(prompt), gradient_descent(rates)(prompt), rtol=1e-10)


def test_gd_plus_plus_with_two_shared_steps_and_large_rate_is_gradient_descent_with_four(prompt):
    """Roots of 1 - e l and of 1 - e l (1 - g l)^2; the second has three real ones where e is at least 27 g / 4."""
    g = 0.1
    e = 27 * g / 4 + 0.05
    roots = np.concatenate([[1 / e], np.roots([-e * g**2, 2 * e * g, -e, 1])])
    assert np.isreal(roots).all()
    assert roots.real.min() > 0
    expected = gd_plus_plus(e, g / N, 2)(prompt)
    np.testing.assert_allclose(gradient_descent(1 / roots.real)(prompt), expected, rtol=1e-8)


def test_one_step_is_one_algorithm(prompt):
    expected = gradient_descent(0.4, 1)(prompt)
    others = [nesterov(0.4, 0.5, 1), heavy_ball(0.4, 0.5, 1), gd_plus_plus(0.4, 0.3, 1), chebyshev(2.0, 3.0, 1)]
    for learner in others:
        np.testing.assert_allclose(learner(prompt), expected, rtol=1e-12)
