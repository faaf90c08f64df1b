import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon

from icl_lab.compare.distributions import jensen_shannon, order_sensitivity, top_overlap

RNG = np.random.default_rng(0)


def test_top_overlap_by_hand():
    a = jnp.asarray([5.0, 4.0, 3.0, 0.0, 1.0])
    b = jnp.asarray([[5.0, 4.0, 3.0, 0.0, 1.0], [3.0, 0.0, 4.0, 5.0, 1.0], [0.0, 0.1, 0.2, 5.0, 6.0]])
    np.testing.assert_allclose(top_overlap(jnp.tile(a, (3, 1)), b, 3), [1, 2 / 3, 1 / 3], rtol=1e-6)


def test_divergence_is_scipys_and_bounded():
    logits = 3 * RNG.normal(size=(2, 4, 6))
    p, q = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    expected = jensenshannon(p, q, axis=-1) ** 2
    np.testing.assert_allclose(jensen_shannon(*map(jnp.asarray, logits)), expected, rtol=1e-4)
    apart = jnp.asarray([90.0, 0.0]), jnp.asarray([0.0, 90.0])
    np.testing.assert_allclose(jensen_shannon(*apart), np.log(2), rtol=1e-6)
    assert jensen_shannon(apart[0], apart[0]) == 0
    never = [jnp.array([*pair, -jnp.inf]) for pair in ((0.0, 1.0), (1.0, 0.0))]  # an answer that both rule out
    np.testing.assert_allclose(jensen_shannon(*never), jensen_shannon(never[0][:2], never[1][:2]), rtol=1e-6)


def test_order_sensitivity_by_hand():
    same = jnp.asarray(RNG.normal(size=(1, 4, 2)).repeat(3, 0))
    found = order_sensitivity(same, jnp.zeros(4, int))
    np.testing.assert_allclose([found["log_probability"], found["accuracy"]], 0, atol=1e-6)
    sure = jnp.asarray([[[50.0, 0.0], [0.0, 0.0]], [[0.0, 50.0], [0.0, 0.0]]])
    found = order_sensitivity(sure, jnp.asarray([0, 1]))
    np.testing.assert_allclose(found["log_probability"], 25 / 2, rtol=1e-5)
    np.testing.assert_allclose(found["accuracy"], 0.25)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: top_overlap(jnp.ones(3), jnp.ones(4), 1), "a and b must have one shape"),
        (lambda: top_overlap(jnp.ones(3), jnp.ones(3), 4), "k must be from 1 to the 3 tokens, got 4"),
        (lambda: jensen_shannon(jnp.ones(3), jnp.ones(4)), "a and b must have one shape"),
        (lambda: order_sensitivity(jnp.ones((1, 2, 2)), jnp.zeros(2, int)), "at least two orders"),
    ],
)
def test_what_does_not_fit_is_refused(call, named):
    with pytest.raises(ValueError, match=named):
        call()
