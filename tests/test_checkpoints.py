import errno
import hashlib
import os
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from icl_lab.lab.checkpoints import Checkpoint, remove
from icl_lab.training.fitting import TrainState


def tree(value, size=3):
    params = {"layer": {"w": jnp.full((2, size), value), "b": jnp.zeros((2, 1), jnp.bfloat16)}}
    state = TrainState(params, optax.adam(0.1).init(params), jnp.int32(7), jnp.full(2, -1))
    return {"state": state, "metrics": {"loss": np.array([[value, np.nan]]), "gd++_loss": np.array([1, 2])}}


def value(loaded):
    return None if loaded is None else float(loaded["metrics"]["loss"][0, 0])


def place(folder, every_seconds=0.0, fingerprint="this"):
    return Checkpoint(folder, fingerprint, every_seconds)


def load(folder, **options):
    return place(folder, **options).load(lambda: {"state": tree(0.0)["state"]})


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Two good checkpoints."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ("first", "second")}
    for number, folder in enumerate(folders.values(), start=1):
        place(folder).save(lambda: tree(float(number)), finished=False)  # noqa: B023
    return {name: folder / "current" for name, folder in folders.items()}


def test_what_is_saved_is_loaded(tmp_path):
    place(tmp_path).save(lambda: tree(1.0), finished=False)
    loaded = load(tmp_path)
    assert jax.tree.structure(loaded) == jax.tree.structure(tree(1.0))
    for a, b in zip(jax.tree.leaves(loaded), jax.tree.leaves(tree(1.0))):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    assert [path.name for path in tmp_path.iterdir()] == ["current"]


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
        ({"next": "second"}, None),
        ({"current": "first", "next": "partial"}, 1),
        ({"current": "first", "next": "second"}, 1),
    ],
)
def test_what_a_kill_leaves_is_used_in_silence(tmp_path, saved, log, left, expected):
    for name, what in left.items():
        content = saved["second" if what == "partial" else what].read_bytes()
        (tmp_path / name).write_bytes(content[: len(content) // 2] if what == "partial" else content)
    assert value(load(tmp_path)) == expected
    place(tmp_path).save(lambda: tree(3.0), finished=False)
    assert value(load(tmp_path)) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["current"]
    assert not log.records


def test_prng_keys_are_loaded_as_what_they_are(tmp_path):
    state = {impl: jax.random.split(jax.random.key(3, impl=impl), 2) for impl in ("threefry2x32", "rbg")}
    place(tmp_path).save(lambda: {"state": (state, 1.0 * jnp.arange(2)), "metrics": {}}, finished=True)
    found, _ = place(tmp_path).load(lambda: {"state": jax.eval_shape(lambda: (state, 1.0 * jnp.arange(2)))})["state"]
    for impl, keys in state.items():
        assert found[impl].dtype == keys.dtype
        np.testing.assert_array_equal(jax.random.key_data(found[impl]), jax.random.key_data(keys))


def test_a_write_that_fails_leaves_the_one_before_it(tmp_path, monkeypatch):
    place(tmp_path).save(lambda: tree(1.0), finished=True)
    monkeypatch.setattr(os, "fsync", lambda number: os.write(os.open(os.devnull, os.O_RDONLY), b"x"))
    with pytest.raises(OSError, match=f"'{tmp_path / 'current'}'") as error:
        place(tmp_path).save(lambda: tree(2.0), finished=True)
    assert error.value.errno == errno.EBADF
    assert [path.name for path in tmp_path.iterdir()] == ["current"]
    assert value(load(tmp_path)) == 1


def sealed(rest):
    """What a checkpoint is whose digest is right."""
    return hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (lambda content: content[:-1], "truncated or corrupt"),
        (lambda content: sealed(b"this\n\xff{"), "it cannot be read"),
        (lambda content: sealed(b"that" + content[69:]), "another configuration or version"),
    ],
    ids=["truncated", "of another form", "foreign"],
)
def test_a_damaged_checkpoint_is_named_and_set_aside(tmp_path, saved, log, act, reason):
    """That any flipped bit is seen and no pickle is loaded: test_fuzz.py."""
    for count in (1, 2):
        (tmp_path / "current").write_bytes(act(saved["first"].read_bytes()))
        assert load(tmp_path) is None
        message = log.records[-1].getMessage()
        assert str(tmp_path / "current") in message
        assert reason in message
        assert f"kept as current.set-aside-{count}" in message
    kept = {path: path.read_bytes() for path in tmp_path.iterdir()}
    place(tmp_path).save(lambda: tree(3.0), finished=True)
    assert value(load(tmp_path)) == 3
    assert {path: path.read_bytes() for path in kept} == kept
    assert len(kept) == 2


@pytest.mark.parametrize("like", [tree(0.0, size=4)["state"], tree(0.0)["state"].params])
def test_other_shapes_are_set_aside(tmp_path, saved, log, like):
    shutil.copy(saved["first"], tmp_path / "current")
    assert place(tmp_path).load(lambda: {"state": like}) is None
    assert "other shapes or types" in log.text
    assert [path.name for path in tmp_path.iterdir()] == ["current.set-aside-1"]


def test_the_folder_of_an_older_version_is_set_aside(tmp_path, log):
    (tmp_path / "current" / "tree").mkdir(parents=True)
    assert load(tmp_path) is None
    assert "cannot be read (IsADirectoryError" in log.text
    assert [path.name for path in tmp_path.iterdir()] == ["current.set-aside-1"]


def test_remove_keeps_what_was_set_aside(tmp_path, saved):
    for stage in ("a", "b"):
        (tmp_path / "all" / stage).mkdir(parents=True)
        shutil.copy(saved["first"], tmp_path / "all" / stage / "current")
    shutil.copy(saved["first"], tmp_path / "all" / "b" / "current.set-aside-1")
    remove(tmp_path / "all")
    assert [path.name for path in (tmp_path / "all").iterdir()] == ["b"]
    assert [path.name for path in (tmp_path / "all" / "b").iterdir()] == ["current.set-aside-1"]
    (tmp_path / "all" / "b" / "current.set-aside-1").unlink()
    remove(tmp_path / "all")
    assert not (tmp_path / "all").exists()
