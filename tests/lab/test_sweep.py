import contextlib
import dataclasses
import errno
import fcntl
import importlib
import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress

from experiments import sweep as binary
from experiments.von_oswald import roll_out
from icl_lab.lab import command_line, flags, records, stopping
from icl_lab.lab.command_line import FAILED
from icl_lab.lab.executors import run_elsewhere, start_here
from icl_lab.lab.experiment import PRESETS, Experiment, execute
from icl_lab.lab.plans import LOG, Grid, Run, parse_grid
from icl_lab.lab.slurm import Job, starter

CELL = Path(__file__).with_name("plan_cell.py")


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = flags.setting(0, "seed", at_least=0)
    members: int = flags.setting(2, "members", at_least=1)
    rate: float = flags.setting(3.9, "of the map", above=0)
    steps: int = flags.setting(60, "steps", at_least=1)
    dies: str = flags.setting("never", "when", choices=("never", "once", "always"))


AXES = {"values": ("member", "step")}
TOY = Experiment(
    "toy.map", "A map.", dict.fromkeys(PRESETS, Config()), lambda *_: ({}, {}), lambda _: {}, (), axes=AXES
)


class StandIn(Run):
    """A cell with the stand-in as its command."""

    def command(self):
        return [sys.executable, str(CELL), str(self.folder), json.dumps(flags.to_json(self.config))]


class Cells(Grid):
    def runs(self):
        return [StandIn(**vars(run)) for run in super().runs()]


def grid_of(outdir, text, **changes):
    return Cells(TOY, "smoke", dataclasses.replace(Config(), **changes), parse_grid(text, Config), outdir)


def sweep(grid, start, at_once=1, attempts=1):
    def elsewhere(runs, progress):
        return run_elsewhere(runs, start, at_once, attempts, progress)

    return command_line.carry_out_grid(grid, elsewhere)


def merged_bytes(outdir):
    return [(outdir / name).read_bytes() for name in ("record.json", "arrays.npz", "config.json", "summary.csv")]


class Hunted:
    """``start`` of workers that are killed now and then."""

    def __init__(self, kills):
        self.kills, self.killed, self.children = kills, 0, []
        self.hunter = threading.Thread(target=self.hunt, daemon=True)

    def __call__(self, runs):
        found = list(start_here(runs))
        self.children += found
        if not self.hunter.is_alive() and not self.killed:
            self.hunter.start()
        return found

    def hunt(self):
        chance = random.Random(0)
        while self.killed < self.kills:
            time.sleep(chance.uniform(0.1, 0.9))
            alive = [child for child in self.children if child.returncode is None]
            if not alive:
                return
            with contextlib.suppress(ProcessLookupError):
                os.kill(chance.choice(alive).pid, signal.SIGKILL)
                self.killed += 1


def nothing(runs):
    raise AssertionError(f"a finished sweep started {runs}")


def test_workers_killed_at_random_change_no_byte_and_lose_nothing(tmp_path, capfd):
    text = "rate:3.7,3.9"
    calm, hunted = grid_of(tmp_path / "calm", text), grid_of(tmp_path / "hunted", text)
    assert sweep(calm, start_here, at_once=2) == 0
    start = Hunted(kills=6)
    assert sweep(hunted, start, at_once=2, attempts=20) == 0
    assert start.killed >= 3
    assert "restarted (killed by SIGKILL" in capfd.readouterr().err
    assert merged_bytes(hunted.outdir) == merged_bytes(calm.outdir)
    assert records.load(calm.outdir).arrays["values"].shape == (2, 2, 61)

    # finished: nothing runs, and merged anew it is the same
    (hunted.outdir / "record.json").unlink()
    assert sweep(hunted, nothing) == 0
    assert merged_bytes(hunted.outdir) == merged_bytes(calm.outdir)

    # a cell as a job of submitit
    jobs = grid_of(tmp_path / "jobs", text)
    for run in jobs.runs()[:1]:
        shutil.copytree(calm.outdir / "cells" / run.folder.name, run.folder)
    assert sweep(jobs, starter("local", tmp_path / "submitit", 2, 5, 0, ""), at_once=2) == 0
    assert len(list((tmp_path / "submitit").glob("*_result.pkl"))) == 1
    assert merged_bytes(jobs.outdir) == merged_bytes(calm.outdir)


