"""Trainings as values: a table trains nothing; each is carried out once, when it is first asked for."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.binaries import discover
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import After, Fits, collected
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts import linear_regression
from icl_lab.training import Training, fit, fitting, train, training

KEYS = jax.random.split(jax.random.key(0), 2)
BINARIES = discover()


def towards(target, **options):
    return Training(
        lambda key, _: {"p": jnp.zeros(())}, lambda p, key, _: (p["p"] - target) ** 2, optax.sgd(0.25), KEYS,
        steps=3, **options,
    )  # fmt: skip


def fits_of(table, asked=None):
    def carried_out(stage, one):
        if asked is not None:
            asked.append(stage)
        return one.carried_out()

    return Fits(table, carried_out)


def test_a_training_carried_out_is_fit_of_its_arguments():
    one = towards(2.0, measure=lambda p, key, _: {"p": p["p"]}, measure_every=1)
    direct = fit(one.init, one.loss, one.optimizer, KEYS, steps=3, measure=one.measure, measure_every=1)
    found = one.carried_out()
    np.testing.assert_array_equal(found.metrics["p"], direct.metrics["p"])
    assert found.metrics["p"].shape == (2, 4)
    assert set(vars(towards(1.0))) == {field.name for field in dataclasses.fields(Training)}


def test_train_is_the_training_carried_out():
    sampler = linear_regression(context_length=4, input_size=2)
    options = {"members": 2, "steps": 4, "batch": 8, "eval_tasks": 8, "measure_every": 2}
    found = train(LinearSelfAttention(), sampler, progress=False, **options)
    planned = training(LinearSelfAttention(), sampler, **options)
    again = planned.carried_out()
    np.testing.assert_array_equal(found.fit.metrics["loss"], again.metrics["loss"])
    samples = sampler(jax.random.key(1), 5)
    ours = planned.learner(jax.tree.map(lambda leaf: leaf[1], again.params))(samples.prompt)
    np.testing.assert_allclose(ours, found.batch_learner(1)(samples.prompt), rtol=1e-6)
    assert planned.sampler(None)(jax.random.key(1), 5).target.shape == samples.target.shape


def test_stages_are_trained_once_when_they_are_asked_for():
    asked = []
    table = {
        "second": After(lambda fits: towards(float(fits["first"].params["p"][0]))),
        "first": towards(2.0),
        "none": After(lambda fits: None),
        "unkept": towards(1.0, kept=False),
    }
    fits = fits_of(table, asked)
    assert list(fits) == list(table)
    assert asked == []
    assert fits["second"] is fits["second"]
    assert asked == ["first", "second"]
    assert fits["none"] is None
    with pytest.raises(ValueError, match="nothing asks for the trainings unkept"):
        fits.check_all_asked()
    assert fits["unkept"].params["p"].shape == (2,)
    fits.check_all_asked()
    assert set(fits.params()) == {"first", "second"}
    assert isinstance(fits.params()["first"]["p"], np.ndarray)


def test_a_stage_that_waits_for_itself_is_named():
    table = {"a": After(lambda fits: fits["b"]), "b": After(lambda fits: fits["a"])}
    with pytest.raises(ValueError, match="'a' waits for itself"):
        fits_of(table)["a"]


def test_what_is_measured_is_collected_by_name():
    loss, curve = quantity("loss", "member"), quantity("{name}/curve", "step", name=("a", "b"))
    facts, arrays, params = collected(
        [
            (loss, jnp.ones(2)),
            (curve.at(name="a"), np.zeros(3)),
            {"b": {"curve": np.ones(3)}},
            ("facts", {"rate": 0.1}),
            ("facts", {"best": 2.0}),
            ("params", {"a": {"w": jnp.ones(2)}}),
        ]
    )
    assert facts == {"rate": 0.1, "best": 2.0}
    assert set(arrays) == {"loss", "a/curve", "b/curve"}
    assert all(isinstance(array, np.ndarray) for array in arrays.values())
    assert isinstance(params["a"]["w"], np.ndarray)
    assert collected([(loss, np.ones(2))])[2] is None
    with pytest.raises(ValueError, match="loss: measured twice"):
        collected([(loss, np.ones(2)), {"loss": np.ones(2)}])


@pytest.mark.parametrize("binary", BINARIES.values(), ids=BINARIES)
def test_the_table_of_every_preset_trains_nothing(binary, monkeypatch):
    def refused(*args, **options):
        raise AssertionError("a table of trainings must not train")

    monkeypatch.setattr(fitting.Ensemble, "begin", refused)
    monkeypatch.setattr(Training, "carried_out", refused)
    for preset, config in binary.presets.items():
        table = binary.trainings(config)
        assert all(isinstance(one, Training | After) for one in table.values()), preset
