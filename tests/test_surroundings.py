"""What a run finds around it: flags of XLA, variables of git and of a cluster, settings of pip, options of Python."""

import logging
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from icl_lab.lab import provenance
from icl_lab.training import finite, processes

ROOT = Path(__file__).parents[1]
FAST = "--xla_cpu_enable_fast_math=true"
BLIND = f"{FAST} --xla_cpu_fast_math_honor_nans=false"
TRAINING = """
import optax
import icl_lab
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts import linear_regression
sampler = linear_regression(context_length=4, input_size=2)
found = icl_lab.train(
    LinearSelfAttention(), sampler, members=2, steps=40, optimizer=optax.sgd(1e6), progress=False, devices=1
)
assert (found.fit.diverged_at > 0).all()
assert all((abs(leaf) < float("inf")).all() for leaf in found.fit.params["params"].values())
"""


def python(*words, **variables):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_DISABLE_MOST_OPTIMIZATIONS": "false", **variables}
    return subprocess.run([sys.executable, *words], cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def test_fast_math_that_hides_nan_is_refused_by_the_flag():
    done = python("-W", "ignore", "-c", TRAINING, XLA_FLAGS=BLIND)
    assert done.returncode == 1
    said = done.stderr.strip().splitlines()[-1]
    assert f"XLA_FLAGS={BLIND}" in said
    assert "do not see NaN" in said


def test_fast_math_that_honours_nan_stops_members():
    done = python("-W", "ignore", "-c", TRAINING, XLA_FLAGS=FAST)
    assert done.returncode == 0, done.stderr


def test_a_binary_refuses_such_flags_in_one_sentence(tmp_path):
    words = ("-m", "experiments.reddy.landscape", "--preset=lab", f"--outdir={tmp_path / 'run'}")
    done = python(*words, XLA_FLAGS=BLIND)
    assert done.returncode == 2
    assert re.match(r"error: XLA_FLAGS=.*\n$", done.stderr)
    assert not (tmp_path / "run").exists()


def test_this_process_sees_nan():
    assert finite.seen()
    finite.check()


def test_a_record_has_the_flags_of_xla(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", FAST)
    assert provenance.provenance(0.0)["xla_flags"] == FAST


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_variables_of_another_repository_say_nothing_of_ours(tmp_path, monkeypatch):
    """As in a hook, or where a person works on a bare repository."""

    def git(folder, *words):
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *identity, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)

    def asked():
        return dict(zip(("commit", "uncommitted_changes"), provenance.checked_out.__wrapped__()))  # not as first asked

    commits = {}
    for name in ("ours", "other"):
        (tmp_path / name / "icl_lab").mkdir(parents=True)
        (tmp_path / name / "icl_lab" / f"{name}.py").touch()
        git(tmp_path / name, "init", "-q")
        git(tmp_path / name, "add", ".")
        git(tmp_path / name, "commit", "-q", "-m", name)
        monkeypatch.setattr(provenance, "HOME", tmp_path / name)
        commits[name] = asked()["commit"]
    assert len(set(commits.values()) - {None}) == 2
    monkeypatch.setattr(provenance, "HOME", tmp_path / "ours")
    other = tmp_path / "other"
    for variables in (
        {"GIT_DIR": other / ".git"},
        {"GIT_DIR": other / ".git", "GIT_WORK_TREE": tmp_path / "ours"},
        {"GIT_INDEX_FILE": other / ".git" / "index"},
        {"GIT_OBJECT_DIRECTORY": other / ".git" / "objects"},
    ):
        with monkeypatch.context() as patched:
            for name, value in variables.items():
                patched.setenv(name, str(value))
            found = asked()
            assert (found["commit"], found["uncommitted_changes"]) == (commits["ours"], False), variables


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, r"process 1 waits for 2 in all, as SLURM says \(SLURM_NTASKS\)"),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "8"}, "process 0 waits for 8 in all, as Open MPI says"),
        ({}, "looks for the others"),
    ],
)
def test_a_process_says_for_whom_it_waits_before_it_waits(variables, said, monkeypatch, caplog):
    for names in processes.SAID_BY.values():
        for name in names:
            monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    def initialize(**_):
        assert re.search(said, caplog.text)
        raise ValueError("here")

    monkeypatch.setattr(logging.getLogger("icl_lab"), "propagate", True)
    monkeypatch.setattr(processes.jax.distributed, "initialize", initialize)
    with caplog.at_level(logging.INFO, "icl_lab"), pytest.raises(processes.RefusedError, match="here"):
        processes.start()


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_settings_of_pip_do_not_lead_out_of_the_environment(tmp_path):
    """What ``make install`` runs, on a project of one file: into the environment, as nothing else is asked for."""
    venv.create(tmp_path / "env", with_pip=True)
    (tmp_path / "pip.conf").write_text("[global]\nuser = true\n")
    wheel = tmp_path / "one-1-py3-none-any.whl"
    make_wheel(wheel)
    recipe = f"{tmp_path}/env/bin/python $(PIP_INSTALL) --no-index --no-deps {wheel}"
    (tmp_path / "probe.mk").write_text(f"include {ROOT / 'Makefile'}\nprobe:\n\t@{recipe}\n")
    outside = {"PIP_USER": "1", "PIP_TARGET": str(tmp_path / "out"), "PIP_CONFIG_FILE": str(tmp_path / "pip.conf")}
    command, env = ["make", "-f", "probe.mk", "probe"], {**os.environ, **outside}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("env/lib/*/site-packages/one.py"))
    assert not (tmp_path / "out").exists()


def make_wheel(path):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("one.py", "")
        file.writestr("one-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: one\nVersion: 1\n")
        kind = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        file.writestr("one-1.dist-info/WHEEL", kind)
        file.writestr("one-1.dist-info/RECORD", "")


@pytest.mark.parametrize("words", [("experiments.reproduce", "--list"), ("experiments.von_oswald.one_step", "--help")])
def test_python_without_docstrings_prints_the_same(words):
    with_docstrings, without = python("-m", *words), python("-OO", "-m", *words)
    assert without.returncode == 0, without.stderr
    assert without.stdout == with_docstrings.stdout


@pytest.mark.parametrize("own", ["tools/other.py", "dai/mine.py"])
def test_other_experiments_that_do_not_fit_are_named(tmp_path, own):
    """As with a wheel, in a folder whose ``experiments`` are of another release, or of a person's own."""
    package = tmp_path / "experiments"
    shutil.copytree(ROOT / "experiments", package, ignore=shutil.ignore_patterns("[a-z]*_*", "dai", "__pycache__"))
    (package / "dai").mkdir()
    for name in ("__init__.py", "mine.py"):
        (package / "dai" / name).write_text("from icl_lab.claims import of_another_release\n" * (name == "mine.py"))
    if own.startswith("tools"):
        shutil.rmtree(package / "tools")
    done = subprocess.run(
        [sys.executable, "-m", "experiments.reproduce", "--list"], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert f"{package} comes before the experiments of icl_lab" in done.stderr
    assert "Traceback" not in done.stderr
