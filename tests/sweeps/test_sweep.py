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

from experiments import sweep as binary
from experiments.von_oswald import roll_out
from icl_lab import flags, records
from icl_lab.experiment import PRESETS, Experiment, execute
from icl_lab.grids import cells as grids
from icl_lab.sweeps import scheduling
from icl_lab.sweeps import sweep as sweeps
from icl_lab.sweeps import tasks as places
from icl_lab.sweeps.cluster import Cluster, Command
from icl_lab.sweeps.scheduling import run_all
from icl_lab.sweeps.sweep import FAILED, Plan
from icl_lab.sweeps.tasks import Task, claim, is_held
from icl_lab.sweeps.workers import LocalWorkers

CELL = Path(__file__).with_name("sweep_cell.py")


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


def plan_of(outdir, text, **changes):
    config = dataclasses.replace(Config(), **changes)
    return Plan(TOY, "smoke", config, grids.parse(text, Config), outdir)


def commands(plan):
    """The cells of a plan with the stand-in as their command."""
    found = []
    for cell, task in plan.cells():
        words = (sys.executable, str(CELL), str(task.folder), json.dumps(flags.to_json(cell.config)))
        found.append((cell, dataclasses.replace(task, command=words)))
    return found


def merged_bytes(outdir):
    return [(outdir / name).read_bytes() for name in ("record.json", "arrays.npz", "config.json", "summary.csv")]


class Hunted:
    """Workers that are killed now and then."""

    def __init__(self, workers, kills):
        self.launcher, self.slots, self.every_seconds = LocalWorkers(workers), workers, 0.02
        self.kills, self.killed, self.jobs = kills, 0, []
        self.hunter = threading.Thread(target=self.hunt, daemon=True)

    def start(self, tasks):
        found = self.launcher.start(tasks)
        self.jobs += [job for job in found if job is not None]
        if not self.hunter.is_alive() and not self.killed:
            self.hunter.start()
        return found

    def hunt(self):
        chance = random.Random(0)
        while self.killed < self.kills:
            time.sleep(chance.uniform(0.1, 0.9))
            alive = [job for job in self.jobs if job._process.returncode is None]
            if not alive:
                return
            with contextlib.suppress(ProcessLookupError):
                os.kill(chance.choice(alive)._process.pid, signal.SIGKILL)
                self.killed += 1


class Nothing:
    slots, every_seconds = 1, 0.01

    def start(self, tasks):
        raise AssertionError(f"a finished sweep started {tasks}")


def test_workers_killed_at_random_change_no_byte_and_lose_nothing(tmp_path, capfd):
    text = "rate:3.7,3.9;seed:0,1"
    calm, hunted = plan_of(tmp_path / "calm", text), plan_of(tmp_path / "hunted", text, members=2)
    assert sweeps.sweep(calm, LocalWorkers(4), 1, commands(calm)) == 0
    launcher = Hunted(workers=2, kills=6)
    assert sweeps.sweep(hunted, launcher, 20, commands(hunted)) == 0
    assert launcher.killed >= 3
    assert "restarted (killed by SIGKILL" in capfd.readouterr().err
    assert merged_bytes(hunted.outdir) == merged_bytes(calm.outdir)
    assert records.load(calm.outdir).arrays["values"].shape == (4, 2, 61)

    # finished: nothing runs, and merged anew it is the same
    (hunted.outdir / "record.json").unlink()
    assert sweeps.sweep(hunted, Nothing(), 1) == 0
    assert merged_bytes(hunted.outdir) == merged_bytes(calm.outdir)

    # some cells as jobs of submitit
    jobs = plan_of(tmp_path / "jobs", text)
    for _, task in jobs.cells()[:2]:
        shutil.copytree(calm.outdir / "cells" / task.folder.name, task.folder)
    assert sweeps.sweep(jobs, Cluster("local", tmp_path / "submitit", 2, 2, 5, 0, ""), 1, commands(jobs)) == 0
    assert len(list((tmp_path / "submitit").glob("*_result.pkl"))) == 2
    assert merged_bytes(jobs.outdir) == merged_bytes(calm.outdir)


