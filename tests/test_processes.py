import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import processes_run
import pytest

from experiments.von_oswald import roll_out
from icl_lab.lab import command_line
from icl_lab.lab.execution import execute
from icl_lab.training import processes

HOME = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """``pair(commands, environments)``: (status, stdout, stderr) of each of two processes that run at the same time."""
    folder = tmp_path_factory.mktemp("said")
    here, pipe = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(HOME)}, subprocess.PIPE
    here["http_proxy"] = "http://localhost:9"  # where nobody is
    command = [sys.executable, "tests/processes_run.py"]
    server = subprocess.Popen(command, cwd=HOME, env=here, text=True, start_new_session=True, stdin=pipe, stdout=pipe)

    def ended(commands, environments):
        said = [folder / str(i) for i in range(len(commands))]
        orders = [(words, more, str(path)) for words, more, path in zip(commands, environments, said)]
        print(json.dumps(orders), file=server.stdin, flush=True)
        assert select.select([server.stdout], [], [], 240)[0], "no answer"
        statuses = json.loads(server.stdout.readline())
        texts = [[path.with_suffix(of).read_text() for path in said] for of in (".out", ".err")]
        return list(zip(statuses, *texts))

    yield ended
    os.killpg(server.pid, signal.SIGKILL)
    server.communicate()


