import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layer import blocks, covariance, deviation, draws, predictions

from icl_lab.theory.attention_blocks import block_loss, block_loss_terms
from icl_lab.theory.linear_attention import population_loss

FEW = settings(max_examples=10)


@FEW
@given(
    size=st.integers(1, 4),
    n=st.integers(1, 6),
    seed=st.integers(0, 2**30),
    kept=st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()),
)
def test_block_loss_is_that_of_the_layer(size, n, seed, kept):
    rng = np.random.default_rng(seed)
    lam = covariance(rng, size)
    weights = tuple(keep * block for keep, block in zip(kept, blocks(rng, size)))
    x, y, query, target, _ = draws(rng, 60_000, n, lam)
    losses = 0.5 * (predictions(*weights, x, y, query) - target) ** 2
    assert abs(deviation(losses, block_loss(*weights, lam, n))) < 4


@FEW
@given(size=st.integers(1, 5), n=st.integers(1, 30), seed=st.integers(0, 2**30), scale=st.floats(0.2, 5.0))
def test_identities_of_the_block_loss(size, n, seed, scale):
    rng = np.random.default_rng(seed)
    lam, none = covariance(rng, size), np.zeros(size)
    u11, u, u12, u21 = blocks(rng, size)
    loss = block_loss(u11, u, u12, u21, lam, n)
    np.testing.assert_allclose(block_loss(u11 / scale, scale * u, scale * u12, u21 / scale, lam, n), loss, rtol=1e-9)
    np.testing.assert_allclose(block_loss(u11, u, none, none, lam, n), population_loss(u * u11, lam, n), rtol=1e-12)
    low_rank = block_loss(0 * u11, 0.0, u12, u21, lam, n)
    np.testing.assert_allclose(low_rank, population_loss(np.outer(u12, u21), lam, n), rtol=1e-12)
    turn, _ = np.linalg.qr(rng.normal(size=(size, size)))
    turned = block_loss(turn @ u11 @ turn.T, u, turn @ u12, turn @ u21, turn @ lam @ turn.T, n)
    np.testing.assert_allclose(turned, loss, rtol=1e-9)


def test_block_loss_is_differentiable_in_jax():
    rng = np.random.default_rng(0)
    lam, weights = covariance(rng, 3), blocks(rng, 3)
    with jax.enable_x64(True):
        many = tuple(jnp.stack([jnp.asarray(b), 2 * jnp.asarray(b)]) for b in weights)
        terms = jax.jit(jax.vmap(jax.value_and_grad(block_loss_terms, (0, 1, 2, 3)), (0, 0, 0, 0, None, None)))
        values, gradients = terms(*many, jnp.asarray(lam), 5)
    np.testing.assert_allclose(values, [block_loss(*weights, lam, 5), block_loss(*(2 * b for b in weights), lam, 5)])
    step = 1e-6
    moved = [(b + step * np.asarray(g[0]), b - step * np.asarray(g[0])) for b, g in zip(weights, gradients)]
    up, down = (block_loss(*(pair[i] for pair in moved), lam, 5) for i in (0, 1))
    squared = sum(float((np.asarray(g[0]) ** 2).sum()) for g in gradients)
    np.testing.assert_allclose((up - down) / (2 * step), squared, rtol=1e-6)


def test_bad_arguments():
    good = {"u11": np.eye(2), "u": 1.0, "u12": np.zeros(2), "u21": np.zeros(2), "covariance": np.eye(2)}
    bad = {"u11": np.eye(3), "u12": np.zeros(3), "u21": np.full(2, np.nan), "covariance": np.diag([1.0, 0.0])}
    for name, value in bad.items():
        with pytest.raises(ValueError, match=name):
            block_loss(**(good | {name: value}), context_length=2)
    with pytest.raises(ValueError, match="context_length"):
        block_loss(**good, context_length=0)
