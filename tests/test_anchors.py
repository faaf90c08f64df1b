"""Anchors: what one is made of, what it notices, that it changes only with its record. A toy stands for a binary."""

import dataclasses
import json
import os
import re
import shutil
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from anchored import Config, Toy, plainly_fitted

from experiments.binaries import unlike
from experiments.tools import anchoring, gallery, verdict_tables
from icl_lab import machine
from icl_lab.lab import anchors, provenance, records
from icl_lab.lab.execution import execute
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.records import RecordError
from icl_lab.training import Training


@pytest.fixture(scope="module", autouse=True)
def nothing_is_compiled():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Training, "carried_out", plainly_fitted)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory, nothing_is_compiled):
    """A lab run of the toy, and the gallery that was made of it."""
    root = tmp_path_factory.mktemp("anchored")
    experiment = Toy().experiment()
    execute(experiment, "lab", experiment.presets["lab"], root / "runs")
    with pytest.MonkeyPatch.context() as patch:
        assert collect(patch, root, Toy()) == 0
    return root


@pytest.fixture
def root(made, tmp_path):
    """The same, to be changed."""
    return shutil.copytree(made, tmp_path / "copy")


def start(patch, root, toy, *words):
    patch.setattr(gallery, "discover", lambda: {"toy.anchored": toy.experiment()})
    paths = (f"--runs={root / 'runs'}", f"--figures={root / 'figures'}", f"--readme={root / 'README.md'}")
    return gallery.main(["gallery", *paths, *words])


def collect(patch, root, toy):
    return start(patch, root, toy)


def kept_of(root):
    return root / "figures/toy/anchored/lab"


def test_a_new_record_gets_an_anchor_and_the_ledger_says_so(made, monkeypatch, capsys):
    limits = anchoring.load(kept_of(made)).metrics["limits"]
    reasons = {name: limit for name, limit in limits.items() if isinstance(limit, str)}
    assert reasons == {"steps": "no real numbers", "right": "shares, ranks or picked values"}
    assert set(limits) - set(reasons) == {"rates", "loss", "train_loss"}
    assert limits["rates"] == pytest.approx(1e-5 * 0.2)
    assert sum(path.stat().st_size for path in (kept_of(made) / "anchor").iterdir()) < 8192
    (row,) = json.loads((made / "figures/claims.json").read_text())
    assert row["anchored"] is True
    assert row["commit"] == provenance.commit_of(records.load(kept_of(made)).provenance)
    assert f"| {row['verdict']} | anchored |" in (made / "figures/claims.md").read_text()
    assert start(monkeypatch, made, Toy(), "--check") == 0
    said = capsys.readouterr()
    assert said.out == "nothing is stale\n"
    assert re.search(r"records checked .* 1/1", said.err)


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        (Toy(noise=0.101), "lab: smoke run differs: array loss differs by"),  # a sampler
        (Toy(power=3), "lab: smoke run differs: array train_loss differs by"),  # a loss
        (Toy(lab=Config(members=3, steps=42)), "not of the present lab preset (steps: 40 there, 42 here)"),
        (Toy(halved_at=10), "smoke run differs"),  # a schedule, within the steps of the smoke run
        # what acts in the lab run only, a figure, and a claim's statistic: docs/dev/anchors.md says what watches these
        (Toy(halved_at=25, title="train_loss", statistic="train_loss"), ""),
    ],
)
def test_what_a_check_notices(made, monkeypatch, capsys, changed, line):
    assert start(monkeypatch, made, changed, "--check") == (1 if line else 0)
    assert (line or "nothing is stale") in capsys.readouterr().out


def test_more_members_and_a_younger_setting_are_not_why_a_record_is_stale():
    @dataclasses.dataclass(frozen=True)
    class Younger(Config):
        width: int = 7

    experiment = Toy(lab=Younger(members=2, steps=42)).experiment()
    committed = {"seed": 0, "rate": 0.1, "members": 3}
    assert unlike(experiment, "lab", committed | {"steps": 40}) == "steps: 40 there, 42 here"
    assert not unlike(experiment, "lab", committed | {"steps": 42})
    fewer = committed | {"steps": 42, "members": 1}
    assert unlike(experiment, "lab", fewer) == "members: 1 there, 2 here"


def test_a_verdict_changed_by_hand_is_in_no_ledger(root, monkeypatch):
    path = kept_of(root) / "record.json"
    path.write_text(path.read_text().replace('"verdict": "holds"', '"verdict": "fails"'))
    with pytest.raises(RecordError, match=r"record\.json differs from its own digest"):
        gallery.ledger(root / "figures", {"toy.anchored": Toy().experiment()})


