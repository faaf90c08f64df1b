"""The ledger: what was predicted, whether members were added, identities apart."""

import dataclasses
import json

import pytest
from test_reproduce import Toy

from experiments.papers import Paper
from experiments.tools import gallery, verdict_tables
from icl_lab.lab import provenance
from icl_lab.lab.execution import execute
from icl_lab.lab.record import Record


def test_what_was_predicted_is_written_when_a_record_enters_and_never_edited(tmp_path):
    experiment, figures = Toy("toy.a").experiment(), tmp_path / "figures"
    record = execute(experiment, "lab", experiment.presets["lab"], tmp_path / "run").record
    gallery.put(experiment, "lab", record, figures / "toy/a/lab")

    def said(commit=None, **then):
        if then:
            (figures / "claims.json").write_text(json.dumps([ledger | then]))
        (row,) = gallery.ledger(figures, {"toy.a": experiment}, {} if commit is None else {("toy.a", "lab"): commit})
        return row, (row["predicted"], row["predicted_commit"], row["members_added"])

    ledger, found = said("abc")
    assert found == ("holds", "abc", False)
    assert said("")[1] == said()[1] == (None, None, False)  # not committed before; not new
    for past in (("fails", "123", False), (None, None, True)):
        assert said("abc", **dict(zip(("predicted", "predicted_commit", "members_added"), past)))[1] == past
    fewer = {"verdict": "not resolved", "members": ledger["members"] - 1}
    assert said("abc", **fewer)[0]["members_added"]
    assert not said(**fewer)[0]["members_added"]


def test_a_prediction_is_held_against_the_first_record_whatever_later_ones_say(tmp_path):
    experiment, figures = Toy("toy.a").experiment(), tmp_path / "figures"
    record = execute(experiment, "lab", experiment.presets["lab"], tmp_path / "run").record
    gallery.put(experiment, "lab", record, figures / "toy/a/lab")
    (row,) = gallery.ledger(figures, {"toy.a": experiment}, {("toy.a", "lab"): "abc"})
    assert (row["predicted"], row["first_verdict"], row["verdict"]) == ("holds", "holds", "holds")
    begin, end = verdict_tables.PREDICTIONS
    assert "first record of 1 came out" in verdict_tables.with_predictions(begin + end, [row])
    (figures / "claims.json").write_text(json.dumps([row | {"first_verdict": "fails"}]))
    (later,) = gallery.ledger(figures, {"toy.a": experiment}, {("toy.a", "lab"): "def"})
    assert later["first_verdict"] == "fails"
    assert "first record of 0 came out" in verdict_tables.with_predictions(begin + end, [later])


def test_what_the_paper_prints_enters_the_ledger_from_the_claim_of_today_and_costs_no_verdict(tmp_path):
    experiment, figures = Toy("toy.a").experiment(), tmp_path / "figures"
    record = execute(experiment, "lab", experiment.presets["lab"], tmp_path / "run").record
    folder = figures / "toy/a/lab"
    gallery.put(experiment, "lab", record, folder)
    (folder / "arrays.npz").unlink()  # too large to be kept, for instance
    (claim,) = experiment.claims
    claim = dataclasses.replace(claim, published=(0.5, "Table 1"), falsified_by="a value that is not finite")
    experiment = dataclasses.replace(experiment, claims=(claim,))
    (before,) = gallery.ledger(figures, {"toy.a": Toy("toy.a").experiment()})
    gallery.rejudge(folder, experiment)
    (row,) = gallery.ledger(figures, {"toy.a": experiment})
    assert row == before | {"published": (0.5, "Table 1"), "falsified_by": "a value that is not finite"}


def test_an_expectation_was_committed_before_a_record_where_the_files_are_those_of_its_commit(monkeypatch):
    record = Record("von_oswald.one_step", "lab", {}, {}, {}, {"commit": 40 * "a"})
    then = lambda _, name: (provenance.HOME / name.split(":")[1]).read_text().strip()  # noqa: E731
    monkeypatch.setattr(provenance, "git", then)
    assert gallery.committed_before(record) == 9 * "a"
    monkeypatch.setattr(provenance, "git", lambda *words: "" if "_shown" in words[1] else then(*words))
    assert gallery.committed_before(record) == ""
    assert gallery.committed_before(dataclasses.replace(record, provenance={})) == ""


