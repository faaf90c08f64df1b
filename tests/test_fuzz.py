"""Whatever is given as a flag or lies in a file: it is read right or refused, and never executed."""

import ast
import dataclasses
import hashlib
import io
import json
import math
import pickle
import shutil
import string
import zipfile
from pathlib import Path
from typing import ClassVar

import jax
import numpy as np
import pytest
from absl import flags as absl_flags
from hypothesis import example, given, settings
from hypothesis import strategies as st

import icl_lab
from icl_lab.lab import constraints, flags, options, plans, records
from icl_lab.lab.checkpoints import Checkpoint
from icl_lab.lab.flags import FlagError
from icl_lab.lab.options import Options
from icl_lab.lab.provenance import digest
from icl_lab.lab.records import Record, RecordError
from icl_lab.prompts.corpus import source_files

many = settings(max_examples=100)


@dataclasses.dataclass(frozen=True)
class Config:
    """One field of every kind."""

    seed: int = flags.setting(0, "a whole number", at_least=0)
    rate: float = flags.setting(0.5, "a number", above=0, at_most=10)
    name: str = flags.setting("a", "a choice", choices=("a", "b"))
    note: str = flags.setting("", "any text")
    switch: bool = flags.setting(False, "a switch")
    sizes: tuple[int, ...] = flags.setting((1,), "whole numbers", at_least=1)
    rates: tuple[float, ...] = flags.setting((1.0,), "numbers", above=0)
    names: tuple[str, ...] = flags.setting(("a",), "choices", choices=("a", "b"))


numbers = (
    st.integers().map(str)
    | st.floats().map(str)
    | st.sampled_from(["1e400", "-0", "1_0", " 2 ", "0x10", "٣", "9" * 5000])
)
words = (
    st.text()
    | numbers
    | st.lists(st.text(max_size=3) | numbers, max_size=4).map(",".join)
    | st.sampled_from(["a", "a,b"])
)


def tried(errors, function, *arguments):
    """What a reader gives and None, or None and what it says where it refuses; any other error fails the test."""
    try:
        return function(*arguments), None
    except errors as error:
        return None, str(error)


def is_right(config):
    """Of the declared types and within the bounds; the same after a way through JSON and through the flags."""
    flags.validate(config)
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        for v in value if isinstance(value, tuple) else (value,):
            assert type(v) in (int, float, str, bool)
            assert not isinstance(v, float) or math.isfinite(v)
    assert flags.from_json(type(config), json.loads(json.dumps(flags.to_json(config)))) == config


@many
@given(field=st.sampled_from(dataclasses.fields(Config) + dataclasses.fields(Options)), word=words)
@example(dataclasses.fields(Config)[5], '"')
@example(dataclasses.fields(Config)[5], "")
@example(dataclasses.fields(Config)[3], "\ud800")
def test_any_text_as_a_flag_is_a_value_or_a_refusal(field, word):
    kind = Config if field in dataclasses.fields(Config) else Options
    values = absl_flags.FlagValues()
    flags.define(kind, values)

    def parse():
        values(["binary", f"--{field.name}={word}"])
        found = flags.parse(kind(), values)
        if kind is Options:
            constraints.check(found, options.CONSTRAINTS)
        return found

    found, refused = tried((FlagError, absl_flags.Error), parse)
    if refused is not None:
        assert field.name in refused
        return
    is_right(found)
    others = {f.name for f in dataclasses.fields(kind)} - {field.name}
    assert all(getattr(found, name) == getattr(kind(), name) for name in others)


settings_of_grid = st.sampled_from([field.name for field in dataclasses.fields(Config)]) | st.text(max_size=4)
parts = st.tuples(settings_of_grid, st.sampled_from([":", "", "::", "="]), words).map("".join)


@many
@given(text=st.text() | st.lists(parts, max_size=4).map(";".join))
@example("seed:1,2;rate:0.5,1e-1;sizes:1+2,3")
@example("seed:1,01")
@example("name:a;name:b")
@example(";".join(f"{name}:{','.join(map(str, range(1, 40)))}" for name in ("seed", "sizes", "rates")))
def test_any_text_as_a_grid_is_a_grid_or_a_refusal(text):
    grid, refused = tried(FlagError, plans.parse_grid, text, Config)
    if refused is not None:
        assert refused.startswith("--grid=")
        return
    assert math.prod(len(values) for values in grid.values()) <= plans.LARGEST
    for name, values in grid.items():
        assert len(set(values)) == len(values) > 0
        for value in values:
            is_right(dataclasses.replace(Config(), **{name: value}))


