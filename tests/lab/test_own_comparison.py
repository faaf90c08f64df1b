"""Which kept training a call returns, goes on with or refuses, and what a person reads then."""

import dataclasses
import json
import logging

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import icl_lab
from icl_lab.lab import checkpoints, own_comparison, own_record, own_training, provenance, records, stopping
from icl_lab.lab.checkpoints import Checkpoint
from icl_lab.lab.record import RecordError
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts import linear_regression
from icl_lab.solvers import gradient_descent
from icl_lab.training import Model
from icl_lab.training.plans import training

SAMPLER = linear_regression(context_length=3, input_size=2)
SMALL = {"members": 2, "steps": 2, "batch": 4, "eval_tasks": 4}


def run(network=None, sampler=SAMPLER, name="", **options):
    """What a call writes down of itself; nothing is trained."""
    call = {"network": network or LinearSelfAttention(), "sampler": sampler, **SMALL, **options}
    planned = training(**call)
    computed = own_comparison.computed(planned, planned.traceable())
    config = own_record.configuration(call, planned, computed["foreign"], name)
    written = {"experiment": "icl_lab.train", "config": config, "precision": provenance.precision()}
    return json.loads(json.dumps(written | {"versions": provenance.versions(), "computed": computed}))


def kept(folder, network=None, sampler=SAMPLER, **options):
    return icl_lab.train(network or LinearSelfAttention(), sampler, folder=folder, progress=False, **SMALL | options)


class Hidden:
    """A sampler whose number no description finds: it is in an object of a class with slots."""

    __slots__ = ("scale",)

    def __init__(self, scale):
        self.scale = scale

    def __call__(self, key, batch):
        samples = SAMPLER(key, batch)
        return dataclasses.replace(samples, target=self.scale * samples.target)


def shown(scale):
    return lambda key, batch: Hidden(scale)(key, batch)


def hidden_in(part):
    """Two calls that differ in one part, by a value that no description finds."""

    def of(scale):
        secret = Hidden(scale)
        if part == "initial weights":
            model = Model(lambda key: secret.scale * jnp.ones((2, 1)), lambda params, prompts: prompts.x_query @ params)
            return {"network": model}
        if part == "optimizer":
            return {"optimizer": optax.adam(lambda step: secret.scale * 1e-3)}
        if part == "schedule":
            given = {"training_sampler": shown, "schedule": lambda setting, step: jnp.minimum(step, secret.scale)}
            return given
        if part == "measurement":
            return {"extra": lambda params, samples: {"mine": secret.scale * samples.target.mean()}}
        return {"objective": lambda predictions, samples: secret.scale * ((predictions - samples.target) ** 2).sum(1)}

    return run(**of(1.0)), run(**of(2.0))


@pytest.mark.parametrize("part", ["initial weights", "optimizer", "schedule", "measurement", "loss"])
def test_where_the_description_is_silent_the_part_is_named(part):
    there, here = hidden_in(part)
    assert own_comparison.difference(there, there) == ""
    said = own_comparison.difference(there, here)
    assert said.startswith("another training")
    assert part in said
    others = {"initial weights", "optimizer", "measurement"} - {part}
    if part != "loss":  # which is measured, too
        assert not any(other in said for other in others)


def test_plain_values_are_named_with_both():
    said = own_comparison.difference(run(sampler=shown(1.0)), run(sampler=shown(2.0)))
    assert "sampler/scale: 1 there, 2 here" in said


def below(limit):
    return lambda row: row["loss"].mean() < limit


def on_the_host(scale):
    def ours(prompts):
        like = jax.lax.stop_gradient(prompts.x_query)[:, :1]
        return jax.pure_callback(lambda x: scale * np.asarray(x), like, like, vmap_method="sequential")

    return {"ours": ours}


@pytest.mark.parametrize(
    ("options", "other"),
    [
        ({"until": below(0.1)}, {"until": below(0.2)}),
        ({"until": below(0.1)}, {}),
        ({"measure_every": 1}, {"measure_every": 2}),
        ({"references": on_the_host(0.01)}, {"references": on_the_host(1e6)}),
    ],
    ids=["until", "no until", "measurements", "references on the host"],
)
def test_what_runs_on_the_host_is_compared_by_its_code_and_values(options, other):
    assert own_comparison.difference(run(**options), run(**options)) == ""
    assert own_comparison.difference(run(**options), run(**other))


def calling_python(key, batch):
    samples = SAMPLER(key, batch)
    target = jax.pure_callback(np.sin, samples.target, samples.target, vmap_method="sequential")
    return dataclasses.replace(samples, target=target)


DICE = np.random.default_rng(0)


def rolled(prompts):
    like = jax.lax.stop_gradient(prompts.x_query)[:, :1]
    return jax.pure_callback(lambda x: DICE.random() * np.asarray(x), like, like, vmap_method="sequential")


