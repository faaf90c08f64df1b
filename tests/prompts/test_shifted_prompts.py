import jax
import numpy as np
import pytest

from icl_lab.prompts import (
    context_in_an_orthant,
    correlated_context,
    gaussian_regression,
    in_a_subspace,
    with_orthogonal_query,
)

KEY = jax.random.key(4)
SIGMAS = 4.5  # standard errors


def arrays(sample):
    """Context, query, labels, target, task in float64."""
    prompt = sample.prompt
    return (np.asarray(v, np.float64) for v in (prompt.x, prompt.x_query, prompt.y, sample.target, sample.latent["w"]))


def draw(shift, n, d, batch=20_000, **law):
    sampler = shift(gaussian_regression(context_length=n, covariance=np.eye(d), **law))
    return jax.jit(sampler, static_argnums=1)(KEY, batch)


def assert_labels_belong_to_the_inputs(x, query, y, target, w):
    np.testing.assert_allclose(y, np.einsum("bnd,bdo->bno", x, w), atol=2e-5)
    np.testing.assert_allclose(target, np.einsum("bd,bdo->bo", query, w), atol=2e-5)


def assert_mean(values, expected):
    assert (np.abs(values.mean(0) - expected) <= SIGMAS * values.std(0) / len(values) ** 0.5 + 1e-6).all()


def test_contexts_lie_in_one_orthant_and_queries_anywhere():
    x, query, y, target, w = arrays(draw(context_in_an_orthant, 3, 2, label_noise=0.5))
    noise = (y - np.einsum("bnd,bdo->bno", x, w))[:, :, 0]
    assert_mean(noise, 0)  # it stays what it was
    assert_mean(noise**2, 0.25)
    assert_labels_belong_to_the_inputs(x, query, y - noise[:, :, None], target, w)
    signs = np.sign(x)
    assert (signs == signs[:, :1]).all()
    assert_mean(signs[:, 0], 0)  # every orthant as often
    assert_mean(signs[:, 0, 0] * signs[:, 0, 1], 0)
    assert_mean(signs[:, 0] * np.sign(query), 0)
    assert_mean(np.abs(x).mean(1), (2 / np.pi) ** 0.5)
    assert_mean(query**2, 1)


@pytest.mark.parametrize("c", [-0.6, 0.0, 0.8, 1.0])
def test_inputs_are_correlated_along_the_context(c):
    traced = jax.jit(lambda key, c: correlated_context(gaussian_regression(
        context_length=4, covariance=np.diag([1.0, 0.25]), label_noise=0.5), c)(key, 20_000))  # fmt: skip
    x, query, y, target, w = arrays(traced(KEY, c))
    noise = (y - np.einsum("bnd,bdo->bno", x, w))[:, :, 0]
    assert_mean(noise[:, :, None] * noise[:, None], 0.25 * np.eye(4))  # it stays what it was: independent
    assert_labels_belong_to_the_inputs(x, query, y - noise[:, :, None], target, w)
    points = np.concatenate([x, query[:, None]], axis=1)
    lag = np.abs(np.subtract.outer(np.arange(4), np.arange(4)))
    rows = np.zeros((5, 5))
    rows[:4, :4], rows[4, 4] = c**lag, 1
    assert_mean(np.einsum("bid,bje->bijde", points, points), np.multiply.outer(rows, np.diag([1.0, 0.25])))


@pytest.mark.parametrize("rescaled", [False, True])
def test_prompts_lie_in_a_subspace(rescaled):
    size, total = 2, 3 if rescaled else 2
    x, query, *rest = arrays(draw(lambda s: in_a_subspace(s, size, rescaled), 4, 3))
    assert_labels_belong_to_the_inputs(x, query, *rest)
    points = np.concatenate([x, query[:, None]], axis=1)
    values = np.linalg.svd(points, compute_uv=False)
    assert (values[:, size:] < 1e-5).all()
    assert (values[:, size - 1] > 1e-5).mean() > 0.999
    assert_mean((points**2).sum(2), total)
    outer = points[:, 0, :, None] * points[:, 0, None, :]
    assert_mean(outer, total / 3 * np.eye(3))  # no direction is preferred
    inner = (points[:, 0] * points[:, 1]).sum(1)
    assert_mean(inner**2, total**2 / size)  # points of one prompt share their subspace


def test_queries_are_orthogonal_to_the_context():
    n = 2
    x, query, *rest = arrays(draw(with_orthogonal_query, n, 4))
    assert_labels_belong_to_the_inputs(x, query, *rest)
    assert np.abs(np.einsum("bnd,bd->bn", x, query)).max() < 1e-4
    assert_mean((query**2).sum(1), 4 - n)
    assert_mean(x[:, 0] ** 2, 1)


def test_bad_arguments():
    sampler = gaussian_regression(context_length=3, covariance=np.eye(3))
    for wrong in (1.1, -2.0, np.nan, np.zeros(2)):
        with pytest.raises(ValueError, match="correlation must be"):
            correlated_context(sampler, wrong)
    with pytest.raises(ValueError, match="size must be a whole number of at least 1, got 0"):
        in_a_subspace(sampler, 0)
    with pytest.raises(ValueError, match="size must be at most D = 3, got 4"):
        in_a_subspace(sampler, 4)(KEY, 2)
    with pytest.raises(ValueError, match="allowed is N < D"):
        with_orthogonal_query(sampler)(KEY, 2)
