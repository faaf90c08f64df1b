import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from experiments.von_oswald import roll_out
from icl_lab.lab import command_line, options, session
from icl_lab.training import Training, effort
from icl_lab.training.ensembles import Ensemble, member_mesh
from icl_lab.training.fitting import Fit

HOME = Path(__file__).parents[1]
NAMES = ("w", "norm", "loss", "rate")


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    """(what ensembles found, the text of every compiled program) of a process with eight simulated devices."""
    folder = tmp_path_factory.mktemp("devices")
    flags = f"--xla_force_host_platform_device_count=8 --xla_dump_to={folder / 'programs'} --xla_dump_hlo_as_text"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(HOME)}
    done = subprocess.run(
        [sys.executable, "tests/devices_run.py", str(folder)], cwd=HOME, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    programs = [path.read_text() for path in (folder / "programs").glob("*after_optimizations.txt")]
    with np.load(folder / "found.npz") as found:
        return dict(found), programs


@pytest.mark.parametrize("members", [3, 8, 19])
def test_members_on_eight_devices_are_those_on_one_bit_for_bit(eight, members):
    for name in NAMES:
        np.testing.assert_array_equal(eight[0][f"eight_{members}_{name}"], eight[0][f"one_{members}_{name}"])
    assert len(eight[0][f"eight_{members}_w"]) == members


@pytest.mark.parametrize("members", [3, 8, 19])
def test_vectorised_members_differ_by_rounding(eight, members):
    for name in NAMES:
        np.testing.assert_allclose(eight[0][f"together_{members}_{name}"], eight[0][f"one_{members}_{name}"], rtol=1e-5)


@pytest.mark.parametrize("how", ["from_eight", "from_one"])
def test_members_do_not_depend_on_how_devices_change(eight, how):
    for name in NAMES:
        np.testing.assert_array_equal(eight[0][f"{how}_{name}"], eight[0][f"one_19_{name}"])


def test_devices_exchange_nothing_inside_a_step(eight):
    loops = [text for text in eight[1] if re.search(r"num_partitions=8", text) and " while(" in text]
    assert loops
    exchanged = re.compile(r"all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter")
    assert not [text.splitlines()[0] for text in loops if exchanged.search(text)]


def test_devices_that_would_only_compute_copies_are_left_out(eight):
    assert eight[0]["used"].tolist() == [[1, 1], [3, 3], [8, 8], [10, 5], [19, 7]]


def test_train_takes_all_devices_or_those_that_are_given(eight):
    assert eight[0]["meshes"].tolist() == [8, 2, 1]
    assert eight[0]["last"].tolist() == [7]  # and not the first one, where one has all members
    for other in ("two", "last"):
        np.testing.assert_allclose(eight[0][f"train_{other}"], eight[0]["train_all"], rtol=1e-5)


def test_on_one_device_nothing_is_placed_or_filled_up():
    assert member_mesh() is None or jax.local_device_count() > 1
    tree, alone = {"a": np.ones((3, 2))}, SimpleNamespace(mesh=None)
    assert Ensemble.placed(alone, tree) is tree
    assert Ensemble.gathered(alone, tree) is tree


def test_the_flag_makes_a_cpu_count_as_several_devices_before_it_is_used(monkeypatch, tmp_path):
    set_to = []
    monkeypatch.setattr(jax.config, "update", lambda *setting: set_to.append(setting))
    monkeypatch.setattr(effort, "whole_process", lambda effort: None)
    monkeypatch.setattr(options, "cores", lambda: 5)
    grid = ["--preset=lab", "--grid=seed:0,1", "--workers=2"]
    cases = [["--cpu_devices=3"], [], ["--preset=lab"], ["--preset=lab", "--cpu_devices=1"], grid]
    for words in (*cases, ["--preset=lab", "--distributed"]):
        command = ["binary", "--preset=smoke", f"--outdir={tmp_path}", *words]
        _, what = command_line.parse_command_line(roll_out.EXPERIMENT, command)
        if words == grid:  # whose cells share the cores
            assert "--cpu_devices=1" in what.options
    assert [devices for name, devices in set_to if name == "jax_num_cpu_devices"] == [3, 5]


def test_a_session_trains_on_all_devices(monkeypatch, tmp_path):
    given = []
    fitted = Fit({}, np.zeros(1), {}, np.full(1, -1))
    monkeypatch.setattr(session, "member_mesh", lambda: "all")
    monkeypatch.setattr(Training, "carried_out", lambda _, mesh, **options: given.append(mesh) or fitted)
    session.Session(tmp_path, "", 0.0, None).fit("stage", Training(None, None, None, None, steps=1))
    assert given == ["all"]
