"""What only an accelerator can show; skipped where there is none."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from icl_lab.fast import batch_learner
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts import linear_regression
from icl_lab.training import memory
from icl_lab.training.fitting import fit

SAMPLER = linear_regression(context_length=6, input_size=4)
NETWORK = LinearSelfAttention(layers=2)


def loss(params, key, _):
    samples = SAMPLER(key, 64)
    return jnp.mean((batch_learner(NETWORK, params)(samples.prompt) - samples.target) ** 2)


def train(members, **options):
    return fit(
        lambda key, _: NETWORK.init(key, jnp.zeros((7, 5))), loss, optax.adam(1e-3),
        jax.random.split(jax.random.key(0), members), steps=20, **options,
    )  # fmt: skip


def difference(a, b):
    """Largest difference of parameters, over the largest parameter."""
    leaves = zip(jax.tree.leaves(a.params), jax.tree.leaves(b.params), strict=True)
    return max(float(np.max(np.abs(np.asarray(x) - np.asarray(y))) / np.max(np.abs(y))) for x, y in leaves)


@pytest.mark.gpu
def test_training_is_that_on_the_cpu_at_the_highest_precision():
    with jax.default_matmul_precision("highest"):
        there = train(3)
        with jax.default_device(jax.devices("cpu")[0]):
            here = train(3)
    assert {leaf.device.platform for leaf in jax.tree.leaves(there.params)} == {jax.default_backend()}
    assert difference(there, here) < 1e-4  # twenty steps of Adam amplify the last bits of float32


@pytest.mark.gpu
def test_members_in_groups_are_those_at_once():
    whole = train(64)
    groups = train(64, memory_limit=0.3 * whole.memory)
    assert 0 < groups.memory <= 0.3 * whole.memory
    assert difference(groups, whole) < 1e-4


@pytest.mark.gpu
def test_the_limit_of_memory_is_a_share_of_the_device():
    total = jax.local_devices()[0].memory_stats()["bytes_limit"]
    assert memory.limit() == pytest.approx(memory.OF_ACCELERATOR * total)
