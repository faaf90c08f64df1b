"""The audit agrees with what is committed, imports nothing of the laboratory, and finds a changed digit."""

import ast
import json
import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from experiments.tools.audit import MARKED, TEXTS, Folder, audit, check_records, check_row, check_text, interval_of
from icl_lab.lab.intervals import INTERVALS

ROOT = Path(__file__).parents[1]
LEDGER = "figures/claims.json"
NUMBERS = re.compile(r'"(?:control|estimate|expected|members|tolerance|half_step|without)": (-?[\d.e-]+)')
PLACES = range(10)


class Part(Folder):
    """A folder of which only one record is looked at."""

    def __init__(self, record, changed):
        super().__init__(ROOT, changed)
        self.record = record

    def names(self, pattern):
        return [name for name in super().names(pattern) if name.startswith(f"{self.record}/")]


def with_another_digit(text, place):
    """The text with another digit there."""
    return f"{text[:place]}{(int(text[place]) + 1) % 10}{text[place + 1 :]}"


def a_digit(text, spans, draw):
    """A place with a digit that is no zero, in one of these spans; none of an exponent."""
    start, end = draw.choice([span for span in spans if re.search("[1-9]", text[slice(*span)])])
    return start + draw.choice([match.start() for match in re.finditer("[1-9]", text[start:end].split("e")[0])])


def test_the_audit_finds_nothing_in_what_is_committed():
    assert list(audit(Folder(ROOT))) == []


def test_the_command_ends_with_1_and_a_line_where_something_disagrees(tmp_path):
    script = str(ROOT / "experiments/tools/audit.py")
    (tmp_path / "figures/paper/figure/lab").mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/trust.md").write_text("Of 3 judged claims 2 have a prediction. The first record of 1 came out.")
    (tmp_path / "README.md").write_text("")
    (tmp_path / LEDGER).write_text("[]")
    code = f"import runpy, sys; sys.argv = ['audit', {str(tmp_path)!r}]; m = runpy.run_path({script!r}); "
    code += "m['HEADLINES'].clear(); sys.exit(m['main'](sys.argv[1:]))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert (found.returncode, found.stdout.count("\n")) == (1, 1)
    assert found.stdout.startswith("docs/trust.md")


def test_it_imports_nothing_of_the_laboratory():
    tree = ast.parse((ROOT / "experiments/tools/audit.py").read_text("utf-8"))
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    ours = {name for name in imported if name.split(".")[0] in ("icl_lab", "experiments", "tests")}
    assert not ours
    assert {name.split(".")[0] for name in imported} <= sys.stdlib_module_names | {"numpy", "scipy"}


@pytest.mark.parametrize("kind", ["t", "median", "wilson"])
@pytest.mark.parametrize("members", [1, 2, 5, 6, 10, 64])
def test_its_intervals_are_those_of_the_laboratory(kind, members):
    values = np.random.default_rng(members).normal(size=members)
    for told in [values > 0] if kind == "wilson" else [values, np.append(values, np.inf), np.append(values, -np.inf)]:
        told = np.asarray(told, float)
        estimate, interval = INTERVALS[kind](told)
        assert interval_of(kind, told) == pytest.approx((estimate, *interval), rel=1e-12)


@pytest.mark.parametrize("place", PLACES)
def test_a_changed_digit_of_the_ledger_is_found(place):
    text = (ROOT / LEDGER).read_text("utf-8")
    spans = [match.span(1) for match in NUMBERS.finditer(text)]
    changed = with_another_digit(text, a_digit(text, spans, random.Random(place)))
    then, now = json.loads(text), json.loads(changed)
    (row,) = [row for row, before in zip(now, then) if row != before]
    record = f"figures/{'/'.join(row['id'].split('.', 2)[:2])}/{row['preset']}"
    assert [*check_row(row), *check_records(Part(record, {}), now)]


@pytest.mark.parametrize("place", PLACES)
def test_a_changed_value_of_a_member_is_found(place):
    rows = [row for row in json.loads((ROOT / LEDGER).read_text("utf-8")) if row.get("values")]
    row = random.Random(place).choice(rows)
    value = random.Random(place).randrange(len(row["values"]))
    changed = list(row["values"])
    changed[value] = 1.0 - float(changed[value]) if row["interval_kind"] == "wilson" else "nan"
    assert list(check_row(row | {"values": changed}))


@pytest.mark.parametrize("place", PLACES)
def test_a_changed_byte_of_an_array_is_found(place):
    draw = random.Random(place)
    path = draw.choice(sorted(ROOT.glob("figures/*/*/*/arrays.npz")))
    name, content = path.relative_to(ROOT).as_posix(), bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    found = list(check_records(Part(name.removesuffix("/arrays.npz"), {name: bytes(content)}), []))
    assert found
    assert name in found[0]


@pytest.mark.parametrize("place", PLACES)
def test_a_changed_digit_of_a_marked_number_is_found(place):
    draw, rows = random.Random(place), json.loads((ROOT / LEDGER).read_text("utf-8"))
    texts = {path: path.read_text("utf-8") for pattern in TEXTS for path in sorted(ROOT.glob(pattern))}
    path, match = draw.choice([(path, match) for path, text in texts.items() for match in MARKED.finditer(text)])
    parts = [match.span(part) for part in ("estimate", "low", "high", "half") if match[part]]
    changed = with_another_digit(texts[path], a_digit(texts[path], parts, draw))
    assert list(check_text(path.name, texts[path], rows)) == []
    assert len(list(check_text(path.name, changed, rows))) == 1
