"""The planted suite: what is drawn, how it is disturbed, and what a name counts as."""

import collections
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from experiments.identification import before, judging
from experiments.identification import outsiders as others
from experiments.identification import planted as binary
from experiments.identification.disturbances import bent, disturbed, training
from experiments.identification.judging import CONTAINS, EQUAL, INSEPARABLE, OWN, REFUSED, WRONG, outcome
from experiments.identification.outsiders import KINDS, outsiders
from experiments.identification.suite import (
    DISTURBANCES,
    INPUTS,
    NAMES,
    OF_WEIGHTS,
    SIZES,
    Law,
    Planted,
    as_weights,
    planted,
    solver,
)
from icl_lab.identify.families import FAMILIES
from icl_lab.identify.fitting import fitted
from icl_lab.identify.probes import FIT
from icl_lab.prompts import Prompt

LAW = Law(2, 5, "normal")


def learner(name, disturbance="smooth", law=LAW):
    make = as_weights if name in ("GD", "GD++") else solver
    return make(name, np.random.default_rng(1), law, 0, disturbance)


def test_every_family_is_planted_on_every_size():
    every = planted(0, len(SIZES))
    assert len(every) == len(NAMES) * len(SIZES) >= 300
    for k, name in enumerate(NAMES):
        own = every[k * len(SIZES) : (k + 1) * len(SIZES)]
        assert {one.family for one in own} == {name}
        assert {(one.law.d, one.law.n) for one in own} == set(SIZES)
        assert set(collections.Counter(one.law.inputs for one in own).values()) == {len(SIZES) // len(INPUTS)}
        assert {one.disturbance for one in own} == {*DISTURBANCES, *(OF_WEIGHTS if name in ("GD", "GD++") else ())}
        if name in ("median regression", "Huber regression"):
            assert sum(one.law.noise > 0 for one in own) >= 8
    again, other = planted(0, 1), planted(1, 1)
    assert [one.law for one in again] == [one.law for one in every[:: len(SIZES)]] != [one.law for one in other]


@pytest.mark.parametrize("inputs", INPUTS)
def test_units_of_a_law(inputs):
    law = Law(5, 10, inputs, noise=0.5)
    x, y, _ = training(law, 0)
    assert np.isclose((x**2).mean(), law.unit, rtol=0.05)
    assert np.isclose((y**2).mean(), 1.25 * law.label**2, rtol=0.1)


@pytest.mark.parametrize(
    ("name", "kind"), [*(("kernel smoothing", kind) for kind in DISTURBANCES), *(("GD++", kind) for kind in OF_WEIGHTS)]
)
def test_a_disturbance_changes_predictions_by_its_amount(name, kind):
    one = learner(name, kind)
    at, fresh = disturbed(one, np.random.default_rng(2)), training(LAW, 3)
    plain = at(0.0)(*fresh)
    arrays = (jax.numpy.asarray(part) for part in fresh)
    assert np.allclose(plain, one.build(one.params)(Prompt(*arrays)), rtol=1e-4, atol=1e-6)
    for amount in (0.01, 0.03):
        change = np.median(np.abs(at(amount)(*fresh) - plain)) / np.median(np.abs(plain))
        assert 0.75 * amount < change < 1.3 * amount


def test_a_gain_is_a_gain_and_a_mixture_another_algorithm():
    fresh = training(LAW, 3)
    gain = disturbed(learner("ridge", "gain"), np.random.default_rng(2))
    ratio = gain(0.03)(*fresh) / gain(0.0)(*fresh)
    assert np.allclose(ratio, ratio[0], rtol=1e-4)
    assert np.isclose(abs(ratio[0] - 1), 0.03, rtol=1e-2)
    mixed = disturbed(learner("ridge", "mixture"), np.random.default_rng(2))
    ratio = (mixed(0.03)(*fresh) / mixed(0.0)(*fresh))[np.abs(mixed(0.0)(*fresh)) > 0.1]
    assert ratio.std() > 0.01


@pytest.mark.parametrize("law", [LAW, Law(10, 5)])
def test_bent_labels_move_along_eigenvectors_only(law):
    """Shrunk labels of a linear task are those of ridge; what no task explains stays."""
    x, y, q = (jax.numpy.asarray(part[:20]) for part in training(law, 0))
    prompts = Prompt(x, y, q)
    k = 0.3 * law.unit
    shrunk = bent(prompts, {"unit": law.unit, "strength": k, "shrink": 1.0, "tilt": 0.0})
    tasks = np.linalg.solve(np.einsum("bnd,bne->bde", x, x) / law.n + k * np.eye(law.d), x.swapaxes(1, 2) @ y / law.n)
    assert np.allclose(shrunk, x @ tasks, atol=1e-4 * law.label)
    outside = np.linalg.qr(np.asarray(x), mode="complete")[0][:, :, law.d :]
    noisy = y + outside.sum(2, keepdims=True) if law.n > law.d else y
    same = bent(Prompt(x, noisy, q), {"unit": law.unit, "strength": k, "shrink": 1.0, "tilt": 0.0})
    assert np.allclose(same - shrunk, noisy - y, atol=1e-4)


def test_means_of_two_are_of_algorithms_that_are_apart(monkeypatch):
    """With a rate or an amplitude of zero the first half is zero; further apart, some have to be drawn again."""
    monkeypatch.setattr(others, "APART", apart := 1.2)
    assert sum(KINDS.values()) == 150
    assert KINDS["mean of two"] >= 30
    for one in outsiders(0, ("mean of two",), 0.12):
        assert not one.inside
        prompts = Prompt(*(jax.numpy.asarray(part) for part in training(one.law, 5)))
        first = one.params["first"].copy()
        first[-1] = 0
        both, second = one.build(one.params)(prompts), one.build(one.params | {"first": first})(prompts)
        assert np.median(np.abs(both - 2 * second)) > 0.9 * apart * np.median(np.abs(both)) / 2


@pytest.mark.parametrize("kind", ["nearest neighbour", "clipped labels", "spike and slab", "random MLP", "LayerNorm"])
def test_outsiders_answer_in_the_size_of_labels(kind):
    one = outsiders(0, (kind,), 0.01)[0]
    f = disturbed(one, np.random.default_rng(0))(0.03)(*training(one.law, 1))
    assert 0.05 < np.std(f) / one.law.label < 3


def test_a_narrow_range_of_strengths_is_found_beside_ridge():
    """Where random starts all end on ridge, which is .009 away."""
    on = judging.asking(Law(5, 10, "normal", 0.0), 0)[0].battery.take(FIT)
    model = FAMILIES["noise-adaptive ridge"].models[0]
    target = model.predict(np.array([[1.0257, 4.6861]]), on)[0]
    ridge = fitted(FAMILIES["ridge"].models[0], on, target, {})
    found = fitted(model, on, target, {ridge.model.key: ridge.theta})
    assert found.theta == pytest.approx([1.0257, 4.6861], rel=0.01)


def names(one, verdict, named, size=1, difference=0.005, stable=True):
    fit = SimpleNamespace(model=SimpleNamespace(size=size))
    return outcome(one, verdict, set(named), fit if named else None, difference, 0.01, stable)


def test_what_a_name_counts_as():
    gd, outsider = learner("GD"), Planted("nearest neighbour", False, lambda p: p, None)
    assert gd.numbers == 1
    assert learner("GD++").numbers == 2
    assert names(gd, "identified", ["GD"]) == OWN
    assert names(gd, "identified", ["ridge", "GD"]) == OWN
    assert names(gd, "identified", ["GD++"], size=2) == CONTAINS
    assert names(gd, "identified", ["ridge"]) == EQUAL
    assert names(gd, "identified", ["ridge"], size=2, difference=0.0) == EQUAL  # the same on these prompts
    assert names(gd, "identified", ["ridge"], size=2) == WRONG
    assert names(gd, "identified", ["ridge"], difference=0.02) == WRONG
    assert names(gd, "identified", ["GD"], difference=0.02, stable=False) == WRONG
    assert names(gd, "not separable", []) == INSEPARABLE
    assert names(gd, "none of these", []) == REFUSED
    assert names(outsider, "identified", ["GD"]) == WRONG
    assert names(outsider, "none of these", []) == REFUSED


def test_a_family_that_only_contains_the_named_one_is_not_a_name():
    """GD++ holds every GD and every flow: GD, named for a planted GD++, must not count by that."""
    member = SimpleNamespace(family="GD", equals=("GD", "heavy ball", "GD++"), fit=None)
    holding = judging.HOLDING["GD"]
    assert "GD++" in holding
    assert judging.claimed(member) == {"GD", "heavy ball"} - holding
    assert judging.claimed(SimpleNamespace(family=None, equals=(), fit=None)) == set()


def test_what_is_done_is_not_asked_again_and_two_ways_are_compared_once():
    config = binary.Config(
        members=1, suites=(0, 3), families=("GD", "LMS"), kinds=("nearest neighbour",), outsiders=0.1
    )
    places = binary._places(config)
    every = judging.learners(0, 1, config.kinds, config.outsiders)
    assert [every[k].family for k in places] == ["GD", "LMS", "nearest neighbour", "nearest neighbour"]
    open_ = np.array([[True, False, True, True], [False, False, False, True]])
    tasks = list(binary._tasks(config, places, open_))
    assert [(task.suite, task.places) for task in tasks] == [(0, tuple(places[[0, 2, 3]])), (3, (places[3],))]
    assert [task.compared for task in tasks] == [(False, True), (False, False)]


def test_bounds_of_rates():
    assert binary.at_most(0, 324) == pytest.approx(1 - 0.05 ** (1 / 324))
    assert binary.at_most(3, 324) < 0.03 < binary.at_most(6, 324)
    assert binary.at_most(2, 2) == 1


def fit(size, residual, family="GD", ahead=0.0):
    model = SimpleNamespace(family=family, size=size, steps=0, own=False)
    predictions = np.full((4, 3), 1 + ahead)
    return SimpleNamespace(
        model=model, residual=residual, on_raw=residual, raw=False, predictions=predictions, theta=[]
    )


def test_the_former_decision_names_the_smallest_that_no_larger_one_replaces():
    small, larger, far = fit(1, 0.02), fit(2, 0.001, "heavy ball"), fit(1, 0.06)
    assert before.remaining([small, larger], 0.0) == [larger]
    assert before.remaining([fit_ := fit(1, 0.0025), larger], 0.0) == [fit_]
    assert before.remaining([far], 0.0) == []


def test_both_other_ways_name_an_exact_algorithm_of_their_list():
    """They are honest baselines: what today's decision excludes by exact symmetries they try."""
    one = solver("ridge", np.random.default_rng(0), Law(d=3, n=10), 0)
    ours, gaussian = judging.asking(one.law, 0)
    learner = disturbed(one, np.random.default_rng(0))(0.0)
    trial = judging.training_prompts(ours.battery, ours.units)
    ask = judging.in_units(judging.asked(learner, "ridge", trial), ours.units)
    about, found = judging.structure(ask, ours.battery, 0), judging.answers(ask, ours.battery, ours.turns)
    assert before.published(judging.raw(ask, gaussian.battery), gaussian)[0] == {"ridge"}
    assert "ridge" in before.former(ask, found, about, ours)[0]
