import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.dai import common, pretrain
from experiments.dai.common import network
from experiments.dai.pretrain import PRESETS, check, led
from experiments.dai.pretrain_claims import CLAIMS
from icl_lab.lab.claims import FAILS, HOLDS, judge
from icl_lab.lab.flags import FlagError
from icl_lab.lab.records import Record
from icl_lab.prompts.text import BEGIN, FIRST_LABEL, FIRST_TEMPLATE, language, text_task
from icl_lab.prompts.text_tasks import HELD_OUT

CONFIG = dataclasses.replace(PRESETS["lab"], members=4)


def settings(stage, since):
    return {"stage": jnp.array(stage), "since": jnp.array(since), "learning_rate": jnp.zeros(len(stage))}


def test_a_stage_ends_when_its_loss_is_reached_or_its_time_is_over():
    low, high = np.array(CONFIG.stage_loss) * 0.99, np.array(CONFIG.stage_loss) * 1.01
    step = CONFIG.most_steps
    now = led(CONFIG, settings([0, 0, 1, 2], [50, 0, 50, 50]), step, np.array([high[0], high[0], low[1], high[2]]))
    np.testing.assert_array_equal(now["stage"], [0, 1, 2, 2])
    np.testing.assert_array_equal(now["since"], [50, step, step, 50])
    last = led(CONFIG, settings([3] * 4, [100] * 4), CONFIG.steps, np.zeros(4))
    np.testing.assert_array_equal(last["stage"], 3)
    np.testing.assert_array_equal(last["since"], 100)


def test_the_learning_rate_rises_stays_and_falls_over_the_last_stage():
    early = led(CONFIG, settings([0] * 4, [0] * 4), 0, np.full(4, 9.0))
    np.testing.assert_allclose(early["learning_rate"], CONFIG.learning_rate * CONFIG.measure_every / CONFIG.warm_up)
    stayed = led(CONFIG, settings([1] * 4, [0] * 4), 1000, np.full(4, 9.0))
    np.testing.assert_allclose(stayed["learning_rate"], CONFIG.learning_rate)
    start = 2000
    rates = [
        float(led(CONFIG, settings([3] * 4, [start] * 4), step, np.full(4, 9.0))["learning_rate"][0])
        for step in (start, (start + CONFIG.steps) // 2, CONFIG.steps)
    ]
    np.testing.assert_allclose(rates, CONFIG.learning_rate * np.array([1, 0.5, 0.02]), rtol=1e-5)


def test_held_out_tasks_are_drawn_with_the_share_that_the_flag_allows(monkeypatch):
    class Drawn(Exception):  # noqa: N818
        pass

    def stop(key, of, most_zero_shot=0.8):
        raise Drawn(most_zero_shot)

    monkeypatch.setattr(common, "held_out_tasks", stop)
    with pytest.raises(Drawn) as found:
        pretrain.run(dataclasses.replace(PRESETS["smoke"], most_zero_shot=0.5), None)
    assert found.value.args == (0.5,)


def test_accuracy_is_that_of_answers_read_one_by_one():
    module = network(PRESETS["smoke"], "rotary")
    params = dict(module.init(jax.random.key(1), jnp.zeros(2, int)))
    of, labels = language(jax.random.key(2)), jnp.array([3, 7, 1, 20, 11])
    task = jax.jit(text_task)(jax.random.key(3), of, 0, labels, 3, 0.5)
    key = jax.random.key(4)
    found = jax.jit(lambda key: pretrain._accuracies(2, module, params, key=key, of=of, task=task, count=3))(key)
    words, classes = pretrain.sentences(key, of, task, 9)
    rows = np.asarray(pretrain.example_rows(task, words, classes)).reshape(3, 3 * 8)
    tokens = np.concatenate([np.full((3, 1), BEGIN), rows], axis=1)
    logits = np.asarray(jax.jit(jax.vmap(lambda one: module.apply(params, one)[0]))(tokens))
    candidates = FIRST_LABEL + np.asarray(labels)[:3]
    right = np.zeros(3)
    for row, own, answers in zip(tokens, logits, np.asarray(classes).reshape(3, 3)):
        for k, field in enumerate(np.flatnonzero(row == FIRST_TEMPLATE + 2 * int(task.template) + 1)):
            right[k] += own[field][candidates].argmax() == answers[k]
    np.testing.assert_allclose(found, right / 3, atol=1e-6)


def record(accuracy):
    return Record("dai.pretrain", "lab", {}, {}, {"rotary/final_accuracy": accuracy})


def test_a_network_is_useful_when_four_tasks_gain_a_tenth():
    useful = next(claim for claim in CLAIMS if claim.id == "dai.pretrain.useful_rotary")
    accuracy = np.zeros((3, len(HELD_OUT), 3))
    accuracy[:, :4, -1] = [[0.12], [0.14], [0.13]]
    assert judge(useful, record(accuracy))["verdict"] == HOLDS
    accuracy[:, 3, -1] = [0.01, 0.02, 0.01]
    assert judge(useful, record(accuracy))["verdict"] == FAILS


@pytest.mark.parametrize(
    ("change", "flag"),
    [({"stage_loss": (1.0,)}, "--stage_loss"),
     ({"warm_up": 7500, "steps": 7500}, "--warm_up"), ({"heads": 3}, "--heads"),
     ({"positions": ("rotary", "rotary")}, "--positions"), ({"steps": 7501}, "--steps")],
)  # fmt: skip
def test_refuses_what_does_not_fit(change, flag):
    with pytest.raises(FlagError, match=flag):
        check(dataclasses.replace(CONFIG, **change))