def free_port():
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        return taken.getsockname()[1]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The folder and the outcome of one process with one device."""
    folder = tmp_path_factory.mktemp("alone")
    return folder, execute(processes_run.EXPERIMENT, "lab", processes_run.Config(), folder)


@pytest.fixture(scope="module")
def killed_and_resumed(tmp_path_factory, pair):
    """Folder, what two processes said until process 1 was killed at step 4, and what the same command said then."""
    folder = tmp_path_factory.mktemp("processes")
    outdirs = [f"--outdir={folder / str(i)}" for i in range(2)]
    words = ["--preset=lab", "--checkpoint_seconds=0", "--distributed"]
    there = [f"--coordinator=localhost:{free_port()}", "--processes=2"]
    killed = pair(
        [[*words, *there, f"--process={i}", outdirs[i]] for i in range(2)], [{"TEST_SIGNAL": "1:4:SIGKILL"}] * 2
    )
    job = {"SLURM_JOB_ID": "1", "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0"}
    job["JAX_COORDINATOR_PORT"] = str(free_port())
    resumed = pair(
        [[*words, "--cpu_devices=2", outdirs[i]] for i in range(2)], [job | {"SLURM_PROCID": str(i)} for i in range(2)]
    )
    return folder, killed, resumed


@pytest.fixture(scope="module")
def together(tmp_path_factory, pair):
    """Folder, what each of two processes found in ``processes_run.together``, what it said; one is told to stop."""
    folder = tmp_path_factory.mktemp("together")
    address = f"localhost:{free_port()}"
    done = pair([["together", address, str(i), str(folder)] for i in range(2)], [{"TEST_SIGNAL": "1:0:SIGTERM"}] * 2)
    assert [status for status, _, _ in done] == [0, 0], done
    return folder, [json.loads((folder / f"found{i}.json").read_text()) for i in range(2)], done


def test_a_killed_process_ends_the_other_with_a_word(killed_and_resumed):
    _, (first, second), _ = killed_and_resumed
    assert second[0] == -9
    assert first[0] == command_line.RESUMABLE
    assert "another process of this run has ended; the same command resumes" in first[2]


def test_the_same_command_resumes_under_slurm_on_other_devices(killed_and_resumed):
    _, _, resumed = killed_and_resumed
    assert [status for status, _, _ in resumed] == [0, 0], resumed
    for _, out, _ in resumed:
        assert "resumes after 4" in out


def test_several_processes_find_what_one_finds_bit_for_bit(alone, killed_and_resumed):
    for name in ("record.json", "arrays.npz"):
        assert (killed_and_resumed[0] / "0" / name).read_bytes() == (alone[0] / name).read_bytes()
    provenance = json.loads((killed_and_resumed[0] / "0" / "provenance.json").read_text())
    assert provenance["processes"] == 2
    assert provenance["device"].startswith("4 x")


def test_only_process_0_writes_and_speaks(killed_and_resumed):
    folder, _, (first, second) = killed_and_resumed
    assert [path.name for path in folder.iterdir()] == ["0"]
    assert not list((folder / "0").glob("checkpoints/*"))
    assert "everything is in" in first[1]
    assert "everything is in" not in second[1]
    assert "training" not in second[2]


def test_processes_of_different_commands_are_refused_by_name(together):
    for found in together[1]:
        assert "process 1: --steps is 17 there, 16 in process 0" in found["differs"]
        assert "the code" not in found["differs"]


def test_what_process_0_says_holds_in_all(together):
    first, second = together[1]
    assert (first["writer"], second["writer"]) == (True, False)
    assert first["agreed"] == second["agreed"] == ["long" * 1000, 0]
    assert first["led"] == second["led"]
    assert "No such file" in second["led"]


def test_bytes_and_checkpoints_reach_all_bit_for_bit(together):
    for found in together[1]:
        assert found["bytes"]
        assert found["arrays"] == [True] * 3


def test_a_process_that_is_asked_to_stop_stops_all_after_a_checkpoint(together, alone):
    _, (first, second), done = together
    assert second["stopped"] == "stopped by SIGTERM"
    assert first["stopped"] == "stopped with another process of the run"
    for _, out, _ in done:
        assert out.index("resumes after None") < out.index("resumes after 4")
    for found in (first, second):
        assert found["first"][:2] == [True, alone[1].record.arrays["w"].tobytes().hex()]


def test_a_finished_run_is_found_by_all(together):
    for found in together[1]:
        assert found["second"] == [False, *found["first"][1:]]
    assert not (together[0] / "together1").exists()


def test_one_process_never_touches_the_runtime(monkeypatch, alone):
    monkeypatch.setattr(processes, "whole", None)
    monkeypatch.setattr(processes.jax, "process_count", None)
    monkeypatch.setattr(processes.jax, "process_index", None)
    assert processes.count() == 1
    assert processes.is_writer()
    value = {"any": object()}
    assert processes.led(lambda: value) is value
    assert (processes.in_any(True), processes.in_any(False)) == (True, False)
    assert processes.bytes_of_writer(lambda: b"a") == b"a"
    np.testing.assert_array_equal(processes.from_all(np.arange(2)), [[0, 1]])
    processes.same_everywhere({"--steps": 3})
    assert processes.leave(2) == 2
    with pytest.raises(ZeroDivisionError):
        processes.led(lambda: 1 // 0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--coordinator=here:1", "--processes=1", "--process=0"], "allowed is with --distributed"),
        (["--distributed", "--coordinator=here", "--processes=1", "--process=0"], "--coordinator=here .* as host:port"),
        (["--distributed", "--coordinator=here:1"], "--processes=0 .* P >= 1"),
        (["--distributed", "--coordinator=here:1", "--processes=2", "--process=2"], "--process=2: .* 0 to P - 1"),
        (["--distributed", "--processes=2"], "--coordinator= --processes=2 .* as host:port"),
    ],
)
def test_flags_that_do_not_fit_are_refused_before_any_work(capsys, tmp_path, words, message):
    command = ["binary", "--preset=smoke", f"--outdir={tmp_path / 'out'}", *words]
    assert command_line.main(roll_out.EXPERIMENT, command) == command_line.REFUSED
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "out").exists()


def test_where_there_is_no_cluster_the_flag_says_what_to_give(monkeypatch, capsys, tmp_path):
    def none(**given):
        assert "coordinator_address" not in given
        raise ValueError("coordinator_address should be defined.")

    monkeypatch.setattr(processes.jax.distributed, "initialize", none)
    status = command_line.main(roll_out.EXPERIMENT, ["binary", "--distributed", f"--outdir={tmp_path / 'out'}"])
    assert status == command_line.REFUSED
    error = capsys.readouterr().err
    assert "--distributed: no SLURM, Open MPI, Kubernetes or Cloud TPU is found here" in error
    assert "--coordinator=host:port" in error
