"""Runs that are killed, stopped, starved or damaged: nothing is lost, and nothing is silently wrong."""

import contextlib
import dataclasses
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import faults_run
import numpy as np
import pytest

from icl_lab.lab import command_line, records
from icl_lab.lab.checkpoints import CURRENT, NEXT

KILL, TERM, INT, USR1 = signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1
NUMBERS = ("record.json", "arrays.npz", "config.json")
SEED = 2026


@dataclasses.dataclass
class Ended:
    """A command that has ended: its exit status, what it wrote, and from where to where each training went."""

    status: int
    seconds: float
    sent: int
    errors: str
    first: dict
    last: dict


class Zygote:
    """Commands in processes that start at once: forked from one that has imported everything (faults_run.py)."""

    def __init__(self, process):
        self.process = process
        assert self.read(120) == "ready\n"

    def read(self, seconds=60):
        assert select.select([self.process.stdout], [], [], seconds)[0], "no answer"
        return self.process.stdout.readline()

    def begin(self, cwd, *words, signals=(), patches=(), binary="toy"):
        shutil.rmtree(cwd / "told", ignore_errors=True)
        for name in ("stdout", "stderr"):
            (cwd / name).write_text("")
        signals = [[number, str(cwd / path) if path else "", seconds] for number, path, seconds in signals]
        words = ["--outdir=run", *words]
        order = {"binary": binary, "words": words, "cwd": str(cwd), "signals": signals, "patches": patches}
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def end(self, cwd):
        answer = json.loads(self.read())
        first, last = {}, {}
        for line in (cwd / "stdout").read_text().splitlines():
            if line.startswith("@ "):
                _, label, done = line.split()
                first.setdefault(label, int(done))
                last[label] = int(done)
        return Ended(errors=(cwd / "stderr").read_text(), first=first, last=last, **answer)

    def __call__(self, cwd, *words, **options):
        """Runs a command in the folder ``cwd``, into the folder ``run`` there."""
        cwd.mkdir(parents=True, exist_ok=True)
        self.begin(cwd, "--checkpoint_seconds=0", *words, **options)
        return self.end(cwd)


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    folder = tmp_path_factory.mktemp("zygote")
    command = [sys.executable, faults_run.__file__, str(folder / "compiled")]
    here = {**os.environ, "PYTHONPATH": str(Path(faults_run.__file__).parents[1])}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with open(folder / "errors", "w") as errors, subprocess.Popen(command, stderr=errors, env=here, **pipes) as process:
        yield Zygote(process)
    assert process.returncode == 0, (folder / "errors").read_text()
    assert (folder / "errors").read_text() == ""  # no warning that a process with threads was forked


@pytest.fixture(scope="module")
def whole(start, tmp_path_factory):
    """A run that nothing happened to: its folder, and how long it took. Another one before it has the same bytes."""
    first, second = (tmp_path_factory.mktemp(name) for name in ("compiles", "whole"))
    for folder in (first, second):
        ended = start(folder)
        assert ended.status == 0, ended.errors
    assert_same(first, second)
    return second, ended.seconds


def assert_same(folder, whole):
    """The run has the bytes of one that nothing happened to, and nothing else lies in its folder."""
    for name in NUMBERS:
        assert (folder / "run" / name).read_bytes() == (whole / "run" / name).read_bytes()
    assert set(os.listdir(folder / "run")) == set(os.listdir(whole / "run"))


def assert_nothing_lost(reached, after):
    """What was reported before (steps by training) is not done again."""
    for stage, done in reached.items():
        assert after.first.get(stage, done) >= done


# --------------------------------------------------------------------------------------------------------- kill -9


def what_is_left(run):
    """Where in its work a process was killed, by what lies in its folder."""
    if (run / records.WRITTEN).exists():
        return "moving the record into place"
    if (run / records.WRITING).exists():
        return "writing the record"
    stages = sorted(path for path in (run / "checkpoints").glob("*") if path.is_dir())
    if (run / "record.json").exists():
        return "removing checkpoints" if (run / "checkpoints").exists() else "after the record"
    for stage in stages:
        if (stage / NEXT).exists():
            return f"{stage.name}: in the first save" if not (stage / CURRENT).exists() else f"{stage.name}: in a save"
    return f"between saves of {stages[-1].name}" if stages else "before the first save"


LAST = {"stage_0": 4, "stage_1": 4, "evaluation": 1}
ANCHORS = {
    "stage_0": ("told/stage_0.2", "run/checkpoints/stage_0/next", "run/checkpoints/stage_0/current"),
    "stage_1": ("told/stage_1.1", "run/checkpoints/stage_1/next", "run/checkpoints/stage_1/current"),
    "evaluation": ("run/.record.writing", "run/.record.written", "run/record.json"),
}