@pytest.mark.parametrize("name", ["arrays.npz", "config.json", "provenance.json", "record.json"])
def test_an_anchor_changed_by_hand_is_refused_by_name(root, monkeypatch, capsys, name):
    path = kept_of(root) / "anchor" / name
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    with pytest.raises(RecordError, match=re.escape(str(path))):
        anchoring.load(kept_of(root))
    assert start(monkeypatch, root, Toy(), "--check") == 1
    assert str(path) in capsys.readouterr().out
    path.unlink()
    with pytest.raises(RecordError, match=name):
        anchoring.load(kept_of(root))


def test_an_anchor_of_another_record_is_refused(root, monkeypatch, capsys):
    record = records.load(root / "runs")
    other = dataclasses.replace(record, arrays=dict(record.arrays) | {"rates": np.array([0.1, 0.3])})
    records.save(other, kept_of(root), [])
    assert start(monkeypatch, root, Toy(), "--check") == 1
    assert "belongs to another record" in capsys.readouterr().out


def test_an_anchor_is_kept_with_its_record_and_not_made_for_an_old_one(root, monkeypatch, capsys):
    before = (kept_of(root) / "anchor/record.json").read_bytes()
    monkeypatch.setattr(anchoring, "make", lambda *_: pytest.fail("an anchor was made"))
    assert collect(monkeypatch, root, Toy()) == 0
    monkeypatch.setattr(Experiment, "source_version", lambda _: "later")
    assert collect(monkeypatch, root, Toy()) == 0  # the same record, collected by later sources
    assert (kept_of(root) / "anchor/record.json").read_bytes() == before
    monkeypatch.setattr(anchoring, "make_at_its_commit", lambda *_: "no reason")
    shutil.rmtree(root / "figures")
    (root / "README.md").write_text(f"{verdict_tables.BEGIN}\n{verdict_tables.END}\n")
    assert collect(monkeypatch, root, Toy()) == 0
    (row,) = json.loads((root / "figures/claims.json").read_text())
    assert f"no anchor is made, the record is of commit {row['commit']}: no reason" in capsys.readouterr().out
    assert not (kept_of(root) / "anchor").exists()
    assert row["anchored"] is False
    assert f"not anchored, made at commit {row['commit']}" in (root / "figures/claims.md").read_text()
    assert start(monkeypatch, root, Toy(noise=0.5), "--check") == 0  # nobody knows
    said = capsys.readouterr()
    assert said.out == "nothing is stale\n"
    assert f"toy.anchored lab: of commit {row['commit']}, not compared: it has no anchor" in said.err


def test_a_record_that_is_made_again_by_other_code_gets_an_anchor_of_that_code(root, monkeypatch):
    before = anchoring.load(kept_of(root)).provenance["sources"]
    monkeypatch.setattr(Experiment, "source_version", lambda _: "later")
    execute(Toy().experiment(), "lab", Toy().lab, root / "runs", overwrite=True)
    assert collect(monkeypatch, root, Toy()) == 0
    assert anchoring.load(kept_of(root)).provenance["sources"] == "later" != before
    monkeypatch.setattr(anchoring, "make", lambda *_: pytest.fail("an anchor was made twice"))
    assert collect(monkeypatch, root, Toy()) == 0


@pytest.fixture
def committed(tmp_path, monkeypatch):
    """A function that commits a gallery command as the laboratory, and gives the commit."""
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    home = tmp_path / "home"
    (home / "experiments").mkdir(parents=True)
    monkeypatch.setattr(provenance, "HOME", home)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    user = ("-c", "user.name=a", "-c", "user.email=a@b")

    def commit(program):
        (home / "experiments" / "gallery.py").write_text(program)
        for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "A."]):
            subprocess.run(["git", *user, *words], cwd=home, check=True)
        return provenance.git("rev-parse", "HEAD")

    return commit


COLLECTS = """
import shutil, sys
places = dict(word[2:].split("=", 1) for word in sys.argv[1:])
shutil.copytree({anchor!r}, places["figures"] + "/toy/anchored/lab/anchor")
"""


def test_a_record_of_another_commit_is_anchored_by_the_code_of_that_commit(root, made, monkeypatch, committed):
    then = committed(COLLECTS.format(anchor=str(kept_of(made) / "anchor")))
    committed("raise SystemExit('the code of another commit ran')")
    record = records.load(root / "runs")
    monkeypatch.setattr(Experiment, "source_version", lambda _: "later")
    shutil.rmtree(root / "figures")
    origin = {"commit": then, "uncommitted_changes": False}
    records.save(dataclasses.replace(record, provenance=record.provenance | origin), root / "runs", [])
    assert collect(monkeypatch, root, Toy()) == 0
    (row,) = json.loads((root / "figures/claims.json").read_text())
    assert row["anchored"] is True
    assert start(monkeypatch, root, Toy(), "--check") == 0
    assert start(monkeypatch, root, Toy(noise=0.101), "--check") == 1


