import dataclasses
import json

import numpy as np
import pytest
from test_reproduce import start_inside
from toys import Config, made_up

from experiments.binaries import GALLERY, belongs, discover
from experiments.tools import forks, reproduce
from icl_lab.lab import records
from icl_lab.lab.claims import FAILS, HOLDS, Claim
from icl_lab.lab.drift import committed, drift
from icl_lab.lab.experiment import PRESETS
from icl_lab.lab.judging import judge
from icl_lab.lab.quantities import quantity
from icl_lab.lab.records import Record

COMMITTED = sorted(path.parent for path in GALLERY.glob("*/*/*/record.json"))
BINARIES = discover()


def record(seed=0, shift=0.0, members=20, exact=1.0, config=None, **arrays):
    """Members with a value near 1, and one value without chance."""
    near = 1 + shift + 0.1 * np.random.default_rng(seed).normal(size=members)
    config = {"seed": seed, "members": members, "rate": 0.5, **(config or {})}
    return Record("a.b", "lab", config, {"rate": seed}, {"near": near, "exact": np.array([exact]), **arrays})


CLAIMS = tuple(
    Claim(f"a.b.{name}", "Paper", "A sentence.", lambda r, name=name: r.arrays[name].ravel(), expected=1.0,
          reason="a test", expected_verdict={"lab": HOLDS}, **options)
    for name, options in (
        ("near", {"tolerance": 0.2}), ("exact", {"tolerance": 1e-3, "interval": "exact"}),
    )
)  # fmt: skip


def of(fresh, before=None):
    before = record() if before is None else before
    return drift(fresh, [judge(c, fresh) for c in CLAIMS], before, [judge(c, before) for c in CLAIMS])


@pytest.mark.parametrize(
    "fresh",
    [record(), record(seed=1), record(members=200), record(exact=1 + 5e-4), record(config={"only": "a"})],
    ids=["the same", "another stream", "more members", "within tolerance", "a part"],
)
def test_other_random_numbers_are_no_drift(fresh):
    assert of(fresh) == []


@pytest.mark.parametrize(
    ("fresh", "words"),
    [
        (record(shift=0.15), ["a.b.near is 1.1", "does not overlap with the committed"]),
        (record(shift=9.0), ["does not overlap", "a.b.near fails, and held when it was committed"]),
        (record(exact=1.01), ["a.b.exact is 1.01", "a.b.exact fails, and held"]),
        (record(config={"rate": 1.0}), ["another configuration (rate)"]),
        (record(near=np.full(20, np.nan)), ["a.b.near is – [–, –], committed is 0.98"]),
    ],
)
def test_drift_is_said(fresh, words):
    said = "; ".join(of(fresh))
    assert [word for word in words if word not in said] == [], said


def test_claims_that_come_and_go_are_drift():
    rows = [judge(c, record()) for c in CLAIMS]
    assert drift(record(), rows[:1], record(), rows) == ["claim a.b.exact is gone"]
    assert drift(record(), rows, record(), rows[:1]) == ["claim a.b.exact is not in the committed record"]


def test_intervals_without_bounds_overlap_with_all_and_rounding_is_no_drift():
    (near, exact) = (judge(c, record()) for c in CLAIMS)
    wide = near | {"interval": [None, None]}
    point = near | {"interval": [near["estimate"]] * 2}
    rounded = near | {"interval": [near["estimate"] * (1 + 1e-6)] * 2, "estimate": near["estimate"] * (1 + 1e-6)}
    assert drift(record(), [wide, exact], record(), [near | {"interval": [5.0, 6.0]}, exact]) == []
    assert drift(record(), [point, exact], record(), [rounded, exact]) == []
    bound = exact | {"relation": "<=", "estimate": 1e-7, "interval": [1e-7] * 2}
    assert drift(record(), [bound], record(), [bound | {"estimate": 3e-9}]) == []


def test_a_verdict_that_was_not_committed_as_holding_is_no_drift():
    rows = [judge(c, record()) | {"verdict": FAILS} for c in CLAIMS]
    assert drift(record(), rows, record(), rows) == []


@pytest.mark.parametrize("folder", COMMITTED, ids=lambda folder: str(folder.relative_to(GALLERY)))
def test_a_committed_record_is_readable_and_has_the_claims_of_its_binary(folder):
    """It is held against itself, too: no drift. A part of a paper run, or of an earlier preset, is in no ledger."""
    found, rows = committed(folder)
    binary = BINARIES[found.experiment]
    if folder.name in PRESETS and belongs(binary, folder.name, found.preset, found.config):
        assert [row["id"] for row in rows] == [claim.id for claim in binary.claims]
    assert drift(found, rows, found, rows) == []
    assert bool(found.arrays) == (folder / "arrays.npz").exists()


def test_a_committed_record_without_arrays_is_compared_by_the_rest(tmp_path):
    records.save(record(), tmp_path, [judge(c, record()) for c in CLAIMS])
    (tmp_path / "arrays.npz").unlink()
    assert drift(record(more=np.ones(1)), [judge(c, record()) for c in CLAIMS], *committed(tmp_path)) == []
    content = json.loads((tmp_path / "record.json").read_text())
    (tmp_path / "record.json").write_text(json.dumps(content | {"metrics": {}}))
    with pytest.raises(records.RecordError, match=r"record\.json differs from its own digest"):
        committed(tmp_path)


def test_reproduce_against_a_gallery_says_drift_and_is_an_error(tmp_path, monkeypatch, capsys):
    def measured(config, fits):
        yield dict(record(seed=config.seed).arrays)

    quantities = quantity("near", "member"), quantity("exact", "one")
    binary = made_up("a.b", Config(members=20), measured, quantities, claims=CLAIMS)
    monkeypatch.setattr(reproduce, "discover", lambda: {"a.b": binary})
    monkeypatch.setattr(forks, "starter", lambda _: start_inside)
    gallery, folder = tmp_path / "gallery", tmp_path / "gallery" / "a" / "b" / "lab"
    gallery.mkdir()

    def start(*words):
        return reproduce.main(
            ["reproduce", "--preset=lab", f"--outroot={tmp_path / 'runs'}", *words]
        ), capsys.readouterr()

    assert start(f"--against={tmp_path / 'none'}")[0] == 2
    status, said = start(f"--against={gallery}")
    assert (status, "0 of 1 binaries have a committed record" in said.out) == (0, True)
    for shift, expected in ((0.0, 0), (0.15, 1)):
        before = dataclasses.replace(record(shift=shift), metrics={}, config={"seed": 1, "members": 20})
        records.save(before, folder, [judge(c, before) for c in CLAIMS])
        status, said = start(f"--against={gallery}", "--seed=1")
        assert (status, "1 of 1 binaries" in said.out) == (expected, True)
        assert ("drift: a.b: a.b.near is" in said.err) == bool(expected)
    (folder / "record.json").write_text("{")
    status, said = start(f"--against={gallery}", "--seed=1")
    assert (status, "cannot be read" in said.err) == (1, True)
