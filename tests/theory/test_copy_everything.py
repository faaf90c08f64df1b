import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icl_lab.constructions import copy_then_gradient_descent_weights
from icl_lab.fast import batch_learner
from icl_lab.models import Transformer
from icl_lab.prompts import input_variance, linear_regression
from icl_lab.prompts.layouts import separate_layout
from icl_lab.theory import input_kurtosis, one_step_optimum
from icl_lab.theory.gradient_descent.copy_everything import copy_everything_loss, copy_everything_optimum


def copy_everything_weights(rate, label_rate, n, d):
    """The hand-built network with a first layer that moves the next token's label channel to every token."""
    size = 2 * n + 2
    weights = copy_then_gradient_descent_weights(
        rate, context_length=n, input_size=d, position_size=size, attention="linear"
    )["params"]
    following = jnp.eye(d + size, k=1).at[:d].set(0).at[d + 2 * n - 1 :].set(0)  # position t looks for t + 1 < 2N
    rates = jnp.ones(d + size).at[d - 1].set(label_rate / rate)
    on_x = jnp.diag((jnp.arange(d + size) < d) * rates)
    return {
        "params": weights
        | {
            "w_q": weights["w_q"].at[0, 0].set(following),
            "w_k": weights["w_k"].at[1, 0].set(on_x),
        }
    }


@pytest.mark.parametrize(("n", "d"), [(1, 3), (2, 4), (10, 10)])
@pytest.mark.parametrize(("law", "r", "scale"), [("uniform", 1.0, 1.0), ("normal", 1.5, 0.5)])
def test_the_loss_is_what_a_network_has_that_copies_everything(n, d, law, r, scale):
    variance = input_variance(law, r)
    rates = [0.4 / variance, 0.7 / variance]
    network, layout = Transformer(layers=2, attention="linear"), separate_layout(2 * n + 2, "one_hot")

    @jax.jit
    def errors(key):
        samples = linear_regression(context_length=n, input_size=d, input_law=law, input_range=r, task_scale=scale)(
            key, 40_000
        )
        predictions = batch_learner(network, copy_everything_weights(*rates, n, d), layout)(samples.prompt)
        return (predictions - samples.target)[:, 0]

    losses = 0.5 * np.asarray(errors(jax.random.key(n)), np.float64) ** 2
    setting = {"context_length": n, "input_size": d, "input_variance": variance, "kurtosis": input_kurtosis(law)}
    exact = copy_everything_loss(*rates, **setting, task_scale=scale)
    assert abs(losses.mean() - exact) < 4 * losses.std() / losses.size**0.5


@settings(max_examples=30)
@given(
    n=st.integers(1, 50),
    d=st.integers(1, 50),
    variance=st.floats(0.01, 4.0),
    kurtosis=st.floats(1.0, 9.0),
    scale=st.floats(0.1, 3.0),
)
def test_the_optimum_is_where_the_loss_is_least(n, d, variance, kurtosis, scale):
    setting = {"context_length": n, "input_size": d, "input_variance": variance, "kurtosis": kurtosis}
    setting |= {"task_scale": scale}
    rate, label_rate, least = copy_everything_optimum(**setting)
    factors = np.array([0.9, 1.1])
    if d > 1:
        assert np.all(copy_everything_loss(rate * factors, label_rate, **setting) > least)
    assert np.all(copy_everything_loss(rate, label_rate * factors, **setting) > least)
    assert least >= one_step_optimum(**setting)[1] * (1 - 1e-12)


def test_published_setting():
    law = {"context_length": 10, "input_size": 10, "input_variance": 1 / 12}
    _, _, least = copy_everything_optimum(**law)
    assert least == pytest.approx((9 * (1 - 10 / 19.8) + 1 - 10 / 28.8) / 24, rel=1e-12)
    assert least == pytest.approx(0.2128, abs=5e-5)
