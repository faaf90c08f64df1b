"""``identification.labels``: disturbed and foreign learners of labels, and networks that are asked by whole labels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.identification import labels as binary
from experiments.identification.label_outsiders import KINDS, discriminant, logistic, outsider
from experiments.reddy.settings import SMOKE
from experiments.reddy.training import induction_model
from experiments.reddy.transition import PRESETS
from icl_lab.identify.label_families import LabelPrompts
from icl_lab.identify.labels import label_battery, total_variation
from icl_lab.prompts import Prompt

SIZES = {"context_length": 8, "input_size": 3, "labels": 3}


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("family", ["nearest label", "majority"])
def test_a_disturbance_has_its_size_on_prompts_of_its_own(family, place):
    rng = np.random.default_rng(place)
    name, theta = binary.drawn(family, 0, rng, **SIZES)
    plain = binary.predicting(name, theta)
    moved = binary.disturbed(plain, place, rng, **SIZES)
    on, _ = label_battery(None, *SIZES.values(), 1000 + place)
    assert abs(total_variation(plain(on), moved(on)) - binary.CHANGE) < 1e-12
    np.testing.assert_allclose(moved(on).sum(1), 1)


def test_outsiders_say_probabilities_and_are_what_they_are_called():
    on, rng = label_battery(None, *SIZES.values(), 3)
    for kind in KINDS[:-1]:
        said = outsider(kind, rng, **SIZES)(on)
        np.testing.assert_allclose(said.sum(1), 1)
    x = np.array([[[-1.0], [-2.0], [1.0], [2.0]]])  # labels apart, symmetric: the border is at zero
    prompts = [LabelPrompts(x, np.array([[0, 0, 1, 1]]), np.array([[q]]), 2) for q in (-0.5, 0.0, 0.5)]
    for predict in (lambda on: discriminant(on, 0.1), lambda on: logistic(on, 0.05)):
        left, border, more = (predict(one)[0] for one in prompts)
        np.testing.assert_allclose(border, 0.5)
        np.testing.assert_allclose(left, more[::-1])
        assert more[1] > 0.6


def test_a_network_of_vectors_is_asked_by_whole_labels():
    sizes = {name: SMOKE[name] for name in ("context_length", "input_size", "slots", "hidden", "labels")}
    model = induction_model(PRESETS["smoke"])
    params = model.init(jax.random.key(0))
    n, d, count = sizes["context_length"], sizes["input_size"], sizes["labels"]
    rng = np.random.default_rng(0)
    x, labels, q = rng.normal(size=(3, n, d)), rng.integers(count, size=(3, n)), rng.normal(size=(3, d))
    vectors = jnp.asarray(rng.normal(size=(count, d)), jnp.float32)
    said = binary.of_vectors(model, params, vectors)(x, labels, q)
    for row in range(3):
        prompt = Prompt(jnp.float32(x[row]), vectors[labels[row]], jnp.float32(q[row]), jnp.int32(0))
        np.testing.assert_allclose(said[row], model.run(params, prompt)[0], atol=1e-5)
