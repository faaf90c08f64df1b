import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icl_lab.fast.microbatches import in_microbatches

RNG = np.random.default_rng(0)
BATCH = {"x": RNG.normal(size=(6, 3)), "y": RNG.integers(0, 2, 6)}
PARAMS = {"w": RNG.normal(size=3), "b": np.asarray(0.3)}


def loss(params, batch):
    return jnp.mean(jnp.sin(batch["x"] @ params["w"] + params["b"]) * batch["y"] + batch["x"].sum(1) ** 2)


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_value_and_gradient_are_those_of_the_whole_batch(size, x64):
    value, gradient = jax.value_and_grad(loss)(PARAMS, BATCH)
    parts = in_microbatches(loss, size)
    found, slopes = jax.jit(jax.value_and_grad(lambda p: 3 * parts(p, BATCH)))(PARAMS)
    np.testing.assert_allclose(found, 3 * value, rtol=1e-12)
    np.testing.assert_allclose(jax.jit(parts)(PARAMS, BATCH), value, rtol=1e-12)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, 3 * b, rtol=1e-11), slopes, gradient)


def test_members_side_by_side(x64):
    members = jax.tree.map(lambda leaf: np.stack([leaf, 2 * leaf]), PARAMS)
    slopes = jax.jit(jax.vmap(jax.grad(in_microbatches(loss, 2)), (0, None)))(members, BATCH)
    each = [jax.grad(loss)(own, BATCH) for own in (PARAMS, jax.tree.map(lambda leaf: 2 * leaf, PARAMS))]
    wanted = jax.tree.map(lambda *leaves: np.stack(leaves), *each)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11), slopes, wanted)


def test_a_size_that_does_not_divide_the_batch_is_refused():
    with pytest.raises(ValueError, match="divi"):
        in_microbatches(loss, 4)(PARAMS, BATCH)
