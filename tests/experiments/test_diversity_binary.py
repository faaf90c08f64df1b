"""``diversity.alignment``: features, fits and errors against drawn prompts."""

import jax
import numpy as np
import pytest

from experiments.binaries import GALLERY
from experiments.diversity import alignment as binary
from experiments.diversity.regression import Law, error, features, fitted
from icl_lab.lab import records
from icl_lab.theory import diversity_error

SIGMAS = 4.5
SMALL = Law(3, np.array([1.5, 1.0, 0.5]), 5 / 3, 1.0, 4.0, 0.09)


def prompts_of(rng, tasks, law):
    """(n, l, d) inputs and (n, l) labels, drawn example by example."""
    x = rng.standard_normal((len(tasks), law.length, law.size)) / np.sqrt(law.size)
    noise = np.sqrt(law.noise_variance) * rng.standard_normal(x.shape[:2])
    return x, np.einsum("nld,nd->nl", x, tasks) + noise


def of_examples(x, y):
    """(n, d + 1) h by its definition."""
    first = x.shape[2] / x.shape[1] * np.einsum("nld,nl->nd", x, y)
    return np.concatenate([first, (y**2).mean(axis=1, keepdims=True)], axis=1)


def moments(h):
    """(n, ...) products of one, two and three features."""
    pairs = np.einsum("ni,nj->nij", h, h).reshape(len(h), -1)
    return np.concatenate([h, pairs, np.einsum("ni,nj->nij", pairs, h).reshape(len(h), -1)], axis=1)


def test_features_have_the_law_of_those_of_examples():
    rng, n = np.random.default_rng(0), 40_000
    tasks = np.tile([0.5, -1.0, 2.0], (n, 1))
    drawn = moments(features(rng, tasks, SMALL.length, 2.0))
    wanted = moments(of_examples(*prompts_of(rng, tasks, SMALL._replace(noise_variance=2.0))))
    spread = np.hypot(drawn.std(axis=0), wanted.std(axis=0)) / np.sqrt(n)
    assert np.all(np.abs(drawn.mean(axis=0) - wanted.mean(axis=0)) < SIGMAS * spread)


def test_the_error_is_that_of_monte_carlo():
    """Of any G, on new tasks of another covariance."""
    rng, n, aimed = np.random.default_rng(1), 200_000, np.array([0.3, 1.0, 1.7])
    weights = rng.standard_normal((3, 4))
    tasks = rng.standard_normal((n, 3)) * np.sqrt(aimed)
    left = tasks - features(rng, tasks, SMALL.length, SMALL.noise_variance) @ weights.T
    errors = SMALL.noise_variance + np.sum(left**2, axis=1) / 3
    assert abs(errors.mean() - error(weights, aimed, SMALL)) < SIGMAS * errors.std() / np.sqrt(n)


def test_predictions_are_those_of_the_features():
    rng = np.random.default_rng(3)
    x, y = prompts_of(rng, rng.standard_normal((7, 3)), SMALL)
    weights, query = rng.standard_normal((3, 4)), rng.standard_normal((7, 3))
    wanted = np.einsum("ni,ij,nj->n", query, weights, of_examples(x, y))
    np.testing.assert_allclose(binary.predictions(weights, x, y[..., None], query)[:, 0], wanted, rtol=1e-12)


def test_the_fit_is_least_squares_and_the_least_of_all_fits():
    for prompts, at_most in ((4.0, np.inf), (0.5, 1e-12)):
        law = SMALL._replace(prompts=prompts)
        weights, tasks = fitted(np.random.default_rng(2), law)
        again = np.random.default_rng(2)  # the same draws, in the same order
        k, n = law.counts
        assert np.array_equal(tasks, again.standard_normal((k, 3)) * np.sqrt(law.spectrum))
        own = tasks[again.integers(k, size=n)]
        query = again.standard_normal((n, 3)) / np.sqrt(3)
        labels = np.sum(query * own, axis=1) + np.sqrt(law.noise_variance) * again.standard_normal(n)
        design = np.einsum("ni,nj->nij", query, features(again, own, law.length, law.noise_variance)).reshape(n, -1)
        np.testing.assert_allclose(
            weights.ravel(), np.linalg.lstsq(design, labels, rcond=None)[0], rtol=1e-6, atol=1e-9
        )
        assert np.abs(design @ weights.ravel() - labels).max() < at_most


