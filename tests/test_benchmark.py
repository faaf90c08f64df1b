import contextlib
import dataclasses
import json
import shutil
import time

import jax
import numpy as np
import pytest

from experiments.reddy.settings import SMOKE, Schedule
from experiments.tools import benchmark
from experiments.tools.benchmarks import first_answer, induction, programs, timing, training

TINY = timing.Config(rounds=2, batch=8, chunk=2, loop_steps=1, members=(2,), networks=("looped_1",))


def _sound(rows):
    assert all(row["milliseconds"] > 0 and np.isfinite(row["milliseconds"]) for row in rows)
    assert sum(row["ratio"] == 1 for row in rows) >= 1
    return rows


def test_steps_give_rows():
    rows = _sound(training.steps(TINY)["training step"])
    assert [row["name"].split(", ")[1] for row in rows] == [training.PLAIN, training.FIT]


def test_other_networks_give_rows(monkeypatch):
    small = dataclasses.replace(TINY, other_batch=8)
    cases = programs.other_networks(small)
    assert {setting.batch for _, setting in cases.values()} == {8}
    one = {"1 layer, LayerNorm": cases["1 layer, LayerNorm"]}
    monkeypatch.setattr(training, "other_networks", lambda config: one)
    rows = _sound(training.others(small)["training step at batch 8"])
    assert [row["name"].removeprefix("1 layer, LayerNorm, ") for row in rows] == [training.PLAIN, training.FIT]
    assert rows[1]["loss difference"] < 1e-5


@pytest.mark.parametrize("name", ["looped_1", "looped_2", "free_5"])
def test_plain_and_fast_losses_agree(name):
    network, setting = programs.networks(timing.Config(batch=8, networks=(name,)))[name]
    found = programs.disagreement(network, setting)
    assert found["loss difference"] < 1e-5
    assert found["gradient difference"] < 1e-3


def test_members_give_rows(monkeypatch):
    monkeypatch.setattr(training, "by_plain_loop", lambda *_: lambda: time.sleep(1e-3))  # compiled above
    for rows in training.members(TINY).values():
        _sound(rows)


def test_induction_gives_rows(monkeypatch):
    monkeypatch.setattr(induction, "SETTINGS", {"smoke": Schedule(**SMOKE)})
    (rows,) = induction.induction(dataclasses.replace(TINY, induction_members=1)).values()
    assert [row["name"] for row in rows] == [induction.PLAIN, induction.FULL, induction.OURS]
    _sound(rows)


def test_plain_batch_holds_item_label_sequences():
    setting = Schedule(**SMOKE | {"context_length": 4, "slots": 12, "burstiness": 2, "spread": 0.0})
    p, rng = setting.slots, np.random.default_rng(0)
    means, labels = (rng.normal(size=(k, setting.input_size)) for k in (setting.classes, setting.labels))
    tokens, targets = induction.plain_batch(setting, rng, means, labels)
    contents = tokens[:, :, p:]
    np.testing.assert_array_equal(np.diff(tokens[:, :, :p].argmax(-1), axis=1), 1)  # consecutive slots
    match = (contents[:, :-1:2] == contents[:, -1:]).all(-1)
    assert (match.sum(1) == 2).all()
    for s, answer in enumerate(targets):
        np.testing.assert_allclose(contents[s, 1::2][match[s]], np.tile(labels[answer], (2, 1)), rtol=1e-6)


@pytest.mark.xdist_group("browser")
def test_the_first_explorable_gives_rows(browser, light_page, monkeypatch):
    monkeypatch.setattr(first_answer, "chromium", lambda: contextlib.nullcontext(browser))
    monkeypatch.setattr(first_answer, "write_page", lambda *to: shutil.copy(light_page, to[2]))
    ((title, rows),) = first_answer.first_answer(TINY).items()
    assert [row["name"] for row in rows] == ["from navigation to its answer to a key"]
    assert np.isfinite(rows[0]["milliseconds"])
    assert rows[0]["milliseconds"] > 0
    assert "MB) on " in title


def test_without_chromium_the_first_explorable_is_skipped_in_words(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    ((title, rows),) = first_answer.first_answer(TINY).items()
    assert "skipped, Chromium is not installed" in title
    assert rows == []


def test_plain_sampler_draws_linear_tasks():
    setting = programs.networks(TINY)["looped_1"][1]
    samples = programs.plain_sampler(setting)(jax.random.key(0), 1)
    prompt, w = samples.prompt, samples.latent["w"]
    np.testing.assert_allclose(prompt.x @ w, prompt.y, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.einsum("bd,bdo->bo", prompt.x_query, w), samples.target, rtol=1e-5, atol=1e-6)
    assert np.abs(prompt.x).max() <= 0.5


def test_ratio_is_taken_within_rounds():
    slow, fast = timing.Timing(0, np.array([2.0, 20.0, 4.0])), timing.Timing(0, np.array([1.0, 10.0, 1.0]))
    assert timing.ratio(slow, fast) == 2


def test_an_error_inside_fit_reaches_the_caller():
    def train(progress):
        progress(0, 10)
        raise RuntimeError("no luck")

    with timing.chunks_of_fit({"a": train}) as fits, pytest.raises(RuntimeError, match="no luck"):
        fits["a"]()


def test_record_is_saved(tmp_path, monkeypatch, capsys):
    rows = [
        {"name": "a", "milliseconds": 1.5, "ratio": 2.0, "extra": 3.0},
        {"name": "b", "milliseconds": 1.0, "ratio": None},
    ]
    monkeypatch.setitem(benchmark.RUN, "steps", lambda config: {f"table of {config.rounds}": rows})
    path = tmp_path / "record.json"
    assert benchmark.main(["benchmark", "--only=steps", "--rounds=3", f"--save={path}"]) == 0
    record = json.loads(path.read_text())
    assert record["tables"] == {"table of 3": rows}
    assert {"backend", "load_before", "load_after"} <= set(record["machine"])
    assert {"versions", "device", "cpus", "commit"} <= set(record["provenance"])
    assert "table of 3" in capsys.readouterr().out


def test_parts_in_order_and_by_backend(monkeypatch):
    every = ["steps", "others", "induction"]
    assert benchmark.chosen(timing.Config(), False) == every
    assert benchmark.chosen(timing.Config(only=("others", "steps")), True) == ["steps", "others"]
    monkeypatch.setattr(benchmark.jax, "default_backend", lambda: "gpu")
    assert "members" in benchmark.chosen(timing.Config(), False)
    assert benchmark.chosen(timing.Config(only=("steps",)), True) == ["steps"]
