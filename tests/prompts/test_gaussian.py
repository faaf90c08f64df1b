import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icl_lab.prompts import VARIANCE_LAWS, gaussian_regression, random_covariance_regression

KEY = jax.random.key(11)
SIGMAS = 4.5  # standard errors; some fifty correlated comparisons each
BATCH = 20_000
TURN = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
COVARIANCE = TURN @ np.diag([2.0, 0.5, 0.1]) @ TURN.T
QUERY = TURN.T @ np.diag([1.0, 0.0, 3.0]) @ TURN  # singular: allowed
MOMENT = np.diag([4.0, 1.0, 0.25])
MOMENTS = {  # E lambda, E lambda^2, E lambda^4 of the laws below at scale 1
    "exponential": (1, 2, 24),
    "gamma": (2, 6, 120),  # shape 2
    "uniform": (1 / 2, 1 / 3, 1 / 5),
    "lognormal": tuple(np.exp(0.3**2 * k**2 / 2) for k in (1, 2, 4)),  # shape .3
    "constant": (1, 1, 1),
}
SCALES = np.array([2.5, 0.4])  # of the two coordinates' variances
SHAPES = {"gamma": 2.0, "lognormal": 0.3}


def arrays(sample):
    """Context and query (B, N + 1, D), labels and target (B, N + 1), float64."""
    x = np.concatenate([sample.prompt.x, sample.prompt.x_query[:, None]], axis=1, dtype=np.float64)
    return x, np.concatenate([sample.prompt.y[..., 0], sample.target], axis=1, dtype=np.float64)


@functools.cache
def drawn():
    sampler = gaussian_regression(
        context_length=3, covariance=COVARIANCE, query_covariance=QUERY, task_moment=MOMENT, label_noise=0.5
    )
    return jax.jit(sampler, static_argnums=1)(KEY, BATCH)


def assert_gaussian(values, covariance):
    """Zero mean and this covariance, of (B, D) Gaussian rows."""
    variance = np.diag(covariance)
    spread = np.sqrt((np.outer(variance, variance) + covariance**2) / len(values))  # of z_i z_j (Isserlis)
    assert (np.abs(values.T @ values / len(values) - covariance) <= SIGMAS * spread + 1e-6).all()
    assert (np.abs(values.mean(0)) <= SIGMAS * np.sqrt(variance / len(values)) + 1e-6).all()
    fourth = (values**4).mean(0)
    assert (np.abs(fourth - 3 * variance**2) <= SIGMAS * np.sqrt(96 / len(values)) * variance**2 + 1e-6).all()


def test_all_inputs_and_tasks_have_their_covariance():
    (x, _), w = arrays(drawn()), np.asarray(drawn().latent["w"], np.float64)[..., 0]
    everything = np.concatenate([x.reshape(BATCH, -1), w], axis=1)
    expected = np.zeros((15, 15))  # no correlation between points, nor of a point with the task
    for i, block in enumerate((COVARIANCE, COVARIANCE, COVARIANCE, QUERY, MOMENT)):
        expected[3 * i : 3 * i + 3, 3 * i : 3 * i + 3] = block
    assert_gaussian(everything, expected)


def test_labels_are_those_of_the_task_and_only_the_context_is_noisy():
    (x, y), w = arrays(drawn()), np.asarray(drawn().latent["w"], np.float64)[..., 0]
    noise = y - np.einsum("bnd,bd->bn", x, w)
    assert np.abs(noise[:, -1]).max() < 1e-5 * np.abs(y).max()
    assert_gaussian(np.concatenate([noise[:, :-1], x[:, 0], w], axis=1)[:, :3], 0.25 * np.eye(3))
    assert np.abs(np.corrcoef(noise[:, 0], y[:, -1])[0, 1]) < SIGMAS / BATCH**0.5


def test_one_task_or_one_function_for_all():
    law = {"context_length": 4, "covariance": COVARIANCE}
    with jax.disable_jit():  # operation by operation, so that both round alike
        sample = gaussian_regression(task=np.array([1.0, -2.0, 0.5]), **law)(KEY, 70)
        bent = gaussian_regression(labels=lambda v: v[..., 0] ** 2 + jnp.sin(v[..., 2]), **law)(KEY, 70)
    x, y = arrays(sample)
    np.testing.assert_allclose(y, x @ [1.0, -2.0, 0.5], atol=1e-5)
    np.testing.assert_array_equal(sample.latent["w"], np.broadcast_to([[1.0], [-2.0], [0.5]], (70, 3, 1)))
    again, y = arrays(bent)
    np.testing.assert_array_equal(again, x)
    np.testing.assert_allclose(y, x[..., 0] ** 2 + np.sin(x[..., 2]), atol=1e-5)
    assert not bent.latent


