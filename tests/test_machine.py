"""What users' machines are like: locales, pipes, homes, styles, containers, file systems, other packages."""

import dataclasses
import errno
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import types

import jax
import optax
import pytest
from conftest import COMPILED

import experiments
from experiments.dai.implicit_finetuning import EXPERIMENT as FINETUNING
from experiments.identification import of
from experiments.page import __main__ as page
from experiments.tools import benchmark, forks, gallery, join_members, reproduce
from experiments.von_oswald.noisy_labels import EXPERIMENT
from icl_lab import __main__ as first_screen
from icl_lab import load_run, machine
from icl_lab.lab import command_line, executors, flags, options, records
from icl_lab.lab.record import RecordError
from icl_lab.training import processes
from icl_lab.training.fitting import fit

ROOT = pathlib.Path(__file__).parents[1]


def test_reproduce_runs_on_an_unkind_machine(tmp_path):
    """A long TMPDIR, ASCII alone, no home, matplotlib told to use TeX: the run ends well, and says so."""
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\nfont.family: nowhere\n", encoding="utf-8")
    temporary = tmp_path / ("t" * 90)
    temporary.mkdir()
    here = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHON"))}
    here |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(ROOT)}
    here |= {"TMPDIR": str(temporary), "HOME": "/proc/none", "MATPLOTLIBRC": str(tmp_path / "matplotlibrc")}
    here["JAX_COMPILATION_CACHE_DIR"] = str(COMPILED)
    words = ["--preset=smoke", "--only=von_oswald.noisy_labels", "--outroot=runs", "--verbose"]
    command = [sys.executable, "-m", "experiments.reproduce", *words]
    done = subprocess.run(command, cwd=tmp_path, env=here, capture_output=True, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert b"1 runs ended well, 0 did not" in done.stdout
    (log,) = (tmp_path / "runs/von_oswald/noisy_labels").glob("smoke-*/log.txt")
    assert "expected ≤ 0" in log.read_text(encoding="utf-8")
    assert list((tmp_path / "runs/von_oswald/noisy_labels").glob("smoke-*/*.png"))


@pytest.mark.parametrize(
    "said",
    [
        first_screen.main,
        lambda: command_line.main(EXPERIMENT, ["binary", "--help"]),
        lambda: reproduce.main(["reproduce", "--list"]),
        lambda: command_line.command("", reproduce.Options(), lambda _: command_line._print("from rich")),
    ],
)
def test_a_program_ends_quietly_where_nobody_reads_on(said, monkeypatch):
    read, written = os.pipe()
    os.close(read)
    monkeypatch.setattr(sys, "argv", ["program"])
    with open(written, "w", encoding="utf-8") as unread:
        monkeypatch.setattr(sys, "stdout", unread)
        with pytest.raises(SystemExit) as ended:
            said()
        assert ended.value.code == machine.UNREAD
    # closing it has raised nothing


def test_another_broken_pipe_is_not_taken_for_the_reader(monkeypatch):
    def run(_):
        raise BrokenPipeError("of a fork server")

    with open(os.devnull, "w", encoding="utf-8") as read:
        monkeypatch.setattr(sys, "stdout", read)
        with pytest.raises(BrokenPipeError, match="fork server"):
            command_line.command("", reproduce.Options(), run, ["program"])


def test_what_a_locale_cannot_write_is_replaced(monkeypatch):
    ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", ascii_only)
    assert command_line.main(FINETUNING, ["binary", "--help"]) == first_screen.main() == 0
    assert b"?" in ascii_only.buffer.getvalue()


def test_every_path_may_begin_at_home(monkeypatch):
    monkeypatch.setenv("HOME", "/somewhere")
    commands = [options, benchmark, gallery, join_members, of, page, reproduce]
    classes = {type(experiment.presets["paper"]) for experiment in reproduce.discover().values()}
    fields = [field for each in (*(it.Options for it in commands), *classes) for field in dataclasses.fields(each)]
    paths = [field for field in fields if re.search(r"^folders|\b(folder|file|gallery|claims\.json)\b", about(field))]
    assert {field.name for field in paths} >= {"outdir", "outroot", "runs", "out", "save", "examples", "text_networks"}
    for field in paths:
        assert flags.read(field, "~/runs", ",") in ("/somewhere/runs", ("/somewhere/runs",)), field.name


def about(field):
    return field.metadata["about"] if flags._kind(field) is str else ""


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.ESTALE])
def test_a_file_system_without_locks_is_named_with_what_to_do(tmp_path, monkeypatch, capsys, number):
    def flock(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(records.fcntl, "flock", flock)
    folder = tmp_path / "run"
    assert command_line.main(EXPERIMENT, ["binary", "--preset=smoke", f"--outdir={folder}"]) == 2
    said = capsys.readouterr().err
    assert f"{folder} cannot be locked ({os.strerror(number)}); choose an --outdir" in said


@pytest.mark.skipif(not pathlib.Path("/proc/self").exists(), reason="no such folder")
def test_a_folder_in_which_nothing_can_be_made_is_refused(capsys):
    assert command_line.main(EXPERIMENT, ["binary", "--outdir=/proc/x"]) == 2
    assert "--outdir=/proc/x: /proc cannot be written (" in capsys.readouterr().err
    assert reproduce.main(["reproduce", "--outroot=/proc/x"]) == 2
    assert "--outroot=/proc/x: /proc cannot be written (" in capsys.readouterr().err


def test_where_jax_compiles_nothing_a_training_is_refused(capsys, tmp_path):
    with jax.disable_jit():
        assert command_line.main(EXPERIMENT, ["binary", f"--outdir={tmp_path / 'run'}"]) == 2
        assert reproduce.main(["reproduce", f"--outroot={tmp_path / 'runs'}"]) == 2
        with pytest.raises(ValueError, match="JAX_DISABLE_JIT"):
            fit(lambda *_: 0.0, lambda w, *_: w**2, optax.sgd(0.1), jax.random.split(jax.random.key(0), 2), steps=1)
    assert capsys.readouterr().err.count("error: JAX_DISABLE_JIT is set") == 2
    assert not list(tmp_path.iterdir())


@pytest.fixture
def cgroups(tmp_path, monkeypatch):
    """``cgroups(lines, files)``: this process is in these groups, and ``files`` say what they may use."""

    def made(lines, files):
        monkeypatch.setattr(machine, "CGROUPS", tmp_path / "cgroup")
        monkeypatch.setattr(machine, "OF_PROCESS", tmp_path / "of_process")
        machine.OF_PROCESS.write_text("\n".join(lines), encoding="utf-8")
        for name, content in files.items():
            (machine.CGROUPS / name).parent.mkdir(parents=True, exist_ok=True)
            (machine.CGROUPS / name).write_text(content, encoding="utf-8")

    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: range(8), raising=False)
    return made


