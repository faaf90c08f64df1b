"""The automatic curriculum: what a level is, when the next begins, and that the whole task is plain training."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.reddy.curriculum import LABELS, LENGTH, NOVEL, PRESETS, advancing, law_at, loss_of
from experiments.reddy.settings import member_laws
from experiments.reddy.training import cross_entropy, induction_model, sampler

CONFIG = dataclasses.replace(PRESETS["smoke"], members=1)
KEY = jax.random.key(2)


@pytest.fixture(scope="module")
def law():
    return jax.tree.map(lambda leaf: leaf[0], member_laws(CONFIG))


def test_the_next_level_begins_when_the_averaged_accuracy_has_passed():
    config = dataclasses.replace(CONFIG, lengths=(1, 2, 2), passed=0.8, memory=4)
    transformation = advancing(optax.sgd(0.5), config)
    state = {"weights": jnp.ones(()), "level": jnp.zeros(()), "accuracy": jnp.zeros(()), "probe": jnp.zeros(())}
    kept, levels = transformation.init(state), []
    for _ in range(16):
        gradient = jax.tree.map(jnp.ones_like, state)  # every batch is right
        updates, kept = transformation.update(gradient, kept, state)
        state = optax.apply_updates(state, updates)
        levels.append(int(state["level"]))
    passing = int(np.ceil(np.log(1 - 0.8) / np.log(1 - 1 / 4)))  # steps until 1 - (3/4)^n >= .8
    assert levels == [0] * (passing - 1) + [1] * passing + [2] * (17 - 2 * passing)
    assert state["weights"] == pytest.approx(1 - 0.5 * 16)
    assert state["probe"] == 0


def test_a_level_changes_its_own_field_and_the_last_is_the_whole_law(law):
    changed = {LABELS: "labels", NOVEL: "novel_share", LENGTH: None, 0: None}
    for kind, field in changed.items():
        first, last = (law_at(CONFIG, law, jnp.asarray(kind), jnp.asarray(level)) for level in (0, 1))
        for name in ("labels", "novel_share", "burstiness", "classes"):
            assert getattr(last, name) == getattr(law, name)
            assert (getattr(first, name) != getattr(law, name)) == (name == field), (kind, name)


def test_the_whole_task_is_the_plain_loss_and_the_probe_has_its_accuracy(law):
    model = induction_model(CONFIG)
    weights = model.init(KEY)
    state = {"weights": weights, "level": jnp.ones(()), "accuracy": jnp.zeros(()), "probe": jnp.zeros(())}

    @jax.jit
    def both(state):
        samples = sampler(CONFIG, law)(KEY, CONFIG.batch)
        logits = model.logits(weights, samples.prompt)
        plain = cross_entropy(logits, samples).mean(), (logits.argmax(-1) == samples.target).mean()
        value = jax.value_and_grad(loss_of(CONFIG, model))
        return plain, value(state, KEY, {"law": law, "kind": jnp.asarray(LENGTH)})

    plain, (loss, gradient) = both(state)
    np.testing.assert_allclose(loss, plain[0], rtol=1e-5)
    np.testing.assert_allclose(gradient["probe"], plain[1], rtol=1e-6)
    assert gradient["level"] == gradient["accuracy"] == 0