# ------------------------------------------------------------------------------------------------------ run folders

RECORD = Record(
    "a.b", "lab", {"seed": 1}, {"loss": 0.25, "none": None}, {"x": np.arange(3.0), "y": np.eye(2)}, {"s": 1}
)
FILES = ("record.json", "config.json", "provenance.json", "arrays.npz")
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good")
    records.save(RECORD, folder, [{"id": "a.b.c"}])
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzzed")


def as_text(record):
    """Everything but the arrays, in which NaN equals NaN."""
    return digest([getattr(record, f.name) for f in dataclasses.fields(Record) if f.name != "arrays"])


def read(good, place, **files):
    """The record of a folder with these files in place of the good ones, None if it is refused."""
    for name in FILES:
        shutil.copyfile(good / name, place / name)
    for name, content in files.items():
        (place / name.replace("_", ".")).write_bytes(content)
    found, refused = tried(RecordError, records.load, place)
    if refused is not None:
        assert str(place) in refused
        return None
    assert isinstance(found, Record)
    assert all(isinstance(array, np.ndarray) and not array.dtype.hasobject for array in found.arrays.values())
    return found


def is_the_good_one(found):
    return as_text(found) == as_text(RECORD) and all(
        found.arrays[name].tobytes() == array.tobytes() for name, array in RECORD.arrays.items()
    )


@many
@given(name=st.sampled_from(FILES), content=st.binary() | values.map(lambda v: json.dumps(v).encode()))
@example("record.json", b"[" * 100_000)
@example("config.json", b'{"seed": ' * 50_000)
@example("record.json", b"9" * 10_000)
@example("record.json", b"\xff\xfe{\x00}")
@example("record.json", b'{"schema": 3}')
@example("provenance.json", b'{"a": "\\ud800"}')
def test_any_bytes_in_a_run_folder_are_refused(good, place, name, content):
    found = read(good, place, **{name.replace(".", "_"): content})
    if name == "provenance.json" and found is not None:  # one from before it had a digest may say anything
        found = dataclasses.replace(found, provenance=RECORD.provenance)
    assert found is None or is_the_good_one(found)


@many
@given(name=st.sampled_from(FILES), where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), cut=st.booleans())
def test_any_flipped_bit_and_any_truncation_is_seen(good, place, name, where, bit, cut):
    content = bytearray((good / name).read_bytes())
    at = int(where * len(content))
    content[at] ^= 1 << bit
    found = read(good, place, **{name.replace(".", "_"): bytes(content[:at] if cut else content)})
    if name == "provenance.json" and b"digest" not in content:
        return  # its digest cannot be known to be missing; no number of the run is in it
    assert found is None or is_the_good_one(found)


def sealed(content):
    return json.dumps(content | {"digest": digest(content)}).encode()


@settings(max_examples=40)
@given(
    key=st.sampled_from(["schema", "experiment", "preset", "config", "arrays", "axes", "metrics", "claims"]),
    value=values,
)
def test_a_record_with_the_right_digest_and_wrong_content_is_refused(good, place, key, value):
    content = json.loads((good / "record.json").read_text())
    content.pop("digest")
    before = content[key]
    found = read(good, place, record_json=sealed(content | {key: value}))
    assert found is None or type(value) is type(before)
    assert read(good, place, record_json=sealed({k: v for k, v in content.items() if k != key})) is None


class Trap:
    """What fails the test if it is unpickled."""

    sprung: ClassVar[list] = []

    def __reduce__(self):
        return spring, ()


def spring():
    Trap.sprung.append(True)
    pytest.fail("a pickle was loaded")


def npy(header, data=b""):
    text = (header + "\n").encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def zipped(**entries):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(f"{name}.npy", content)
    return buffer.getvalue()


def saved(array):
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