def test_a_cell_that_always_dies_is_named_and_the_others_finish(tmp_path, capfd):
    grid = grid_of(tmp_path, "dies:always,once,never", steps=10)
    assert sweep(grid, start_here, at_once=3, attempts=2) == FAILED
    assert not (tmp_path / "record.json").exists()
    said = capfd.readouterr().err
    assert "dies=always: failed (killed by SIGSEGV, attempt 2 of 2)" in said
    assert "no memory left" in said
    assert "nothing is merged: dies=always\n" in said
    always, once, never = grid.runs()
    assert [bool(run.record()) for run in (always, once, never)] == [False, True, True]
    assert (once.folder / LOG).read_text() == "from step 0\nfrom step 3\n"  # it went on where it died
    assert (never.folder / LOG).read_text() == "from step 0\n"
    assert once.record().arrays["values"].tolist() == never.record().arrays["values"].tolist()


@dataclasses.dataclass(frozen=True, eq=False)
class Shell(Run):
    """A run that is a line of shell; it is done where there is a file of this name."""

    script: str = ""

    def command(self):
        return ["sh", "-c", f"cd '{self.folder}'; {self.script}"]

    def record(self):
        return "a record" if (self.folder / "done").exists() else None


def shells(root, names, script):
    return [Shell(name, TOY, "smoke", Config(), root / name, script=script) for name in names]


def run(runs, at_once, attempts=1):
    """The runs that failed, and what was said of each."""
    with Progress(console=Console(quiet=True)) as progress, contextlib.ExitStack() as said:
        told = []
        said.callback(setattr, progress.console, "print", progress.console.print)
        progress.console.print = lambda text="", *_, **__: told.append(str(text).splitlines()[0]) if text else None
        return run_elsewhere(runs, start_here, at_once, attempts, progress), told


def test_two_sweeps_at_once_run_every_cell_once(tmp_path):
    told = [[], []]

    def one(heard):
        heard += run(grid_of(tmp_path, "seed:0,1,2", steps=20).runs(), 2)

    threads = [threading.Thread(target=one, args=(heard,)) for heard in told]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for failed, heard in told:
        assert not failed
        assert sorted(line.split(":")[0] for line in heard) == [f"seed={i}" for i in range(3)]
    for cell in grid_of(tmp_path, "seed:0,1,2", steps=20).runs():
        assert (cell.folder / LOG).read_text().count("from step 0\n") == 1
        assert "from step 1" not in (cell.folder / LOG).read_text()


