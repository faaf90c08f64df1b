"""Every solver, value and gradient: float32 in any units against float64, and float64 against finite differences.

Where inputs are c times and labels k times as large, and the parameters are converted, predictions are k times those at
unit scale, gradients in the labels the same and gradients in the inputs k/c times.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from accelerators import calls_of_lapack

from icl_lab import solvers
from icl_lab.prompts import Prompt

TASKS = np.random.default_rng(5).normal(size=(3, 8, 2))
MATRIX = 0.3 * np.eye(8) + 0.05 * np.cos(np.arange(64.0)).reshape(8, 8)


def tasks(p, u):
    return jnp.asarray(TASKS[:, : p.x.shape[1], : p.y.shape[1]], p.x.dtype) * u[1] / u[0]


def matrix(p, u):
    d = p.x.shape[1]
    return jnp.asarray(MATRIX[:d, :d], p.x.dtype) / u[0] ** 2


SOLVERS = {
    "lasso": lambda p, u: solvers.lasso(0.1 * u[0] * u[1]),
    "nearest_neighbours": lambda p, u: solvers.nearest_neighbours(2),
    "gradient_descent": lambda p, u: solvers.gradient_descent(0.3 / u[0] ** 2, 3),
    "gd_plus_plus": lambda p, u: solvers.gd_plus_plus(0.3 / u[0] ** 2, 0.01 / u[0] ** 2, 3),
    "heavy_ball": lambda p, u: solvers.heavy_ball(0.3 / u[0] ** 2, 0.4, 3),
    "nesterov": lambda p, u: solvers.nesterov(0.3 / u[0] ** 2, 0.4, 3),
    "chebyshev": lambda p, u: solvers.chebyshev(0.3 * u[0] ** 2, 3.0 * u[0] ** 2, 3),
    "newton": lambda p, u: solvers.newton(0.3 / u[0] ** 2, 3),
    "newton of covariance": lambda p, u: solvers.newton(0.1 / u[0] ** 4, 3, of="covariance"),
    "newton normalised": lambda p, u: solvers.newton(1.0, 4, of="covariance", normalised=True),
    "conjugate_gradients 2": lambda p, u: solvers.conjugate_gradients(2),
    "conjugate_gradients 5": lambda p, u: solvers.conjugate_gradients(5),
    "gradient_flow": lambda p, u: solvers.gradient_flow(0.8 / u[0] ** 2),
    "preconditioned": lambda p, u: solvers.preconditioned_gradient_descent(matrix(p, u), 2),
    "functional": lambda p, u: solvers.functional_gradient_descent(lambda a, b: a @ b, 0.3 / u[0] ** 2, 2),
    "ridge": lambda p, u: solvers.ridge(0.5 * u[0] ** 2),
    "least_squares": lambda p, u: solvers.least_squares(),
    "noise_adaptive_ridge": lambda p, u: solvers.noise_adaptive_ridge(
        jnp.asarray([0.1, 1.0, 10.0], u.dtype) * u[0] ** 2
    ),
    "dmmse": lambda p, u: solvers.dmmse(tasks(p, u), 10.0 * u[1] ** 2),
    "dmmse_or_ridge": lambda p, u: solvers.dmmse_or_ridge(tasks(p, u), 10.0 * u[1] ** 2, 0.5 * u[0] ** 2),
    "softmax_regression": lambda p, u: solvers.softmax_regression(0.7 / u[0] ** 2),
    "gaussian_smoothing": lambda p, u: solvers.gaussian_smoothing(1.5 * u[0]),
    "lms": lambda p, u: solvers.lms(0.2 / u[0] ** 2),
    "lms normalised": lambda p, u: solvers.lms(0.7, normalised=True),
    "recursive_least_squares": lambda p, u: solvers.recursive_least_squares(0.5 * u[0] ** 2, 0.9),
    "with_intercept": lambda p, u: solvers.with_intercept(solvers.ridge(0.5 * u[0] ** 2)),
    "weighted_ridge": lambda p, u: solvers.weighted_ridge(0.5 * u[0] ** 2, 1.5, -2.0),
    "leaky_lms": lambda p, u: solvers.leaky_lms(0.2 / u[0] ** 2, 0.1),
    "trace_normalised_gradient_descent": lambda p, u: solvers.trace_normalised_gradient_descent(0.3, 3),
    "median_regression": lambda p, u: solvers.median_regression(),
    "huber_regression": lambda p, u: solvers.huber_regression(0.3 * u[1]),
    "centred": lambda p, u: solvers.centred(solvers.gradient_descent(0.3 / u[0] ** 2, 2), add_mean=True),
    "logistic_gradient_descent": lambda p, u: solvers.logistic_gradient_descent(0.8 / u[0] ** 2, 3),
    "logistic_map": lambda p, u: solvers.logistic_map(2.0 / u[0], 16),
    "logistic_bayes": lambda p, u: solvers.logistic_bayes(jax.random.key(0), 2.0 / u[0], 2000),
}

# columns whose second moments are 1, 1, 4 and 4
TIES = np.tile([[1, 1, 2, 2], [1, -1, 2, -2], [1, 1, -2, -2], [1, -1, -2, 2]], (2, 1))
KINDS = {"generic": (8, 4, 2), "ties": (8, 4, 2), "few examples": (3, 5, 2), "one of each": (1, 1, 1)}
UNITS = np.array([(c, k) for c in (1.0, 1e-6, 1e6) for k in (1.0, 1e-6, 1e6)])
ROUNDING = 3e-5
"""In units of the largest entry, at least 1: 250 roundings of float32, for condition numbers up to about 30."""
UNTIED = {"newton normalised", "median_regression", "huber_regression"}
"""A double largest eigenvalue has no derivative, and two labels of one input leave a range of medians."""
BOUNDS = {"logistic_bayes": 0.1}  # Monte Carlo, with other draws in the other precision: 1/sqrt(500) and some


def drawn(name, kind):
    """Inputs, labels and query in float64, and a direction to move each in."""
    (n, d, o), draw = KINDS[kind], np.random.default_rng(3).normal
    at, directions = ([draw(size=shape) for shape in ((n, d), (n, o), (d,))] for _ in range(2))
    at[0] = TIES if kind == "ties" else at[0]
    at[1] = np.sign(at[1]) if name.startswith("logistic") else at[1]
    return at, directions


@functools.cache
def program(name):
    """``(x, y, query, (U, 2) units) -> (predictions, gradients of their weighted sum in x, y and query)``."""

    def one(x, y, query, units):
        def summed(*prompt):
            found = SOLVERS[name](Prompt(*prompt), units)(Prompt(*prompt))
            return found @ jnp.linspace(1, 2, len(found), dtype=found.dtype), found

        y = y if name.startswith("logistic") else y * units[1]
        gradients, found = jax.grad(summed, (0, 1, 2), has_aux=True)(x * units[0], y, query * units[0])
        return found, *gradients

    return jax.jit(jax.vmap(one, (None, None, None, 0)))


def computed(name, at, units):
    return [np.asarray(value, np.float64) for value in program(name)(*map(jnp.asarray, at), jnp.asarray(units))]


@pytest.mark.parametrize("name", SOLVERS)
def test_values_and_gradients_are_right_in_any_units_and_at_ties(name):
    bound, logistic = BOUNDS.get(name, ROUNDING), name.startswith("logistic")
    units = UNITS[::3] if logistic else UNITS  # labels of -1 and +1 have no unit
    c, k = units.T
    for kind in KINDS:
        if kind == "ties" and name in UNTIED:
            continue
        at, directions = drawn(name, kind)
        with jax.enable_x64(True):
            exact = [value[0] for value in computed(name, at, UNITS[:1])]
            weights, slopes = np.linspace(1, 2, len(exact[0])), []
            for i in range(3):
                moved = [
                    [v + (j == i) * h * e for j, (v, e) in enumerate(zip(at, directions))]
                    for h in (-2e-4, -1e-4, 1e-4, 2e-4)
                ]
                values = [computed(name, one, UNITS[:1])[0][0] @ weights for one in moved]
                slopes.append(np.dot([1, -8, 8, -1], values) / 12e-4)  # the error is of fourth order
        for slope, gradient, direction in zip(slopes, exact[1:], directions):
            limit = 1e-7 * max(np.abs(gradient).max(), 1)
            np.testing.assert_allclose(np.sum(gradient * direction), slope, rtol=0, atol=limit, err_msg=kind)
        found = computed(name, [v.astype(np.float32) for v in at], units.astype(np.float32))
        for value, scale, right in zip(found, (k, k / c, np.ones_like(k), k / c), exact):
            value = value / scale.reshape(-1, *[1] * right.ndim)
            np.testing.assert_allclose(
                value,
                np.broadcast_to(right, value.shape),
                rtol=0,
                atol=bound * max(np.abs(right).max(), 1),
                err_msg=kind,
            )


@pytest.mark.parametrize("name", SOLVERS)
def test_neither_a_solver_nor_its_derivative_asks_lapack(name):
    """Batches that LAPACK decomposes side by side may never end (``icl_lab.matrices``)."""
    at = [np.float32(part) for part in drawn(name, "generic")[0]]
    assert calls_of_lapack(program(name), *at, np.float32(UNITS)) == 0
    assert calls_of_lapack(jnp.linalg.pinv, at[0]) > 0  # so the count sees it


ORDERED = {"lms", "lms normalised", "recursive_least_squares", "weighted_ridge", "leaky_lms"}


@pytest.mark.parametrize("name", SOLVERS)
def test_examples_have_no_order_labels_have_a_sign_and_prompts_are_mapped_over(name):
    (x, y, query), order, mixed = drawn(name, "generic")[0], np.random.default_rng(0).permutation(8), "dmmse" in name
    with jax.enable_x64(True):
        parts = (np.stack([x, x[order], x]), np.stack([y, y[order], -y]), np.stack([query] * 3))
        plain, shuffled, turned = jax.vmap(lambda *p: SOLVERS[name](Prompt(*p), jnp.ones(2))(Prompt(*p)))(*parts)
    assert plain.shape == (2,)
    assert np.allclose(shuffled, plain, rtol=1e-8) == (name not in ORDERED)
    assert np.allclose(turned, -plain, rtol=1e-8) != mixed  # a set of tasks has no sign


@pytest.mark.parametrize("name", SOLVERS)
def test_without_examples_the_prediction_is_zero_or_the_mean_of_the_tasks_that_there_are(name):
    nothing = Prompt(x=jnp.ones((0, 2)), y=jnp.ones((0, 1)), x_query=jnp.ones(2))
    mean = {"dmmse": 1.0, "dmmse_or_ridge": 0.5}.get(name, 0.0) * TASKS[:, :2, :1].mean(0).sum()
    found = SOLVERS[name](nothing, jnp.ones(2))(nothing)
    np.testing.assert_allclose(found, [mean], rtol=1e-5)