@pytest.mark.parametrize(
    ("lines", "files", "cores", "memory"),
    [
        (["0::/"], {"memory.max": "max\n", "cpu.max": "max 100000\n"}, 8, None),
        (["0::/"], {"memory.max": "4096\n", "cpu.max": "350000 100000\n"}, 4, 4096),
        (["0::/job/step"], {"job/memory.max": "4096", "job/step/memory.max": "8192", "job/cpu.max": "90 1"}, 8, 4096),
        (["0::/job/step"], {"job/memory.max": "4096", "job/step/memory.max": "512", "job/cpu.max": "500 1000"}, 1, 512),
        (["0::/a"], {"other/memory.max": "4096", "other/cpu.max": "100 100"}, 8, None),
        (["4:memory:/a/b", "1:cpu,cpuacct:/a", "0::/"],
         {"memory/a/memory.limit_in_bytes": "4096", "memory/memory.limit_in_bytes": "9223372036854771712",
          "cpu/a/cpu.cfs_quota_us": "200000", "cpu/a/cpu.cfs_period_us": "100000"}, 2, 4096),
        (["1:cpu,cpuacct:/a"], {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"}, 8, None),
    ],
)  # fmt: skip
def test_the_smallest_limit_up_to_the_root_holds(cgroups, lines, files, cores, memory):
    cgroups(lines, files)
    assert machine.cores() == cores
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert machine.memory() == (memory or whole)


def test_compiled_programs_of_another_processor_lie_elsewhere(tmp_path, monkeypatch):
    names = set()
    for features in ("fpu avx2", "fpu avx2 avx512f", None):
        monkeypatch.setattr(machine, "PROCESSOR", tmp_path / str(features))
        if features:
            said = "processor: {}\nmodel name: A\ncpu MHz: {}\nflags: " + features + "\n\n"
            machine.PROCESSOR.write_text(said.format(0, 1200) + said.format(1, 999), encoding="utf-8")
            names.add(machine.processor())
            machine.PROCESSOR.write_text(said.format(0, 3100), encoding="utf-8")
        names.add(machine.processor())
    assert len(names) == 3
    assert all("/" not in name for name in names)


TRACE = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    f()\n    ^^^\n'
STACK = "*** Check failure stack trace: ***\n    @     0x7f4f0e1e9f6a  xla::Connect()\n#1 0x0001 main\n"


@pytest.mark.parametrize(
    ("log", "found"),
    [
        (f"a warning\n{TRACE}ValueError: not today\n", "ValueError: not today"),
        (f"{TRACE}ValueError: not today\nfor two reasons\n--------------------\nFor simplicity, JAX has removed its "
         "internal frames\n", "ValueError: not today"),
        (f"{TRACE}KeyError: 1\n\nThe above exception was the direct cause of the following exception:\n\n"
         f"{TRACE}my.Error: 2\n", "my.Error: 2"),
        ("error: --members=0: allowed is whole number >= 1\nTry --help.\n",
         "error: --members=0: allowed is whole number >= 1"),
        (f"one\nF0000 a.cc:12] Check failed: it is late\n{STACK}", "F0000 a.cc:12] Check failed: it is late"),
        (STACK, ""),
        ("", ""),
    ],
)  # fmt: skip
def test_the_reason_of_a_failure_is_what_was_raised(tmp_path, log, found):
    (tmp_path / "log").write_text(f"{TRACE}OSError: of the run before\n{log}", encoding="utf-8")
    assert reproduce.reason(tmp_path / "log", len(f"{TRACE}OSError: of the run before\n")) == found
    assert reproduce.reason(tmp_path / "none") == ""


def test_several_processes_meet_without_a_proxy(monkeypatch):
    def initialize(**_):
        assert not {"http_proxy", "https_proxy", "grpc_proxy"} & {*os.environ}
        raise ValueError("here")

    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://localhost:9")
    monkeypatch.setattr(processes.jax.distributed, "initialize", initialize)
    with pytest.raises(processes.RefusedError, match="here"):
        processes.start("localhost:1", 2, 0)


def test_another_package_of_the_name_experiments_is_said_to_be_in_the_way(tmp_path, monkeypatch, capsys):
    package = tmp_path / "experiments"
    package.mkdir()
    (package / "__init__.py").touch()
    here = {**os.environ, "PYTHONPATH": str(ROOT)}
    shown = [
        subprocess.run([sys.executable, *words], cwd=tmp_path, env=here, capture_output=True, text=True, check=False)
        for words in (["-m", "icl_lab"], ["-P", "-m", "icl_lab"])
    ]
    assert [done.returncode for done in shown] == [0, 0]
    assert f"{package} comes before the experiments of icl_lab, which are in {ROOT / 'experiments'}" in shown[0].stderr
    assert shown[1].stderr == ""
    assert shown[0].stdout == shown[1].stdout
    assert "one_step" in shown[0].stdout
    found = list(reproduce.discover())
    monkeypatch.setattr(experiments, "__path__", [str(package)])
    assert list(reproduce.discover()) == found
    hidden = types.ModuleType("experiments")
    hidden.__path__ = [str(package)]
    hidden.__spec__ = machine.importlib.machinery.ModuleSpec("experiments", None, is_package=True)
    hidden.__spec__.submodule_search_locations = hidden.__path__
    for name in [name for name in sys.modules if name.startswith("experiments.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "experiments", hidden)
    finders = [finder for finder in sys.meta_path if "editable" not in getattr(finder, "__module__", "")]
    monkeypatch.setattr(sys, "meta_path", finders)  # one that finds what is below ours all the same
    with pytest.raises(RecordError, match=f"is no binary here .*{package} comes before the experiments of icl_lab"):
        load_run(ROOT / "figures/von_oswald/weight_maps/lab")


def test_every_file_is_opened_in_an_encoding_that_is_named():
    words = ["ruff", "check", "--preview", "--select=PLW1514", "icl_lab", "experiments"]
    done = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_runs_find_their_binary_as_the_program_that_starts_them_did(monkeypatch):
    run = reproduce.Run(EXPERIMENT.name, EXPERIMENT, "smoke", EXPERIMENT.presets["smoke"], pathlib.Path("run"))
    assert run.command()[1:3] == ["-m", "experiments.von_oswald.noisy_labels"]
    monkeypatch.setattr(sys, "flags", types.SimpleNamespace(safe_path=True))
    assert run.command()[1:4] == ["-P", "-m", "experiments.von_oswald.noisy_labels"]
    assert forks.Forked(run)._words[0] == "experiments.von_oswald.noisy_labels"


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
def test_an_environment_that_was_moved_or_copied_is_made_anew(tmp_path):
    first, second, python = tmp_path / "first", tmp_path / "second", tmp_path / "python"
    first.mkdir()
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, first)
    python.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/said\n[ "$2" = venv ] && [ "$1" = -m ] && mkdir -p "$4/bin" '
                      '&& cp "$0" "$4/bin"; exit 0\n', encoding="utf-8")  # fmt: skip
    python.chmod(0o755)

    def made(folder):
        (tmp_path / "said").write_text("", encoding="utf-8")
        subprocess.run(["make", "install", f"PYTHON={python}"], cwd=folder, check=True, capture_output=True)
        return (tmp_path / "said").read_text(encoding="utf-8")

    assert "venv --clear" in made(first)
    assert made(first) == ""
    shutil.copytree(first, second)  # with its times
    for folder in (second, first.rename(tmp_path / "third")):
        said = made(folder)
        assert "venv --clear" in said
        assert "-e ." in said
        assert made(folder) == ""


def test_locks_and_logs_and_forks_need_no_long_path(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(forks.tempfile, "gettempdir", lambda: "/" + "t" * 90)
    assert forks.starter([]) is executors.start_here
    monkeypatch.setattr(forks.tempfile, "gettempdir", lambda: "/" + "t" * 60)
    assert forks.starter([]) is not executors.start_here