@pytest.mark.parametrize(
    ("program", "changes", "why"),
    [
        ("", {"uncommitted_changes": True}, "its code is in no commit"),
        ("", {"uncommitted_changes": None}, "its code is in no commit"),
        ("", {"commit": None}, "its code is in no commit"),
        ("", {"commit": "a" * 40}, "git"),
        ("", {}, "the code of its commit makes none"),
        ("raise SystemExit('refused there')", {}, "refused there"),
    ],
)
def test_why_the_code_of_a_commit_makes_no_anchor_is_said(root, committed, program, changes, why):
    shutil.rmtree(kept_of(root) / "anchor")
    record = records.load(root / "runs")
    origin = {"commit": committed(program), "uncommitted_changes": False} | changes
    record = dataclasses.replace(record, provenance=record.provenance | origin)
    assert why in anchoring.make_at_its_commit(record, kept_of(root))
    assert not (kept_of(root) / "anchor").exists()


def test_an_edit_of_a_caption_leaves_a_record_of_today(root, monkeypatch, capsys):
    monkeypatch.setattr(Experiment, "source_version", lambda _: "later")
    assert start(monkeypatch, root, Toy(title="train_loss"), "--check") == 0
    assert capsys.readouterr().out == "nothing is stale\n"


def test_another_release_of_this_package_leaves_records_their_anchors(root, monkeypatch):
    shutil.rmtree(kept_of(root) / "anchor")
    found = anchoring.versions()
    monkeypatch.setattr(anchoring, "versions", lambda: found | {"icl-lab": "99"})
    assert collect(monkeypatch, root, Toy()) == 0
    assert start(monkeypatch, root, Toy(), "--check") == 0


def test_another_smoke_preset_is_anchored_when_the_record_is_made_again(root, monkeypatch, capsys):
    later = Toy(smoke=Config(steps=10))
    assert start(monkeypatch, root, later, "--check") == 1
    assert "smoke preset is no longer that of the anchor (steps: 20 there, 10 here)" in capsys.readouterr().out
    monkeypatch.setattr(Experiment, "source_version", lambda _: "later")
    execute(later.experiment(), "lab", later.lab, root / "runs", overwrite=True)
    assert collect(monkeypatch, root, later) == 0
    assert start(monkeypatch, root, later, "--check") == 0


def test_other_versions_are_not_compared_and_the_reason_is_given(root, monkeypatch, capsys):
    monkeypatch.setattr(anchoring, "versions", lambda: {"jax": "99"})
    assert start(monkeypatch, root, Toy(noise=0.5), "--check") == 0
    said = capsys.readouterr().err
    assert "not compared: its anchor was made under other conditions (" in said
    assert f"jax: {jax.__version__} there, 99 here" in said


def test_at_another_vector_width_tolerances_are_wider_and_a_changed_rate_is_noticed(made, monkeypatch, capsys):
    kept = anchoring.load(kept_of(made))
    assert kept.provenance["vectors"] == machine.vectors()
    loss, limit = kept.arrays["loss"], kept.metrics["limits"]["loss"]
    rounded = dict(kept.arrays) | {"loss": loss + np.float32(2 * limit)}
    differing = lambda anchor: anchoring.differs_from_anchor(anchor, Toy().experiment(), lambda: rounded)  # noqa: E731
    assert len(differing(kept)) == 1
    monkeypatch.setattr(anchoring, "vectors", lambda: "riscv64")
    assert differing(kept) == []
    assert start(monkeypatch, made, Toy(), "--check") == 0
    assert start(monkeypatch, made, Toy(faster=1.001), "--check") == 1
    assert "smoke run differs: array loss differs by" in capsys.readouterr().out
    monkeypatch.setattr(anchoring, "vectors", lambda: anchoring.UNNAMED_WIDTH)
    older = {name: value for name, value in kept.provenance.items() if name != "vectors"}
    assert len(differing(dataclasses.replace(kept, provenance=older))) == 1


def test_what_is_wider_at_another_vector_width():
    kept = {"mean": np.ones(2), "small": np.full(2, 1e-4), "share": np.ones(2)}
    limits = {"mean": 1e-5, "small": 1e-9, "share": "shares"}
    wider = anchors.at_another_width(limits, kept)
    assert wider == {"mean": pytest.approx(3e-5), "small": 1e-6, "share": "shares"}
    assert anchors.at_another_width(limits, kept, minimised=True) == wider | {"mean": 1e-3}


