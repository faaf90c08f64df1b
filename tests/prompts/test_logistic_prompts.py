import jax
import numpy as np
import pytest

from icl_lab.prompts import logistic_regression

KEY = jax.random.key(4)
SIGMAS = 4  # standard errors


@pytest.fixture(scope="module")
def sample():
    sampler = logistic_regression(context_length=3, input_size=2, input_range=4.0, task_scale=1.5)
    return jax.jit(sampler, static_argnums=1)(KEY, 8192)


def points(sample):
    """(B, N + 1, D) context and query, (B, N + 1) labels, (B, N + 1) logits of the law."""
    x = np.concatenate([sample.prompt.x, sample.prompt.x_query[:, None]], axis=1).astype(np.float64)
    y = np.concatenate([sample.prompt.y[..., 0], sample.target], axis=1)
    return x, y, (x @ np.asarray(sample.latent["w"], np.float64))[..., 0]


def test_inputs_and_tasks_follow_their_laws(sample):
    x, _, _ = points(sample)
    w = np.asarray(sample.latent["w"], np.float64)[..., 0]
    for values, second, fourth in ((x[:, 0], 16 / 12, 256 / 80), (x[:, -1], 16 / 12, 256 / 80), (w, 2.25, 3 * 2.25**2)):
        assert abs(values.mean()) < SIGMAS * np.sqrt(second / values.size)
        assert abs((values**2).mean() - second) < SIGMAS * np.sqrt((fourth - second**2) / values.size)
    columns = np.concatenate([x.reshape(len(x), -1), w], axis=1)
    off = np.corrcoef(columns, rowvar=False) - np.eye(columns.shape[1])
    assert np.abs(off).max() < SIGMAS / np.sqrt(len(x))


def test_labels_are_drawn_with_the_probability_of_the_task(sample):
    """In every bin of the logit, and at the query as in the context."""
    _, y, logits = points(sample)
    p = 1 / (1 + np.exp(-logits))
    assert set(np.unique(y)) == {-1.0, 1.0}
    np.testing.assert_allclose(sample.latent["probability"][:, 0], p[:, -1], atol=1e-6)
    for where in (np.s_[:, :-1], np.s_[:, -1:]):
        for low, high in ((-9, -2), (-2, -0.5), (-0.5, 0.5), (0.5, 2), (2, 9)):
            inside = (logits[where] > low) & (logits[where] < high)
            surplus = (y[where] / 2 + 0.5 - p[where])[inside]
            assert abs(surplus.mean()) < SIGMAS * np.sqrt((p * (1 - p))[where][inside].mean() / surplus.size)


def test_labels_are_independent_given_the_task(sample):
    _, y, logits = points(sample)
    p = 1 / (1 + np.exp(-logits))
    standard = (y / 2 + 0.5 - p) / np.sqrt(p * (1 - p))
    for i, j in ((0, 1), (1, 2), (0, 3)):
        product = standard[:, i] * standard[:, j]
        assert abs(product.mean()) < SIGMAS * product.std() / np.sqrt(len(product))
