import contextlib
import dataclasses
import errno
import fcntl
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
from toys import made_up

from experiments.von_oswald import roll_out
from icl_lab.lab import command_line, flags, merging, records, stopping
from icl_lab.lab.command_line import FAILED
from icl_lab.lab.execution import execute
from icl_lab.lab.executors import Job, run_elsewhere, start_here, starter
from icl_lab.lab.options import Options
from icl_lab.lab.plans import Grid, Run, parse_grid
from icl_lab.lab.quantities import quantity
from icl_lab.lab.records import LOG

CELL = Path(__file__).with_name("plan_cell.py")


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = flags.setting(0, "seed", at_least=0)
    members: int = flags.setting(2, "members", at_least=1)
    rate: float = flags.setting(3.9, "of the map", above=0)
    steps: int = flags.setting(60, "steps", at_least=1)
    dies: str = flags.setting("never", "when", choices=("never", "once", "always"))


TOY = made_up("toy.map", Config(), quantities=(quantity("values", "member", "step"),))


class StandIn(Run):
    """A cell with the stand-in as its command."""

    def command(self):
        return [sys.executable, str(CELL), str(self.folder), json.dumps(flags.to_json(self.config))]


class Cells(Grid):
    def runs(self):
        return [StandIn(**vars(run)) for run in super().runs()]


def grid_of(outdir, text, **changes):
    return Cells(TOY, "smoke", dataclasses.replace(Config(), **changes), parse_grid(text, Config), outdir)


def carry_out(grid, start, at_once=1):
    def elsewhere(runs, progress):
        return run_elsewhere(runs, start, at_once, progress)

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
        if self.hunter.ident is None:
            self.hunter.start()
        return found

    def hunt(self):
        chance = random.Random(0)
        while self.killed < self.kills:
            time.sleep(chance.uniform(0.1, 0.9))
            if alive := [child for child in self.children if child.returncode is None]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(chance.choice(alive).pid, signal.SIGKILL)
                    self.killed += 1


def nothing(runs):
    raise AssertionError(f"a finished grid started {runs}")


def test_workers_killed_at_random_change_no_byte_and_lose_nothing(tmp_path, capfd):
    text = "rate:3.7,3.9"
    calm, hunted = grid_of(tmp_path / "calm", text), grid_of(tmp_path / "hunted", text)
    assert carry_out(calm, start_here, at_once=2) == 0
    start = Hunted(kills=6)
    while (status := carry_out(hunted, start, at_once=2)) == FAILED:  # the same command again
        pass
    start.kills = 0
    assert status == 0
    assert start.killed >= 3
    assert "failed (killed by SIGKILL); the end of" in capfd.readouterr().err
    assert merged_bytes(hunted.outdir) == merged_bytes(calm.outdir)
    assert records.load(calm.outdir)["rate=3.7"]["values"].shape == (2, 61)

    # finished: nothing runs, and merged anew it is the same
    (hunted.outdir / "record.json").unlink()
    assert carry_out(hunted, nothing) == 0
    assert merged_bytes(hunted.outdir) == merged_bytes(calm.outdir)

    # a cell as a job of submitit
    jobs = grid_of(tmp_path / "jobs", text)
    for run in jobs.runs()[:1]:
        shutil.copytree(calm.outdir / "cells" / run.folder.name, run.folder)
    assert (
        carry_out(jobs, starter(Options(executor="submitit_local", minutes=5), tmp_path / "submitit"), at_once=2) == 0
    )
    assert len(list((tmp_path / "submitit").glob("*_result.pkl"))) == 1
    assert merged_bytes(jobs.outdir) == merged_bytes(calm.outdir)


def test_a_cell_that_always_dies_is_named_and_the_others_finish(tmp_path, capfd):
    grid = grid_of(tmp_path, "dies:always,once,never", steps=10)
    for dead in ("dies=always, dies=once", "dies=always"):
        assert carry_out(grid, start_here, at_once=3) == FAILED
        assert not (tmp_path / "record.json").exists()
        said = capfd.readouterr().err
        assert "dies=always: failed (killed by SIGSEGV); the end of" in said
        assert "no memory left" in said
        assert f"nothing is merged: {dead}\n" in said
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


