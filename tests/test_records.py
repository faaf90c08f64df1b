import dataclasses
import datetime
import io
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import faults_run
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

import experiments
from experiments import binaries
from experiments.binaries import discover
from icl_lab import __main__ as sources
from icl_lab import machine
from icl_lab.lab import command_line, flags, provenance, records
from icl_lab.lab.provenance import digest
from icl_lab.lab.records import Record, RecordError

FILES = ("record.json", "arrays.npz", "config.json", "provenance.json")
RECORD = Record(
    "paper.figure",
    "lab",
    {"seed": 0, "rates": [0.5, 1e-3]},
    {"loss": 0.25, "none": float("nan")},
    {"b": np.arange(6.0).reshape(2, 3), "a": np.array([np.nan, np.inf])},
    {"seconds": 1.5},
)
CLAIMS = [{"id": "paper.figure.claim", "verdict": "holds"}]

names = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1).filter(lambda name: name != "file")
numbers = st.floats() | st.integers() | st.booleans() | st.text() | st.none()
arrays = st_numpy.arrays(
    st.sampled_from([np.float32, np.float64, np.int32, np.bool_, np.uint32, np.complex64]),
    st_numpy.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
)


@pytest.fixture
def saved(tmp_path):
    records.save(RECORD, tmp_path, CLAIMS)
    return tmp_path


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@given(
    config=st.dictionaries(names, numbers | st.lists(st.floats())),
    metrics=st.dictionaries(
        names, st.recursive(numbers, lambda inner: st.lists(inner) | st.dictionaries(names, inner))
    ),
    stored=st.dictionaries(names, arrays),
)
def test_what_is_saved_is_loaded(config, metrics, stored):
    record = Record("a.b", "quick", config, metrics, stored, {"seconds": 1})
    with tempfile.TemporaryDirectory() as folder:
        records.save(record, Path(folder), [])
        loaded = records.load(Path(folder))
    for field in dataclasses.fields(Record):
        if field.name != "arrays":  # as text, in which NaN equals NaN
            assert digest(getattr(loaded, field.name)) == digest(getattr(record, field.name))
    assert set(loaded.arrays) == set(stored)
    for name, array in stored.items():
        assert loaded.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(loaded.arrays[name], array)


def test_parameters_of_types_that_numpy_does_not_have_are_loaded_as_they_were(tmp_path):
    params = {"w": np.arange(6, dtype=jnp.bfloat16).reshape(2, 3).T, "b": np.array(0.3, "float8_e4m3fn")}
    records.save(dataclasses.replace(RECORD, params=params), tmp_path, [])
    loaded = records.load(tmp_path).params
    assert {name: array.dtype for name, array in loaded.items()} == {name: a.dtype for name, a in params.items()}
    for name, array in params.items():
        np.testing.assert_array_equal(loaded[name], array)


def test_the_same_record_is_the_same_bytes(saved, tmp_path):
    again = tmp_path / "again"
    shuffled = dataclasses.replace(RECORD, arrays=dict(reversed(RECORD.arrays.items())), provenance={"seconds": 9})
    records.save(shuffled, again, CLAIMS)
    first, second = content(saved), content(again)
    assert first.pop("provenance.json") != second.pop("provenance.json")
    assert first == second
    with zipfile.ZipFile(io.BytesIO(first["arrays.npz"])) as archive:
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}  # no time of day in it


class Trap:
    def __reduce__(self):
        return pytest.fail, ("a pickle was loaded",)


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_named_and_set_aside(saved, name):
    """That any flipped bit is seen and no pickle is loaded: test_fuzz.py."""
    (saved / name).write_bytes((saved / name).read_bytes()[:-9])
    with pytest.raises(RecordError, match=name):
        records.load(saved)
    before = content(saved)
    moved = records.set_record_aside(saved)
    assert content(saved) == {f"{file}.set-aside-1": before[file] for file in FILES}
    records.save(RECORD, saved, CLAIMS)
    assert records.set_record_aside(saved) == [path.with_suffix(".set-aside-2") for path in moved]


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(saved, name):
    (saved / name).unlink()
    with pytest.raises(RecordError, match=name):
        records.load(saved)