def test_a_cell_that_always_dies_is_named_and_the_others_finish(tmp_path, capfd):
    plan = plan_of(tmp_path, "dies:always,once,never", steps=10)
    cells = commands(plan)
    assert sweeps.sweep(plan, LocalWorkers(3), 2, cells) == FAILED
    assert not (tmp_path / "record.json").exists()
    said = capfd.readouterr().err
    assert "dies=always: failed (killed by SIGSEGV, 2 times)" in said
    assert "no memory left" in said
    assert "nothing is merged: dies=always\n" in said
    always, once, never = (task for _, task in cells)
    assert [sweeps.state(TOY, cell, task) for cell, task in cells] == ["begun", "finished", "finished"]
    assert once.tail() == "from step 0\nfrom step 3"  # it went on where it died
    assert never.tail() == "from step 0"
    assert records.load(once.folder).arrays["values"].tolist() == records.load(never.folder).arrays["values"].tolist()
    assert always.tail(1) == "no memory left"


def shell(root, names, script):
    return [Task(name, root / name, ("sh", "-c", f"cd {root / name}; {script}")) for name in names]


def done(task):
    return (task.folder / "done").exists()


def run(tasks, launcher, asked=lambda: 0, attempts=1, told=None):
    def tell(what, task, details):
        if told is not None:
            told.append((what, task.name))

    return run_all(tasks, launcher, done, attempts=attempts, tell=tell, asked_to_stop=asked)


def test_two_sweeps_at_once_run_every_cell_once(tmp_path):
    tasks = shell(tmp_path, "abcdefgh", "echo x >> starts; sleep 0.1; touch done")
    told = [[], []]
    threads = [threading.Thread(target=run, args=(tasks, LocalWorkers(3)), kwargs={"told": t}) for t in told]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {(task.folder / "starts").read_text() for task in tasks} == {"x\n"}
    for heard in told:
        assert sorted(name for _, name in heard) == list("abcdefgh")
    assert {what for heard in told for what, _ in heard} == {"finished", "elsewhere"}


