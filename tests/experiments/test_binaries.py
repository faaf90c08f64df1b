"""Every binary as its users run it: the smoke preset, killed processes, interrupted ones."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest

import experiments
from experiments.reproduce import discover
from icl_lab import records
from icl_lab.claims import NOT_JUDGED
from icl_lab.command_line import INTERRUPTED
from icl_lab.experiment import execute

BINARIES = discover()
PNG, PDF = b"\x89PNG\r\n\x1a\n", b"%PDF"


@pytest.fixture(scope="module")
def quick_to_compile():
    """The smoke preset is all compilation; what is compiled runs for milliseconds. Binaries share small programs."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()


@pytest.mark.parametrize("name", BINARIES)
def test_smoke_yields_figures_and_claims(name, tmp_path, quick_to_compile):
    binary = BINARIES[name]
    outcome = execute(binary, "smoke", binary.presets["smoke"], tmp_path)
    record = records.load(tmp_path)
    assert (record.experiment, record.preset) == (name, "smoke")
    assert record.arrays
    assert [row["id"] for row in outcome.ledger] == [claim.id for claim in binary.claims]
    assert {row["verdict"] for row in outcome.ledger} == {NOT_JUDGED}
    assert {path.suffix for path in outcome.figures} == {".png", ".pdf"}
    assert all(path.read_bytes().startswith((PNG, PDF)) for path in outcome.figures)


COMMAND = [
    sys.executable, "-m", "experiments.von_oswald.roll_out", "--preset=smoke", "--context_length=2", "--input_size=2",
    "--batch=8", "--eval_tasks=8", "--steps=900", "--dampings=1",
]  # fmt: skip


def start(cwd, outdir, checkpoint_seconds):
    command = [*COMMAND, f"--outdir={outdir}", f"--checkpoint_seconds={checkpoint_seconds}"]
    home = str(Path(experiments.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": home, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # it is mostly compilation
    return subprocess.Popen(command, cwd=cwd, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def wait_for_another_checkpoint(process, manifest, before):
    while process.poll() is None:
        with contextlib.suppress(FileNotFoundError):
            if manifest.read_bytes() != before:
                return
        time.sleep(0.01)
    pytest.fail(f"it ended before it could be stopped: {process.stderr.read().decode()}")


@pytest.mark.skipif(signal.getsignal(signal.SIGINT) is signal.SIG_IGN, reason="processes here are deaf to Ctrl-C")
def test_a_process_stopped_at_any_moment_is_resumed_to_the_same_bits(tmp_path):
    with start(tmp_path, "whole", checkpoint_seconds=1000) as process:
        assert process.wait() == 0, process.stderr.read().decode()
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    manifest = stopped / "checkpoints" / "training" / "current" / "manifest.json"
    before = b""
    for how, delay, status in (
        (signal.SIGKILL, 0.0, -signal.SIGKILL),
        (signal.SIGINT, 0.02, INTERRUPTED),
        (signal.SIGKILL, 0.07, -signal.SIGKILL),  # about in the middle of a save
    ):
        with start(tmp_path, "stopped", checkpoint_seconds=0) as process:
            wait_for_another_checkpoint(process, manifest, before)
            time.sleep(delay)
            process.send_signal(how)
            assert process.wait() == status
            errors = process.stderr.read().decode()
        assert "is not used" not in errors
        assert ("the same command resumes" in errors) == (how == signal.SIGINT)
        assert not (stopped / "record.json").exists()
        before = manifest.read_bytes() if manifest.exists() else before
    with start(tmp_path, "stopped", checkpoint_seconds=1000) as process:
        assert process.wait() == 0
        assert "is not used" not in process.stderr.read().decode()
    for name in ("record.json", "arrays.npz", "config.json"):
        assert (stopped / name).read_bytes() == (whole / name).read_bytes()
    assert not (stopped / "checkpoints").exists()
