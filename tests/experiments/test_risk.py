import math

import jax
import jax.numpy as jnp
import numpy as np

from experiments.zhang_frei_bartlett import risk as binary
from experiments.zhang_frei_bartlett import risk_shown as shown
from experiments.zhang_frei_bartlett.risk import CLOSED, CLOSED_FLOOR, COVARIANCES, FLOOR, PREDICTED, RISK, SAMPLED
from icl_lab.constructions import linear_attention_weights
from icl_lab.lab.flags import to_json
from icl_lab.lab.record import Record
from icl_lab.lab.trainings import collected
from icl_lab.theory import block_loss, gaussian_labels, optimum, risk

CONFIG = binary.PRESETS["lab"]
LENGTHS = (*CONFIG.test_lengths, math.inf)


def record(disturb=lambda a, rng: a, members=3):
    """A record of layers whose A is Gam^-1, disturbed, with sampled risks that are exact."""
    rng, predicted, pieces = np.random.default_rng(0), binary._predicted_risks(CONFIG), []
    for name in COVARIANCES:
        lam = np.diag(CONFIG.spectrum if name == "spectrum" else (1.0,) * 5)

        def curves(a, lam=lam):
            return [risk(a, test_length=m, covariance=lam) for m in LENGTHS]

        closed = np.array([curves(optimum(lam, n)) for n in CONFIG.train_lengths])
        own = np.array([[curves(disturb(optimum(lam, n), rng)) for n in CONFIG.train_lengths] for _ in range(members)])
        pieces += [(RISK.at(covariance=name), own[..., :-1]), (FLOOR.at(covariance=name), own[..., -1])]
        pieces += [(CLOSED.at(covariance=name), closed[:, :-1]), (CLOSED_FLOOR.at(covariance=name), closed[:, -1])]
    n, facts = CONFIG.train_lengths.index(CONFIG.context_length), binary._best_linear(CONFIG)
    sampled = {labels: np.repeat(predicted[labels][None], members, 0) for labels in ("noisy", "nonlinear")}
    sampled["clean"] = own[:, n, :-1].copy()  # of the spectrum, the last
    sampled["nonlinear_best"] = np.full((members, len(CONFIG.test_lengths)), facts["best_linear_risk"])
    metrics, arrays, _ = collected([*pieces, (SAMPLED, sampled), (PREDICTED, predicted), ("facts", facts)])
    return Record("zhang_frei_bartlett.risk", "lab", to_json(CONFIG), metrics, arrays)


def verdicts(found):
    """Whether each claim's statistic lies in its region for every member, by the last part of its id."""
    held = {}
    for claim in shown.CLAIMS:
        low, high = claim.region()
        values = claim.statistic(found)
        held[claim.id.rsplit(".", 1)[1]] = bool(np.all((values >= low) & (values <= high)))
    return held


def test_layers_at_the_optimum_hold_every_claim():
    found = record()
    assert all(verdicts(found).values())
    np.testing.assert_allclose(shown.deviation("spectrum")(found), 0)
    np.testing.assert_allclose(shown.floor_rate("identity")(found), 0)
    np.testing.assert_allclose(shown.context_rate(found), -1)
    np.testing.assert_allclose(shown.agreement("nonlinear")(found), 1)
    np.testing.assert_allclose(shown.excess_over_best(found), 1)


def test_the_matrix_tolerates_two_per_cent_and_not_five():
    within = record(lambda a, rng: (1 + 0.02 * rng.choice([-1, 1])) * a)
    beyond = record(lambda a, rng: (1 + 0.05 * rng.choice([-1, 1])) * a)
    for name in COVARIANCES:
        assert np.all(shown.deviation(name)(within) < 0.042)
        assert np.all(shown.deviation(name)(beyond) > 0.06)


def test_other_layers_break_the_claims():
    held = verdicts(record(lambda a, rng: 0.6 * a))
    assert not any(
        held[f"{claim}_{name}"] for claim in ("matrix", "floor_rate", "learnability") for name in COVARIANCES
    )
    every = record(lambda a, rng: optimum(np.eye(5), 40))  # one layer for all N
    assert not verdicts(every)["best_length_identity"]
    slow = record()
    clean, nonlinear = (SAMPLED(slow, labels=labels) for labels in ("clean", "nonlinear"))
    clean *= np.array(CONFIG.test_lengths) ** 0.1
    nonlinear *= 1.1
    held = verdicts(slow)
    assert not any(held[name] for name in ("context_rate", "clean", "nonlinear", "best_linear"))
    assert held["noisy"]


def test_exact_risks_are_those_of_the_blocks():
    lam, rng = np.diag([1.5, 1.0, 0.5]), np.random.default_rng(0)
    blocks = [rng.normal(size=shape) for shape in ((2, 3, 3), (2,), (2, 3), (2, 3))]
    params = jax.vmap(linear_attention_weights)(*(jnp.asarray(b, jnp.float32) for b in blocks))
    found = binary._exact_risks(params, lam, (4, math.inf))
    again = [[2 * block_loss(*(b[m] for b in blocks), lam, n) for n in (4, math.inf)] for m in range(2)]
    np.testing.assert_allclose(found, again, rtol=1e-5)


def test_nonlinear_labels_are_the_same_for_the_sampler_and_for_the_theory():
    x = np.random.default_rng(0).normal(size=(7, 4))
    np.testing.assert_allclose(binary.curved(jnp.asarray(x), sine=jnp.sin), binary.curved(x), rtol=1e-5)
    law = gaussian_labels(binary.curved, np.eye(4), 3)
    np.testing.assert_allclose(law.cross_moment, [0, 0.5, math.exp(-0.5), 0], atol=1e-12)
    np.testing.assert_allclose(law.label_moment, 3 + 0.25 + (1 - math.exp(-2)) / 2)
