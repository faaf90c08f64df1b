import os
import signal
import subprocess
import sys
import time

import pytest

from experiments.binaries import discover
from experiments.identification import fingerprint
from experiments.tools import forks
from icl_lab.lab import executors
from icl_lab.lab.plans import Run
from icl_lab.lab.records import LOG

EXPERIMENT = fingerprint.EXPERIMENT


def run(folder, *options):
    return Run(EXPERIMENT.name, EXPERIMENT, "smoke", EXPERIMENT.presets["smoke"], folder, options)


@pytest.mark.skipif(sys.platform != "linux", reason="runs are forked on Linux only")
def test_a_forked_run_is_the_command_of_the_run(tmp_path):
    """Record, log, exit status; its own session, so that Ctrl-C of the terminal does not reach it."""
    fine, refused, killed = run(tmp_path / "fine"), run(tmp_path / "refused", "--nonsense=1"), run(tmp_path / "killed")
    children = list(forks.starter([fine])([fine, refused, killed]))
    assert children[2].poll() is None
    while os.getsid(children[0].pid) != children[0].pid:
        time.sleep(0.01)
    children[2].kill()
    for child in children:
        child.join()
    assert [child.poll() for child in children] == [0, 2, -signal.SIGKILL]
    assert "Unknown command line flag 'nonsense'" in (refused.folder / LOG).read_text()
    assert f"everything is in {fine.folder}" in (fine.folder / LOG).read_text()
    plain = run(tmp_path / "plain")
    subprocess.run(plain.command(), check=True, capture_output=True)
    for name in ("record.json", "arrays.npz", "config.json"):
        assert (fine.folder / name).read_bytes() == (plain.folder / name).read_bytes()
    *words, folder = fine.record().provenance["command"]
    assert words == plain.record().provenance["command"][:-1]
    assert folder == f"--outdir={fine.folder}"


def test_what_is_imported_before_runs_are_forked_starts_no_thread():
    """Neither of JAX, which begins with the first array, nor another: a fork has the one that calls it alone."""
    code = """
import importlib, os, sys
from jax._src import xla_bridge
for name in sys.argv[1:]:
    importlib.import_module(name)
print(xla_bridge.backends_are_initialized(), len(os.listdir("/proc/self/task")) if sys.platform == "linux" else 1)
"""
    names = forks.imported(list(discover()))
    command = [sys.executable, "-c", code, *names]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # numpy's threads end before a fork
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "1"], done.stderr


def test_elsewhere_than_on_linux_nothing_is_forked(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert forks.starter([]) is executors.start_here
