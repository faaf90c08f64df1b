"""The digest of a binary is of the sources that decide its numbers, and of no other."""

import json
import subprocess
import sys

import pytest

from experiments.binaries import discover
from icl_lab.lab import accepted, imports, provenance
from icl_lab.lab.record import Record

BINARIES = discover()
ONE_STEP = "experiments.von_oswald.one_step"
TEXTS = imports.texts(provenance.HOME)


def edited(module):
    """The digest of one_step where one more line stands in a module."""
    return digest(TEXTS | {module: TEXTS[module] + "EDITED = 1\n"})


def digest(texts):
    return provenance.digest({name: texts[name] for name in imports.needed([ONE_STEP], texts)})


@pytest.mark.parametrize(
    "module",
    [
        ONE_STEP,
        "experiments.von_oswald.common",
        "icl_lab.prompts.regression",
        "icl_lab.training.fitting",
        "icl_lab.lab.flags",
        "icl_lab.lab.trainings",
    ],
)
def test_an_edit_of_what_decides_numbers_is_noticed(module):
    assert edited(module) != digest(TEXTS)


@pytest.mark.parametrize(
    "module",
    [
        f"{ONE_STEP}_shown",
        "experiments.panels",
        "experiments.reddy.transition",
        "icl_lab.lab.claims",
    ],
)
def test_an_edit_of_what_shows_or_carries_out_is_not(module):
    assert edited(module) == digest(TEXTS)


def test_imports_are_found_wherever_they_stand():
    text = "import icl_lab.a\ndef f():\n    from icl_lab.b import (\n        c,\n        d as e,\n    )\n"
    assert imports.imported(text) == ("icl_lab.a", "icl_lab.b", "icl_lab.b.c", "icl_lab.b.d")
    assert imports.imported('"""Numbers from icl_lab import duties (and so on."""\n') == ()
    texts = {"icl_lab": "", "icl_lab.b": "from icl_lab.c import x", "icl_lab.b.d": "", "icl_lab.c": "", "icl_lab.z": ""}
    assert imports.needed(["icl_lab.b.d"], texts) == ["icl_lab", "icl_lab.b", "icl_lab.b.d", "icl_lab.c"]


def test_a_record_that_is_read_belongs_to_the_sources():
    alone, read = (provenance.source_version(ONE_STEP, reads) for reads in ((), ["experiments.reddy.transition"]))
    assert BINARIES["von_oswald.one_step"].source_version() == alone != read
    reading = BINARIES["identification.von_oswald"]
    assert reading.reads
    assert reading.source_version() != provenance.source_version(reading.module)


def test_a_former_record_is_accepted_until_a_sampler_is_edited(tmp_path, monkeypatch):
    experiment = BINARIES["von_oswald.one_step"]
    monkeypatch.setattr(accepted, "TABLE", tmp_path / "accepted.json")
    listed = {"sources": experiment.source_version(), "accepted": ["former"]}
    accepted.TABLE.write_text(json.dumps({experiment.name: listed}))

    def made_by(sources, **origin):
        return Record(experiment.name, "lab", {}, {}, {}, {"sources": sources, "versions": {"jax": "1"}} | origin)

    def joins(record):
        today = made_by(experiment.source_version(), precision=provenance.USUAL)
        return accepted.differing_origins([record, today]) == []

    former = made_by("former", precision={"x64": False})
    assert joins(former)
    assert not joins(made_by("another"))
    assert not joins(made_by("former", versions={"jax": "2"}))
    assert not joins(made_by("former", precision={"x64": True}))
    shown = f"{ONE_STEP}_shown"
    monkeypatch.setitem(provenance.loaded(), shown, TEXTS[shown] + "EDITED = 1\n")
    assert joins(former)
    sampler = "icl_lab.prompts.regression"
    monkeypatch.setitem(provenance.loaded(), sampler, TEXTS[sampler] + "EDITED = 1\n")
    assert not joins(former)


def test_a_table_that_is_none_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(accepted, "TABLE", tmp_path / "accepted.json")
    for content in ("{", "[]", '{"a": {"sources": "b"}}'):
        accepted.TABLE.write_text(content)
        with pytest.raises(ValueError, match=r"accepted\.json is not a table of accepted sources"):
            accepted.table()


def test_a_file_of_a_user_counts_with_what_it_imports(tmp_path, monkeypatch):
    path = tmp_path / "of_mine.py"
    path.write_text("from icl_lab.training import fit\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    __import__("of_mine")
    mine = provenance.source_version("of_mine")
    monkeypatch.setitem(provenance.loaded(), "icl_lab.training.fitting", "")
    assert provenance.source_version("of_mine") != mine
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "of_mine", sys.modules["of_mine"])
    path.write_text("from icl_lab.training import fit\nRATE = 2\n")
    assert provenance.source_version("of_mine") != mine


def test_nothing_that_a_binary_loads_is_missing():
    """Each binary is imported in a process that holds none of them."""
    code = """
import os, sys
import jax, flax.linen, optax, scipy.special, rich.progress
from experiments.binaries import discover
from icl_lab.lab import imports, provenance
texts = imports.texts(provenance.HOME)
for name in sys.argv[1:]:
    if not os.fork():
        for module in [m for m in sys.modules if m.split(".")[0] in imports.ROOTS]:
            del sys.modules[module]
        __import__(name)
        found = {m for m in sys.modules if m in texts and not (imports.is_machinery(m) and m not in imports.NUMBERS)}
        print(name, *sorted(found - set(imports.needed([name], texts)) - {"icl_lab.prompts.corpus"}))  # lists files
        sys.stdout.flush()
        os._exit(0)
    os.wait()
"""
    names = [f"experiments.{name}" for name in BINARIES]
    done = subprocess.run([sys.executable, "-c", code, *names], cwd=provenance.HOME, capture_output=True, text=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == names, done.stderr
    assert [line for line in lines if len(line) > 1] == []
