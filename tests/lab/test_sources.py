"""Whatever source of the laboratory is edited, the digest of the sources is another one."""

import sys
import types

import pytest

from experiments.binaries import discover
from icl_lab.lab import provenance

ONE_STEP = discover()["von_oswald.one_step"]


@pytest.mark.parametrize(
    "module",
    [
        "experiments.von_oswald.one_step",
        "experiments.von_oswald.one_step_shown",
        "experiments.reddy.transition",
        "icl_lab.training.fitting",
        "icl_lab.lab.claims",
    ],
)
def test_an_edit_of_any_source_is_noticed(module, monkeypatch):
    before = ONE_STEP.source_version()
    monkeypatch.setitem(provenance.loaded(), module, provenance.loaded()[module] + "EDITED = 1\n")
    assert ONE_STEP.source_version() == provenance.source_version() != before
    monkeypatch.undo()
    assert ONE_STEP.source_version() == before


def test_a_file_of_a_user_counts_with_all_of_the_laboratory(tmp_path, monkeypatch):
    path = tmp_path / "of_mine.py"
    path.write_text("RATE = 1\n")
    monkeypatch.setitem(sys.modules, "of_mine", types.SimpleNamespace(__file__=str(path)))
    mine = provenance.source_version("of_mine")
    assert mine != provenance.source_version()
    with monkeypatch.context() as patch:
        patch.setitem(provenance.loaded(), "icl_lab.training.fitting", "")
        assert provenance.source_version("of_mine") != mine
    assert provenance.source_version("of_mine") == mine
    path.write_text("RATE = 2\n")
    assert provenance.source_version("of_mine") != mine


def test_of_a_notebook_which_has_no_file_the_laboratory_counts():
    assert provenance.source_version("a_notebook") == provenance.source_version()
