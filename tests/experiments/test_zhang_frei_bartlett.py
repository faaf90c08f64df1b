"""Parts of the binaries of Zhang, Frei and Bartlett against closed forms, and how their curves are read."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
from toys import measured_with

from experiments.settings import member_keys
from experiments.zhang_frei_bartlett import drift_statistics, gradient_flow, paths, random_covariance, risk, shifts
from experiments.zhang_frei_bartlett.common import block_product
from experiments.zhang_frei_bartlett.gradient_flow import DRIFT, PREDICTED
from experiments.zhang_frei_bartlett.shift_families import closed_form, points
from icl_lab.constructions import linear_attention_weights
from icl_lab.prompts import random_covariance_regression
from icl_lab.theory import block_loss, gaussian_labels, optimum, regression_slope, variance_moments
from icl_lab.theory.flows.balance import mean_field

CONFIG = gradient_flow.PRESETS["smoke"]
LAM, N = np.diag(CONFIG.spectrum), CONFIG.context_length
BEST = optimum(LAM, N)


def blocks(u, u11):
    """Blocks of M members at R measurements with u12 = u21 = 0."""
    zero = np.zeros(np.shape(u11)[:-1])
    return {"u": np.asarray(u), "u11": np.asarray(u11), "u12": zero, "u21": zero}


def of_drift(drift, predicted, **metrics):
    config = {"drift_batches": [16, 64, 256], "drift_rates": [0.001, 0.002, 0.5]}
    facts = {"flow_scale": 1.0, "edge_rate": 1.0} | metrics
    return measured_with(config, [(DRIFT, drift), (PREDICTED, predicted), ("facts", facts)])


def test_exponents_of_the_drift_are_read_where_it_is_small_and_far_below_the_edge():
    batches, rates = np.array([[16], [64], [256]]), np.array([0.001, 0.002, 0.5])
    predicted = -(rates**1.1) * batches**-0.9
    drift = np.stack([predicted, 2 * predicted])
    drift[:, :, 2] = -7.0  # the rate at the edge is left out
    np.testing.assert_allclose(drift_statistics.drift_exponents(of_drift(drift, predicted)), [[1.1, 0.9]] * 2)
    large = predicted.copy()
    large[0] = -1.0  # and so are large drifts
    drift[:, 0] = -3.0
    np.testing.assert_allclose(drift_statistics.drift_exponents(of_drift(drift, large)), [[1.1, 0.9]] * 2)
    assert np.isnan(drift_statistics.drift_exponents(of_drift(drift, np.full((3, 3), -1.0)))).all()


def test_the_ratio_of_the_drift_is_that_of_small_drifts():
    predicted = np.full((3, 3), -0.01)
    predicted[0] = -1.0
    drift = 1.5 * np.stack([predicted, 2 * predicted])
    drift[:, 0] = 9.0
    np.testing.assert_allclose(drift_statistics.drift_ratio(of_drift(drift, predicted)), [1.5, 3.0])
    assert np.isnan(drift_statistics.drift_ratio(of_drift(drift, predicted, flow_scale=0.01))).all()


def test_every_optimum_has_no_excess_and_no_error_and_the_balance_of_its_scale():
    u = np.array([[0.5, 2.0]])
    path = blocks(u, BEST / u[..., None, None])
    assert np.abs(paths.product_error(path, CONFIG)).max() < 1e-12
    assert np.abs(paths.excess_losses({"one": path, "two": path}, CONFIG)["two"]).max() < 1e-12
    np.testing.assert_allclose(paths.balance(path), u**2 - (BEST**2).sum() / u**2)
    doubled = blocks(u, 2 * BEST / u[..., None, None])
    np.testing.assert_allclose(paths.product_error(doubled, CONFIG), 1.0)
    assert paths.excess_losses({"one": doubled}, CONFIG)["one"].min() > 0.1


def test_population_gd_is_the_mean_field_without_noise_and_stays_at_u21_zero():
    u11, rate = np.array([[0.2, 0.1], [0.1, 0.1]]), 0.1
    start = {name: value[:, 0] for name, value in blocks([[0.2]], u11[None, None]).items()}
    scheduled = paths.scheduled(optax.sgd, 20)(rate)
    path = paths.population_path(start, CONFIG, scheduled, 20, 10)
    expected = mean_field(u11, 0.2, LAM, N, gradient_flow._cosine(rate, 20), math.inf, 10)
    np.testing.assert_allclose(block_product(path)[0], expected["product"], rtol=1e-10)
    np.testing.assert_allclose(path["u"][0], expected["u"], rtol=1e-10)
    assert not np.any([path["u12"], path["u21"]])


def test_exact_risks_are_those_of_the_blocks():
    lam, rng = np.diag([1.5, 1.0, 0.5]), np.random.default_rng(0)
    blocks = [rng.normal(size=shape) for shape in ((2, 3, 3), (2,), (2, 3), (2, 3))]
    params = jax.vmap(linear_attention_weights)(*(jnp.asarray(b, jnp.float32) for b in blocks))
    found = risk._exact_risks(params, lam, (4, math.inf))
    again = [[2 * block_loss(*(b[m] for b in blocks), lam, n) for n in (4, math.inf)] for m in range(2)]
    np.testing.assert_allclose(found, again, rtol=1e-5)


def test_nonlinear_labels_are_the_same_for_the_sampler_and_for_the_theory():
    x = np.random.default_rng(0).normal(size=(7, 4))
    np.testing.assert_allclose(risk.curved(jnp.asarray(x), sine=jnp.sin), risk.curved(x), rtol=1e-5)
    law = gaussian_labels(risk.curved, np.eye(4), 3)
    np.testing.assert_allclose(law.cross_moment, [0, 0.5, math.exp(-0.5), 0], atol=1e-12)
    np.testing.assert_allclose(law.label_moment, 3 + 0.25 + (1 - math.exp(-2)) / 2)


def test_the_network_has_the_closed_form_of_its_product():
    config = dataclasses.replace(
        shifts.PRESETS["smoke"],
        members=1,
        spectrum=(1.5, 0.5),
        input_scales=(1.5,),
        weight_scales=(0.5,),
        context_length=4,
    )
    a = np.array([[0.5, 0.1], [-0.3, 0.8]])
    params = jax.tree.map(lambda leaf: leaf[None], linear_attention_weights(2 * a, 0.5))
    families = ("task", "inputs", "query", "weights", "orthants", "rescaled", "orthogonal")
    layer = shifts.trainings(config)["spectrum"].learner
    found = shifts._errors(config, families, layer, params, member_keys(config), 60_000)
    assert set(found) == set(families)
    for family, errors in found.items():
        exact = [closed_form(config, family, point, a) for point in points(config, family)]
        np.testing.assert_allclose(errors[0], exact, rtol=0.05)
    idle = shifts._errors(config, families, shifts._least_squares, jnp.zeros(1), member_keys(config), 50)
    assert idle["orthogonal"].max() < 1e-9  # it predicts 0


def test_slopes_and_factors_of_the_network_are_those_of_its_product():
    config = dataclasses.replace(random_covariance.PRESETS["smoke"], members=1, risk_tasks=100_000)
    a = 0.3 * np.eye(2)
    params = jax.tree.map(lambda leaf: leaf[None], linear_attention_weights(a, 1.0))
    sampler = random_covariance_regression(context_length=20, input_size=2)
    found = random_covariance._conditional(config, sampler, params, member_keys(config))
    moments = variance_moments("exponential", 2)
    np.testing.assert_allclose(found["slope"], regression_slope(a, moments), rtol=0.05)
    np.testing.assert_allclose(found["slope_independent"], regression_slope(a, moments, moments), rtol=0.05)
    np.testing.assert_allclose(found["factor"], 0.3 * found["variance"], rtol=0.15, atol=0.03)
    assert (np.diff(found["variance"]) > 0).all()