def moments(rng, kills, seconds, reached):
    """When to kill: at any time of what remains of a run, or within 20 ms of something that does not last long."""
    if kills < 3:
        return [(KILL, "", rng.uniform(0, seconds / 4))], []  # before it has trained
    done = [label for label in ANCHORS if label in reached and reached[label] == LAST[label]]
    if len(done) == len(ANCHORS) and rng.random() < 0.7:
        return [], []  # it was killed at its end, and is let go now
    ahead = [anchor for label, anchors in ANCHORS.items() if label not in done[:2] for anchor in anchors]
    anchor = rng.choice(["", "", *ahead])
    delay = rng.choice([0.0, rng.uniform(0, 0.02)]) if anchor else rng.uniform(0, seconds)
    slow = {"told/stage_0.2": "slow", "told/stage_1.1": "slow", "run/record.json": "slow removal"}  # else milliseconds
    return [(KILL, anchor, delay)], [slow[anchor]] if anchor in slow else []


def test_kill_9_at_any_moment_loses_nothing_and_changes_nothing(start, whole, tmp_path, pytestconfig):
    wanted = pytestconfig.getoption("--kills")
    rng = random.Random(SEED)
    left, reached, runs, folder = {}, {}, 1, tmp_path / "1"
    while (kills := sum(left.values())) < wanted:
        signals, patches = moments(rng, kills, whole[1] / (1 + len(reached) / 2), reached)
        ended = start(folder, signals=signals, patches=patches)
        assert "not used" not in ended.errors
        assert "set aside" not in ended.errors
        assert_nothing_lost(reached, ended)
        if ended.status == -KILL:
            state = what_is_left(folder / "run")
            left[state] = left.get(state, 0) + 1
            reached |= ended.last
        else:  # it came to its end before its time
            assert ended.status == 0, ended.errors
            assert_same(folder, whole[0])
            shutil.rmtree(folder)
            reached, runs, folder = {}, runs + 1, tmp_path / str(runs + 1)
    ended = start(folder)
    assert ended.status == 0, ended.errors
    assert_nothing_lost(reached, ended)
    assert_same(folder, whole[0])
    print(f"{wanted} kills of {runs} runs, seed {SEED}:", *sorted(f"\n  {n:3} {state}" for state, n in left.items()))
    assert runs < 2 * wanted
    phases = ("before the first save", ": in ", "between saves", "removing", "record")
    assert [phase for phase in phases if not any(phase in state for state in left)] == []
    assert len(left) >= 7


# ------------------------------------------------------------------------------------------------ signals to stop


def test_a_run_that_is_told_to_stop_saves_first(start, whole, tmp_path):
    reached = {}
    for signals, status, said in (
        ([(TERM, "told/stage_0.2", 0.0), (TERM, "", 0.01), (TERM, "", 0.01)], 75, "stopped by SIGTERM; the same"),
        ([(INT, "told/stage_0.3", 0.0)], 130, "interrupted; the same command resumes"),
        ([(USR1, "told/stage_1.2", 0.0)], 75, "stopped by SIGUSR1; the same command resumes"),
        ([], 0, "evaluation"),
    ):
        ended = start(tmp_path, "--checkpoint_seconds=1000", signals=signals, patches=["slow"])
        assert (ended.status, ended.sent) == (status, len(signals)), ended.errors
        assert said in ended.errors.splitlines()[-1] or not status
        assert_nothing_lost(reached, ended)
        reached |= ended.last
    assert_same(tmp_path, whole[0])


def test_a_stop_in_the_middle_of_a_write_waits_for_its_end(start, whole, tmp_path):
    reached = {}
    for at, written in (("run/checkpoints/stage_1/next", False), ("run/.record.writing", True)):
        stopped = start(tmp_path, signals=[(TERM, at, 0.0), (TERM, "", 0.002)])
        assert stopped.status == 75, stopped.errors
        assert not list((tmp_path / "run").rglob("next"))
        assert (tmp_path / "run" / "record.json").exists() == written
        assert_nothing_lost(reached, stopped)
        reached |= stopped.last
    assert start(tmp_path).status == 0
    assert_same(tmp_path, whole[0])


def test_a_stop_outside_of_a_training_does_not_wait(start, tmp_path):
    stopped = start(tmp_path, signals=[(TERM, "told/evaluation.1", 0.0)], patches=["long evaluation"])
    assert stopped.status == 75
    assert stopped.seconds < 60
    assert not (tmp_path / "run" / "record.json").exists()


ROLL_OUT = (
    "--preset=smoke", "--context_length=2", "--input_size=2", "--batch=8", "--eval_tasks=8", "--steps=30",
    "--measure_every=1", "--dampings=1", "--applications=2", "--oracle_contexts=10",
)  # fmt: skip


