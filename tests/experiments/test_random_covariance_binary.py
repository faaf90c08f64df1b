import dataclasses
import math

import jax
import numpy as np
import toys

from experiments.settings import member_keys
from experiments.zhang_frei_bartlett import random_covariance
from experiments.zhang_frei_bartlett.random_covariance import (
    BINS,
    EDGES,
    FACTOR,
    LAYER,
    LEAST_SQUARES,
    PRESETS,
    PRODUCT,
    RISK,
    SLOPE,
)
from experiments.zhang_frei_bartlett.random_covariance_shown import CLAIMS
from icl_lab.constructions import linear_attention_weights
from icl_lab.lab.records import Record
from icl_lab.lab.trainings import collected
from icl_lab.prompts import random_covariance_regression
from icl_lab.theory import (
    random_covariance_optimum,
    random_covariance_risk,
    regression_slope,
    variance_moments,
)

N, D, LENGTHS, SCALES = 40, 5, [160, 10], [1.0, 4.0, 9.0]
MOMENTS = variance_moments("exponential", D)
BEST = random_covariance_optimum(MOMENTS, N)


def record(error=0.0, gain=1.0):
    """Two members that have learned A* + error (D, D), and what the network with A* and this gain has on prompts."""
    members = np.stack([BEST + error] * 2)
    risks = [
        [random_covariance_risk(BEST, variance_moments("exponential", D, scale=c), m) / D for c in SCALES]
        for m in LENGTHS
    ]
    variance = np.linspace(0.5, 2.5, len(BINS) - 1)
    slopes = {"slope": regression_slope(members, MOMENTS)}
    slopes["slope_independent"] = regression_slope(members, MOMENTS, MOMENTS)
    floor = float(random_covariance_risk(BEST, MOMENTS, math.inf) / D)
    exact = {"optimum": np.diag(BEST).tolist(), "floor": floor, "moments": MOMENTS.tolist()}
    metrics, arrays, _ = collected(
        [
            (EDGES, np.array(BINS)),
            (PRODUCT.at(training="exponential"), members),
            (LAYER.at(training="exponential"), {"floor": random_covariance_risk(members, MOMENTS, math.inf) / D}),
            (RISK.at(training="exponential"), gain * np.stack([risks] * 2)),
            (SLOPE, slopes),
            (FACTOR, {"factor": np.stack([BEST[0, 0] * variance] * 2), "variance": np.stack([variance] * 2)}),
            (LEAST_SQUARES, np.array([[1e-12, 3.0]] * 2)),
            ("facts", {"exponential": exact}),
        ]
    )
    config = {"test_lengths": LENGTHS, "scales": SCALES, "laws": ["exponential"]}
    return Record("toy", "lab", config, metrics, arrays, {})


def verdicts(found):
    left_out = ("gamma/*", "uniform/*", "lognormal/*", "scaled/*")
    return {
        name: verdict for name, verdict in toys.verdicts(CLAIMS, found, left_out).items() if verdict != "not judged"
    }


def test_a_layer_that_has_learned_the_closed_form_bears_every_claim_out():
    found = verdicts(record())
    assert set(found.values()) == {"holds"}
    judged = {"diagonal_exponential", "limit_1", "limit_4", "limit_9", "slope", "slope_independent", "factor_0.75"}
    assert judged | {"risk_exponential", "worse_than_zero_9", "least_squares"} <= set(found)


def test_what_is_not_the_closed_form_is_told_from_it():
    for error, failing in (
        (0.05 * BEST, {"diagonal_exponential", "limit_4", "limit_9", "slope", "slope_independent"}),
        (0.05 * (1 - np.eye(D)), {"off_diagonal_exponential", "floor_exponential"}),
    ):
        assert {name for name, verdict in verdicts(record(error)).items() if verdict == "fails"} == failing
    better = {name for name, verdict in verdicts(record(gain=0.1)).items() if verdict == "fails"}
    assert better == {"risk_exponential", "worse_than_zero_4"}  # 36 at c = 9 stays above 1


def test_slopes_and_factors_of_the_network_are_those_of_its_product():
    config = dataclasses.replace(PRESETS["smoke"], members=1, risk_tasks=100_000)
    a = 0.3 * np.eye(2)
    params = jax.tree.map(lambda leaf: leaf[None], linear_attention_weights(a, 1.0))
    sampler = random_covariance_regression(context_length=20, input_size=2)
    found = random_covariance._conditional(config, sampler, params, member_keys(config))
    moments = variance_moments("exponential", 2)
    np.testing.assert_allclose(found["slope"], regression_slope(a, moments), rtol=0.05)
    np.testing.assert_allclose(found["slope_independent"], regression_slope(a, moments, moments), rtol=0.05)
    np.testing.assert_allclose(found["factor"], 0.3 * found["variance"], rtol=0.15, atol=0.03)
    assert (np.diff(found["variance"]) > 0).all()
