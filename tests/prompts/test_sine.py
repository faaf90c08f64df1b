import jax
import numpy as np
import pytest

from icl_lab.prompts import sine_regression

KEY = jax.random.key(3)
SIGMAS = 4  # standard errors


def assert_uniform(values, low, high):
    values = (np.asarray(values, np.float64).ravel() - low) / (high - low)
    assert 0 < values.min() < 0.01
    assert 0.99 < values.max() < 1
    for power, variance in ((1, 1 / 12), (2, 4 / 45)):  # E u^k = 1 / (k + 1)
        assert abs((values**power).mean() - 1 / (power + 1)) < SIGMAS * np.sqrt(variance / values.size)


def correlation(a, b):
    return np.corrcoef(np.ravel(a), np.ravel(b))[0, 1]


@pytest.fixture(scope="module", params=[False, True], ids=["independent", "dependent"])
def law(request):
    sampler = sine_regression(context_length=3, input_range=2.0, amplitude=(1, 3), dependent=request.param)
    return request.param, jax.jit(sampler, static_argnums=1)(KEY, 4096)


def test_every_draw_has_its_law(law):
    dependent, sample = law
    a, p = sample.latent["amplitude"], sample.latent["phase"]
    x = np.concatenate([sample.prompt.x[..., 0], sample.prompt.x_query], axis=1)  # (B, N + 1)
    for values, ends in ((x[:, 0], (-1, 1)), (x[:, -1], (-1, 1)), (a, (1, 3)), (p, (0, np.pi))):
        assert_uniform(values, *ends)
    columns = np.column_stack([x, a])
    off = np.corrcoef(columns, rowvar=False) - np.eye(columns.shape[1])
    assert np.abs(off).max() < SIGMAS / np.sqrt(len(x))
    if dependent:
        np.testing.assert_allclose((a - 1) / 2, p / np.pi, atol=1e-6)
    else:
        assert abs(correlation(a, p)) < SIGMAS / np.sqrt(len(x))


def test_labels_are_the_sine_of_the_task(law):
    _, sample = law
    a, p = (np.asarray(sample.latent[name], np.float64)[:, None] for name in ("amplitude", "phase"))
    np.testing.assert_allclose(sample.prompt.y[..., 0], a * np.sin(sample.prompt.x[..., 0] + p), atol=2e-6)
    np.testing.assert_allclose(sample.target, a * np.sin(sample.prompt.x_query + p), atol=2e-6)