def test_a_binary_of_the_laboratory_is_stopped_and_killed_and_resumed_to_the_same_bytes(start, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert start(whole, *ROLL_OUT, "--checkpoint_seconds=1000", binary="von_oswald.roll_out").status == 0
    checkpoint = "run/checkpoints/training"
    for number, anchor, delay, status in (
        (KILL, f"{checkpoint}/next", 0.01, -KILL),
        (INT, f"{checkpoint}/current", 0.0, 130),
    ):
        ended = start(cut, *ROLL_OUT, binary="von_oswald.roll_out", signals=[(number, anchor, delay)])
        assert ended.status == status, ended.errors
        assert "not used" not in ended.errors
    assert start(cut, *ROLL_OUT, binary="von_oswald.roll_out").status == 0
    assert_same(cut, whole)


# --------------------------------------------------------------------------------------- disks, damage, neighbours


@contextlib.contextmanager
def mounted(folder, *options):
    """A small file system in memory, or a skipped test where mounting is not permitted."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"no mount here ({error})")
    if done.returncode:
        pytest.skip(f"mounting is not permitted here ({done.stderr.strip()})")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def refused_for_the_disk(ended, words):
    """Status 2, and a last line that says what and where."""
    assert ended.status == 2, ended.errors
    said = ended.errors.splitlines()[-1]
    assert words in said
    return said


def test_a_full_disk_is_named_and_the_run_goes_on_once_there_is_room(start, whole, tmp_path):
    run, reached = tmp_path / "run", {}
    with mounted(run, "size=4k"):
        for where, more in (("checkpoints/stage_0", "160k"), (".record.writing", "10m")):
            full = start(tmp_path)
            assert where in refused_for_the_disk(full, f"No space left on device: '{run}/")
            assert not (run / "record.json").exists()
            assert not list(run.rglob("next"))
            assert_nothing_lost(reached, full)
            reached |= full.last
            subprocess.run(["mount", "-o", f"remount,size={more}", str(run)], check=True)
        resumed = start(tmp_path)
        assert resumed.status == 0, resumed.errors
        assert "not used" not in resumed.errors
        assert_nothing_lost(reached, resumed)
        assert_same(tmp_path, whole[0])


def test_a_write_that_fails_is_named_and_the_run_goes_on_where_it_can(start, whole, tmp_path):
    for what, where in (("a checkpoint", "checkpoints/stage_0"), ("the record", ".record.writing")):
        failed = start(tmp_path, patches=[f"no room for {what}"])
        assert where in refused_for_the_disk(failed, f"File too large: '{tmp_path / 'run'}/")
    assert start(tmp_path).status == 0
    assert_same(tmp_path, whole[0])


def test_a_folder_that_cannot_be_written_is_refused_before_any_work(start, tmp_path):
    with mounted(tmp_path / "run", "ro"):
        ended = start(tmp_path)
    assert ended.status == 2
    assert "--outdir=run: run cannot be written" in ended.errors
    assert not ended.first


def test_a_damaged_checkpoint_is_set_aside_and_trained_again_to_the_same_bytes(start, whole, tmp_path):
    start(tmp_path, signals=[(KILL, "told/stage_1.2", 0.0)])
    for stage in ("stage_0", "stage_1"):
        path = tmp_path / "run" / "checkpoints" / stage / "current"
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content if stage == "stage_0" else content[: len(content) // 2])
    resumed = start(tmp_path)
    assert resumed.status == 0
    assert resumed.errors.count("is not used") == 2
    for stage in ("stage_0", "stage_1"):
        assert (tmp_path / "run" / "checkpoints" / stage / "current.set-aside-1").exists()
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    assert_same(tmp_path, whole[0])


def test_the_second_run_in_a_folder_is_refused_and_the_first_unharmed(start, whole, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    halted = [(signal.SIGSTOP, "told/stage_0.1", 0.0), (signal.SIGCONT, "told/go", 0.0)]  # it must not finish before
    start.begin(tmp_path, "--checkpoint_seconds=0", signals=halted)
    while not (tmp_path / "told" / "stage_0.1").exists():
        assert start.process.poll() is None
    assert command_line.main(faults_run.TOY, ["toy", "--outdir=run"]) == 2
    assert f"another run is at work in {tmp_path / 'run'}" in capsys.readouterr().err
    (tmp_path / "told" / "go").touch()
    assert start.end(tmp_path).status == 0
    assert_same(tmp_path, whole[0])


def test_a_clock_that_runs_backwards_changes_no_number(start, whole, tmp_path):
    killed = start(tmp_path, signals=[(KILL, "told/stage_0.3", 0.0)], patches=["clock"])
    resumed = start(tmp_path, patches=["clock"])
    assert resumed.status == 0
    assert_nothing_lost(killed.last, resumed)
    assert_same(tmp_path, whole[0])
    assert 0 <= records.load(tmp_path / "run").provenance["seconds"] < 600


def test_a_member_that_meets_a_nan_is_reported_and_the_others_do_not_notice(start, whole, tmp_path):
    ended = start(tmp_path, "--poisoned=1")
    assert ended.status == 0
    assert "stage_0: 1 of 3 members diverged and were stopped (member 1 at step 2)" in " ".join(ended.errors.split())
    found, expected = (records.load(folder / "run").arrays for folder in (tmp_path, whole[0]))
    for name in ("params_0", "loss_0", "params_1", "loss_1"):
        np.testing.assert_array_equal(found[name][[0, 2]], expected[name][[0, 2]])
        assert not np.array_equal(found[name][1], expected[name][1])
    assert np.isfinite(found["params_1"]).all()
