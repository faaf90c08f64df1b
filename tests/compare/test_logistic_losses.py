import jax.numpy as jnp
import numpy as np
import pytest

from icl_lab.compare.logistic import logistic_losses


def test_a_drawn_label_has_the_logistic_loss_and_a_probability_the_mean_of_both():
    logits = jnp.linspace(-3, 3, 6).reshape(3, 2)
    plus, minus = (np.log1p(np.exp(-y * np.asarray(logits, np.float64))).sum(1) for y in (1, -1))
    for p, expected in ((1.0, plus), (0.0, minus), (0.3, 0.3 * plus + 0.7 * minus)):
        np.testing.assert_allclose(logistic_losses(logits, jnp.full((3, 2), p)), expected, rtol=1e-6)


def test_far_logits_and_shapes_that_differ():
    far = jnp.array([1e4])
    np.testing.assert_allclose([logistic_losses(far, jnp.ones(1)), logistic_losses(far, jnp.zeros(1))], [0, 1e4])
    with pytest.raises(AssertionError):
        logistic_losses(jnp.zeros((3, 1)), jnp.zeros(3))