def run(runs, at_once):
    """The runs that failed, and what was said of each."""
    with Progress(console=Console(quiet=True)) as progress, contextlib.ExitStack() as said:
        told = []
        said.callback(setattr, progress.console, "print", progress.console.print)
        progress.console.print = lambda text="", *_, **__: told.append(str(text).splitlines()[0]) if text else None
        return run_elsewhere(runs, start_here, at_once, progress), told


def test_two_executors_at_once_run_every_cell_once(tmp_path):
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


def test_who_waits_for_a_folder_can_be_stopped(tmp_path):
    with open(tmp_path / ".lock", "w") as other, stopping.heeding():
        fcntl.flock(other, fcntl.LOCK_EX)
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
        with pytest.raises(stopping.Stopped), records.locked(tmp_path, wait=True):
            pass


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
def test_a_grid_that_is_stopped_lets_its_workers_save(tmp_path, monkeypatch, number, status, capfd):
    script = "trap 'touch saved; exit 75' TERM; touch begun; while true; do sleep 0.02; done"
    runs = shells(tmp_path, "abc", script)

    def stop():
        while not all((one.folder / "begun").exists() for one in runs[:2]):
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    monkeypatch.setattr(command_line, "carry_out_grid", lambda *_, **__: run(runs, 2))
    threading.Thread(target=stop).start()
    words = ["roll_out", "--preset=smoke", "--grid=seed:1", "--workers=2", f"--outdir={tmp_path}"]
    assert command_line.main(roll_out.EXPERIMENT, words) == status
    assert [(one.folder / "saved").exists() for one in runs] == [True, True, False]
    assert "the same command resumes" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(("number", "status"), STATUSES)
@pytest.mark.parametrize("place", ["planning", "merging"])
def test_a_grid_is_stopped_while_it_plans_and_while_it_merges(tmp_path, monkeypatch, capsys, place, number, status):
    words = ["roll_out", "--preset=smoke", "--grid=seed:1", "--workers=2", f"--outdir={tmp_path}"]
    monkeypatch.setattr(Run, "record", lambda _: records.Record("", "", {}, {}, {}))  # all is finished
    where = (Run, "record") if place == "planning" else (merging, "merge")
    monkeypatch.setattr(*where, lambda *_: signal.raise_signal(number))
    before = [signal.getsignal(number) for number, _ in STATUSES]
    assert command_line.main(roll_out.EXPERIMENT, words) == status
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


def test_a_larger_grid_keeps_the_cells_and_the_record_of_the_smaller(tmp_path, caplog):
    small, large = grid_of(tmp_path, "seed:0,1"), grid_of(tmp_path, "seed:0,1,2")
    for cell in large.runs():
        record = records.Record("toy.map", "smoke", flags.to_json(cell.config), {}, {})
        records.save(record, cell.folder, claims=[])
    assert carry_out(small, nothing) == 0
    before = (tmp_path / "record.json").read_bytes()
    assert carry_out(large, nothing) == 0
    assert (tmp_path / "record.json.set-aside-1").read_bytes() == before
    assert "record.json.set-aside-1" in caplog.text
    assert len(records.load(tmp_path).metrics["cells"]) == 3


