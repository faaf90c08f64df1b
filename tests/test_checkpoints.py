import json
import logging
import pickle
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from icl_lab.checkpoints import MANIFEST, Checkpoint, remove
from icl_lab.training import TrainState


def tree(value, size=3):
    params = {"layer": {"w": jnp.full((2, size), value), "b": jnp.zeros((2, 1), jnp.bfloat16)}}
    state = TrainState(params, optax.adam(0.1).init(params), jnp.int32(7), jnp.full(2, -1))
    return {"state": state, "metrics": {"loss": np.array([[value, np.nan]]), "gd++_loss": np.array([1, 2])}}


def value(loaded):
    return None if loaded is None else float(loaded["metrics"]["loss"][0, 0])


def place(folder, every_seconds=0.0, fingerprint="this"):
    return Checkpoint(folder, fingerprint, every_seconds)


def load(folder, **options):
    return place(folder, **options).load({"state": tree(0.0)["state"]})


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Two good checkpoints."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ("first", "second")}
    for number, folder in enumerate(folders.values(), start=1):
        place(folder).save(lambda: tree(float(number)), finished=False)  # noqa: B023
    return {name: folder / "current" for name, folder in folders.items()}


@pytest.fixture
def log(caplog):
    logger = logging.getLogger("icl_lab")
    logger.addHandler(caplog.handler)  # a binary under test may have stopped the propagation
    yield caplog
    logger.removeHandler(caplog.handler)


def test_what_is_saved_is_loaded(tmp_path):
    place(tmp_path).save(lambda: tree(1.0), finished=False)
    loaded = load(tmp_path)
    assert jax.tree.structure(loaded) == jax.tree.structure(tree(1.0))
    for a, b in zip(jax.tree.leaves(loaded), jax.tree.leaves(tree(1.0))):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    assert [path.name for path in tmp_path.iterdir()] == ["current"]


def test_nothing_saved_is_none(tmp_path):
    assert load(tmp_path / "none") is None


def test_the_newest_is_kept_and_saves_keep_their_distance(tmp_path):
    often, seldom = place(tmp_path), place(tmp_path, every_seconds=1000)
    often.save(lambda: tree(1.0), finished=False)
    often.save(lambda: tree(2.0), finished=False)
    assert value(load(tmp_path)) == 2
    seldom.save(lambda: tree(3.0), finished=False)
    assert value(load(tmp_path)) == 2
    seldom.save(lambda: tree(3.0), finished=True)
    assert value(load(tmp_path)) == 3


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        ({"next": "partial"}, None),
        ({"current": "first", "next": "partial"}, 1),
        ({"current": "first", "next": "second"}, 1),
        ({"old": "first", "next": "second"}, 2),
        ({"current": "second", "old": "first"}, 2),
        ({"current": "second", "old": "partial"}, 2),
        ({"old": "first", "next": "partial"}, 1),  # a second kill, in the save after ("old", "next")
        ({"next": "second"}, 2),
    ],
)
def test_what_a_kill_leaves_is_used_in_silence(tmp_path, saved, log, left, expected):
    for name, what in left.items():
        shutil.copytree(saved["second" if what == "partial" else what], tmp_path / name)
        if what == "partial":
            (tmp_path / name / MANIFEST).unlink()
            next(p for p in (tmp_path / name).rglob("*") if p.is_file()).unlink()
    assert value(load(tmp_path)) == expected
    place(tmp_path).save(lambda: tree(3.0), finished=False)
    assert value(load(tmp_path)) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["current"]
    assert not log.records


def truncated(path):
    largest(path).write_bytes(largest(path).read_bytes()[:-1])


def flipped(path):
    content = bytearray(largest(path).read_bytes())
    content[len(content) // 2] ^= 1
    largest(path).write_bytes(content)


def largest(path):
    return max((p for p in (path / "tree").rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)


def pickled(path):
    class Trap:
        def __reduce__(self):
            return pytest.fail, ("a pickle was loaded",)

    for file in (p for p in (path / "tree").rglob("*") if p.is_file()):
        file.write_bytes(pickle.dumps(Trap()))
    edit(path, files={})


def edit(path, **changes):
    (path / MANIFEST).write_text(json.dumps(json.loads((path / MANIFEST).read_text()) | changes))


DAMAGES = {
    "truncated": (truncated, "truncated or corrupt"),
    "flipped bit": (flipped, "truncated or corrupt"),
    "file missing": (lambda path: largest(path).unlink(), "truncated or corrupt"),
    "file added": (lambda path: (path / "tree" / "more").write_text("x"), "truncated or corrupt"),
    "pickle": (pickled, "truncated or corrupt"),
    "no manifest": (lambda path: (path / MANIFEST).unlink(), "manifest cannot be read"),
    "garbage": (lambda path: (path / MANIFEST).write_bytes(b"\xff{"), "manifest cannot be read"),
    "another manifest": (lambda path: (path / MANIFEST).write_text("[1]"), "manifest cannot be read"),
    "foreign": (lambda path: edit(path, fingerprint="that"), "another configuration or version"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_named_and_set_aside(tmp_path, saved, log, damage):
    act, reason = DAMAGES[damage]
    for count in (1, 2):
        shutil.copytree(saved["first"], tmp_path / "current")
        act(tmp_path / "current")
        assert load(tmp_path) is None
        message = log.records[-1].getMessage()
        assert str(tmp_path / "current") in message
        assert reason in message
        assert f"kept as current.set-aside-{count}" in message
    kept = {path: digest(path) for path in tmp_path.iterdir()}
    place(tmp_path).save(lambda: tree(3.0), finished=True)
    assert value(load(tmp_path)) == 3
    assert {path: digest(path) for path in kept} == kept
    assert len(kept) == 2


def digest(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("like", [tree(0.0, size=4)["state"], tree(0.0)["state"].params])
def test_other_shapes_are_set_aside(tmp_path, saved, log, like):
    shutil.copytree(saved["first"], tmp_path / "current")
    assert place(tmp_path).load({"state": like}) is None
    assert "other shapes or types" in log.text
    assert [path.name for path in tmp_path.iterdir()] == ["current.set-aside-1"]


def test_a_good_old_one_is_used_where_the_newest_is_damaged(tmp_path, saved, log):
    shutil.copytree(saved["second"], tmp_path / "current")
    shutil.copytree(saved["first"], tmp_path / "old")
    truncated(tmp_path / "current")
    assert value(load(tmp_path)) == 1
    assert "current.set-aside-1" in log.text


def test_remove_keeps_what_was_set_aside(tmp_path, saved):
    for stage in ("a", "b"):
        shutil.copytree(saved["first"], tmp_path / "all" / stage / "current")
    shutil.copytree(saved["first"], tmp_path / "all" / "b" / "current.set-aside-1")
    remove(tmp_path / "all")
    assert [path.name for path in (tmp_path / "all").iterdir()] == ["b"]
    assert [path.name for path in (tmp_path / "all" / "b").iterdir()] == ["current.set-aside-1"]
    shutil.rmtree(tmp_path / "all" / "b" / "current.set-aside-1")
    remove(tmp_path / "all")
    assert not (tmp_path / "all").exists()
