import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.dai import pretrain_stages
from experiments.dai.common import count, gated, network
from experiments.dai.pretrain import PRESETS
from experiments.dai.pretrain_shown import CLAIMS, encoding_difference, follows_meaning
from experiments.dai.pretrain_stages import accuracies, measured_of, trainings_of, worlds_of
from icl_lab.lab.judging import judge
from icl_lab.lab.records import Record
from icl_lab.lab.trainings import Fits
from icl_lab.prompts.text import BEGIN, FIRST_LABEL, FIRST_TEMPLATE, language, sentences, text_task
from icl_lab.prompts.text_sequences import STAGES, example_rows
from icl_lab.prompts.text_tasks import HELD_OUT
from icl_lab.training import Fit

CONFIG = dataclasses.replace(PRESETS["lab"], members=4)


class Reading:
    """Trains nothing: a stage has the steps and the losses that it is told, unless they do not end."""

    def __init__(self, losses):
        self.losses, self.asked = losses, []

    def fit(self, stage, training):
        self.asked.append((stage, training.steps, "start" in training.settings))
        rows, every = [{"train_loss": np.array([np.nan]), "late_loss": np.array([0.0])}], training.measure_every
        losses = iter(self.losses[stage.rsplit("_", 1)[1]])
        while len(rows) <= training.steps // every and not training.until(rows[-1]):
            rows.append({"train_loss": np.array([1.0]), "late_loss": np.array([next(losses)])})
        metrics = {key: np.stack([row[key] for row in rows], 1) for key in rows[0]}
        metrics["label_entropy"] = np.ones_like(metrics["late_loss"])
        return Fit({"w": np.full(1, len(self.asked))}, every * np.arange(len(rows)), metrics, np.full(1, -1))


@pytest.fixture
def through(monkeypatch):
    """What ``Reading`` was asked, the last params and what was measured of network 3 for the losses of its stages."""
    world = dict.fromkeys(("language", "tasks", "held_out"), np.zeros(1))
    monkeypatch.setattr(pretrain_stages, "worlds_of", lambda config: world)
    monkeypatch.setattr(pretrain_stages, "_final_accuracies", lambda config, module, params: np.zeros(1))

    def trained(losses, config=CONFIG):
        config, module, reading = dataclasses.replace(config, first=3), network(config, "rotary"), Reading(losses)
        fits = Fits(trainings_of(config, "rotary", module, 1), reading.fit)
        params, found = measured_of(config, "rotary", module, 1, fits)
        fits.check_all_asked()
        return reading.asked, *jax.tree.map(lambda leaf: leaf[0], (params, found))

    return trained


def test_a_stage_ends_by_its_loss_and_the_mixture_by_its_steps(through):
    low = [goal * 0.99 for goal in CONFIG.stage_loss]
    losses = {"strings": [5, 5, low[0]], "couples": [5, low[1]], "clear": [low[2]], "mixture": [0.1] * 1000}
    asked, params, found = through(losses)
    every, mixture = CONFIG.measure_every, CONFIG.steps
    assert [name for name, *_ in asked] == [f"rotary_3_{stage}" for stage in STAGES]
    left = [CONFIG.most_steps, CONFIG.most_steps - 3 * every, CONFIG.most_steps - 5 * every, mixture]
    assert [steps for _, steps, _ in asked] == left
    assert [starts for *_, starts in asked] == [False, True, True, True]
    assert (found["reached"], params["w"]) == (4, 4)
    np.testing.assert_array_equal(found["end"]["steps"], [3 * every, 2 * every, every, mixture])
    np.testing.assert_allclose(found["end"]["late_loss"], [*low, 0.1])
    curve = found["couples"]["late_loss"]
    assert curve.shape == (CONFIG.most_steps // every + 1,)
    np.testing.assert_allclose(curve[:3], [0, 5, low[1]], rtol=1e-6)
    assert np.isnan(curve[3:]).all()


def test_a_network_that_takes_too_long_is_counted_with_the_stage_it_is_in(through):
    _, params, found = through({"strings": [1.0], "couples": [5] * 1000})
    assert found["reached"] == 1
    assert params["w"] == 2
    every = CONFIG.measure_every
    np.testing.assert_array_equal(found["end"]["steps"], [every, CONFIG.most_steps - every, 0, 0])
    assert np.isnan(found["end"]["late_loss"][2:]).all()
    assert np.isnan(found["mixture"]["late_loss"]).all()


def test_text_is_trained_on_without_the_curriculum(through):
    asked, params, found = through({"mixture": [0.1] * 1000}, dataclasses.replace(CONFIG, text=True))
    assert asked == [("rotary_3_mixture", CONFIG.steps, False)]
    assert (found["reached"], params["w"]) == (4, 1)
    assert np.isnan(found["strings"]["late_loss"]).all()


def test_networks_have_numbers_of_their_own_wherever_they_are_trained():
    config = dataclasses.replace(PRESETS["smoke"], members=3)
    whole, part = worlds_of(config), worlds_of(dataclasses.replace(config, members=2, first=1))
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[1:], b), whole, part)


