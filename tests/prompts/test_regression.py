import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icl_lab.prompts import input_variance, linear_regression
from icl_lab.prompts.regression import TASK_LAWS

KEY = jax.random.key(5)
SIGMAS = 4  # standard errors
# E x, E x^2, E x^4 of the standard laws
MOMENTS = {
    "uniform": (0, 1 / 12, 1 / 80),
    "normal": (0, 1, 3),
    "exponential": (1, 2, 24),
    "laplace": (0, 2, 24),
}


@functools.cache
def compiled(**law):
    return jax.jit(linear_regression(**law), static_argnums=1)


def draw(key=KEY, batch=4096, n=4, d=3, **law):
    return compiled(context_length=n, input_size=d, **law)(key, batch)


def points(sample):
    """(B, N + 1, D) context and query."""
    return np.concatenate([sample.prompt.x, sample.prompt.x_query[:, None]], axis=1).astype(np.float64)


def assert_moments(values, first, second, fourth):
    values = np.asarray(values, np.float64).ravel()
    assert abs(values.mean() - first) < SIGMAS * np.sqrt((second - first**2) / values.size)
    assert abs((values**2).mean() - second) < SIGMAS * np.sqrt((fourth - second**2) / values.size)


@pytest.mark.parametrize("law", MOMENTS)
def test_inputs_follow_their_law(law):
    x = points(draw(input_law=law, input_range=0.5))
    for part in (x[:, 0], x[:, -1]):  # a context token and the query
        assert_moments(part, *(m * 0.5**power for m, power in zip(MOMENTS[law], (1, 2, 4))))
    assert input_variance(law, 0.5) == pytest.approx(0.25 * MOMENTS[law][1])
    correlation = np.corrcoef(x.reshape(len(x), -1), rowvar=False)
    assert np.abs(correlation - np.eye(len(correlation))).max() < (SIGMAS + 0.5) / np.sqrt(len(x))  # 105 pairs


def test_the_mixture_of_inputs_is_normalised_by_its_context():
    x = points(draw(input_law="mixture", input_range=3.0))
    np.testing.assert_allclose(np.sqrt((x[:, :-1] ** 2).sum((1, 2))), 3.0, rtol=1e-5)
    positive = (x > 0).all((1, 2))  # all 15 entries: the exponential third, hardly any other
    assert abs(positive.mean() - 1 / 3) < SIGMAS * np.sqrt(2 / 9 / len(x))
    with pytest.raises(ValueError, match="no coordinate-wise second moment"):
        input_variance("mixture")


@pytest.mark.parametrize("law", TASK_LAWS)
def test_tasks_follow_their_law(law):
    w = draw(task_law=law, task_scale=2.0, output_size=2).latent["w"]
    assert w.shape == (4096, 3, 2)
    thirds = np.mean([MOMENTS[name] for name in ("exponential", "normal", "laplace")], axis=0)
    moments = MOMENTS["normal"] if law == "normal" else thirds
    (first, second, fourth), entries = (m * 2.0**power for m, power in zip(moments, (1, 2, 4))), np.asarray(w)[:, 0, 0]
    assert_moments(entries, first, second, fourth)


@pytest.mark.parametrize(("n", "d", "o", "batch"), [(1, 1, 1, 1), (4, 3, 2, 64), (3, 2, 1, 65), (2, 4, 3, 150)])
def test_clean_labels_are_those_of_the_task(n, d, o, batch):
    sample = draw(batch=batch, n=n, d=d, output_size=o, input_range=2.0)
    shapes = [leaf.shape for leaf in (sample.prompt.x, sample.prompt.y, sample.prompt.x_query, sample.target)]
    assert shapes == [(batch, n, d), (batch, n, o), (batch, d), (batch, o)]
    w, x = np.asarray(sample.latent["w"], np.float64), points(sample)
    labels = x @ w
    bound = 1e-6 * d * np.abs(labels).max()
    np.testing.assert_allclose(sample.prompt.y, labels[:, :-1], rtol=0, atol=bound)
    np.testing.assert_allclose(sample.target, labels[:, -1], rtol=0, atol=bound)
    assert (np.unique(x, return_counts=True)[1] == 1).mean() > 0.99  # no input is there twice, the query neither


