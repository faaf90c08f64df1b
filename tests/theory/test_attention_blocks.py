import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layer import blocks, covariance, deviation, draws, predictions

from icl_lab.theory.linear_attention.blocks import block_loss, block_loss_terms, spurious_curvature, spurious_point
from icl_lab.theory.linear_attention.closed_forms import population_loss, spurious_loss

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


def quadrature(size, n):
    """Points (x, w, x_query) and weights of standard normal variables that integrate squared errors exactly.

    A prediction has degree 2 in each input of the context and in each entry of w, and 3 in each of the query.
    """
    rules = [np.polynomial.hermite_e.hermegauss(nodes) for nodes in [3] * (n * size + size) + [4] * size]
    points = np.stack(np.meshgrid(*[r[0] for r in rules], indexing="ij"), axis=-1).reshape(-1, len(rules))
    weights = np.stack(np.meshgrid(*[r[1] for r in rules], indexing="ij"), axis=-1).reshape(-1, len(rules)).prod(1)
    x, w, query = np.split(points, [n * size, n * size + size], axis=1)
    return x.reshape(-1, n, size), w, query, weights / weights.sum()


@FEW
@given(sizes=st.sampled_from([(1, 1), (1, 3), (2, 1), (2, 2), (3, 1)]), seed=st.integers(0, 2**30))
def test_block_loss_is_exact(sizes, seed):
    rng = np.random.default_rng(seed)
    size, n = sizes
    lam, weights = covariance(rng, size), blocks(rng, size)
    x, w, query, mass = quadrature(size, n)
    root = np.linalg.cholesky(lam).T
    x, query = x @ root, query @ root
    y = (x @ w[..., None])[..., 0]
    losses = 0.5 * (predictions(*weights, x, y, query) - (w * query).sum(1)) ** 2
    np.testing.assert_allclose(mass @ losses, block_loss(*weights, lam, n), rtol=1e-10)


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


def flat_loss(vector, lam, n):
    size = lam.shape[0]
    u11, u, u12, u21 = jnp.split(vector, [size**2, size**2 + 1, size**2 + size + 1])
    return block_loss_terms(u11.reshape(size, size), u[0], u12, u21, lam, n)


derivatives = jax.jit(lambda *args: (jax.grad(flat_loss)(*args), jax.hessian(flat_loss)(*args)))


@settings(max_examples=40)
@given(spectrum=st.tuples(*[st.floats(0.1, 3.0)] * 3), n=st.integers(1, 60), seed=st.integers(0, 2**30))
def test_the_spurious_point_is_stationary_and_its_curvature_says_whether_it_is_a_minimum(spectrum, n, seed):
    turn, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))
    lam = turn @ np.diag(spectrum) @ turn.T
    point = spurious_point(lam, n)
    np.testing.assert_allclose(block_loss(*point, lam, n), spurious_loss(lam, n), rtol=1e-9)
    with jax.enable_x64(True):
        vector = np.concatenate([np.ravel(block) for block in point])
        gradient, hessian = (np.asarray(v) for v in derivatives(vector, lam, float(n)))
    assert np.abs(gradient).max() < 1e-9
    least = np.linalg.eigvalsh(hessian)[0]
    curvature = spurious_curvature(lam, n)
    if abs(curvature) > 1e-6:
        assert (least < -1e-9) == (curvature < 0)
    inside = hessian[:10, :10]  # u and U11, which decouple; -e_u^T H^-1 e_u is the Schur complement along u
    keep = np.eye(10)
    keep[:9, :9] = np.kron(turn, turn).T  # U11 in the eigenbasis
    inside = keep @ inside @ keep.T
    schur = inside[9, 9] - inside[9, :9] @ np.linalg.solve(inside[:9, :9], inside[:9, 9])
    np.testing.assert_allclose(schur, curvature, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("spectrum", "longest"), [((1.5, 0.5), 20), ((2, 1.5, 1, 0.6, 0.3), 5)])
def test_only_short_prompts_have_the_spurious_minimum(spectrum, longest):
    signs = [spurious_curvature(np.diag(spectrum), n) > 0 for n in range(1, 200)]
    assert signs == [n <= longest for n in range(1, 200)]