def test_how_many_networks_there_are_of_each_encoding():
    lab = PRESETS["lab"]
    assert [count(lab, positions) for positions in lab.positions] == [30, 20, 3]
    two = dataclasses.replace(lab, members=2)
    assert [count(two, positions) for positions in lab.positions] == [2, 2, 2]
    assert count(dataclasses.replace(lab, positions=("sinusoidal",)), "sinusoidal") == 30


def test_accuracy_is_that_of_answers_read_one_by_one():
    module = network(PRESETS["smoke"], "rotary")
    params = dict(jax.jit(module.init)(jax.random.key(1), np.zeros(2, int)))
    of, labels = jax.jit(language)(jax.random.key(2)), jnp.array([3, 7, 1, 20, 11])
    task = jax.jit(text_task)(jax.random.key(3), of, 0, labels, 3, 0.5)
    key = jax.random.key(4)
    found = jax.jit(lambda key: accuracies(2, module, params, key, of, task, 3))(key)
    words, classes = jax.jit(sentences, static_argnums=3)(key, of, task, 9)
    rows = np.asarray(jax.jit(example_rows)(task, words, classes)).reshape(3, 3 * 8)
    tokens = np.concatenate([np.full((3, 1), BEGIN), rows], axis=1)
    logits = np.asarray(jax.jit(jax.vmap(lambda one: module.apply(params, one)[0]))(tokens))
    candidates = FIRST_LABEL + np.asarray(labels)[:3]
    right = np.zeros(3)
    for row, own, answers in zip(tokens, logits, np.asarray(classes).reshape(3, 3)):
        for k, field in enumerate(np.flatnonzero(row == FIRST_TEMPLATE + 2 * int(task.template) + 1)):
            right[k] += own[field][candidates].argmax() == answers[k]
    np.testing.assert_allclose(found, right / 3, atol=1e-6)


def test_the_gate_asks_for_a_tenth_on_four_tasks():
    accuracy = np.zeros((3, len(HELD_OUT), 3))
    accuracy[0, :4, -1] = 0.1
    accuracy[1, :3, -1] = 0.9
    accuracy[2] = 0.9  # nothing is gained
    np.testing.assert_array_equal(gated(accuracy), [True, False, False])
    np.testing.assert_array_equal(gated(accuracy.astype(np.float32) + np.float32(0.3)), [True, False, False])


def record(accuracy, **arrays):
    return Record("dai.pretrain", "lab", {}, {}, {"rotary/final_accuracy": accuracy, **arrays})


def verdict(name, of):
    return judge(next(claim for claim in CLAIMS if claim.id == f"dai.pretrain.{name}"), of)


def test_networks_that_fail_the_gate_are_counted_and_not_averaged():
    accuracy = np.full((4, len(HELD_OUT), 3), 0.5)
    accuracy[:3, :, -1] = 0.9
    accuracy[3, [0, 2], -1] = 0.1  # the polar tasks of a network that does not learn in context
    row = verdict("polar_rotary", record(accuracy))
    assert (row["members"], row["estimate"]) == (3, pytest.approx(0.9))


def test_encodings_are_compared_in_pairs_that_both_got_through():
    accuracy = np.zeros((3, len(HELD_OUT), 2))
    other = accuracy[:2] + np.array([0.25, 0.5])[:, None, None]
    arrays = {"sinusoidal/final_accuracy": other, "rotary/reached": np.array([4, 4, 4]),
              "sinusoidal/reached": np.array([4, 1])}  # fmt: skip
    np.testing.assert_allclose(encoding_difference(record(accuracy, **arrays)), [-0.25, np.nan])


def test_zero_shot_follows_meaning_where_both_vary_together():
    accuracy = np.zeros((2, len(HELD_OUT), 2))
    meaning = np.random.default_rng(0).random((2, len(HELD_OUT)))
    chance = np.array([1 / task.classes for task in HELD_OUT])
    accuracy[0, :, 0] = meaning[0]
    accuracy[1, :, 0] = 2 * chance - meaning[1]
    found = follows_meaning("rotary")(record(accuracy, meaning_only=meaning))
    np.testing.assert_allclose(found, [1, -1])
