import dataclasses
import functools
import logging
import os
import shutil
import subprocess

import jax
import numpy as np
import pytest
from toys import Config, made_up

from icl_lab.lab import flags, provenance, records
from icl_lab.lab.combining import differing_origins
from icl_lab.lab.execution import execute
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.merging import OF_A_CELL, merged
from icl_lab.lab.plans import Grid, Run
from icl_lab.lab.records import Record, RecordError

FIRST = {
    "sources": "c0", "versions": {"jax": "1"}, "precision": {"matmul": "high", "x64": True}, "commit": "a1",
    "device": "8 x GPU", "seconds": 2.0,
}  # fmt: skip


TOY = made_up("toy.origins", Config())


def merge(*origins):
    grid = Grid(TOY, "smoke", Config(), {"seed": tuple(range(len(origins)))})
    cells = [
        Record(TOY.name, "smoke", flags.to_json(run.config), {}, {}, origin)
        for run, origin in zip(grid.runs(), origins)
    ]
    return merged(grid, cells, 7.0).provenance


def test_cells_that_agree_say_how_the_whole_was_made(caplog):
    with caplog.at_level(logging.WARNING):
        origin = merge(FIRST, FIRST | {"seconds": 3.0, "cpus": 5})
    assert origin["cells"] == {"seed=0": FIRST, "seed=1": FIRST | {"seconds": 3.0}}
    assert set(FIRST) == set(OF_A_CELL)
    assert {key: origin[key] for key in ("device", "precision", "seconds")} == {
        "device": None, "precision": None, "seconds": 7.0,  # not those of the process that merged
    }  # fmt: skip
    assert not caplog.records


@pytest.mark.parametrize(
    "change", [{"sources": "c1"}, {"versions": {"jax": "2"}}, {"precision": {"matmul": None, "x64": False}}]
)
def test_that_other_code_made_some_cells_is_said(change, caplog):
    with caplog.at_level(logging.WARNING):
        origin = merge(FIRST, FIRST | change, FIRST)
    ((key, value),) = change.items()
    assert [cell[key] for cell in origin["cells"].values()] == [FIRST[key], value, FIRST[key]]
    (warning,) = caplog.messages
    assert f"differ in {key}:" in warning


@pytest.mark.parametrize("change", [{"device": "1 x CPU"}, {"commit": "b2"}])
def test_devices_may_differ_and_commits_of_the_same_code(change, caplog):
    with caplog.at_level(logging.WARNING):
        merge(FIRST, FIRST | change)
    assert not caplog.messages


@pytest.mark.parametrize(
    ("change", "differing"),
    [
        ({}, []),
        ({"commit": "b2"}, ["sources"]),
        ({"uncommitted_changes": True}, ["sources"]),
        ({"uncommitted_changes": None}, ["sources"]),
    ],
)
def test_without_a_digest_the_commit_says_which_code_it_was(change, differing):
    clean = {"commit": "a1", "uncommitted_changes": False}
    found = [Record(TOY.name, "smoke", {}, {}, {}, origin) for origin in (clean, clean | change)]
    assert differing_origins(found) == differing


SETTINGS = {
    "matmul": ("jax_default_matmul_precision: None there, high here", lambda: jax.default_matmul_precision("high")),
    "x64": ("jax_enable_x64: False there, True here", lambda: jax.enable_x64(True)),
    "jax_numpy_dtype_promotion": (
        "jax_numpy_dtype_promotion: standard there, strict here", lambda: jax.numpy_dtype_promotion("strict")
    ),
    "jax_default_prng_impl": (
        "jax_default_prng_impl: threefry2x32 there, rbg here", lambda: jax.default_prng_impl("rbg")
    ),
    "jax_threefry_partitionable": (
        "jax_threefry_partitionable: True there, False here", lambda: jax.threefry_partitionable(False)
    ),
}  # fmt: skip


@pytest.fixture(params=SETTINGS)
def setting(request):
    """Its name in provenance, what is said of it, and a context in which JAX has another."""
    return request.param, *SETTINGS[request.param]


def run(folder, **changes):
    return execute(dataclasses.replace(TOY, **changes), "smoke", Config(), folder)


def test_what_decides_types_and_random_numbers_is_recorded_and_checkpoints_depend_on_it(setting):
    name, _, other = setting
    before, version = provenance.precision(), provenance.code_version("sources")
    assert provenance.code_version("sources") == version
    with other():
        assert provenance.provenance(0.0)["precision"][name] != before[name]
        assert provenance.code_version("sources") != version
    assert set(provenance.USUAL) <= set(before)
    assert {name: before[name] for name in provenance.USUAL} == provenance.USUAL


def test_other_settings_than_those_of_a_finished_run_are_said(setting, tmp_path, log):
    _, said, other = setting
    run(tmp_path)
    run(tmp_path)
    assert not log.messages
    with other():
        assert not run(tmp_path).ran
        assert {f"({said}); --overwrite" in message for message in log.messages} == {True}
        log.clear()
        assert Run("", TOY, "smoke", Config(), tmp_path).is_finished()  # as a grid and reproduce ask
        assert {f"({said}); --overwrite" in message for message in log.messages} == {True}


