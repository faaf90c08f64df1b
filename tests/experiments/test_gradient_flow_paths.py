"""Statistics of the gradient-flow figure on records made by hand, and the paths they are taken from."""

import math

import numpy as np
import optax

from experiments.zhang_frei_bartlett import gradient_flow, gradient_flow_shown, paths
from experiments.zhang_frei_bartlett.common import block_product
from experiments.zhang_frei_bartlett.gradient_flow import DRIFT, PREDICTED
from icl_lab.lab.records import Record
from icl_lab.lab.trainings import collected
from icl_lab.theory import optimum
from icl_lab.theory.flows.balance import mean_field

CONFIG = gradient_flow.PRESETS["smoke"]
LAM, N = np.diag(CONFIG.spectrum), CONFIG.context_length
BEST = optimum(LAM, N)


def blocks(u, u11):
    """Blocks of M members at R measurements with u12 = u21 = 0."""
    zero = np.zeros(np.shape(u11)[:-1])
    return {"u": np.asarray(u), "u11": np.asarray(u11), "u12": zero, "u21": zero}


def record(drift, predicted, **metrics):
    config = {"drift_batches": [16, 64, 256], "drift_rates": [0.001, 0.002, 0.5]}
    pieces = [(DRIFT, drift), (PREDICTED, predicted), ("facts", {"flow_scale": 1.0, "edge_rate": 1.0} | metrics)]
    facts, arrays, _ = collected(pieces)
    return Record("", "lab", config, facts, arrays, {})


def test_exponents_of_the_drift_are_read_where_it_is_small_and_far_below_the_edge():
    batches, rates = np.array([[16], [64], [256]]), np.array([0.001, 0.002, 0.5])
    predicted = -(rates**1.1) * batches**-0.9
    drift = np.stack([predicted, 2 * predicted])
    drift[:, :, 2] = -7.0  # the rate at the edge is left out
    np.testing.assert_allclose(gradient_flow_shown.drift_exponents(record(drift, predicted)), [[1.1, 0.9]] * 2)
    large = predicted.copy()
    large[0] = -1.0  # and so are large drifts
    drift[:, 0] = -3.0
    np.testing.assert_allclose(gradient_flow_shown.drift_exponents(record(drift, large)), [[1.1, 0.9]] * 2)
    assert np.isnan(gradient_flow_shown.drift_exponents(record(drift, np.full((3, 3), -1.0)))).all()


def test_the_ratio_of_the_drift_is_that_of_small_drifts():
    predicted = np.full((3, 3), -0.01)
    predicted[0] = -1.0
    drift = 1.5 * np.stack([predicted, 2 * predicted])
    drift[:, 0] = 9.0
    np.testing.assert_allclose(gradient_flow_shown.drift_ratio(record(drift, predicted)), [1.5, 3.0])
    assert np.isnan(gradient_flow_shown.drift_ratio(record(drift, predicted, flow_scale=0.01))).all()


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
