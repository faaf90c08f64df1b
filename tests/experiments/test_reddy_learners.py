"""A finished run of the item-label binaries gives its networks back as learners."""

import jax
import numpy as np

import icl_lab
from experiments.reddy import curriculum
from experiments.reddy.settings import member_laws
from experiments.reddy.training import accuracy, evaluation_samples, sampler
from experiments.settings import member_keys


def test_a_loaded_network_is_as_accurate_as_the_record_says(smoke_run):
    """The last accuracy on novel classes, of each member on its own test set: the weights, found in the state."""
    config = curriculum.PRESETS["smoke"]
    run = icl_lab.load_run(smoke_run("reddy.curriculum").folder)
    assert run.stages() == ["training"]
    worlds = member_laws(config)
    draw = jax.jit(lambda law, key: evaluation_samples(config, law, "ic", key))
    for member in range(config.members):
        key = jax.random.split(member_keys(config)[member], 3)[2]
        law = jax.tree.map(lambda leaf, m=member: leaf[m], worlds)
        samples = draw(law, key)
        logits = jax.jit(run.batch_learner(member))(samples.prompt)
        np.testing.assert_allclose(accuracy(logits, samples), run.record["control/ic"][member, -1], atol=1e-6)
        alone = jax.jit(run.learner(member))(jax.tree.map(lambda leaf: leaf[0], samples.prompt))
        np.testing.assert_allclose(alone, logits[0], rtol=1e-4, atol=1e-5)
        own = (draw(key, 32).prompt.x for draw in (run.sampler(member), sampler(config, law)))
        np.testing.assert_array_equal(*own)
