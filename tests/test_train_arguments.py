"""``icl_lab.train`` called wrongly in every argument: one sentence that names it, before anything is trained."""

import copy
import os
import pickle
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import icl_lab
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts import linear_regression
from icl_lab.solvers import ridge
from icl_lab.training import ensembles, until

SAMPLER = linear_regression(context_length=4, input_size=2)
NETWORK = LinearSelfAttention()
SMALL = {"members": 2, "steps": 4, "batch": 4, "eval_tasks": 4, "progress": False}
NAN = float("nan")


def trained(network=NETWORK, sampler=SAMPLER, **options):
    return icl_lab.train(network, sampler, **SMALL | options)


def raising(*given):
    return undefined  # noqa: F821


WRONG = {
    "members": (True, [2], -1, "2", np.array([2, 3])),
    "steps": (True, NAN, float("inf"), [4]),
    "batch": (True, "4", float("inf")),
    "eval_tasks": (True, None, NAN),
    "learning_rate": (0, "1e-3", 1j, {}, True, object(), optax.adam, optax.adam(0.1), raising),
    "optimizer": (3, optax.adam, lambda params: params, "sgd", [optax.adam(1e-3)]),
    "layout": ("joint", 3, {}),
    "seed": (-1, "a", 1.5, jnp.int32(3)),
    "objective": (3, None, "mse", raising, lambda p: p, lambda p, s: 1.0, lambda p, s: p, lambda p, s: None),
    "references": (
        3, {"r": 3}, {"r": ridge}, {"r": lambda p: None}, {"r": ridge(0.1)}, {"r": raising}, {1: ridge(0.1)},
        {"r": lambda prompts: np.asarray(prompts.y)[:, 0]},
    ),
    "variants": (
        3, raising, lambda: {}, lambda p: 3, lambda p: {"r": 3}, lambda p: {"a": ridge(0.1)}, lambda p: p["w"],
    ),
    "extra": (
        3, raising, lambda p: {}, lambda p, s: 3, lambda p, s: {"a": "x"}, lambda p, s: {"a": None},
        lambda p, s: {3: jnp.ones(())}, lambda p, s: [1], lambda p, s: {"loss": 1.0}, lambda p, s: {"a": p},
    ),
    "measure_every": (0, -1, "a", 1.5, True, NAN),
    "measured": (3, "no", None),
    "until": (
        3, "x", raising, lambda: True, lambda a, b: True, lambda m: m["train_los"], lambda m: m["loss"] < 1,
        lambda m: m.loss, lambda m: None, lambda m: "yes", lambda m: np.array([True]), lambda m: bool(m["loss"] < 1),
    ),
    "start": (3, "a", [1], {}, {"params": {}}, NETWORK, np.ones(3)),
    "dtype": (3, "x", jnp.int32, float, "float64", complex),
    "folder": (3, True, "", b"x", [], "a\0b", "~nobody-of-this-name/run"),
    "devices": (0, 99, "cpu", 1.5, [], True),
    "network": (3, None, LinearSelfAttention, lambda tokens: tokens, "gpt"),
    "sampler": (3, None, "x", lambda key: 3, lambda key, batch: None, lambda k, b: SAMPLER(k, b).prompt),
    "training_sampler": (3, lambda key: 3, lambda key, batch: 3, "s"),
    "progress": ("yes", 3, None),
}  # fmt: skip
KEPT = {
    "name": (3,), "overwrite": ("yes", 3, None), "checkpoint_seconds": ("a", -1, None), "keep": (-1, "a", 1.5),
    "keep_dtype": (3, "float64"),
}  # fmt: skip
WITH_SETTINGS = {
    "settings": (3, [0.1, 0.2], "a", jnp.ones(5), jnp.ones(()), np.array(["a", "b"]), object()),
    "schedule": (3, raising, lambda setting: setting),
    "learning_rate": (lambda r: r, lambda rate, step: rate),
}
KEYS = (3, "k", jax.random.PRNGKey(0), jax.random.key(0), [jax.random.key(0)], np.zeros((2, 2), np.uint32))
FOREIGN = re.compile(r"Tracer\(|dot_general|site-packages|https://")


def check(name, wrong, **options):
    with pytest.raises((ValueError, TypeError)) as caught:
        trained(**options | {name: wrong})
    said = str(caught.value)
    assert name.rstrip("s") in said, said
    assert "\n" not in said
    assert not FOREIGN.search(said), said
    assert isinstance(caught.value, ValueError), type(caught.value)


@pytest.fixture
def nothing_trains(monkeypatch):
    def refused(*_):
        raise AssertionError("a step was taken")

    monkeypatch.setattr(ensembles.Ensemble, "advance", refused)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_argument_is_refused_in_one_sentence(name, nothing_trains):
    for wrong in WRONG[name]:
        check(name, wrong)