@pytest.mark.parametrize("there", ["files", "an unfinished run", "a run", "another grid"])
def test_a_grid_takes_no_folder_that_holds_something_else(tmp_path, there):
    if there == "files":
        (tmp_path / "summary.csv").write_text("precious")
    elif there == "an unfinished run":
        (tmp_path / "checkpoints").mkdir()
    else:
        config = flags.to_json(Config()) | ({"grid": "seed:0,1"} if there == "another grid" else {})
        name = "toy.other" if there == "another grid" else "toy.map"
        records.save(records.Record(name, "smoke", config, {}, {}), tmp_path, claims=[])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    with pytest.raises(records.RecordError, match="choose another --outdir"):
        carry_out(grid_of(tmp_path, "seed:0,1"), nothing)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before
    assert not (tmp_path / "cells").exists()


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
    monkeypatch.setenv("PYTHONPATH", str(Path(roll_out.__file__).parents[2]))
    words = ["roll_out", *SMALL, "--grid=seed:3", "--outdir=all", "--workers=2", "--checkpoint_seconds=7"]
    assert command_line.main(roll_out.EXPERIMENT, words) == 0
    assert "--checkpoint_seconds=7.0" in records.load(Path("all/cells/seed=3")).provenance["command"]
    config = records.load(Path("all/cells/seed=3")).config
    execute(roll_out.EXPERIMENT, "smoke", flags.from_json(roll_out.Config, config), Path("alone"))
    for name in ("record.json", "arrays.npz", "config.json"):
        assert Path("alone", name).read_bytes() == Path("all/cells/seed=3", name).read_bytes()
    assert Path("all/summary.png").exists()


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ("--grid=seed:1 --workers=0", "--workers=0"),
        ("--workers=2", "--workers=2: allowed is with --grid"),
        ("--executor=slurm", "--executor=slurm: allowed is with --grid"),
        ("--grid=seed:1 --workers=2 --distributed", "--workers=2: allowed is with --grid, and without --distributed"),
        ("--grid=seed:1 --executor=pbs", "--executor=pbs: allowed is one of local, slurm, submitit_local"),
        ("--grid=seed:1 --executor=slurm", "--executor=slurm: there is no sbatch here"),
        ("--grid=seed:1 --workers=2 --minutes=1", "--minutes=1"),
        ("--grid=seed:1 --workers=2 --minutes=9", "--minutes=9: allowed is with --executor=slurm, submitit_local"),
        ("--grid=seed:1 --gpus=1", "--gpus=1: allowed is with --executor"),
        ("--slurm_partition=a", "--slurm_partition=a: allowed is with --executor"),
        ("--dry_run --distributed", "--dry_run: allowed is a single process, without --distributed"),
        ("--dry_run --profile", "--profile: allowed is a run, without --dry_run"),
        ("--grid=seed:1 --profile", "--profile: allowed is a single run, without --grid"),
        ("--grid=seed:1 --workers=2 --outdir=file", "/file is not a folder"),
    ],
)
def test_bad_input_is_refused_before_any_work(words, wrong, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    Path("file").touch()
    assert command_line.main(roll_out.EXPERIMENT, ["roll_out", *words.split()]) == command_line.REFUSED
    assert wrong in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_missing_extra_is_named(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    words = ["roll_out", "--grid=seed:1", "--executor=submitit_local"]
    assert command_line.main(roll_out.EXPERIMENT, words) == command_line.REFUSED
    assert "--executor=submitit_local: needs submitit: pip install" in capsys.readouterr().err


def test_slurm_gets_an_array(tmp_path, monkeypatch):
    for name, text in (("sbatch", 'cp "$1" script; echo Submitted batch job 7'), ("srun", "exit")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    runs = shells(tmp_path, "abc", "touch done")
    chosen = Options(executor="slurm", workers=2, minutes=30)
    start = starter(dataclasses.replace(chosen, gpus=1, slurm_partition="gpu"), tmp_path / "submitit")
    assert len(start(runs)) == 3
    script = Path("script").read_text()
    for line in ("--array=0-2%2", "--time=30", "--partition=gpu", "--gpus-per-node=1", "--signal=USR2@90"):
        assert f"#SBATCH {line}\n" in script
    starter(chosen, tmp_path / "submitit")(runs)
    assert not any(word in Path("script").read_text() for word in ("partition", "gpus", "None"))
    (tmp_path / "sbatch").write_text("#!/bin/sh\necho no such partition >&2; exit 1\n")
    with pytest.raises(OSError, match=r"refused the jobs: (.|\n)*no such partition"):
        start(runs)


def test_a_job_that_is_preempted_saves_and_is_submitted_again(tmp_path):
    script = (
        "import os, pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path(sys.argv[1], 'saved').touch(), sys.exit(75)))\n"
        "pathlib.Path(sys.argv[1], 'pid').write_text(str(os.getpid()))\n"
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
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGUSR2)  # as SLURM: to all processes of a job
        time.sleep(0.1)
        assert not (tmp_path / "saved").exists()
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR2)

    before = signal.signal(signal.SIGUSR2, preempt)
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