def test_identities_stand_apart_and_are_counted_nowhere():
    row = {"id": "a.b.c", "preset": "lab", "verdict": "holds", "statement": "One.", "expected": 1.0, "tolerance": 0.1}
    row |= {"relation": "==", "estimate": 1.0, "interval": [1.0, 1.0], "members": 2, "anchored": True, "trainings": 2}
    rows = [row, row | {"id": "a.b.d", "kind": "identity"}, row | {"id": "a.c.e", "kind": "identity"}]
    assert "| `a.b` | lab | 1 on 2 | 1 |" in verdict_tables.by_binary(rows)
    assert "a.c" not in verdict_tables.by_binary(rows)
    summary = verdict_tables.with_summary(f"{verdict_tables.BEGIN}{verdict_tables.END}", rows)
    assert "| [a](experiments/a/README.md) | 1 | 0 | 0 | 0 |" in summary
    claims, identities = verdict_tables.ledger_page(rows).split("## Identities")
    assert [name for name in ("a.b.c", "a.b.d", "a.c.e") if f"`{name}`" in claims] == ["a.b.c"]
    assert [name for name in ("a.b.c", "a.b.d", "a.c.e") if f"`{name}`" in identities] == ["a.b.d", "a.c.e"]


def test_a_claim_counts_once_at_the_published_size_where_it_was_reached_there():
    def counts(lab, paper):
        row = {"id": "a.b.c", "estimate": 1.0}
        rows = [row | {"preset": "paper", "verdict": paper}, row | {"preset": "lab", "verdict": lab}]
        for order in (rows, rows[::-1]):
            text = verdict_tables.with_summary(f"{verdict_tables.BEGIN}{verdict_tables.END}", order)
            (line,) = [line for line in text.splitlines() if line.startswith("| [a]")]
            yield dict(zip(verdict_tables.OUTCOMES, map(int, line.strip("| ").split(" | ")[1:])))

    cases = {
        ("fails", "holds"): "holds", ("holds", "not resolved"): "not resolved", ("holds", "not reached"): "holds",
        ("not reached", "not reached"): "not reached", ("not reached", "fails"): "fails",
        ("holds", "not judged"): "holds", ("not judged", "fails"): "fails",
        ("not judged", "not reached"): "not reached",
    }  # fmt: skip
    for presets, verdict in cases.items():
        for found in counts(*presets):
            assert found == dict.fromkeys(verdict_tables.OUTCOMES, 0) | {verdict: 1}, presets


def test_what_is_published_stands_beside_what_is_found_and_why():
    row = {"id": "a.b.c", "preset": "lab", "verdict": "holds", "note": "", "interval_kind": "t"}
    row |= {"estimate": 0.5, "interval": [0.4, 0.6], "published": (0.5, "Fig. 13")}
    later = row | {"id": "a.b.d", "published": ("none", "Fig. 2")}
    rows = [
        row, row | {"id": "a.b.c2"}, later, row | {"id": "a.b.e", "verdict": "fails"},
        row | {"id": "a.b.f", "verdict": "not resolved", "note": "about 9 members would resolve it at this estimate"},
        row | {"id": "a.b.g", "preset": "paper", "verdict": "not judged"}, row | {"id": "x.b.c"},
        row | {"id": "a.b.h", "verdict": "not reached"}, row | {"id": "a.b.i", "verdict": "fails", "estimate": 7.0},
        row | {"id": "a.b.h", "preset": "paper", "verdict": "not reached", "estimate": 7.0},
        row | {"id": "a.b.i", "preset": "paper"},
    ]  # fmt: skip
    paper = Paper("a", "A", why={"b.[de]": "by .1"}, against=("b.d",))
    begin, end = verdict_tables.PUBLISHED
    assert verdict_tables.with_published(f"x\n{begin}\nold\n{end}\ny", paper, rows).splitlines() == [
        "x", begin, "| published | here | verdict | why |", "|---|---|---|---|",
        "| Fig. 2: none | 0.50 [0.40, 0.60] | **differs** | by 0.1 |",
        "| Fig. 13: 0.5 | 0.50 [0.40, 0.60] | agrees |  |",
        "| Fig. 13: 0.5 | 0.50 [0.40, 0.60] | **differs** | by 0.1 |",
        "| Fig. 13: 0.5 | 0.50 [0.40, 0.60] | not resolved | about 9 members would resolve it |",
        "| Fig. 13: 0.5 | 0.50 [0.40, 0.60] | not reached | not yet converged |", end, "y",
    ]  # fmt: skip
    assert verdict_tables.with_published("no markers", paper, rows) == "no markers"
    assert verdict_tables.with_published(f"{begin}{end}", dataclasses.replace(paper, against=()), [later]).count(
        "agrees"
    )


def test_the_gallery_does_one_thing_at_a_time(monkeypatch, capsys):
    monkeypatch.setattr(gallery, "discover", lambda: pytest.fail("it began"))
    assert gallery.main(["gallery", "--check", "--rejudge"]) == 2
    assert "--check --rejudge: allowed is one of them" in capsys.readouterr().err