@pytest.mark.parametrize(("prompts", "draws"), [(4.0, 30), (0.25, 60)])
def test_errors_come_to_the_formula_as_one_over_d(prompts, draws):
    """Extrapolated from d = 8 and 16, seen and unseen: within the errors of so many draws and what 1/d^2 leaves."""
    wanted = np.array(diversity_error(np.eye(1), context=2, diversity=4, prompts=prompts, noise_variance=0.05))
    means, spreads = [], []
    for d in (8, 16):
        law, rng, found = Law(d, np.ones(d), 2.0, 4.0, prompts, 0.05), np.random.default_rng(d), []
        for _ in range(draws):
            weights, tasks = fitted(rng, law)
            own = tasks[rng.integers(len(tasks), size=1000)]
            left = own - features(rng, own, law.length, law.noise_variance) @ weights.T
            found.append([law.noise_variance + np.sum(left**2) / d / len(own), error(weights, law.spectrum, law)])
        means.append(np.mean(found, axis=0) / wanted)
        spreads.append(np.std(found, axis=0) / wanted / np.sqrt(draws))
    extrapolated, spread = 2 * means[1] - means[0], np.hypot(2 * spreads[1], spreads[0])
    assert np.all(np.abs(extrapolated - 1) < 0.04 + 3 * spread)
    assert np.all(means[1] > 1.02)  # without extrapolation it is not there
    assert np.all(spread < 0.04)


def test_the_best_fit_to_all_prompts_comes_to_the_formula_as_one_over_d():
    """G = S (S + nu)^-1 of drawn tasks, from d = 20 and 40; for infinitely many tasks the formula is another."""
    ratios = []
    for d in (20, 40):
        law, rng, found = Law(d, np.ones(d), 2.0, 1.0, np.inf, 0.05), np.random.default_rng(d), []
        for _ in range(60):
            tasks = rng.standard_normal((d, d))
            s = tasks.T @ tasks / d
            best = s @ np.linalg.inv(s + 1.05 / 2 * np.eye(d))
            found.append(error(np.pad(best, ((0, 0), (0, 1))), law.spectrum, law))
        ratios.append(np.mean(found) / binary.expected(law, law.spectrum))
    assert 2 * ratios[1] - ratios[0] == pytest.approx(1, abs=0.01)
    wrong = binary.expected(law, law.spectrum) / binary.expected(law._replace(diversity=np.inf), law.spectrum)
    assert wrong > 1.1


def test_prompts_of_known_tasks_are_those_of_the_model():
    tasks = np.array([[1.0, 0.0, 2.0], [0.0, -1.0, 1.0]])
    samples = binary.known_tasks(tasks, SMALL._replace(noise_variance=0.0))(jax.random.key(0), 400)
    w = np.asarray(samples.latent["w"])[..., 0]
    assert {tuple(one) for one in w.tolist()} == {tuple(one) for one in tasks.tolist()}
    np.testing.assert_allclose(samples.prompt.y[..., 0], np.einsum("bld,bd->bl", samples.prompt.x, w), atol=1e-5)
    np.testing.assert_allclose(samples.target[:, 0], np.einsum("bd,bd->b", samples.prompt.x_query, w), atol=1e-5)
    assert np.square(samples.prompt.x).mean() == pytest.approx(1 / 3, rel=0.1)


def test_errors_rise_as_tasks_turn_away_from_those_of_training():
    """Tasks as in training, isotropic ones, reversed ones: of every member at lab, of the formula, and of fits."""
    away = ("same", "to_isotropic", "reversed")
    config, record = binary.PRESETS["lab"], records.load(GALLERY / "diversity" / "alignment" / "lab")
    members = np.array([binary.ERROR(record, point=point) for point in away])
    assert np.all(np.diff(members, axis=0)[..., -1] > 0)
    for size in (8, 24):
        law = binary.law_of(config, "same", size)
        aims = [binary.tested(binary.POINTS[point][3], law.spectrum) for point in away]
        assert np.all(np.diff([binary.expected(law, aim) for aim in aims]) > 0)
        weights = [fitted(np.random.default_rng(seed), law)[0] for seed in range(5)]
        assert np.all(np.diff([np.mean([error(one, aim, law) for one in weights]) for aim in aims]) > 0)