@pytest.mark.parametrize("name", [".claim", ".lock"])
def test_a_cell_at_work_elsewhere_is_waited_for(tmp_path, name):
    (task,) = shell(tmp_path, "a", "touch done")
    task.folder.mkdir()
    assert not is_held(task.folder)
    with open(task.folder / name, "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert is_held(task.folder)
        assert claim(task.folder) is None
        threading.Timer(0.3, lambda: fcntl.flock(other, fcntl.LOCK_UN)).start()
        assert run([task], LocalWorkers(1)) == []
    assert done(task)


def test_who_only_looks_at_a_cell_keeps_nobody_from_it(tmp_path, monkeypatch):
    (task,) = shell(tmp_path, "a", "touch done")
    task.folder.mkdir()
    (task.folder / ".claim").touch()
    with open(task.folder / ".claim") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        waiting = threading.Timer(0.1, lambda: fcntl.flock(looking, fcntl.LOCK_UN))
        waiting.start()
        with claim(task.folder):  # it waited
            assert is_held(task.folder)
        waiting.join()

    def a_worker_starts(path):
        with open(task.folder / ".claim", "w") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return looked.append(path.name) or False

    looked = []
    monkeypatch.setattr(places, "_is_locked", a_worker_starts)
    assert not is_held(task.folder)
    assert looked == [".lock"]  # where a worker's own lock could be met, there can be no worker


def test_a_worker_holds_its_cell_without_its_sweep(tmp_path):
    (task,) = shell(tmp_path, "a", "while [ ! -e go ]; do sleep 0.02; done; touch done")
    (job,) = LocalWorkers(1).start([task])
    assert is_held(task.folder)  # by the worker alone: the sweep keeps no file open
    assert LocalWorkers(1).start([task]) == [None]
    (task.folder / "go").touch()
    while job.status() is None:
        time.sleep(0.01)
    assert not is_held(task.folder)


def test_a_worker_that_gives_way_to_another_run_has_spent_no_attempt(tmp_path):
    gives_way = "exec 9>.lock; flock 9; (sleep 0.5) & exit 2"  # its lock outlives it for half a second
    script = f"echo x >> starts; case $(wc -l < starts) in 1) {gives_way};; 2) exit 1;; esac; touch done"
    (task,) = shell(tmp_path, "a", script)
    assert run([task], LocalWorkers(1), attempts=2) == []
    assert (task.folder / "starts").read_text() == "x\n" * 3


def test_a_worker_that_cannot_be_started_is_a_failed_attempt_of_its_cell_alone(tmp_path, monkeypatch):
    tasks = shell(tmp_path, "abc", "touch done")
    started, refused = subprocess.Popen, {"a": 1, "b": 9}

    def popen(command, **options):
        name = next(task.name for task in tasks if task.command == command)
        if refused.get(name, 0):
            refused[name] -= 1
            raise BlockingIOError(errno.EAGAIN, "no process left")
        return started(command, **options)

    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(scheduling, "AGAIN_SECONDS", 0.01)
    launcher, told = LocalWorkers(2), []
    assert [task.name for task in run(tasks, launcher, attempts=2, told=told)] == ["b"]
    assert [done(task) for task in tasks] == [True, False, True]
    assert [told.count(heard) for heard in [("restarted", "a"), ("restarted", "b"), ("failed", "b")]] == [1, 1, 1]
    assert refused == {"a": 0, "b": 7}
    assert not any(is_held(task.folder) for task in tasks)
    assert "no process left" in scheduling.said(BlockingIOError(errno.EAGAIN, "no process left"))


STATUSES = [(signal.SIGTERM, os.EX_TEMPFAIL), (signal.SIGUSR1, os.EX_TEMPFAIL), (signal.SIGINT, 130)]


@pytest.mark.parametrize(("number", "status"), STATUSES)
def test_a_sweep_that_is_stopped_lets_its_workers_save(tmp_path, number, status, capfd):
    plan = plan_of(tmp_path, "seed:0,1,2")
    script = "trap 'touch saved; exit 75' TERM; touch begun; while true; do sleep 0.02; done"
    cells = [
        (cell, dataclasses.replace(task, command=("sh", "-c", f"cd '{task.folder}'; {script}")))
        for cell, task in plan.cells()
    ]
    begun = [task.folder / "begun" for _, task in cells[:2]]

    def stop():
        while not all(path.exists() for path in begun):
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    threading.Thread(target=stop).start()
    assert sweeps.sweep(plan, LocalWorkers(2), 3, cells) == status
    assert [(task.folder / "saved").exists() for _, task in cells] == [True, True, False]
    assert "the same command goes on" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(("number", "status"), STATUSES)
@pytest.mark.parametrize("place", ["planning", "merging"])
def test_a_sweep_is_stopped_while_it_plans_and_while_it_merges(tmp_path, monkeypatch, capsys, place, number, status):
    words = ["sweep", "--binary=von_oswald.roll_out", "--preset=smoke", "--grid=seed:1", f"--outdir={tmp_path}"]
    monkeypatch.setattr(sweeps, "record_of", lambda *_: "a record")  # all is finished
    if place == "planning":
        monkeypatch.setattr(binary, "state", lambda *_: signal.raise_signal(number))
    else:
        monkeypatch.setattr(sweeps, "conclude", lambda *_: signal.raise_signal(number))
    before = [signal.getsignal(number) for number, _ in STATUSES]
    assert binary.main(words) == status
    assert "; the same command resumes" in capsys.readouterr().err
    assert [signal.getsignal(number) for number, _ in STATUSES] == before


def test_asked_twice_workers_are_killed(tmp_path):
    (task,) = shell(tmp_path, "a", "trap '' TERM; touch begun; sleep 600")
    asked = iter([])

    def twice():
        return 2 if (task.folder / "begun").exists() else 0

    started = time.monotonic()
    assert run([task], LocalWorkers(1), asked=twice) == []
    assert time.monotonic() - started < 60
    assert not done(task)
    assert not list(asked)


def test_a_larger_grid_keeps_the_cells_and_the_record_of_the_smaller(tmp_path):
    small, large = plan_of(tmp_path, "seed:0,1"), plan_of(tmp_path, "seed:0,1,2")
    for cell, task in large.cells():
        record = records.Record("toy.map", "smoke", flags.to_json(cell.config), {}, {})
        records.save(record, task.folder, claims=[])
    assert sweeps.sweep(small, Nothing(), 1) == 0
    before = (tmp_path / "record.json").read_bytes()
    assert sweeps.sweep(large, Nothing(), 1) == 0
    assert (tmp_path / "record.json.set-aside-1").read_bytes() == before
    assert len(records.load(tmp_path).metrics["cells"]) == 3


def test_a_cell_of_another_configuration_is_refused(tmp_path):
    (cell, task), *_ = plan_of(tmp_path, "seed:0,1").cells()
    records.save(records.Record("toy.map", "smoke", flags.to_json(Config(steps=7)), {}, {}), task.folder, claims=[])
    with pytest.raises(records.RecordError, match="another configuration; choose another --outdir"):
        sweeps.state(TOY, cell, task)


def test_workers_take_turns_on_gpus():
    one, two = LocalWorkers(2, ["3", "5"]), LocalWorkers(3, ["3", "5"])
    assert [one.environment(i) for i in range(2)] == [{"CUDA_VISIBLE_DEVICES": "3"}, {"CUDA_VISIBLE_DEVICES": "5"}]
    shared = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    assert two.environment(2) == {"CUDA_VISIBLE_DEVICES": "3"} | shared
    assert LocalWorkers(2).environment(0) == {}


SMALL = (
    "--preset=smoke", "--context_length=2", "--input_size=2", "--batch=8", "--eval_tasks=8", "--dampings=1",
    "--applications=2",
)  # fmt: skip


def test_a_cell_is_the_run_of_the_binary_alone(tmp_path, monkeypatch, capsys, processes_compile_quickly):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(binary.__file__).parents[1]))
    words = ["sweep", "--binary=von_oswald.roll_out", *SMALL, "--grid=seed:3", "--outdir=all", "--workers=1"]
    assert binary.main([*words, "--list"]) == 0
    assert capsys.readouterr().out.split() == ["waiting", "seed=3"]
    assert binary.main(words) == 0
    assert binary.main([*words, "--list"]) == 0
    assert "finished   seed=3" in capsys.readouterr().out
    config = records.load(Path("all/cells/seed=3")).config
    execute(roll_out.EXPERIMENT, "smoke", flags.from_json(roll_out.Config, config), Path("alone"))
    for name in ("record.json", "arrays.npz", "config.json"):
        assert Path("alone", name).read_bytes() == Path("all/cells/seed=3", name).read_bytes()
    assert Path("all/claims.png").exists()


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ("--binary=von_oswald.roll_outs --grid=seed:1", "--binary=von_oswald.roll_outs"),
        ("--binary=von_oswald.settings --grid=seed:1", "--binary=von_oswald.settings"),
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