def test_files_of_two_runs_do_not_make_a_record(saved, tmp_path):
    records.save(dataclasses.replace(RECORD, config={"seed": 1}, arrays={}), tmp_path / "other", CLAIMS)
    for name in ("config.json", "arrays.npz"):
        kept = (saved / name).read_bytes()
        (saved / name).write_bytes((tmp_path / "other" / name).read_bytes())
        with pytest.raises(RecordError, match=name):
            records.load(saved)
        (saved / name).write_bytes(kept)
    assert records.load(saved).config == RECORD.config


def test_another_schema_is_foreign(saved, monkeypatch):
    monkeypatch.setattr(records, "SCHEMA", records.SCHEMA + 1)
    with pytest.raises(RecordError, match=r"record\.json is not a record of schema"):
        records.load(saved)


def test_objects_are_refused(tmp_path):
    with pytest.raises(ValueError, match="Object arrays"):
        records.save(dataclasses.replace(RECORD, arrays={"a": np.array([Trap()])}), tmp_path, [])
    assert not content(tmp_path)


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch, failing):
    path = tmp_path / "file"
    records.write_atomically(path, b"old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(records.os, failing, fail)
    with pytest.raises(OSError, match="disk full"):
        records.write_atomically(path, b"new")
    monkeypatch.undo()
    assert content(tmp_path) == {"file": b"old"}
    records.write_atomically(path, b"new")
    assert content(tmp_path) == {"file": b"new"}


def test_a_folder_is_one_process_s_until_it_ends_however_it_ends(tmp_path):
    hold = f"import pathlib, icl_lab.lab.records as r\nwith r.locked(pathlib.Path({str(tmp_path)!r})): print(); input()"
    command = [sys.executable, "-u", "-c", hold]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        with pytest.raises(RecordError, match=r"another run is at work in .*--outdir"), records.locked(tmp_path):
            pass
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        with records.locked(tmp_path), pytest.raises(RecordError, match="another run"), records.locked(tmp_path):
            pass
    with records.locked(tmp_path):
        pass


@pytest.mark.parametrize("seconds", [1.234, 7200.0])
def test_provenance_tells_what_ran_and_when(seconds, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/somewhere/a.py", "--seed=5"])
    found = provenance.provenance(seconds, seed=5)
    assert (found["seconds"], found["seed"], found["command"]) == (round(seconds, 1), 5, ["a.py", "--seed=5"])
    assert set(found["versions"]) == set(provenance.PACKAGES)
    begun, ended = (datetime.datetime.fromisoformat(found[name]) for name in ("started", "finished"))
    assert abs((ended - begun).total_seconds() - seconds) <= 1
    assert ended.tzinfo == datetime.UTC
    assert 0.01 < found["peak_memory_gb"]["host"] < 1000
    assert found["processes"] == 1
    json.dumps(found)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="widths of x86-64")
def test_the_vector_width_is_that_of_the_processor_or_less(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "")
    widest = machine.vectors()
    assert provenance.provenance(0.0)["vectors"] == widest
    for flag, expected in (("sse4_2", "SSE4_2"), ("AVX512", widest), ("AMX", widest)):
        monkeypatch.setenv("XLA_FLAGS", f"--xla_other=AVX --xla_cpu_max_isa=AVX --xla_cpu_max_isa={flag}")
        assert machine.vectors() == expected
    monkeypatch.setattr(machine, "PROCESSOR", Path("/nowhere"))
    assert machine.vectors() == "x86_64"
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    assert machine.vectors() == "arm64"


@pytest.mark.parametrize(("words", "expected"), [([], "highest"), (["--precision=default"], "default")])
def test_precision_of_the_command_line_is_what_jax_computes_with_and_what_is_recorded(tmp_path, words, expected):
    before = provenance.precision()["matmul"]
    try:
        command_line.parse_command_line(faults_run.TOY, ["toy", f"--outdir={tmp_path}", *words])
        assert provenance.provenance(0.0)["precision"]["matmul"] == expected
        product = str(jax.make_jaxpr(lambda a: a @ a)(np.eye(2, dtype=np.float32)))
        assert f"Precision.{expected.upper()}" in product
    finally:
        jax.config.update("jax_default_matmul_precision", before)


def test_a_precision_that_is_none_is_refused():
    with pytest.raises(flags.FlagError, match="--precision=low: allowed is one of highest, high, default"):
        command_line.parse_command_line(faults_run.TOY, ["toy", "--precision=low"])


def test_a_provenance_without_a_digest_is_one_from_before(saved):
    path = saved / "provenance.json"
    content = json.loads(path.read_text())
    del content["digest"]
    path.write_text(json.dumps(content))
    assert records.load(saved).provenance == RECORD.provenance


@pytest.mark.parametrize("calls", range(9))
def test_a_record_is_written_whole_or_not_at_all(saved, monkeypatch, calls):
    """A process that is killed after so many renames; the next one to hold the folder finds one of the two records."""
    replace, done = os.replace, []

    def dies(*paths):
        if len(done) == calls:
            raise SystemExit  # no handler of this module stands in for the end of a process
        done.append(paths)
        replace(*paths)

    fresh = dataclasses.replace(RECORD, metrics={"loss": 0.5}, arrays={"a": np.ones(3)})
    monkeypatch.setattr(records.os, "replace", dies)
    monkeypatch.setattr(records.shutil, "rmtree", lambda *_, **__: None)
    with pytest.raises(SystemExit):
        records.save(fresh, saved, CLAIMS)
    monkeypatch.undo()
    with records.locked(saved):
        assert str(records.load(saved).metrics) == str(fresh.metrics if calls > 4 else RECORD.metrics)
    assert set(content(saved)) == {*FILES, ".lock"}
    assert not [path for path in saved.iterdir() if path.is_dir()]


def test_temporaries_of_a_killed_process_go_and_files_of_others_stay(tmp_path):
    for name in (".record.json.123.tmp", ".mine.tmp", "a.1.tmp", "notes"):
        (tmp_path / name).touch()
    with records.locked(tmp_path):
        assert set(content(tmp_path)) == {".mine.tmp", "a.1.tmp", "notes", ".lock"}


def test_hidden_files_are_no_sources(tmp_path, monkeypatch):
    """An editor's lock is a link that leads nowhere, what macOS leaves on foreign disks is no text."""
    for folder in ("icl_lab", "experiments/paper"):
        (tmp_path / folder / ".ipynb_checkpoints").mkdir(parents=True)
        for name in ("__init__.py", "a.py"):
            (tmp_path / folder / name).write_text('"""A. (b)."""\nEXPERIMENT = 1\n')
    version = provenance.texts(tmp_path)
    for folder in (tmp_path / "icl_lab", tmp_path / "experiments" / "paper"):
        (folder / ".#a.py").symlink_to("someone@somewhere.123")
        (folder / "._a.py").write_bytes(b"\0\5\x16\7\xff")
        (folder / ".ipynb_checkpoints" / "a-checkpoint.py").write_text("EXPERIMENT = (")
    assert provenance.texts(tmp_path) == version
    monkeypatch.setattr(experiments, "__path__", [str(tmp_path / "experiments")])
    monkeypatch.setattr(experiments.__spec__, "submodule_search_locations", experiments.__path__)
    monkeypatch.setattr(binaries, "HERE", tmp_path / "experiments")
    monkeypatch.setattr(sources, "__file__", str(tmp_path / "icl_lab" / "__main__.py"))
    assert discover() == {}
    assert set(sources.experiments()) == {"paper.__init__", "paper.a"}
    assert set(version) == {"icl_lab", "icl_lab.a", "experiments.paper", "experiments.paper.a"}