def test_a_cell_at_work_elsewhere_is_waited_for(tmp_path):
    (one,) = shells(tmp_path, "a", "touch done")
    one.folder.mkdir()
    assert not records.is_locked(one.folder)
    with open(one.folder / ".lock", "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert records.is_locked(one.folder)
        threading.Timer(0.3, lambda: fcntl.flock(other, fcntl.LOCK_UN)).start()
        assert run([one], 1)[0] == {}
    assert one.record()


def test_who_only_looks_at_a_cell_keeps_nobody_from_it(tmp_path):
    with records.locked(tmp_path):
        pass
    with open(tmp_path / ".lock") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert not records.is_locked(tmp_path)
        threading.Timer(0.1, lambda: fcntl.flock(looking, fcntl.LOCK_UN)).start()
        with records.locked(tmp_path):  # it waited
            assert records.is_locked(tmp_path)


def test_a_worker_outlives_its_sweep_and_the_next_one_waits_for_it(tmp_path):
    script = "exec 9>.lock; flock 9; echo x >> starts; while [ ! -e go ]; do sleep 0.02; done; touch done"
    (one,) = shells(tmp_path, "a", script)
    (child,) = start_here([one])
    while not records.is_locked(one.folder):
        time.sleep(0.01)
    threading.Timer(0.3, (one.folder / "go").touch).start()
    assert run([one], 1) == ({}, ["a: finished by another process"])
    assert child.wait() == 0
    assert (one.folder / "starts").read_text() == "x\n"


def test_a_worker_that_gives_way_to_another_run_has_spent_no_attempt(tmp_path):
    gives_way = "exec 9>.lock; flock 9; (sleep 0.5) & exit 2"  # its lock outlives it for half a second
    script = f"echo x >> starts; case $(wc -l < starts) in 1) {gives_way};; 2) exit 1;; esac; touch done"
    (one,) = shells(tmp_path, "a", script)
    assert run([one], 1, attempts=2)[0] == {}
    assert (one.folder / "starts").read_text() == "x\n" * 3


def test_where_a_worker_cannot_be_started_the_others_save(tmp_path, monkeypatch):
    script = "trap 'touch saved; exit 75' TERM; touch begun; while true; do sleep 0.02; done"
    runs, started = shells(tmp_path, "ab", script), subprocess.Popen

    def popen(command, **options):
        if command == runs[1].command():
            while not (runs[0].folder / "begun").exists():
                time.sleep(0.01)
            raise BlockingIOError(errno.EAGAIN, "no process left")
        return started(command, **options)

    monkeypatch.setattr(subprocess, "Popen", popen)
    with pytest.raises(OSError, match="no process left"):
        run(runs, 2)
    assert (runs[0].folder / "saved").exists()


STATUSES = [(signal.SIGTERM, os.EX_TEMPFAIL), (signal.SIGUSR1, os.EX_TEMPFAIL), (signal.SIGINT, 130)]


@pytest.mark.parametrize(("number", "status"), STATUSES)
def test_a_sweep_that_is_stopped_lets_its_workers_save(tmp_path, monkeypatch, number, status, capfd):
    script = "trap 'touch saved; exit 75' TERM; touch begun; while true; do sleep 0.02; done"
    runs = shells(tmp_path, "abc", script)

    def stop():
        while not all((one.folder / "begun").exists() for one in runs[:2]):
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    monkeypatch.setattr(binary.lab, "carry_out_grid", lambda *_: run(runs, 2, 3))
    threading.Thread(target=stop).start()
    words = ["sweep", "--binary=von_oswald.roll_out", "--preset=smoke", "--grid=seed:1", f"--outdir={tmp_path}"]
    assert binary.main(words) == status
    assert [(one.folder / "saved").exists() for one in runs] == [True, True, False]
    assert "the same command resumes" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(("number", "status"), STATUSES)
@pytest.mark.parametrize("place", ["planning", "merging"])
def test_a_sweep_is_stopped_while_it_plans_and_while_it_merges(tmp_path, monkeypatch, capsys, place, number, status):
    words = ["sweep", "--binary=von_oswald.roll_out", "--preset=smoke", "--grid=seed:1", f"--outdir={tmp_path}"]
    monkeypatch.setattr(Run, "record", lambda _: "a record")  # all is finished
    where = "_how" if place == "planning" else "lab._merge"
    monkeypatch.setattr(f"experiments.sweep.{where}", lambda *_: signal.raise_signal(number))
    before = [signal.getsignal(number) for number, _ in STATUSES]
    assert binary.main(words) == status
    assert "; the same command resumes" in capsys.readouterr().err
    assert [signal.getsignal(number) for number, _ in STATUSES] == before


def test_asked_twice_workers_are_killed(tmp_path):
    (one,) = shells(tmp_path, "a", "trap '' TERM; touch begun; echo $$ > pid; exec sleep 600")

    def twice():
        while not (one.folder / "pid").exists():
            time.sleep(0.01)
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.3)

    threading.Thread(target=twice).start()
    started = time.monotonic()
    with stopping.heeding(), pytest.raises(KeyboardInterrupt):
        run([one], 1)
    assert time.monotonic() - started < 60
    assert not one.record()


def test_a_larger_grid_keeps_the_cells_and_the_record_of_the_smaller(tmp_path):
    small, large = grid_of(tmp_path, "seed:0,1"), grid_of(tmp_path, "seed:0,1,2")
    for cell in large.runs():
        record = records.Record("toy.map", "smoke", flags.to_json(cell.config), {}, {})
        records.save(record, cell.folder, claims=[])
    assert sweep(small, nothing) == 0
    before = (tmp_path / "record.json").read_bytes()
    assert sweep(large, nothing) == 0
    assert (tmp_path / "record.json.set-aside-1").read_bytes() == before
    assert len(records.load(tmp_path).metrics["cells"]) == 3


def test_a_cell_of_another_configuration_is_refused(tmp_path):
    cell, *_ = grid_of(tmp_path, "seed:0,1").runs()
    records.save(records.Record("toy.map", "smoke", flags.to_json(Config(steps=7)), {}, {}), cell.folder, claims=[])
    with pytest.raises(records.RecordError, match="another configuration; choose another --outdir"):
        cell.record()


SMALL = (
    "--preset=smoke", "--context_length=2", "--input_size=2", "--batch=8", "--eval_tasks=8", "--dampings=1",
    "--applications=2",
)  # fmt: skip