@pytest.mark.parametrize("name", KEPT)
def test_a_wrong_argument_of_a_training_that_is_kept(name, tmp_path, nothing_trains):
    for wrong in KEPT[name]:
        check(name, wrong, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", WITH_SETTINGS)
def test_a_wrong_argument_beside_settings(name, nothing_trains):
    for wrong in WITH_SETTINGS[name]:
        check(name, wrong, **{"sampler": lambda setting: SAMPLER, "settings": jnp.ones(2)})


def test_keys_of_another_kind(nothing_trains):
    for wrong in KEYS:
        check("keys", wrong, members=None)


def test_a_file_is_no_folder(tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    found = trained(steps=1)
    for call in (lambda place: trained(folder=place), lambda place: found.save(place)):
        for place in (file, file / "below"):
            with pytest.raises(ValueError, match=f"{file} is a file; choose another folder$"):
                call(place)
        with pytest.raises(ValueError, match=r"other is not empty and holds no run; choose another folder$"):
            call(other)
    assert file.read_text() == "mine"
    for read in (icl_lab.load, icl_lab.load_run):
        with pytest.raises(ValueError, match="folder"):
            read(file)


def test_a_fault_of_until_is_told_before_anything_compiles(monkeypatch):
    monkeypatch.setattr(ensembles.Ensemble, "__init__", lambda *_, **__: pytest.fail("something compiled"))
    with pytest.raises(ValueError, match=r"until asks for 'train_los', .* there are train_loss, loss"):
        trained(until=lambda row: row["train_los"].mean() < 1)
    with pytest.raises(ValueError, match=r"until answers with an array \(2,\); allowed is one truth value"):
        trained(until=lambda row: row["loss"] < 1)
    with pytest.raises(ValueError, match="until raised ValueError: The truth value"):
        trained(until=lambda row: row["loss"] < 1 and row["train_loss"] < 1)


def test_until_sees_nothing_but_measurements_where_it_keeps_anything():
    """Whatever state it keeps: what ``fit`` would ask beforehand is a measurement that was never made."""
    seen, counts, best = [], {"calls": 0}, np.full(1, np.inf)
    calls = 0

    def in_a_list(row):
        seen.append(row["loss"])
        return False

    def in_a_dict(row):
        counts["calls"] += 1
        return False

    def in_an_array(row):
        best[0] = min(best[0], row["loss"].min())
        return False

    def in_a_number(row):
        nonlocal calls
        calls += 1
        return False

    class Object:
        calls = 0

        def __call__(self, row):
            self.calls += 1
            return False

    fitted = trained(until=in_a_list).fit
    np.testing.assert_array_equal(seen, fitted.metrics["loss"].T[:-1])  # at the end nothing depends on the answer
    for function in (in_a_dict, in_an_array, in_a_number, thing := Object(), lambda row: print("row") or False):
        assert not until._changes_nothing(function)
        trained(until=function)
    assert counts["calls"] == calls == thing.calls == len(seen)
    assert best[0] == fitted.metrics["loss"][:, :-1].min()
    assert not until._changes_nothing(lambda row: np.random.rand() < 0.5)


def test_what_other_numbers_need_not_raise_stops_no_training():
    limit = 1e-9
    trained(until=lambda row: bool(1 / int(row["loss"].max() > 1) > 2) if row["loss"].max() == 1 else False)
    trained(until=lambda row: row["loss"][row["loss"] < 0.5].max(initial=0.0) < limit and len(row) > 3)


@pytest.mark.parametrize("answer", [True, np.bool_(True), np.array(True), jnp.array(True)])
def test_one_truth_value_ends_a_training(answer):
    assert trained(until=lambda row: answer).fit.steps.tolist() == [0]


def test_a_late_fault_of_until_is_told_too():
    kept = []

    def late(row):
        kept.append(row)
        return len(kept) > 1 and row["nothing of the kind"]

    with pytest.raises(ValueError, match="until asks for 'nothing of the kind'"):
        trained(until=late)


def test_trained_members_say_what_keeps_them():
    found = trained(steps=1)
    with pytest.raises(TypeError, match=r"trained.save\(folder\) and icl_lab.load\(folder\)"):
        pickle.dumps(found)
    for same in (copy.copy(found), copy.deepcopy(found), pickle.loads(pickle.dumps(found.fit))):
        kept = getattr(same, "fit", same)
        jax.tree.map(np.testing.assert_array_equal, kept.params, found.fit.params)
    for wrong in (3, lambda: 0):
        with pytest.raises(ValueError, match=r"^function must be a function"):
            found.over_members(wrong)
    for wrong in ("loss", 3, [], ["nope"]):
        with pytest.raises(ValueError, match=r"^names must be"):
            found.plot(wrong)


def test_a_relative_folder_stays_where_it_was_when_training_began(tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)

    def leaving(row):
        os.chdir(elsewhere)
        return False

    call = {"folder": "run", "until": leaving, "name": "leaving", "checkpoint_seconds": 0.0}
    found = trained(**call)
    assert list(elsewhere.iterdir()) == []
    monkeypatch.chdir(tmp_path)
    loaded = icl_lab.load("run")
    jax.tree.map(np.testing.assert_array_equal, loaded.fit.params, found.fit.params)


def test_the_home_of_the_user_is_known(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    found = trained(folder="~/run", steps=4, measure_every=1, keep=4)
    assert (tmp_path / "run" / "record.json").exists()
    found.save("~/other")
    for folder in ("~/run", "~/other"):
        assert icl_lab.load(folder).fit.steps.tolist() == found.fit.steps.tolist()
        assert "training" in icl_lab.load_run(folder).stages()


def test_stages_are_in_the_order_of_their_steps():
    from icl_lab.lab.runs import in_order

    named = ["b", "a@10", "a@100", "a@15", "a", "b@2", "b@11"]
    assert in_order(named) == ["b", "b@2", "b@11", "a", "a@10", "a@15", "a@100"]