HEADER = "{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}"
CRAFTED = {
    "objects": zipped(a=saved(np.array([Trap()], dtype=object))),
    "a pickle in the archive": zipped(a=pickle.dumps(Trap())),
    "a pickle": pickle.dumps(Trap()),
    "one array without an archive": saved(np.ones(3)),
    "text in the archive": zipped(a=b"hello"),
    "a shape of 8 exabytes": zipped(a=npy(HEADER.format("<f8", "(1152921504606846976,)"))),
    "a shape of 100 terabytes": zipped(a=npy(HEADER.format("<f8", "(12500000000000,)"))),
    "a shape that overflows": zipped(a=npy(HEADER.format("<f8", "(4294967296, 4294967296)"))),
    "a negative shape": zipped(a=npy(HEADER.format("<f8", "(-1,)"), b"12345678")),
    "less than its shape": zipped(a=npy(HEADER.format("<f8", "(1000,)"), b"12345678")),
    "code for a shape": zipped(a=npy(HEADER.format("<f8", "__import__('os').abort()"))),
    "code for a type": zipped(a=npy("{'descr': __import__('os').abort(), 'fortran_order': False, 'shape': ()}")),
    "a header of brackets": zipped(a=npy("[" * 5000)),
    "an unknown type": zipped(a=npy(HEADER.format("<q99", "()"))),
    "an empty file": b"",
}


def with_arrays(good, raw):
    content = json.loads((good / "record.json").read_text()) | {"arrays": hashlib.sha256(raw).hexdigest()}
    content.pop("digest")
    return {"record_json": sealed(content), "arrays_npz": raw}


@pytest.mark.filterwarnings("ignore")  # a warning must not be what stops it
@pytest.mark.parametrize("name", CRAFTED)
def test_crafted_arrays_with_the_right_digest_are_refused(good, place, name):
    assert read(good, place, **with_arrays(good, CRAFTED[name])) is None


@many
@given(
    raw=st.binary()
    | st.builds(lambda header, data: zipped(a=npy(header, data)), st.text(string.printable), st.binary())
)
def test_any_arrays_with_the_right_digest_are_arrays_or_refused(good, place, raw):
    read(good, place, **with_arrays(good, raw))


def test_arrays_of_another_digest_are_not_even_opened(good, place, monkeypatch):
    monkeypatch.setattr(np.lib.npyio, "NpzFile", lambda *_, **__: pytest.fail("it was opened"))
    assert read(good, place, arrays_npz=CRAFTED["objects"]) is None


# ------------------------------------------------------------------------------------------------------ checkpoints


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    Checkpoint(folder, "this", 0.0).save(lambda: TREE, finished=True)
    return folder / "current"


TREE = {"state": (np.arange(6.0), np.arange(3)), "metrics": {"loss": np.ones((2, 2))}}


def restored(folder):
    found = Checkpoint(folder, "this", 0.0).load({"state": TREE["state"]})
    assert found is None or all(
        np.array_equal(a, b) for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(TREE), strict=True)
    )
    return found


@settings(max_examples=60)
@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), cut=st.booleans())
@example(0, 5, False)
@example(0.07, 0, False)
def test_any_flipped_bit_of_a_checkpoint_is_seen(checkpoint, tmp_path_factory, where, bit, cut):
    folder = tmp_path_factory.mktemp("damaged")
    content = bytearray(checkpoint.read_bytes())
    at = int(where * len(content))
    content[at] ^= 1 << bit
    (folder / "current").write_bytes(content[:at] if cut else content)
    assert restored(folder) is None
    assert [p.name for p in folder.iterdir()] == ["current.set-aside-1"]


@settings(max_examples=60)
@given(content=st.binary() | values.map(lambda v: json.dumps(v).encode()), head=st.sampled_from([b"", b"this\n"]))
@example(b"[" * 100_000, b"")
@example(pickle.dumps(Trap()), b"this\n")
@example(CRAFTED["objects"], b"this\n")
@example(CRAFTED["a pickle in the archive"], b"this\n")
@example(CRAFTED["a shape of 8 exabytes"], b"this\n")
def test_any_bytes_with_the_right_digest_are_refused(tmp_path_factory, content, head):
    folder = tmp_path_factory.mktemp("forged")
    digest = hashlib.sha256(head + content).hexdigest().encode()
    (folder / "current").write_bytes(digest + b"\n" + head + content)
    assert restored(folder) is None
    assert not Trap.sprung


# ---------------------------------------------------------------------------------------------------------- sources

FORBIDDEN = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


@pytest.mark.parametrize("folder", ["icl_lab", "experiments"])
def test_nothing_in_the_sources_executes_what_it_reads(folder):
    for path in source_files(Path(icl_lab.__file__).parents[1] / folder).values():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name.split(".")[0] for alias in node.names} | {getattr(node, "module", None)}
                assert not names & FORBIDDEN, path
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("eval", "exec", "compile", "__import__"), path
                if called in ("np.load", "jnp.load", "numpy.load", "np.lib.npyio.NpzFile"):
                    given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                    assert given.get("allow_pickle") == "False", path
