"""The loss of training refuses what NumPy's rules would broadcast."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icl_lab.prompts import linear_regression
from icl_lab.training.plans import squared_error


@pytest.mark.parametrize("shape", [(3,), (1, 2), (3, 1), (1, 1)])
def test_predictions_of_another_shape_than_the_targets_are_refused(shape):
    samples = linear_regression(context_length=2, input_size=2, output_size=2)(jax.random.key(0), 3)
    with pytest.raises(AssertionError), jax.numpy_rank_promotion("allow"):  # as in a run
        squared_error(jnp.zeros(shape), samples)
    found = squared_error(jnp.zeros((3, 2)), samples)
    np.testing.assert_allclose(found, 0.5 * np.sum(np.square(samples.target), axis=1), rtol=1e-6)