def test_a_diagonal_is_a_matrix_and_may_be_traced():
    def draw(covariance):
        return gaussian_regression(context_length=2, covariance=covariance, query_covariance=covariance)(KEY, 70)

    for matrix in (np.diag([2.0, 0.0, 1.0]), COVARIANCE):
        for a, b in zip(jax.tree.leaves(draw(matrix)), jax.tree.leaves(jax.jit(draw)(jnp.asarray(matrix)))):
            np.testing.assert_allclose(a, b, atol=2e-5)


@pytest.mark.parametrize("law", VARIANCE_LAWS)
def test_variances_follow_their_law(law):
    sampler = random_covariance_regression(
        context_length=3, input_size=2, law=law, shape=SHAPES.get(law, 1.0), scale=SCALES
    )
    sample = jax.jit(sampler, static_argnums=1)(KEY, BATCH)
    lam, w = np.asarray(sample.latent["variances"], np.float64), np.asarray(sample.latent["w"], np.float64)[..., 0]
    first, second, fourth = (m * SCALES**k for m, k in zip(MOMENTS[law], (1, 2, 4)))
    assert (lam >= 0).all()
    assert (np.abs(lam.mean(0) - first) <= SIGMAS * np.sqrt(np.maximum(second - first**2, 0) / BATCH) + 1e-6).all()
    assert (
        np.abs((lam**2).mean(0) - second) <= SIGMAS * np.sqrt(np.maximum(fourth - second**2, 0) / BATCH) + 1e-5
    ).all()
    x, y = arrays(sample)
    normal = x / np.sqrt(lam)[:, None]
    assert_gaussian(np.concatenate([normal.reshape(BATCH, -1), w], axis=1), np.eye(10))
    columns = np.concatenate([np.abs(normal[:, 0]), np.abs(normal[:, -1]), w, lam if law != "constant" else w], axis=1)
    independent = np.corrcoef(columns[:, : 6 if law == "constant" else 8], rowvar=False)
    assert np.abs(independent - np.eye(len(independent))).max() < SIGMAS / BATCH**0.5
    np.testing.assert_allclose(y, np.einsum("bnd,bd->bn", x, w), atol=1e-5 * np.abs(y).max())


def test_rounding_off_the_diagonal_does_not_make_a_covariance_asymmetric():
    almost = np.array([[1.0, 1e-9], [-1e-9, 2.0]])  # as of a product Q diag(l) Q^T
    drawn, exact = (
        gaussian_regression(context_length=3, covariance=given)(jax.random.key(0), 2).prompt.x
        for given in (almost, np.diag([1.0, 2.0]))
    )
    np.testing.assert_allclose(drawn, exact, atol=1e-6)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"context_length": 0}, "context_length must be a whole number of at least 1, got 0"),
        ({"covariance": np.ones(3)}, r"covariance must be a \(D, D\) matrix.*got shape \(3,\)"),
        ({"covariance": np.ones((2, 3))}, r"covariance must be a square matrix of size 2, got shape \(2, 3\)"),
        ({"covariance": [[1.0, 0.5], [0.2, 1.0]]}, "covariance must be symmetric"),
        ({"covariance": [[1.0, 2.0], [2.0, 1.0]]}, "covariance must be positive semidefinite.*-1"),
        ({"covariance": [[np.nan, 0.0], [0.0, 1.0]]}, "covariance must be symmetric"),
        ({"query_covariance": -np.eye(2)}, "query_covariance must be positive semidefinite"),
        ({"task_moment": np.eye(3)}, "task_moment must be a square matrix of size 2"),
        ({"task": np.ones(3)}, r"task must have shape \(2,\) as the covariance, got \(3,\)"),
        ({"label_noise": np.float32(-1)}, "label_noise must be at least 0, got -1.0"),
        ({"label_noise": np.inf}, "label_noise must be at least 0, got inf"),
        ({"task": np.ones(2), "labels": lambda x: x[..., 0]}, "only one of task_moment, task and labels"),
    ],
)
def test_a_law_that_is_none_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        gaussian_regression(**({"context_length": 2, "covariance": np.eye(2)} | wrong))