def test_slurm_gets_an_array(tmp_path, monkeypatch):
    for name, text in (("sbatch", 'cp "$1" script; echo Submitted batch job 7'), ("srun", "exit")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    tasks = shell(tmp_path, "abc", "touch done")
    launcher = Cluster("slurm", tmp_path / "submitit", 2, 3, 30, 1, "gpu")
    assert launcher.slots == 3
    assert len(launcher.start(tasks)) == 3
    script = Path("script").read_text()
    for line in ("--array=0-2%2", "--time=30", "--partition=gpu", "--gpus-per-node=1", "--signal=USR2@90"):
        assert f"#SBATCH {line}\n" in script
    (tmp_path / "sbatch").write_text("#!/bin/sh\necho no such partition >&2; exit 1\n")
    refused = launcher.start(tasks)  # by a cluster that took others: another time it may take these
    assert [type(one) for one in refused] == [OSError] * 3
    with pytest.raises(OSError, match=r"refused the jobs: .*no such partition"):
        Cluster("slurm", tmp_path / "submitit", 2, 3, 30, 1, "gpu").start(tasks)


def test_a_job_that_is_preempted_saves_and_is_submitted_again(tmp_path):
    script = (
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path(sys.argv[1], 'saved').touch(), sys.exit(75)))\n"
        "pathlib.Path(sys.argv[1], 'begun').touch(); time.sleep(600)"
    )
    task = Task("a", tmp_path, (sys.executable, "-S", "-c", script, str(tmp_path)))
    job, again, statuses = Command(task), [], []

    def preempt(*_):  # as submitit: inside the call of the job, which it ends
        child = job._child
        again.append(job.checkpoint())
        statuses.append(child.returncode)
        raise SystemExit

    def send():  # as SLURM: to all processes of a job
        while not (task.folder / "begun").exists():
            time.sleep(0.01)
        job._child.send_signal(signal.SIGUSR2)
        time.sleep(0.1)
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
    assert statuses == [os.EX_TEMPFAIL]  # seen in the handler: it did not wait in vain for what had ended
    assert (task.folder / "saved").exists()
    assert pickle.loads(pickle.dumps(again[0].function)).task == task
    assert not is_held(task.folder)


def test_help_says_what_a_sweep_is(capsys):
    assert binary.main(["sweep", "--help"]) == 0
    said = capsys.readouterr().out
    assert all(f"--{field.name}" in said for field in dataclasses.fields(binary.Sweep))
