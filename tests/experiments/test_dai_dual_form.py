"""What ``dual_form`` measures in a network: which of it is exact, and that it would show if it were not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.dai.heads import Pair, head_metrics, in_place
from experiments.dai.identities import descent_error, finetuning_terms
from icl_lab.models import LanguageModel

SIZES = {"vocabulary": 12, "layers": 2, "heads": 2, "width": 8}
NETWORKS = {
    "rotary": LanguageModel(**SIZES, positions=0, rotary=10.0),
    "learned": LanguageModel(**SIZES, positions=16),
}
QUERY, CONTEXT = 4, 9


def drawn(network):
    shapes = jax.eval_shape(network.init, jax.random.key(0), jnp.zeros(2, jnp.int32))
    generator = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: jnp.asarray(0.5 * generator.normal(size=leaf.shape), jnp.float32), dict(shapes))


def measured(positions, move=True):
    network = NETWORKS[positions]
    params = drawn(network)
    tokens = jnp.asarray(np.random.default_rng(1).integers(0, 12, CONTEXT + QUERY), jnp.int32)
    place = jnp.arange(CONTEXT + QUERY)
    pair = Pair(tokens, tokens[CONTEXT:], (place > 0) & (place < CONTEXT))
    return head_metrics(network, params, in_place(params, CONTEXT) if move else params, pair)


@pytest.mark.parametrize("positions", NETWORKS)
def test_the_zero_shot_part_is_that_of_a_run_of_its_own_in_the_first_layer_alone(positions):
    found = measured(positions)
    assert found["zero_shot_identity"].shape == (2, 2)
    assert (found["zero_shot_identity"][0] < 1e-5).all()
    assert (found["zero_shot_identity"][1] > 1e-2).all()
    assert (found["softmax_identity"] < 1e-5).all()
    assert (found["relaxed_identity"] < 1e-4).all()
    assert ((found["mass"] > 0) & (found["mass"] < 1)).all()
    assert (found["rank"] == 4).all()
    assert ((found["stable_rank"] >= 1) & (found["stable_rank"] <= 4)).all()


def test_learned_positions_must_be_kept_for_it():
    assert (measured("learned", move=False)["zero_shot_identity"][0] > 1e-2).all()


def test_the_dual_form_is_exact_in_both_precisions():
    errors = [descent_error(jax.random.key(0), 20, 5, 3, precision) for precision in ("float32", "float64")]
    assert 1e-12 < errors[0] < 1e-5  # that it is float32 at all
    assert errors[1] < 1e-14


def test_fine_tuning_is_its_three_terms():
    network = NETWORKS["rotary"]
    params = drawn(network)
    examples = jnp.asarray(np.random.default_rng(1).integers(0, 12, (3, 6)), jnp.int32)
    terms = jax.jit(finetuning_terms, static_argnums=0)
    found = {rate: terms(network, params, examples, jnp.full(3, 6), rate) for rate in (0.01, 1.0)}
    assert all((one["finetuning_identity"] < 1e-5).all() for one in found.values())
    assert (found[1.0]["both_share"] > 10 * found[0.01]["both_share"]).all()  # of second order in the rate
    for one in found.values():
        assert (one["values_share"] + one["keys_share"] + one["both_share"] > 1 - 1e-4).all()
