"""``identification.noise``: its step is the best one, ridge is found again, members on the plateau do not count."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import multivariate_normal
from toys import measured_at_lab

from experiments.identification import noise as binary
from experiments.identification.noise import ERROR, FOLLOWED, RIDGE, best_rate, fitted_ridge, named, noisy
from experiments.identification.noise_shown import CLAIMS, followed_by, slope, trained_apart
from icl_lab.solvers import gradient_descent, noise_adaptive_ridge, ridge

CONFIG = binary.PRESETS["lab"]
NOISES = np.array(CONFIG.noises)


def record(waiting=0):
    """Four loops are ridge whose strength is the noise; some members wait on the plateau."""
    pieces = []
    members = np.ones(CONFIG.members)
    for depth in CONFIG.depths:
        for noise in CONFIG.noises:
            far = 1.0 if depth == 1 else 0.5
            error = np.where(np.arange(members.size) < waiting * (depth > 1), 1.0, far)
            strength = max(noise, 1e-3) * (1 if depth == 4 else 30)
            at = {"depth": depth, "noise": named(noise)}
            pieces += [(ERROR.at(**at), {"error": error, "step": members, "bayes": 0.5 * members})]
            pieces += [
                (RIDGE.at(**at), {"strength": strength * members, "residual": (0.01 if depth == 4 else 0.4) * members})
            ]
        strength = np.ones((members.size, len(NOISES)))
        pieces += [(FOLLOWED.at(depth=depth), {"strength": strength, "residual": 0.1 * strength})]
    return measured_at_lab(binary, pieces)


@pytest.mark.parametrize("noise", [0.0, 0.25])
def test_the_step_is_the_best_one(noise):
    sample = noisy(CONFIG, noise)(jax.random.key(3), 200_000)
    slope = np.asarray(jax.vmap(gradient_descent(1.0, steps=1))(sample.prompt), float)[:, 0]
    target = np.asarray(sample.target, float)[:, 0]
    products = np.stack([slope * target, slope**2])
    rate = products[0].mean() / products[1].mean()
    spread = (products[0] - rate * products[1]).std() / products[1].mean() / len(slope) ** 0.5
    assert abs(best_rate(CONFIG, noise) - rate) < 4 * spread
    assert spread < 0.01 * rate


def test_ridge_is_found_and_adaptive_ridge_follows_the_noise():
    adaptive = noise_adaptive_ridge(NOISES[1:].astype(np.float32))
    followed = {"ridge": [], "adaptive": []}
    for noise in NOISES[1:]:
        prompt = noisy(CONFIG, noise)(jax.random.key(4), 1000).prompt
        for name, of in (("ridge", ridge(0.2)), ("adaptive", adaptive)):
            said = np.asarray(jax.vmap(of)(prompt), float)[:, 0][None]
            found = fitted_ridge(prompt, said)
            followed[name].append(found["strength"][0])
            assert name == "adaptive" or found["residual"][0] < 0.01
    np.testing.assert_allclose(followed["ridge"], 0.2, rtol=0.015)
    slope = np.polyfit(np.log(NOISES[1:]), np.log(followed["adaptive"]), 1)[0]
    assert 0.1 < slope < 1


def test_noise_has_its_size_and_may_vary():
    clean, prompt = (noisy(CONFIG, noise)(jax.random.key(0), 20_000).prompt.y for noise in (0.0, 0.25))
    assert abs(float(((prompt - clean) ** 2).mean()) - 0.25) < 0.005
    varying = np.asarray(noisy(CONFIG, 0.0, 1.0)(jax.random.key(0), 20_000).prompt.y - clean)
    own = (varying**2).mean((1, 2))
    assert abs(own.mean() - NOISES.mean()) < 0.005
    assert (own == 0).mean() == pytest.approx(0.25, abs=0.02)  # no noise in a quarter of the prompts


def test_members_on_the_plateau_do_not_count():
    waiting = record(waiting=2)
    (share,) = (claim.statistic(waiting) for claim in CLAIMS if claim.id.endswith(".noise.learned"))
    assert share.sum() == share.size - 2 * (share.size // 5)
    found = slope(4, trained_apart)(waiting)
    assert np.isnan(found).tolist() == [True, True, False, False, False]
    np.testing.assert_allclose(found[2:], 1.0)


@pytest.mark.parametrize("depth", CONFIG.depths)
def test_a_network_that_ridge_does_not_explain_follows_nothing(depth):
    found = record()
    found.arrays[f"loops_{depth}/varies/residual"] = np.full((CONFIG.members, len(NOISES)), 0.95)
    assert np.isnan(followed_by(found, depth)).all()
    assert np.isfinite(followed_by(record(), depth)).all()


def slope_of(learner):
    """Of the log strength of ridge in a learner's predictions on prompts of each noise, as the claim takes it."""
    found = []
    for noise in NOISES[1:]:
        prompt = noisy(CONFIG, noise)(jax.random.key(5), 4000).prompt
        found.append(fitted_ridge(prompt, np.asarray(jax.vmap(learner)(prompt), float).T)["strength"][0])
    return np.polyfit(np.log(NOISES[1:]), np.log(found), 1)[0]


def bayes_not_told(prompt):
    """Ridge averaged over the noises by the likelihood of the labels, y ~ N(0, X X^T + sigma^2 I)."""
    tried = [max(noise, 1e-4) for noise in NOISES]
    covariances = [prompt.x @ prompt.x.T + one * jnp.eye(len(prompt.x)) for one in tried]
    fits = jnp.stack([multivariate_normal.logpdf(prompt.y[:, 0], jnp.zeros(len(prompt.x)), c) for c in covariances])
    return jax.nn.softmax(fits) @ jnp.stack([ridge(one)(prompt) for one in tried])


def test_the_bound_of_fixed_lies_between_filters_and_the_bayes_predictor():
    """GD is linear in the labels but no ridge, so it has 0.08; the Bayes predictor not told the noise has 0.54."""
    (bound,) = (claim.region()[1] for claim in CLAIMS if claim.id.endswith(".fixed"))
    rate = best_rate(CONFIG, 0.25)
    for filtered in (ridge(0.2), gradient_descent(rate, steps=1), gradient_descent(rate, steps=4)):
        assert slope_of(filtered) < bound / 2
    assert slope_of(bayes_not_told) > 1.5 * bound