@pytest.fixture(scope="module")
def clean():
    return draw()


@pytest.fixture(scope="module")
def corrupted():
    return jax.jit(lambda m: linear_regression(context_length=4, input_size=3, corrupted_labels=m)(KEY, 4096))


@pytest.mark.parametrize("m", [0, 1, 3, 4])
def test_exactly_so_many_labels_are_corrupted(clean, corrupted, m):
    found = corrupted(m)
    changed = np.abs(clean.prompt.y - found.prompt.y)[..., 0] > 1e-5
    assert (changed.sum(axis=1) == m).all()
    assert np.abs(changed.mean(axis=0) - m / 4).max() <= SIGMAS * np.sqrt(m / 4 * (1 - m / 4) / len(changed))
    if m:
        assert_moments(np.asarray(found.prompt.y)[..., 0][changed], *MOMENTS["normal"])
    for part in (lambda s: s.target, lambda s: s.prompt.x, lambda s: s.prompt.x_query, lambda s: s.latent["w"]):
        np.testing.assert_allclose(part(clean), part(found), rtol=0, atol=1e-6)


def test_label_noise_has_its_variance_and_spares_the_target(clean):
    noisy = draw(label_noise=0.5)
    noise = np.asarray(noisy.prompt.y) - np.asarray(clean.prompt.y)
    assert_moments(noise, 0, 0.25, 3 / 16)
    assert abs(np.corrcoef(noise.ravel(), np.asarray(clean.prompt.y).ravel())[0, 1]) < SIGMAS / np.sqrt(noise.size)
    np.testing.assert_allclose(clean.target, noisy.target, rtol=0, atol=1e-6)


POOL = np.random.default_rng(0).normal(size=(5, 3, 2))


def test_tasks_of_a_pool_are_drawn_with_equal_chance_and_inputs_stay():
    law = {"context_length": 4, "input_size": 3, "output_size": 2, "task_scale": 0.5}
    fresh, found = (linear_regression(**law, tasks=tasks)(KEY, 4096) for tasks in (None, POOL))
    np.testing.assert_array_equal(fresh.prompt.x, found.prompt.x)
    np.testing.assert_array_equal(fresh.prompt.x_query, found.prompt.x_query)
    w = np.asarray(found.latent["w"])
    away = np.abs(w[:, None] - 0.5 * POOL).max((2, 3))  # of every prompt from every task
    assert away.min(1).max() < 1e-6
    counts = np.bincount(away.argmin(1), minlength=5)
    assert np.abs(counts / 4096 - 1 / 5).max() < SIGMAS * np.sqrt(0.16 / 4096)
    np.testing.assert_allclose(found.prompt.y, np.einsum("bnd,bdo->bno", found.prompt.x, w), atol=1e-5)
    np.testing.assert_allclose(found.target, np.einsum("bd,bdo->bo", found.prompt.x_query, w), atol=1e-5)


def test_a_pool_may_differ_between_members():
    def drawn(pool):
        sampler = linear_regression(context_length=2, input_size=3, output_size=2, tasks=pool)
        return sampler(KEY, 6).latent["w"]

    pools = jnp.stack([POOL, POOL + 1])
    for found, pool in zip(jax.jit(jax.vmap(drawn))(pools), pools):
        np.testing.assert_array_equal(found, drawn(pool))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tasks": POOL[0]}, r"tasks must be the weights \(T, 3, 2\) of a pool, got shape \(3, 2\)"),
        ({"tasks": POOL[:0]}, "tasks must be the weights"),
        ({"tasks": POOL, "task_law": "mixture"}, "neither task_law nor used_weights"),
        ({"tasks": POOL, "used_weights": 1}, "neither task_law nor used_weights"),
    ],
)
def test_a_pool_of_another_shape_or_beside_fresh_tasks_is_refused(options, said):
    with pytest.raises(ValueError, match=said):
        linear_regression(context_length=4, input_size=3, output_size=2, **options)
