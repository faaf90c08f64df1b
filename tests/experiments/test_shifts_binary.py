import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from toys import verdicts

from experiments.settings import member_keys
from experiments.zhang_frei_bartlett import shifts
from experiments.zhang_frei_bartlett.shift_families import TRAININGS, Config, closed_form, points, training_config
from experiments.zhang_frei_bartlett.shifts import ERROR, PRESETS, PRODUCT
from experiments.zhang_frei_bartlett.shifts_shown import CLAIMS
from icl_lab.constructions import linear_attention_weights
from icl_lab.lab.flags import to_json
from icl_lab.lab.record import Record
from icl_lab.lab.trainings import collected
from icl_lab.theory import optimum


def record(gain=1.0):
    """Two members with the best A, times a factor."""
    pieces = []
    for training, families in TRAININGS.items():
        config = training_config(Config(), training)
        best = gain * optimum(np.diag(config.spectrum), config.context_length)
        pieces.append((PRODUCT.at(training=training), np.stack([best] * 2)))
        for family in families:
            exact = np.array([[closed_form(config, family, point, best) for point in points(config, family)]] * 2)
            found = {"trained": exact, "exact": exact.copy(), "least_squares": np.zeros_like(exact)}
            pieces.append((ERROR.at(training=training, family=family), found))
    return Record("toy", "lab", to_json(Config()), {}, collected(pieces)[1])


def test_the_best_layer_bears_every_claim_out():
    with np.errstate(invalid="ignore"):  # 0 / 0 of the isotropic layer on orthogonal queries, which no claim reads
        assert set(verdicts(CLAIMS, record()).values()) == {"holds"}


def test_another_layer_is_told_from_the_best():
    failing = {name for name, verdict in verdicts(CLAIMS, record(gain=1.1)).items() if verdict == "fails"}
    assert {"predicted_spectrum_inputs", "predicted_isotropic_orthants", "predicted_spectrum_orthogonal"} <= failing
    assert {"limit_0.5", "limit_2", "limit_3"} <= failing
    assert not any(name.startswith("sampled") for name in failing)  # that is about its own A
    better = record()
    orthants, weights = (
        ERROR(better, training=training, family=family, of="trained")
        for training, family in (("isotropic", "orthants"), ("spectrum", "weights"))
    )
    orthants *= 0.1
    weights *= np.array([[1.0, 1.0, 1.0, 1.1]])
    failing = {name for name, verdict in verdicts(CLAIMS, better).items() if verdict == "fails"}
    changed = {"sampled_isotropic_orthants", "predicted_isotropic_orthants", "orthants_fail", "weights_invariant"}
    assert changed <= failing


def test_the_network_has_the_closed_form_of_its_product():
    config = dataclasses.replace(
        PRESETS["smoke"], members=1, spectrum=(1.5, 0.5), input_scales=(1.5,), weight_scales=(0.5,), context_length=4
    )
    a = np.array([[0.5, 0.1], [-0.3, 0.8]])
    params = jax.tree.map(lambda leaf: leaf[None], linear_attention_weights(2 * a, 0.5))
    families = ("task", "inputs", "query", "weights", "orthants", "rescaled", "orthogonal")
    layer = shifts.trainings(config)["spectrum"].learner
    found = shifts._errors(config, families, layer, params, member_keys(config), 60_000)
    assert set(found) == set(families)
    for family, errors in found.items():
        exact = [closed_form(config, family, point, a) for point in points(config, family)]
        np.testing.assert_allclose(errors[0], exact, rtol=0.05)
    idle = shifts._errors(
        config, ("orthogonal",), shifts._least_squares, jnp.zeros(1), member_keys(config), 50
    )  # it predicts 0
    assert idle["orthogonal"].max() < 1e-9