def test_a_finished_run_of_other_code_says_of_which_commit_it_is(tmp_path, log, monkeypatch):
    monkeypatch.setattr(provenance, "checked_out", lambda: ("a" * 40, False))
    with log.at_level(logging.INFO, "icl_lab"):
        run(tmp_path)
        run(tmp_path)
        assert not log.messages
        monkeypatch.setattr(Experiment, "source_version", lambda _: "edited")
        assert not run(tmp_path).ran
        assert Run("", TOY, "smoke", Config(), tmp_path).is_finished()  # as a grid and reproduce ask
    assert len(log.messages) >= 2
    assert {"a finished run of commit aaaaaaaaa; --overwrite" in message for message in log.messages} == {True}


def work(config, fits):
    """Is stopped once, behind its checkpoint, and then measures what that has."""
    found = fits.checkpoint("work").load(lambda: {"state": np.zeros(1)})
    if found is None:
        fits.checkpoint("work").save(lambda: {"state": np.ones(1), "metrics": {}}, finished=True)
        raise KeyboardInterrupt
    yield "facts", {"state": float(found["state"][0])}


def test_a_run_that_is_stopped_begins_again_after_any_edit(tmp_path, log, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, measured=work)
    caption = "experiments.von_oswald.one_step_shown"  # of a binary that has nothing to do with this run
    monkeypatch.setitem(provenance.loaded(), caption, provenance.loaded()[caption] + "EDITED = 1\n")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, measured=work)
    assert log.messages
    assert {"not used: it was written by another configuration or version" in line for line in log.messages} == {True}
    assert run(tmp_path, measured=work).record.metrics == {"state": 1.0}


def test_a_run_is_not_resumed_under_other_settings_and_goes_on_under_its_own(setting, tmp_path):
    _, said, other = setting

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, measured=work)
    with other(), pytest.raises(RecordError, match=f"an unfinished run under other settings of JAX .{said}"):
        run(tmp_path, measured=work)
    assert run(tmp_path, measured=work).record.metrics == {"state": 1.0}


def test_a_record_that_names_no_setting_had_the_usual_ones(tmp_path, log):
    origin = {"precision": {"matmul": "highest", "x64": False}}
    records.save(dataclasses.replace(run(tmp_path).record, provenance=origin), tmp_path, [])
    with jax.default_matmul_precision("highest"):
        assert not run(tmp_path).ran
        assert not log.messages
        with jax.default_prng_impl("rbg"):
            assert not run(tmp_path).ran
    assert "jax_default_prng_impl: threefry2x32 there, rbg here" in log.text


def git(folder, *words):
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=folder, check=True)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A laboratory below a folder of someone else."""
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setattr(provenance, "HOME", tmp_path / "lab")
    monkeypatch.setattr(provenance, "checked_out", provenance.checked_out.__wrapped__)  # which asks once
    (tmp_path / "lab" / "icl_lab").mkdir(parents=True)
    (tmp_path / "lab" / "icl_lab" / "__init__.py").touch()
    return provenance.HOME


def commit():
    found = provenance.provenance(0.0)
    return found["commit"], found["uncommitted_changes"]


def test_the_commit_is_that_of_the_laboratorys_own_repository(home):
    git(home, "init", "-q")
    git(home, "commit", "-q", "--allow-empty", "-m", "Of something else.")
    assert commit() == (None, None)  # the sources are not in it
    git(home, "add", ".")
    git(home, "commit", "-q", "-m", "A.")
    of_this, clean = commit()
    assert (len(of_this), clean) == (40, False)
    (home / "icl_lab" / "a.py").touch()
    assert commit() == (of_this, True)


def test_a_repository_around_the_laboratory_says_nothing_of_it(home):
    git(home.parent, "init", "-q")
    git(home.parent, "add", ".")
    git(home.parent, "commit", "-q", "-m", "Of someone else.")
    assert commit() == (None, None)


def test_what_git_does_not_say_is_not_known(home, monkeypatch):
    git(home, "init", "-q")
    git(home, "add", ".")
    git(home, "commit", "-q", "-m", "A.")
    asked = provenance.git
    with monkeypatch.context() as patch:
        patch.setattr(provenance, "git", lambda *words: None if "status" in words else asked(*words))
        assert commit()[0]
        assert commit()[1] is None
    monkeypatch.setenv("PATH", "")
    assert commit() == (None, None)


def test_a_record_names_the_commit_that_was_there_when_its_run_began(home, tmp_path, monkeypatch):
    git(home, "init", "-q")
    git(home, "add", ".")
    git(home, "commit", "-q", "-m", "A.")
    before, _ = commit()
    monkeypatch.setattr(provenance, "checked_out", functools.cache(provenance.checked_out))

    def work(config, fits):
        git(home, "commit", "-q", "--allow-empty", "-m", "B.")
        yield "facts", {}

    assert run(tmp_path / "run", measured=work).record.provenance["commit"] == before
    assert provenance.git("rev-parse", "HEAD") != before