def test_compiler_flags_that_were_given_are_kept_and_a_cap_of_the_width_prevents_no_comparison(made, monkeypatch):
    kept = anchoring.load(kept_of(made))
    for given in ("", "--xla_cpu_max_isa=SSE4_2"):
        monkeypatch.setenv("XLA_FLAGS", given)
        for _ in range(2):  # a process that is started by such a process
            anchors.set_flags()
        assert os.environ["XLA_FLAGS"] == f"{anchors.XLA_FLAGS} {given}".strip()
        assert anchoring.not_compared(kept) == ""
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    anchors.set_flags()
    assert "fast_math" in anchoring.not_compared(kept)


def test_perturbed_parameters_move_by_a_last_bit_or_two():
    init = lambda key, setting: {"w": jax.random.normal(key, (1000,)), "zero": jnp.zeros(3), "count": jnp.arange(3)}  # noqa: E731
    key = jax.random.key(0)
    before, one, other = init(key, None), *(anchors.perturbed(init, n)(key, None) for n in (0, 1))
    bits = {name: np.asarray(tree["w"]).view(np.int32) for name, tree in (("b", before), ("1", one), ("2", other))}
    moved = np.abs(bits["1"] - bits["b"])
    assert set(np.unique(moved)) <= {1, 2}
    assert 0.3 < (bits["1"] > bits["b"]).mean() < 0.7
    assert (bits["1"] != bits["2"]).any()
    for name in ("zero", "count"):
        np.testing.assert_array_equal(one[name], before[name])
        assert one[name].dtype == before[name].dtype


def test_tolerances_and_what_is_compared_by_shape():
    rng = np.random.default_rng(0)
    base = {
        "smooth": rng.normal(size=20),
        "still": rng.normal(size=20).astype(np.float32),
        "chaotic": rng.normal(size=20),
        "gaps": np.array([np.nan, 1.0, np.inf]),
        "moving gaps": np.array([np.nan, 1.0]),
        "shares": (rng.integers(0, 64, 20) / 64).astype(np.float32),
        "shares of many": (rng.integers(0, 7500, 6) / 7500).astype(np.float32),
        "one rate": np.array([0.03, 0.03]),
        "unmoved": rng.normal(size=3).astype(np.float32),
        "one number": rng.normal(size=()).astype(np.float32),
        "axis": np.arange(5) / 8,
        "flags": np.array([True, False]),
        "names": np.array(["a", "b"]),
        "residual": np.full(4, 3e-9),
        "long": rng.normal(size=(40, 50)),
        "half": rng.normal(size=20).astype(jnp.bfloat16),
    }
    near = base | {"smooth": base["smooth"] + 1e-4, "chaotic": 1.1 * base["chaotic"], "moving gaps": np.ones(2)}
    far = base | {
        name: 2 * base[name] for name in base if base[name].dtype.kind in "fV" and name not in ("axis", "gaps")
    }
    limits = anchors.limits(base, [base, near], far)
    by_shape = {name for name, limit in limits.items() if isinstance(limit, str)}
    assert by_shape == {"chaotic", "moving gaps", "shares", "shares of many", "one rate", "flags", "names"}
    assert limits["smooth"] == pytest.approx(1e-3)
    assert limits["still"] == pytest.approx(1e-5 * np.abs(base["still"]).max())
    for other in (
        near, {"shares": 0 * base["shares"]}, {"residual": np.full(4, -6e-8)},
        {"smooth": base["smooth"] + 9e-4}, {"chaotic": -base["chaotic"]},
    ):  # fmt: skip
        assert anchors.differences(base, limits, base | other) == []
    for other in (
        {"smooth": base["smooth"] + 2e-3}, {"axis": base["axis"] + 1e-3}, {"residual": np.full(4, 3e-5)},
        {"half": 2 * base["half"]},
        {"gaps": np.array([1.0, np.nan, np.inf])}, {"gaps": np.array([np.nan, 1.0, -np.inf])},
        {"shares": base["shares"][1:]}, {"shares": base["shares"].astype(float)},
        {"long": base["long"] + 1e-3}, {"long": base["long"].T},
    ):  # fmt: skip
        assert len(anchors.differences(base, limits, base | other)) == 1
    assert anchors.differences(base, limits, base | {"more": np.ones(1)}) == ["array more is new"]
    without = {name: value for name, value in base.items() if name != "axis"}
    assert anchors.differences(base, limits, without) == ["array axis is gone"]
    with pytest.raises(ValueError, match="smoke runs of the same code disagree: array axis is gone"):
        anchors.limits(base, [without], far)
