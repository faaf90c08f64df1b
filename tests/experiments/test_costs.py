"""The page of what runs take is that of the records and claims, and says of every kind of claim what quick does."""

import json
from pathlib import Path

import pytest

from experiments.binaries import discover
from experiments.tools import costs

GALLERY = Path(__file__).parents[2] / "figures"


@pytest.fixture(scope="module")
def lines():
    return costs.page(discover(), GALLERY).splitlines()


def provenance(name, preset):
    return json.loads((GALLERY / name / preset / "provenance.json").read_text())


def binary(line):
    return line.split("`")[1] if line.startswith("| `") else ""


def test_the_committed_page_is_up_to_date(lines):
    committed = (GALLERY / "costs.md").read_text().splitlines()
    assert "\n".join(committed).startswith(costs.ABOUT), "make gallery writes it anew"
    now, then = ({binary(line): line for line in found if binary(line)} for found in (lines, committed))
    assert {name: now[name] for name in then} == then, "make gallery writes it anew"
    assert {f"{path.parts[-4]}.{path.parts[-3]}" for path in GALLERY.glob("*/*/lab/record.json")} <= set(then)


def test_a_line_names_headlines_that_quick_judges_and_what_it_expects_of_them(lines):
    by_name = {binary(line): line.split("|")[2:-1] for line in lines if binary(line)}
    assert by_name["zhang_frei_bartlett.risk"][-1].split(", ")[-1].strip() == "`context_rate` (identity)"
    assert "`cla_delays`: not reached" in by_name["reddy.clamping"][-1]
    assert by_name["von_oswald.grokking"][-1].strip() == "–"
    quick, lab, others, _ = (cell.strip() for cell in by_name["von_oswald.one_step"])
    listed = json.loads((GALLERY / "seconds.json").read_text())["quick"]["von_oswald.one_step"]
    of_record = {preset: provenance("von_oswald/one_step", preset)["seconds"] for preset in ("lab", "paper")}
    assert quick == f"{listed:.0f}"
    assert (lab, others) == (f"{of_record['lab']:,.0f}", f"paper: {of_record['paper']:,.0f}")


def test_a_gallery_without_records_has_lines_too(tmp_path):
    binaries = {"von_oswald.one_step": discover()["von_oswald.one_step"]}
    assert "| `von_oswald.one_step` |  | not run |  | `trained_excess` |" in costs.page(binaries, tmp_path)