UNKNOWN = {
    "a sampler": ({"sampler": calling_python}, "loss contains pure_callback"),
    "until": ({"until": lambda row: DICE.random() < 0.0}, "until/DICE is unknown"),
    "references": ({"references": {"ours": rolled}}, "references/ours/DICE is unknown"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_what_cannot_be_compared_needs_a_name(case):
    options, said = UNKNOWN[case]
    with pytest.raises(ValueError, match=rf"^{said}.* name="):
        run(**options)
    first = run(**options, name="first")
    assert own_comparison.difference(first, run(**options, name="first")) == ""
    assert "name: first there, second here" in own_comparison.difference(first, run(**options, name="second"))


def test_what_only_prints_needs_no_name():
    def printing(key, batch):
        jax.debug.print("drawn")
        jax.debug.callback(lambda: None)
        return SAMPLER(key, batch)

    assert own_comparison.difference(run(sampler=printing), run()) == ""


def test_settings_of_jax_that_decide_random_numbers_differ_and_the_precision_of_products_does_not():
    there = run()
    with jax.threefry_partitionable(False):
        assert "jax_threefry_partitionable: True there, False here" in own_comparison.difference(there, run())
    with jax.default_matmul_precision("float32"):
        assert own_comparison.difference(there, run()) == ""


def by_others(there, how):
    """The same training, as other versions, another back end, or icl_lab 0.2 would have written it."""
    if how == "0.2":
        return {name: value for name, value in there.items() if name != "computed"}
    if how == "back end":
        return there | {"computed": there["computed"] | {"backend": "abacus"}}
    return there | {"versions": there["versions"] | {how: "0.1"}}


OTHERS = {"jax": "jax: 0.1 there", "flax": "flax: 0.1 there", "icl-lab": "icl-lab: 0.1 there"}
OTHERS |= {"optax": "optax: 0.1 there", "back end": "back end: abacus there, cpu here", "0.2": "kept by icl_lab"}


@pytest.mark.parametrize("how", OTHERS)
def test_where_programs_cannot_be_compared_plain_values_tell_apart_and_nothing_else(how):
    there = by_others(run(sampler=shown(1.0)), how)
    assert OTHERS[how] in own_comparison.incomparable(there, run())
    assert own_comparison.difference(there, run(sampler=shown(1.0))) == ""
    assert "scale: 1 there, 2 here" in own_comparison.difference(there, run(sampler=shown(2.0)))
    assert own_comparison.difference(by_others(run(sampler=Hidden(1.0)), how), run(sampler=Hidden(2.0))) == ""


def test_members_of_a_dict_tell_apart_across_versions_and_parts_of_functions_do_not():
    one, two = ({name: jax.vmap(gradient_descent(1.0, 1)) for name in names} for names in ("a", "ab"))
    there = by_others(run(references=one), "jax")
    assert "references/b" in own_comparison.difference(there, run(references=two))
    here = run(references=one)
    here["config"]["network/of_a_later_release"] = 1
    here["config"]["references/a/of_a_later_release/0"] = 1
    assert own_comparison.difference(there, here) == ""


def versions_of(jax_version):
    return lambda: provenance.versions() | {"jax": jax_version}


def test_a_finished_training_by_other_versions_is_returned_with_a_warning_and_does_not_go_on(
    tmp_path, monkeypatch, caplog
):
    first = kept(tmp_path)
    with caplog.at_level(logging.WARNING):
        kept(tmp_path)
    assert not caplog.records
    monkeypatch.setattr(own_training, "versions", versions_of("99"))
    again = kept(tmp_path)
    np.testing.assert_array_equal(again.fit.metrics["loss"], first.fit.metrics["loss"])
    assert f"jax: {jax.__version__} there, 99 here" in caplog.text
    with pytest.raises(RecordError, match=r"from 2 to 4 steps.*99 here.*start=icl_lab.load"):
        kept(tmp_path, steps=4)
    with pytest.raises(RecordError, match="seed: 0 there, 1 here"):
        kept(tmp_path, seed=1)


def test_a_training_kept_by_an_earlier_release_loads_and_is_returned_with_a_warning(tmp_path, caplog):
    first = kept(tmp_path)
    record = records.load(tmp_path)
    earlier = {name: value for name, value in record.provenance.items() if name != "computed"}
    records.save(dataclasses.replace(record, provenance=earlier), tmp_path, claims=[])
    np.testing.assert_array_equal(icl_lab.load(tmp_path).fit.metrics["loss"], first.fit.metrics["loss"])
    assert not caplog.records
    kept(tmp_path)
    assert "without digests of its programs" in caplog.text
    with pytest.raises(RecordError, match="batch: 4 there, 5 here"):
        kept(tmp_path, batch=5)


def test_an_unfinished_training_by_other_versions_is_refused(tmp_path, monkeypatch):
    saved = Checkpoint.save

    def save(self, tree, finished):
        saved(self, tree, finished)
        raise stopping.Stopped

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", save)
        with pytest.raises(KeyboardInterrupt):
            kept(tmp_path, checkpoint_seconds=0.0, measure_every=1)
    place = tmp_path / "checkpoints"
    written = checkpoints.of(place)
    for how in ("0.2", "jax"):
        checkpoints.write_down(place, by_others(written, how))
        with pytest.raises(RecordError, match=r"unfinished run of this training.*choose another folder"):
            kept(tmp_path, measure_every=1)
    checkpoints.write_down(place, written)
    assert kept(tmp_path, measure_every=1).fit.resumed == 0


def scaled(scale):
    secret = Hidden(scale)
    return Model(lambda key: jnp.ones((2, 1)), lambda params, prompts: secret.scale * prompts.x_query @ params)


def test_a_network_that_predicts_otherwise_is_not_loaded(tmp_path, caplog, monkeypatch):
    kept(tmp_path, scaled(1.0))
    icl_lab.load(tmp_path, network=scaled(1.0))
    assert not caplog.records
    with pytest.raises(RecordError, match="a network that predicts otherwise"):
        icl_lab.load(tmp_path, network=scaled(2.0))
    monkeypatch.setattr(own_comparison, "versions", versions_of("99"))
    icl_lab.load(tmp_path, network=scaled(2.0))
    assert "99 here" in caplog.text


def test_a_training_that_is_kept_is_traced_no_more_often(tmp_path):
    calls = []

    def objective(predictions, samples):
        calls.append(1)
        return ((predictions - samples.target) ** 2).sum(1)

    icl_lab.train(LinearSelfAttention(), SAMPLER, progress=False, objective=objective, **SMALL)
    alone = len(calls)
    calls.clear()
    kept(tmp_path, objective=objective)
    assert len(calls) == alone
