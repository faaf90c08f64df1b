"""What is put in the place of a part of a network: its own value changes nothing, another one acts where it is said."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icl_lab.models import GPT, InductionNetwork, Intervention, LanguageModel, ReducedInduction, Transformer

NETWORKS = {
    "linear": (Transformer(layers=2, heads=2), (5, 4)),
    "softmax": (Transformer(layers=2, heads=2, attention="softmax"), (5, 4)),
    "GPT": (GPT(2, 2, 8, 9), (9, 3)),
    "language": (LanguageModel(vocabulary=11, layers=2, heads=2, width=8, positions=0, rotary=20.0), (6,)),
    "induction": (InductionNetwork(labels=4, slots=9, hidden=64), (7, 14)),
    "reduced induction": (ReducedInduction(labels=4, hidden=8), (7, 5)),
}


@functools.cache
def run_of(name):
    """The network with weights so large that every part matters, on tokens drawn by numpy."""
    (network, shape), draw = NETWORKS[name], np.random.default_rng(0)
    tokens = jnp.asarray(draw.normal(size=shape) if len(shape) == 2 else draw.integers(0, 11, shape))
    shapes = jax.eval_shape(network.init, jax.random.key(0), tokens)
    params = jax.tree.map(lambda leaf: jnp.asarray(0.5 * draw.normal(size=leaf.shape), leaf.dtype), dict(shapes))
    return jax.jit(lambda intervention=None, step=0: network.apply(params, tokens, intervention, step))


@pytest.mark.parametrize("part", ["attention", "head_output", "residual"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_part_is_replaced_where_and_when_it_is_said(name, part):
    run = run_of(name)
    free, trace = run()
    value = getattr(trace, part)
    same, again = run(Intervention({part: value}, {part: jnp.ones(value.shape, bool)}))
    np.testing.assert_allclose(same, free, rtol=1e-4, atol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), again, trace)
    second = jnp.zeros(value.shape, bool).at[1].set(True)
    other = Intervention({part: value[..., ::-1]}, {part: second}, start=2, stop=4)
    moved, seen = run(other, 2)
    assert np.abs(moved - free).max() > 1e-3
    np.testing.assert_array_equal(getattr(seen, part)[1], value[1][..., ::-1])
    np.testing.assert_allclose(seen.attention[0], trace.attention[0], rtol=1e-4, atol=1e-5)
    for step in (1, 4):
        np.testing.assert_allclose(run(other, step)[0], free, rtol=1e-4, atol=1e-5)
