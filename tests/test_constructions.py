import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icl_lab.constructions import gd_plus_plus_weights, gradient_descent_weights
from icl_lab.models import LinearSelfAttention, learner
from icl_lab.prompts import Prompt, linear_regression
from icl_lab.prompts.layouts import joint_layout
from icl_lab.solvers import gradient_descent

PROMPT = Prompt(x=jnp.array([[1.0, 2.0], [3.0, 4.0]]), y=jnp.array([[5.0], [6.0]]), x_query=jnp.array([7.0, 8.0]))


def test_joint_tokens_carry_context_query_and_start():
    w0 = jnp.array([[0.5], [0.25]])
    assert np.array_equal(joint_layout().encode(PROMPT), [[1, 2, 5], [3, 4, 6], [7, 8, 0]])
    assert np.array_equal(joint_layout(w0).encode(PROMPT)[-1], [7, 8, -5.5])
    assert np.array_equal(joint_layout().decode(jnp.arange(9.0).reshape(3, 3), PROMPT), [-8.0])


def test_the_published_sanity_check():
    # N = 45, D = 12, eight outputs, eta = 1, a random start, x ~ U(-1, 1), 100 steps of one looped layer
    with jax.enable_x64(True):
        samples = linear_regression(context_length=45, input_size=12, output_size=8, input_range=2.0)(
            jax.random.key(0), 3
        )
        w0 = jax.random.normal(jax.random.key(1), (12, 8))
        weights = gradient_descent_weights(1.0, context_length=45, input_size=12, output_size=8, w0=w0)
        network = LinearSelfAttention(layers=100, looped=True)
        with jax.disable_jit():
            prompt = jax.tree.map(lambda leaf: leaf[0], samples.prompt)
            built = learner(network, weights, joint_layout(w0))(prompt)
            np.testing.assert_allclose(built, gradient_descent(1.0, 100, w0)(prompt), rtol=1e-11)


@pytest.mark.parametrize(("eta", "gamma"), [(np.ones((2, 2)), 0.0), (np.ones(2), np.ones(3))])
def test_rates_that_do_not_fit_are_refused(eta, gamma):
    with pytest.raises(ValueError, match=r"must be scalars or \(S,\)|ncompatible shapes"):
        gd_plus_plus_weights(eta, gamma, context_length=3, input_size=2)


@pytest.mark.parametrize(
    "prompt", [PROMPT.replace(x_query=jnp.ones(3)), PROMPT.replace(y=jnp.ones((3, 1))), PROMPT.replace(y=jnp.ones(2))]
)
def test_prompts_whose_shapes_do_not_fit_are_refused(prompt):
    with pytest.raises(AssertionError):
        joint_layout().encode(prompt)
