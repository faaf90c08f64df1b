"""Saved networks as ``of --model`` reads them: which lengths, which prompts, which numbers, what it refuses."""

import json
import re
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from garg_state import state

import icl_lab
from experiments.identification import of, saved
from icl_lab.identify import Identified, Member
from icl_lab.models import GPT, LinearSelfAttention, prefix_predictions
from icl_lab.prompts import gaussian_regression, linear_regression
from icl_lab.prompts.layouts import alternating_layout
from icl_lab.training import every_prefix

SMALL = {"members": 2, "steps": 2, "batch": 8, "eval_tasks": 16, "measure_every": 2, "progress": False}
SAMPLER = linear_regression(context_length=4, input_size=2, label_noise=0.25)
PROMPTS = SAMPLER(jax.random.key(5), 3).prompt
NETWORK = GPT(1, 2, 8, positions=11)


def asked_once(learners, *, context_length, input_size, sampler, seed):
    """In place of ``identify``, which takes long: the members answer one prompt, and are none of these."""
    draws = sampler or linear_regression(context_length=context_length, input_size=input_size, input_law="normal")
    prompt = draws(jax.random.key(seed), 3).prompt
    assert {np.asarray(one(prompt.x, prompt.y, prompt.x_query)).shape[0] for one in learners} == {3}
    numbers = {"residual": float("inf"), "asymmetry": np.float32(0.5), "noise": 0.0, "stability": 0.0}
    rows = [Member(verdict="none of these", **numbers) for _ in learners]
    empty = np.zeros((2, 4))
    units = SimpleNamespace(assumed=sampler is None)
    return Identified("none of these", None, rows, {}, (empty[0], empty, empty), units, {})


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr(saved, "identify", asked_once)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "mine"
    found = icl_lab.train(LinearSelfAttention(init_scale=0.1), SAMPLER, **SMALL)
    found.save(folder)
    return folder, found


@pytest.fixture(scope="module")
def weights():
    return jax.jit(NETWORK.init)(jax.random.key(0), jnp.zeros((2, 2)))


@pytest.fixture
def file(tmp_path, weights):
    np.savez(tmp_path / "state.npz", **state(weights["params"]))
    return tmp_path / "state.npz"


def test_a_saved_training_is_asked_on_prompts_of_its_own_at_three_lengths(trained, tmp_path, capsys):
    folder, found = trained
    one = saved.opened(folder)
    np.testing.assert_allclose(
        one.learner(jax.tree.map(lambda leaf: leaf[1], one.params))(PROMPTS), found.batch_learner(1)(PROMPTS), rtol=1e-5
    )
    for mine, same in ((one.sampler(4), SAMPLER), (one.sampler(8), partial(linear_regression, context_length=8))):
        sampler = same if same is SAMPLER else same(input_size=2, label_noise=0.25)
        jax.tree.map(np.testing.assert_array_equal, mine(jax.random.key(1), 3), sampler(jax.random.key(1), 3))
    assert of.main(["of", f"--model={folder}", "--members=1", f"--json={tmp_path}/found.json"]) == 0
    kept = json.loads((tmp_path / "found.json").read_text())
    assert (kept["trained_at"], kept["input_size"], list(kept["context_lengths"])) == (4, 2, ["2", "4", "8"])
    assert [len(of_length["members"]) for of_length in kept["context_lengths"].values()] == [1, 1, 1]
    said = capsys.readouterr().out
    assert "label_noise 0.25" in said
    assert said.count("examples: none of these") == 3
    assert kept["context_lengths"]["8"]["members"][0]["residual"] is None  # infinite, which JSON has not


def test_a_training_on_other_tasks_is_asked_on_normal_ones_and_says_so(tmp_path):
    sampler = gaussian_regression(context_length=4, covariance=np.eye(2))
    icl_lab.train(LinearSelfAttention(init_scale=0.1), sampler, **SMALL).save(tmp_path)
    one = saved.opened(tmp_path)
    assert one.law is None
    assert one.sampler(4) is None
    assert "the file does not say" in one.prompts()


def test_a_trained_gpt_has_the_layout_of_its_record_and_ends_with_its_positions(tmp_path):
    options = SMALL | {"objective": every_prefix, "layout": alternating_layout(prefixes=True)}
    found = icl_lab.train(NETWORK, SAMPLER, **options)
    found.save(tmp_path)
    one = saved.opened(tmp_path)
    assert (one.lengths(), one.most) == ((2, 4, 5), 5)
    np.testing.assert_allclose(
        one.learner(jax.tree.map(lambda leaf: leaf[1], one.params))(PROMPTS), found.batch_learner(1)(PROMPTS), rtol=1e-5
    )


def test_a_state_of_garg_et_al_gives_the_numbers_of_the_network_with_its_weights(file, weights):
    one = saved.opened(file, heads=2)
    assert (one.lengths(), one.trained, one.assumed, one.law) == ((2, 4, 5), 4, True, {"input_law": "normal"})
    learner = one.learner(jax.tree.map(lambda leaf: leaf[0], one.params))
    np.testing.assert_array_equal(learner(PROMPTS), prefix_predictions(NETWORK, weights, PROMPTS))
    assert of.main(["of", f"--model={file}", "--heads=2", "--context_lengths=3"]) == 0
    kept = json.loads(file.with_name("identified.json").read_text())
    assert list(kept["context_lengths"]) == ["3"]
    assert kept["trained_at_assumed"] is True


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--context_lengths=6"], "--context_lengths=6: allowed .* positions end at 5 examples"),
        (["--context_lengths=1,3"], "--context_lengths=1: allowed is a number of examples from 2 on"),
        (["--input_size=3"], "--input_size=3: allowed is 2"),
        (["--heads=3"], "heads must divide the width 8"),
        (["--run=figures"], "allowed is --model, or --run"),
        (["--json=/proc/x/found.json"], "--json=/proc"),
    ],
    ids=lambda case: case[0] if isinstance(case, list) else "",
)
def test_what_does_not_fit_is_refused_before_anything_is_asked(file, words, said, capsys, monkeypatch):
    monkeypatch.setattr(saved, "identify", None)
    given = words if words[0].startswith("--heads") else ["--heads=2", *words]
    assert of.main(["of", f"--model={file}", *given]) == 2
    assert_said(capsys, said)


def test_a_pickle_and_what_holds_no_network_are_refused_in_words(trained, tmp_path, capsys):
    (tmp_path / "state.pt").touch()
    for place, said in ((tmp_path / "state.pt", "numpy.savez"), (tmp_path, "record.json"), (tmp_path / "x", "no such")):
        assert of.main(["of", f"--model={place}"]) == 2
        assert_said(capsys, said)


def assert_said(capsys, said):
    error = capsys.readouterr().err
    assert re.search(said, error), error