def test_a_cell_is_the_run_of_the_binary_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(binary.__file__).parents[1]))
    words = ["sweep", "--binary=von_oswald.roll_out", *SMALL, "--grid=seed:3", "--outdir=all", "--workers=1"]
    assert binary.main(words) == 0
    config = records.load(Path("all/cells/seed=3")).config
    execute(roll_out.EXPERIMENT, "smoke", flags.from_json(roll_out.Config, config), Path("alone"))
    for name in ("record.json", "arrays.npz", "config.json"):
        assert Path("alone", name).read_bytes() == Path("all/cells/seed=3", name).read_bytes()
    assert Path("all/summary.png").exists()


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ("--binary=von_oswald.roll_outs --grid=seed:1", "--binary=von_oswald.roll_outs"),
        ("--binary=von_oswald.common --grid=seed:1", "--binary=von_oswald.common"),
        ("--binary=../x.y --grid=seed:1", "--binary=../x.y"),
        ("--grid=seed:1", "--binary="),
        ("--binary=von_oswald.roll_out", "--grid"),
        ("--binary=von_oswald.roll_out --grid=sed:1", "--grid=sed:1"),
        ("--binary=von_oswald.roll_out --grid=batch:0", "batch=0"),
        ("--binary=von_oswald.roll_out --grid=seed:1 --seed=2", "--seed=2"),
        ("--binary=von_oswald.roll_out --grid=seed:1 --workers=0", "--workers=0"),
        ("--binary=von_oswald.roll_out --grid=seed:1 --executor=pbs", "--executor=pbs"),
        ("--binary=von_oswald.roll_out --grid=seed:1 --executor=slurm", "--executor=slurm"),
        ("--binary=von_oswald.roll_out --grid=seed:1 --precision=low", "--precision=low"),
        ("--binary=von_oswald.roll_out --grid=seed:1 --cpu_device=2", "cpu_device"),
        ("--binary=von_oswald.roll_out --grid=seed:1 --outdir=file", "--outdir=file"),
        ("--binary=von_oswald.roll_out --grid=seed:1 now", "'now'"),
    ],
)
def test_bad_input_is_refused_before_any_work(words, wrong, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(binary, "discover", lambda: {"von_oswald.roll_out": roll_out.EXPERIMENT})
    monkeypatch.setenv("PATH", str(tmp_path))
    Path("file").touch()
    assert binary.main(["sweep", *words.split()]) == 2
    assert wrong in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_missing_dependency_is_named(monkeypatch, capsys):
    importing = importlib.import_module

    def without(name):
        if name == "experiments.von_oswald.roll_out":
            raise ModuleNotFoundError("No module named 'diffrax'", name="diffrax")
        return importing(name)

    monkeypatch.setattr(importlib, "import_module", without)
    assert binary.main(["sweep", "--binary=von_oswald.roll_out", "--grid=seed:1"]) == 2
    assert "--binary=von_oswald.roll_out: it needs the module diffrax, which is missing" in capsys.readouterr().err


def test_slurm_gets_an_array(tmp_path, monkeypatch):
    for name, text in (("sbatch", 'cp "$1" script; echo Submitted batch job 7'), ("srun", "exit")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    runs = shells(tmp_path, "abc", "touch done")
    start = starter("slurm", tmp_path / "submitit", 2, 30, 1, "gpu")
    assert len(start(runs)) == 3
    script = Path("script").read_text()
    for line in ("--array=0-2%2", "--time=30", "--partition=gpu", "--gpus-per-node=1", "--signal=USR2@90"):
        assert f"#SBATCH {line}\n" in script
    starter("slurm", tmp_path / "submitit", 2, 30, 0, "")(runs)
    assert not any(word in Path("script").read_text() for word in ("partition", "gpus", "None"))
    (tmp_path / "sbatch").write_text("#!/bin/sh\necho no such partition >&2; exit 1\n")
    with pytest.raises(OSError, match=r"refused the jobs: (.|\n)*no such partition"):
        start(runs)


def test_a_job_that_is_preempted_saves_and_is_submitted_again(tmp_path):
    script = (
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path(sys.argv[1], 'saved').touch(), sys.exit(75)))\n"
        "pathlib.Path(sys.argv[1], 'begun').touch(); time.sleep(600)"
    )
    job, again = Job([sys.executable, "-S", "-c", script, str(tmp_path)], tmp_path), []

    def preempt(*_):  # as submitit: inside the call of the job, which it ends
        again.append(job.checkpoint())
        raise SystemExit

    def until(name):
        while not (tmp_path / name).exists():
            time.sleep(0.01)

    def send():
        until("begun")
        (child,) = Path(f"/proc/self/task/{me}/children").read_text().split()
        os.kill(int(child), signal.SIGUSR2)  # as SLURM: to all processes of a job
        time.sleep(0.1)
        assert not (tmp_path / "saved").exists()
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR2)

    me, before = threading.get_native_id(), signal.signal(signal.SIGUSR2, preempt)
    try:
        thread = threading.Thread(target=send)
        thread.start()
        with pytest.raises(SystemExit):
            job()
        thread.join()
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert (tmp_path / "saved").exists()  # it was waited for
    assert pickle.loads(pickle.dumps(again[0].function)) == job


def test_help_says_what_a_sweep_is(capsys):
    assert binary.main(["sweep", "--help"]) == 0
    said = capsys.readouterr().out
    assert all(f"--{field.name}" in said for field in dataclasses.fields(binary.Sweep))
