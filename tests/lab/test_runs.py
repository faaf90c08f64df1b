"""A finished run gives back its record and its trained members."""

import dataclasses
import shutil

import jax
import numpy as np
import pytest

import icl_lab
from experiments.von_oswald import one_step, softmax
from icl_lab.lab import from_json, records
from icl_lab.lab.execution import execute
from icl_lab.lab.record import RecordError, below, flat
from icl_lab.lab.trainings import After
from icl_lab.training.plans import squared_error


@pytest.fixture(scope="module")
def folder(tmp_path_factory, smoke_run):
    return shutil.copytree(smoke_run("von_oswald.one_step").folder, tmp_path_factory.mktemp("run"), dirs_exist_ok=True)


def test_a_loaded_learner_predicts_what_the_record_says(folder):
    """The last measured loss of a member, from its parameters on its own evaluation tasks."""
    run = icl_lab.load_run(folder)
    assert run.experiment is one_step.EXPERIMENT
    assert run.stages() == ["training", "onset_16", "size_2"]
    config = one_step.PRESETS["smoke"]
    for member in range(2):
        draw = jax.jit(run.sampler(member, "training"), static_argnums=1)
        key = jax.random.split(one_step.member_keys(config)[member], 3)[2]
        samples = draw(key, config.eval_tasks)
        found = jax.jit(jax.vmap(run.learner(member, "training")))(samples.prompt)
        np.testing.assert_allclose(
            found, jax.jit(run.batch_learner(member, "training"))(samples.prompt), rtol=1e-5, atol=1e-7
        )
        loss = squared_error(found, samples).mean()
        np.testing.assert_allclose(loss, run.record["loss"][member, -1], rtol=1e-5)
    first, second, picked = (jax.tree.leaves(run.params(one, "training"))[0] for one in (0, 1, np.argmax([0, 1])))
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(second, picked)


def test_what_a_run_has_not_is_refused_by_name(folder):
    run = icl_lab.load_run(folder)
    with pytest.raises(RecordError, match="no member 2 of stage 'training'; allowed is 0 to 1"):
        run.learner(2, "training")
    with pytest.raises(RecordError, match="'final'; it has those of onset_16, size_2, training"):
        run.learner(0, "final")
    with pytest.raises(RecordError, match="no member 2 of stage 'training'"):
        run.sampler(2, "training")
    bare = run._replace(record=dataclasses.replace(run.record, params={}))
    with pytest.raises(RecordError, match="it kept none"):
        bare.learner()
    with pytest.raises(RecordError, match=r"no member 0\.5 of"):
        run.learner(0.5, "training")
    with pytest.raises(RecordError, match=r"holds no record\.json; allowed is the folder of a finished run"):
        icl_lab.load_run(folder / "training")
    with pytest.raises(RecordError, match=r"holds a run of von_oswald\.one_step, not of von_oswald\.softmax"):
        icl_lab.load_run(folder, softmax.EXPERIMENT)
    other = run._replace(record=dataclasses.replace(run.record, config={**run.record.config, "gone": 1}))
    with pytest.raises(RecordError, match=r"of other settings .*gone"):
        other.learner()
    for first in (run.learner, run.batch_learner, run.params, lambda: run.with_params({})):
        with pytest.raises(RecordError, match="several trainings; allowed is stage= one of training, onset_16, size_2"):
            first()
    kept = {name: leaf for name, leaf in run.record.params.items() if name.startswith("size_2/")}
    only = run._replace(record=dataclasses.replace(run.record, params=kept))
    assert jax.tree.structure(only.params(1)) == jax.tree.structure(run.params(1, "size_2"))
    assert repr(run).startswith("FinishedRun(von_oswald.one_step, smoke, 2 members, ")


def test_a_training_planned_after_another_one_is_asked_with_what_the_run_kept_of_that(folder):
    run, asked = icl_lab.load_run(folder), []
    table = run.experiment.trainings(one_step.PRESETS["smoke"])
    later = After(lambda fits: asked.append(fits["size_2"]) or table["training"], table["training"].learner)
    changed = dataclasses.replace(run.experiment, trainings=lambda config: {**table, "training": later})
    run = run._replace(experiment=changed)
    key = jax.random.key(0)
    found, plain = (one.sampler(1, "training")(key, 3).prompt.x for one in (run, icl_lab.load_run(folder)))
    np.testing.assert_array_equal(found, plain)
    ((params, steps, metrics, diverged_at, *_),) = asked
    jax.tree.map(np.testing.assert_array_equal, params, below(run.record.params, "size_2"))
    assert (steps.size, metrics, diverged_at.size) == (0, {}, 2)
    kept = {name: leaf for name, leaf in run.record.params.items() if not name.startswith("size_2/")}
    with pytest.raises(RecordError, match="no parameters of a stage 'size_2'; it has those of onset_16, training"):
        run._replace(record=dataclasses.replace(run.record, params=kept)).sampler(1, "training")


def test_parameters_are_part_of_the_record(folder, tmp_path):
    """They survive a redrawing, and a changed file is refused."""
    before = (folder / "params.npz").read_bytes()
    execute(one_step.EXPERIMENT, "smoke", from_json(one_step.Config, records.load(folder).config), folder)
    assert (folder / "params.npz").read_bytes() == before
    records.save(records.load(folder), tmp_path, [])
    (tmp_path / "params.npz").write_bytes(before[:-1] + b"?")
    with pytest.raises(RecordError, match=r"params\.npz differs"):
        records.load(tmp_path)
    (tmp_path / "params.npz").unlink()  # a gallery keeps those that are small
    assert records.load(tmp_path).params == {}


def test_names_are_nested():
    tree = {"looped_2": {"final": {"trained": 1, "gd": 2}, "loss": 3}, "steps": 4}
    leaves = flat(tree)
    assert list(leaves) == ["looped_2/final/trained", "looped_2/final/gd", "looped_2/loss", "steps"]
    assert below(leaves, "looped_2") == tree["looped_2"]
    assert below(leaves, "looped_2/loss") == 3
    assert below(leaves, "looped") is None
