import jax
import jax.numpy as jnp
import pytest

from icl_lab.compare import progress_measures
from icl_lab.constructions import induction_head_weights
from icl_lab.fast import induction_logits
from icl_lab.models import InductionNetwork, traced
from icl_lab.prompts import evaluation_laws, item_label_classification, item_label_law
from icl_lab.prompts.layouts import item_label_layout

N, L, D, P, TASKS = 8, 32, 63, 65, 2000
NETWORK = InductionNetwork(labels=L, slots=P)


def _law(burstiness):
    return item_label_law(jax.random.key(burstiness), classes=256, labels=L, input_size=D, burstiness=burstiness)


def _weights(law):
    return induction_head_weights(law.label_vectors, slots=P, input_size=D)


def test_same_pytree_as_init():
    shapes = jax.eval_shape(NETWORK.init, jax.random.key(0), jnp.zeros((2 * N + 1, P + D)))
    assert jax.tree.map(jnp.shape, jax.eval_shape(lambda: _weights(_law(1)))) == jax.tree.map(jnp.shape, dict(shapes))


@jax.jit
def _run(law, key):
    """Accuracy on novel classes and on swapped labels; traces of some prompts of the former."""
    accuracy = {}
    for name in ("ic2", "ic"):
        test = evaluation_laws(law, N)[name]
        sampler = item_label_classification(test, context_length=N, slots=P, swapped=name == "ic2")
        samples = sampler(key, TASKS)
        answers = induction_logits(NETWORK, _weights(law), samples.prompt).argmax(-1)
        accuracy[name] = (answers == samples.target).mean()
    few = jax.tree.map(lambda leaf: leaf[:50], samples)

    def inside(sample):
        logits, trace = traced(NETWORK, _weights(law), item_label_layout(P))(sample.prompt)
        measures = progress_measures(trace.attention, logits, sample.latent["labels"], sample.latent["match"])
        return measures, trace.attention[1, 0, -1, 0] * sample.latent["match"][0]

    return accuracy, *jax.vmap(inside)(few)


@pytest.mark.parametrize("burstiness", [1, 2, 4])
def test_it_learns_new_classes_in_context(burstiness):
    accuracy, measures, on_first_item = _run(_law(burstiness), jax.random.key(7))
    assert min(accuracy.values()) >= 0.99
    for name in ("ila1", "tila2", "tla2", "cla", "cla_mass"):  # each layer attends as the paper says
        assert measures[name].mean() > 0.98, name
    assert on_first_item.max() < 0.01  # an item in first place, where it copies itself, takes no part of its label's
