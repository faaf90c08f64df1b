"""Momentum through the curriculum: which network a mixer's name stands for, the arm without, and what claims read."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.dai import mixers, momentum_tasks, pretrain
from experiments.dai.momentum_tasks_shown import CLAIMS, better, sooner
from icl_lab.lab.flags import FlagError, to_json
from icl_lab.lab.judging import judge
from icl_lab.lab.record import flat
from icl_lab.lab.records import Record
from icl_lab.lab.trainings import Fits, collected
from icl_lab.models import language
from icl_lab.prompts.text_sequences import STAGES

SMOKE = momentum_tasks.PRESETS["smoke"]


@pytest.mark.parametrize("name", ["vanilla", "momentum_0.3", "normalised_0.5", "learned_0.7", "recent_3"])
def test_a_network_has_the_mixer_of_its_name(name):
    module, tokens = momentum_tasks.module_of(SMOKE, name), 6
    logit = jnp.full(SMOKE.heads, np.log(0.7 / 0.3))  # where a learned coefficient starts
    added = language.MIXERS[module.mixer](module, {"eta": logit}, tokens)
    expected = mixers.fixed_mixing(name.replace("learned", "momentum"), tokens)
    np.testing.assert_allclose(np.zeros((tokens, tokens)) if added is None else added[0], expected, atol=1e-6)
    assert (added is None) == (name == "vanilla")
    assert module.learned_eta == name.startswith("learned")
    assert module.clone(
        mixer="none", eta=0.0, learned_eta=False, normalised=False, window=1
    ) == momentum_tasks.module_of(SMOKE, "vanilla")


def test_the_arm_without_a_mixer_is_of_the_same_training(monkeypatch):
    config = dataclasses.replace(SMOKE, networks="there")
    same = {"most_steps": config.most_steps, "stage_loss": config.stage_loss}
    of_pretrain = dataclasses.replace(pretrain.PRESETS["smoke"], members=5, **same)
    trained = to_json(of_pretrain)
    arrays = {"rotary/reached": np.full(5, 4)}
    monkeypatch.setattr(
        momentum_tasks, "record_of", lambda folder: Record("dai.pretrain", "smoke", trained, {}, arrays, {})
    )
    assert momentum_tasks.without_mixer(config).arrays is arrays
    for changes, said in (
        ({"learning_rate": 0.1}, "differs in learning_rate"), ({"first": 5}, "with the networks 5 to"),
        ({"members": 6}, "networks 0 to 5"), ({"positions": ("sinusoidal",)}, "--positions=sinusoidal"),
    ):  # fmt: skip
        with pytest.raises(FlagError, match=said):
            momentum_tasks.without_mixer(dataclasses.replace(config, **changes))


def test_the_arm_without_a_mixer_has_the_numbers_of_the_others(monkeypatch):
    """Networks 3 and 4 are compared with the third and fourth of a run that begins with 1, not with its first."""
    config = dataclasses.replace(SMOKE, networks="there", mixers=("vanilla", "momentum_0.5"), first=3, members=2)
    reached = np.tile(np.arange(1, 6)[:, None], 6)
    end = dict.fromkeys(("steps", "late_loss", "label_entropy"), reached)
    arrays = flat({"rotary": {"reached": reached, "end": end, "final_accuracy": reached}})
    there = Record("dai.pretrain", "smoke", to_json(config) | {"first": 1, "members": 5}, {}, arrays, {})
    zeros = np.zeros((2, 6))
    found = {"reached": zeros, "end": dict.fromkeys(("steps", "late_loss", "label_entropy"), zeros)}
    monkeypatch.setattr(momentum_tasks, "record_of", lambda folder: there)
    monkeypatch.setattr(momentum_tasks, "measured_of", lambda *_: ({}, found | {"final_accuracy": zeros}))
    monkeypatch.setattr(momentum_tasks, "worlds_of", lambda config: {"language": np.zeros(2), "tasks": zeros})
    monkeypatch.setattr(momentum_tasks, "ceiling_accuracy", lambda key, of, task: of + task)
    assert list(momentum_tasks.trainings(config)) == [f"momentum_0.5_{n}_{stage}" for n in (3, 4) for stage in STAGES]
    _, arrays, _ = collected(momentum_tasks.measured(config, Fits({}, pytest.fail)))
    np.testing.assert_array_equal(arrays["reached"][0, :, 0], [3, 4])


def _record(stuck=()):
    """Six networks of four arms whose accuracies differ more than the arms do; some momentum networks are stuck."""
    names, members, noise = ("vanilla", "momentum_0.5", "learned_0.5", "recent_4"), 6, np.random.default_rng(0)
    gains = np.array([0.0, 0.05, 0.05, 0.05])[:, None]
    ends = 0.6 + 0.1 * noise.normal(size=members) + gains + 0.002 * noise.normal(size=(4, members))
    steps = np.array([1000, 700, 700, 720])[:, None] + 10 * np.arange(members)
    reached = np.full((4, members), 4)
    reached[1, list(stuck)] = 2
    ends[1, list(stuck)] = 0.2
    a = {
        "final_accuracy": np.tile(ends[..., None, None], (1, 1, 6, 3)),
        "reached": reached,
        "end/steps": np.tile(steps[..., None], (1, 1, 4)),
    }
    metrics = {"stages": ["strings", "couples", "clear", "mixture"]}
    return Record("dai.momentum_tasks", "lab", {"mixers": names, "members": members}, metrics, a, {})


def test_networks_that_do_not_come_through_are_in_no_mean():
    whole, some = _record(), _record(stuck=(1, 4))
    for statistic in (better, sooner):
        found = statistic(some)
        assert np.isnan(found).tolist() == [False, True, False, False, True, False]
        np.testing.assert_allclose(found[[0, 2, 3, 5]], statistic(whole)[[0, 2, 3, 5]])
    assert judge(CLAIMS[0], some)["members"] == 4
