"""Anchors: what one is made of, what it notices, that it changes only with its record. A toy stands for a binary."""

import dataclasses
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments import anchoring, gallery
from icl_lab.lab import anchors, flags, records
from icl_lab.lab.claims import Claim
from icl_lab.lab.experiment import Experiment, execute
from icl_lab.lab.records import RecordError
from icl_lab.lab.style import panels


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = flags.setting(0, "seed", at_least=0)
    members: int = flags.setting(2, "members", at_least=1)
    steps: int = flags.setting(20, "training steps", at_least=1)
    rate: float = flags.setting(0.1, "learning rate", above=0)


@dataclasses.dataclass
class Toy:
    """A regression whose code can be changed in one place at a time."""

    noise: float = 0.1
    power: int = 2
    halved_at: int = 100
    title: str = "loss"
    statistic: str = "loss"
    smoke: Config = Config()
    lab: Config = Config(members=3, steps=40)

    def run(self, config, session):
        def draw(key):
            drawn = jax.random.uniform(key, (16, 4), minval=-1.0)
            return drawn[:, :3], drawn[:, :3].sum(1) + self.noise * drawn[:, 3]

        def error(w, x, y):
            return (jnp.abs(x @ w - y) ** self.power).mean()

        def loss(w, key, setting):
            return error(w, *draw(key))

        def measure(w, key, setting):
            x, y = draw(key)
            return {"loss": error(w, x, y), "right": (jnp.sign(x @ w) == jnp.sign(y)).mean()}

        rate = optax.piecewise_constant_schedule(config.rate, {self.halved_at: 0.5})
        fitted = session.fit(
            "toy", lambda key, _: jax.random.normal(key, (3,)), loss, optax.sgd(rate),
            jax.random.split(jax.random.key(config.seed), config.members),
            steps=config.steps, measure_every=config.steps // 2, measure=measure,
        )  # fmt: skip
        return {}, {"steps": fitted.steps, "rates": np.array([0.1, 0.2])} | fitted.metrics

    def figures(self, record):
        figure, axes = panels(1)
        axes[0, 0].plot(record.arrays[self.title].T)
        return {"loss": figure}

    def experiment(self):
        claim = Claim(
            "toy.anchored.small", "Toy", "The loss is small.", lambda record: record.arrays[self.statistic][:, -1],
            expected=9.0, tolerance=0.0, relation="<=", reason="a test", expected_verdict={"lab": "holds"},
        )  # fmt: skip
        presets = {"smoke": self.smoke, "quick": Config(), "lab": self.lab, "paper": Config(steps=60)}
        return Experiment("toy.anchored", "A toy.", presets, self.run, self.figures, (claim,))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A lab run of the toy, and the gallery that was made of it."""
    root = tmp_path_factory.mktemp("anchored")
    experiment = Toy().experiment()
    execute(experiment, "lab", experiment.presets["lab"], root / "runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(anchoring, "PERTURBED", 1)  # every run compiles
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
    content = json.loads((kept_of(made) / "anchor.json").read_text())
    assert set(content["by_shape"]) == {"steps", "right"}
    assert "integers" in content["by_shape"]["steps"]["reason"]
    assert "multiples of 1/16" in content["by_shape"]["right"]["reason"]
    assert set(content["by_value"]) == {"rates", "loss", "train_loss"}
    assert content["by_value"]["rates"]["tolerance"] == pytest.approx(1e-5 * 0.2)
    assert (kept_of(made) / "anchor.npz").stat().st_size < 4096
    (row,) = json.loads((made / "figures/claims.json").read_text())
    assert row["anchored"] is True
    assert row["commit"] == anchoring.commit(records.load(kept_of(made)).provenance)
    assert f"| {row['verdict']} | anchored |" in (made / "figures/claims.md").read_text()
    assert start(monkeypatch, made, Toy(), "--check") == 0
    assert capsys.readouterr().out == "nothing is stale\n"


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        (Toy(noise=0.101), "lab: smoke run differs: array loss differs by"),  # a sampler
        (Toy(power=3), "lab: smoke run differs: array train_loss differs by"),  # a loss
        (Toy(lab=Config(members=3, steps=42)), "not of the present lab preset (steps: 40 there, 42 here)"),
        (Toy(halved_at=10), "smoke run differs"),  # a schedule, within the steps of the smoke run
        # what acts in the lab run only, a figure, and a claim's statistic: docs/anchors.md says what watches these
        (Toy(halved_at=25, title="train_loss", statistic="train_loss"), ""),
    ],
)
def test_what_a_check_notices(made, monkeypatch, capsys, changed, line):
    assert start(monkeypatch, made, changed, "--check") == (1 if line else 0)
    assert (line or "nothing is stale") in capsys.readouterr().out


def test_an_anchor_changed_by_hand_is_refused_by_name(root, monkeypatch, capsys):
    folder = kept_of(root)
    arrays, content = (folder / "anchor.npz").read_bytes(), (folder / "anchor.json").read_text()
    cases = {
        "anchor.npz": (folder / "anchor.npz", arrays[:-1] + bytes([arrays[-1] ^ 1])),
        "anchor.json": (folder / "anchor.json", content.replace('"tolerance": 2', '"tolerance": 3').encode()),
    }
    for name, (path, wrong) in cases.items():
        before = path.read_bytes()
        assert before != wrong
        path.write_bytes(wrong)
        with pytest.raises(RecordError, match=name):
            anchoring.load(folder)
        assert start(monkeypatch, root, Toy(), "--check") == 1
        assert f"{folder / name} differs from" in capsys.readouterr().out
        path.write_bytes(before)
    (folder / "anchor.npz").unlink()
    with pytest.raises(RecordError, match=r"anchor\.npz"):
        anchoring.load(folder)


def test_an_anchor_of_another_record_is_refused(root, monkeypatch, capsys):
    record = records.load(root / "runs")
    other = dataclasses.replace(record, arrays=dict(record.arrays) | {"rates": np.array([0.1, 0.3])})
    records.save(other, kept_of(root), [])
    assert start(monkeypatch, root, Toy(), "--check") == 1
    assert "belongs to another record" in capsys.readouterr().out


def test_an_anchor_is_kept_with_its_record_and_not_made_for_an_old_one(root, monkeypatch, capsys):
    before = (kept_of(root) / "anchor.json").read_bytes()
    monkeypatch.setattr(anchoring, "make", lambda *_: pytest.fail("an anchor was made"))
    assert collect(monkeypatch, root, Toy()) == 0
    assert (kept_of(root) / "anchor.json").read_bytes() == before
    monkeypatch.setattr(anchoring.provenance, "source_version", lambda: "later")
    assert collect(monkeypatch, root, Toy()) == 0  # the same record, collected by later sources
    assert (kept_of(root) / "anchor.json").read_bytes() == before
    shutil.rmtree(root / "figures")
    (root / "README.md").write_text(f"{gallery.BEGIN}\n{gallery.END}\n")
    assert collect(monkeypatch, root, Toy()) == 0
    assert "no anchor is made, the sources have changed since it was made at commit" in capsys.readouterr().out
    assert not (kept_of(root) / "anchor.json").exists()
    (row,) = json.loads((root / "figures/claims.json").read_text())
    assert row["anchored"] is False
    assert f"not anchored, made at commit {row['commit']}" in (root / "figures/claims.md").read_text()
    assert start(monkeypatch, root, Toy(), "--check") == 1
    assert f"toy.anchored lab: not anchored, made at commit {row['commit']}" in capsys.readouterr().out
    assert start(monkeypatch, root, Toy(), "--reanchor") == 1
    assert "only made with a new record" in capsys.readouterr().out


def test_a_smoke_preset_that_alone_has_changed_is_anchored_anew(root, monkeypatch, capsys):
    monkeypatch.setattr(anchoring, "PERTURBED", 1)
    later = Toy(smoke=Config(steps=10))
    assert start(monkeypatch, root, later, "--check") == 1
    assert "smoke preset is no longer that of the anchor (steps: 20 there, 10 here)" in capsys.readouterr().out
    before = (kept_of(root) / "anchor.json").read_bytes()
    assert start(monkeypatch, root, dataclasses.replace(later, noise=0.2), "--reanchor") == 1
    assert "does not give the anchor any more: array loss differs" in capsys.readouterr().out
    assert (kept_of(root) / "anchor.json").read_bytes() == before
    assert start(monkeypatch, root, later, "--reanchor") == 0
    assert start(monkeypatch, root, later, "--check") == 0


def test_other_versions_are_not_compared_and_the_reason_is_given(root, monkeypatch, capsys):
    monkeypatch.setattr(anchoring.provenance, "versions", lambda: {"jax": "99"})
    assert start(monkeypatch, root, Toy(noise=0.5), "--check") == 0
    assert "not compared, made under other versions (" in capsys.readouterr().err


def test_perturbed_parameters_move_by_a_last_bit_or_two():
    init = lambda key, setting: {"w": jax.random.normal(key, (1000,)), "zero": jnp.zeros(3), "count": jnp.arange(3)}  # noqa: E731
    key = jax.random.key(0)
    before, one, other = init(key, None), *(anchors.perturbed(n)(init)(key, None) for n in (0, 1))
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
        "axis": np.arange(5) / 8,
        "flags": np.array([True, False]),
        "names": np.array(["a", "b"]),
        "residual": np.full(4, 3e-9),
        "long": rng.normal(size=(40, 50)),
    }
    near = base | {"smooth": base["smooth"] + 1e-4, "chaotic": 1.1 * base["chaotic"], "moving gaps": np.ones(2)}
    far = base | {"smooth": 2 * base["smooth"], "shares": base["shares"][::-1]}
    anchor = anchors.make(base, [base, near], far)
    assert set(anchor.by_shape) == {"chaotic", "moving gaps", "shares", "flags", "names"}
    assert all(entry["reason"] for entry in anchor.by_shape.values())
    assert anchor.by_value["smooth"]["tolerance"] == pytest.approx(1e-3)
    assert anchor.by_value["still"]["tolerance"] == pytest.approx(1e-5 * np.abs(base["still"]).max())
    assert anchors.differences(anchor, base) == anchors.differences(anchor, near) == []
    assert anchors.differences(anchor, base | {"smooth": base["smooth"] + 2e-3})
    assert anchors.differences(anchor, base | {"gaps": np.array([1.0, np.nan, np.inf])})
    assert anchors.differences(anchor, base | {"gaps": np.array([np.nan, 1.0, -np.inf])})
    assert anchors.differences(anchor, base | {"shares": 0 * base["shares"]}) == []
    assert anchors.differences(anchor, base | {"shares": base["shares"][1:]})
    assert anchors.differences(anchor, base | {"shares": base["shares"].astype(float)})
    assert anchors.differences(anchor, base | {"residual": np.full(4, -6e-8)}) == []
    assert anchors.differences(anchor, base | {"residual": np.full(4, 3e-5)})
    assert anchor.values["long"].size == 64
    assert anchors.differences(anchor, base | {"long": base["long"] + 1e-3})
    assert anchors.differences(anchor, base | {"long": base["long"].T})
    assert anchors.differences(anchor, base | {"more": np.ones(1)}) == ["array more is new"]
    assert anchors.differences(anchor, {k: v for k, v in base.items() if k != "axis"}) == ["array axis is gone"]
    with pytest.raises(ValueError, match="smoke runs of the same code disagree: array axis is gone"):
        anchors.make(base, [{k: v for k, v in base.items() if k != "axis"}], far)
