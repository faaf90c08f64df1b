"""What the theory and its prompts refuse instead of answering with a NaN."""

import math

import jax
import numpy as np
import pytest

from icl_lab.prompts import gaussian_regression, random_covariance_regression
from icl_lab.theory import block_loss, flow_limit, gradient_flow, isotropic_risk, prompt_length
from icl_lab.theory.flows.gradient_flow import StableManifoldWarning

REFUSED = {
    "N must be finite": lambda: isotropic_risk(5, math.inf, 20),
    "u must be finite": lambda: block_loss(np.eye(2), math.nan, np.zeros(2), np.zeros(2), np.eye(2), 5),
    "risk must have a limit": lambda: prompt_length(lambda m: math.nan, 0.1),
    "noise must not be negative": lambda: gaussian_regression(context_length=3, covariance=np.eye(2), label_noise=-1.0),
    "one shape for each input": lambda: random_covariance_regression(
        context_length=3, input_size=2, law="gamma", shape=np.ones(8)
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what):
    with pytest.raises(ValueError, match=r"finite|at least 0|shape"):
        REFUSED[what]()


def test_the_limit_of_an_unbalanced_flow_does_not_cancel():
    u, u11 = flow_limit(np.eye(2), 5, balance=-1e12)
    assert u > 0
    np.testing.assert_allclose(u * u11, np.eye(2) / 1.6, rtol=1e-9)
    np.testing.assert_allclose(u**2 - np.sum(u11**2), -1e12, rtol=1e-9)


def test_every_coordinate_has_its_own_shape_whatever_the_batch():
    """As many tasks as inputs: nothing may be broadcast along the tasks."""
    sampler = random_covariance_regression(context_length=1, input_size=4, law="lognormal", shape=[0.01, 0.3, 0.6, 1.0])
    spread = np.log(sampler(jax.random.key(0), 4).latent["variances"])
    more = np.log(sampler(jax.random.key(0), 4000).latent["variances"])
    assert np.abs(spread[:, 0]).max() < 0.1
    np.testing.assert_allclose(more.std(0), [0.01, 0.3, 0.6, 1.0], rtol=0.1)


def test_a_lognormal_law_wider_than_its_quantiles_is_refused():
    with pytest.raises(ValueError, match="at most 1"):
        random_covariance_regression(context_length=1, input_size=2, law="lognormal", shape=1.5)


def test_a_start_whose_heads_all_fall_into_the_origin_is_told():
    u11 = -0.1 * np.eye(2)[None, None] / 2**0.5
    with pytest.warns(StableManifoldWarning):
        gradient_flow({"u": [[0.1]], "u11": u11}, np.eye(2), 5, 1.0)
