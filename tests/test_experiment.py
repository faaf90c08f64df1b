import contextlib
import dataclasses
import inspect
import json
import re
import shutil
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toys import made_up

from icl_lab.lab import command_line as lab
from icl_lab.lab import flags, provenance, records
from icl_lab.lab.claims import Claim
from icl_lab.lab.execution import execute
from icl_lab.lab.experiment import OLDER, Experiment
from icl_lab.lab.quantities import quantity
from icl_lab.lab.records import RecordError
from icl_lab.lab.session import Session
from icl_lab.lab.style import panels
from icl_lab.training import Training


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = flags.setting(0, "seed of every draw", at_least=0)
    members: int = flags.setting(2, "independent trainings", at_least=1)
    steps: int = flags.setting(6, "training steps", at_least=1)
    rates: tuple[float, ...] = flags.setting((0.5,), "learning rates", above=0)


PARAMS = quantity("params_{stage}", "member", stage=lambda config: range(len(config["rates"])))
LOSS = dataclasses.replace(PARAMS, name="loss_{stage}", axes=("member", "step"))


@dataclasses.dataclass
class Toy:
    """A binary of two trainings; it can be told to raise at a step, and counts what it does."""

    raises_at: tuple[str, int] | None = None
    error: BaseException = dataclasses.field(default_factory=KeyboardInterrupt)
    expected: float = 1.0
    runs: int = 0
    drawn: int = 0
    reported: list = dataclasses.field(default_factory=list)

    def trainings(self, config):
        keys = jax.random.split(jax.random.key(config.seed), config.members)
        of = lambda rate: Training(begin, square, optax.sgd(rate), keys, steps=config.steps, measure_every=2)  # noqa: E731
        return {f"stage_{i}": of(rate) for i, rate in enumerate(config.rates)}

    def measured(self, config, fits):
        self.runs += 1
        for i, _ in enumerate(config.rates):
            fitted = fits[f"stage_{i}"]
            yield PARAMS.at(stage=i), fitted.params
            yield LOSS.at(stage=i), fitted.metrics["train_loss"]
        yield "facts", {"rates": list(config.rates)}

    @contextlib.contextmanager
    def watched(self):
        """Every step that a progress bar is told of is seen."""
        bar = Session.bar

        @contextlib.contextmanager
        def watched(session, label, total):
            with bar(session, label, total):
                yield lambda done, *_: self.seen(label, done)

        with mock.patch.object(Session, "bar", watched):
            yield

    def seen(self, stage, done):
        self.reported.append((stage, done))
        if (stage, done) == self.raises_at:
            raise self.error

    def figures(self, record):
        self.drawn += 1
        figure, axes = panels(1)
        axes[0, 0].plot(record.arrays["params_0"])
        return {"parameters": figure}

    def experiment(self):
        claim = Claim(
            "toy.train.small", "Toy", "Parameters get small.", lambda record: np.abs(record.arrays["params_0"]),
            expected=self.expected, tolerance=0.0, relation="<=", reason="a test", expected_verdict={"lab": "holds"},
        )  # fmt: skip
        presets = {"smoke": Config(), "quick": Config(), "lab": Config(members=3), "paper": Config(steps=60)}
        return made_up(
            "toy.train", presets, self.measured, (PARAMS, LOSS), about="About toys and their training.",
            trainings=self.trainings, figures=self.figures, claims=(claim,),
        )  # fmt: skip

    def __call__(self, outdir, preset="smoke", checkpoint_seconds=1000.0, overwrite=False, **changes):
        config = dataclasses.replace(self.experiment().presets[preset], **changes)
        often = {"checkpoint_seconds": checkpoint_seconds, "overwrite": overwrite}
        with self.watched():
            return execute(self.experiment(), preset, config, outdir, **often)

    def main(self, *words):
        with self.watched():
            return lab.main(self.experiment(), ["toy", *words])


def begin(key, _):
    return jax.random.key_data(key)[0] / jnp.float32(2**32)


def square(params, key, _):
    return params**2


def content(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != ".lock"}


def numbers(folder):
    return {name: (folder / name).read_bytes() for name in ("record.json", "arrays.npz", "config.json")}


FILES = {"record.json", "arrays.npz", "config.json", "provenance.json", "parameters.png"}


@pytest.mark.parametrize("preset", ["smoke", "quick", "lab"])
def test_a_run_leaves_its_files_and_nothing_else(tmp_path, preset):
    outcome = Toy()(tmp_path, preset)
    printed = {"parameters.pdf"} if preset == "lab" else set()
    assert set(content(tmp_path)) == FILES | printed
    assert {path.name for path in outcome.figures} == {"parameters.png"} | printed
    assert outcome.ran
    assert records.load(tmp_path).metrics == {"rates": [0.5]}


def test_a_finished_run_is_not_repeated_but_judged_and_drawn_again(tmp_path):
    toy = Toy()
    assert toy(tmp_path, "lab").ledger[0]["verdict"] == "holds"
    before = content(tmp_path)
    for path in tmp_path.glob("parameters.*"):
        path.unlink()
    assert not toy(tmp_path, "lab").ran
    assert (toy.runs, toy.drawn) == (1, 2)
    assert content(tmp_path) == before
    toy.expected = -1.0
    assert toy(tmp_path, "lab").ledger[0]["verdict"] == "fails"
    assert toy.runs == 1
    assert json.loads((tmp_path / "record.json").read_text())["claims"][0]["verdict"] == "fails"


def test_a_run_stopped_while_it_draws_has_no_figures_and_leaves_nothing_of_them(tmp_path):
    toy = Toy()

    def figures(record):
        found = {name: panels(1)[0] for name in ("one", "two")}
        found["two"].savefig = lambda *args, **options: (_ for _ in ()).throw(KeyboardInterrupt)
        return found

    stopped = dataclasses.replace(toy.experiment(), figures=figures)
    with pytest.raises(KeyboardInterrupt):
        execute(stopped, "smoke", Config(), tmp_path)
    assert not list(tmp_path.rglob("*.png"))
    (tmp_path / f"{records.DRAWING}killed").mkdir()
    toy(tmp_path)
    assert set(content(tmp_path)) == FILES
    assert not list(tmp_path.glob(f"{records.DRAWING}*"))


def test_a_folder_of_another_configuration_is_refused(tmp_path):
    toy = Toy()
    toy(tmp_path)
    before = content(tmp_path)
    with pytest.raises(RecordError, match=r"another configuration \(steps: 6 there, 8 here\); choose another --outdir"):
        toy(tmp_path, steps=8)
    other = dataclasses.replace(toy.experiment(), name="toy.other", claims=())
    with pytest.raises(RecordError, match=r"holds a run of toy\.train; choose another --outdir"):
        execute(other, "smoke", Config(), tmp_path)
    assert content(tmp_path) == before
    assert toy.runs == 1
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("of a person")
    with pytest.raises(RecordError, match="notes is not empty and holds no run; choose another --outdir"):
        toy(tmp_path / "notes")
    with pytest.raises(RecordError, match="a run of the preset smoke, not quick; choose another --outdir"):
        toy(tmp_path, "quick")  # of the same numbers, but compiled and judged otherwise
    assert [path.name for path in (tmp_path / "notes").iterdir()] == ["mine.txt"]
    (tmp_path / "started").mkdir()
    (tmp_path / "started" / records.LOG).touch()  # as a launcher of runs does before the run begins
    assert toy(tmp_path / "started").ran


@pytest.mark.parametrize(
    ("name", "damage"), [("record.json", "missing"), ("record.json", "truncated"), ("arrays.npz", "truncated")]
)
def test_a_corrupt_record_is_named_set_aside_and_run_again(tmp_path, log, name, damage):
    toy = Toy()
    toy(tmp_path)
    before, broken = numbers(tmp_path), (tmp_path / name).read_bytes()[:-9]
    (tmp_path / name).unlink()
    if damage == "truncated":
        (tmp_path / name).write_bytes(broken)
    assert toy(tmp_path).ran
    assert numbers(tmp_path) == before
    assert name in log.text
    assert "set aside as" in log.text
    aside = {path.name: path.read_bytes() for path in tmp_path.glob("*.set-aside-1")}
    assert len(aside) == (4 if damage == "truncated" else 3)
    assert damage == "missing" or aside[f"{name}.set-aside-1"] == broken


def test_a_file_of_someone_else_is_not_overwritten(tmp_path, log):
    (tmp_path / "config.json").write_text("{}")
    Toy()(tmp_path)
    assert (tmp_path / "config.json.set-aside-1").read_text() == "{}"
    assert "config.json.set-aside-1" in log.text


def test_an_interrupted_overwrite_is_resumed_and_loses_no_record_before_it_is_done(tmp_path):
    toy = Toy()
    toy(tmp_path, rates=(0.5, 0.25))
    before, toy.raises_at = numbers(tmp_path), ("stage_1", 2)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            toy(tmp_path, rates=(0.5, 0.25), overwrite=True, checkpoint_seconds=0.0)
        assert numbers(tmp_path) == before
    assert toy.reported.count(("stage_0", 2)) == 2  # in the first run and in the first that does it over
    toy.raises_at = None
    assert toy(tmp_path, rates=(0.5, 0.25), overwrite=True).ran
    assert toy(tmp_path, rates=(0.5, 0.25), overwrite=True).ran
    assert toy.reported.count(("stage_0", 2)) == 3
    assert numbers(tmp_path) == before
    assert set(content(tmp_path)) == FILES


def test_overwrite_runs_again(tmp_path):
    toy = Toy()
    toy(tmp_path)
    assert toy(tmp_path, overwrite=True, steps=4).ran
    assert records.load(tmp_path).config["steps"] == 4


TWO = {"rates": (0.5, 0.25), "checkpoint_seconds": 0.0}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    Toy()(folder, **TWO)
    return numbers(folder)


@pytest.mark.parametrize("at", [("stage_0", 0), ("stage_0", 4), ("stage_0", 6), ("stage_1", 2)])
def test_an_interrupted_run_resumes_where_it_was(tmp_path, whole, at):
    toy = Toy(raises_at=at)
    with pytest.raises(KeyboardInterrupt):
        toy(tmp_path, **TWO)
    assert not (tmp_path / "record.json").exists()
    again = Toy()
    assert again(tmp_path, **TWO).ran
    stages = [(stage, done) for stage in ("stage_0", "stage_1") for done in (0, 2, 4, 6)]
    finished = [("stage_0", 6)] if at[0] == "stage_1" else []
    assert again.reported == finished + stages[stages.index(at) :]
    assert numbers(tmp_path) == whole
    assert set(content(tmp_path)) == FILES


def test_an_unfinished_run_of_another_configuration_is_refused_and_goes_on(tmp_path, whole):
    with pytest.raises(KeyboardInterrupt):
        Toy(raises_at=("stage_0", 4))(tmp_path, **TWO)
    with pytest.raises(RecordError, match=r"unfinished run of another configuration \(seed: 0 there, 1 here\)"):
        Toy()(tmp_path, **TWO, seed=1)
    again = Toy()
    again(tmp_path, **TWO)
    assert again.reported[0] == ("stage_0", 4)
    assert numbers(tmp_path) == whole


@pytest.mark.parametrize("of_a_redone_run", [False, True])
def test_overwrite_does_an_unfinished_run_of_another_configuration_over(tmp_path, whole, of_a_redone_run):
    with pytest.raises(KeyboardInterrupt):
        Toy(raises_at=("stage_0", 4))(tmp_path, **TWO, seed=1, overwrite=of_a_redone_run)
    other = Toy()
    other(tmp_path, **TWO, overwrite=True)
    assert other.reported[0] == ("stage_0", 0)
    assert numbers(tmp_path) == whole


def test_checkpoints_of_other_code_are_not_used_and_kept(tmp_path, log, whole, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(provenance, "code_version", lambda _: "another")
        with pytest.raises(KeyboardInterrupt):
            Toy(raises_at=("stage_0", 4))(tmp_path, **TWO)
    other = Toy()
    other(tmp_path, **TWO)
    assert other.reported[0] == ("stage_0", 0)
    assert "another configuration or version" in log.text
    assert (tmp_path / "checkpoints" / "stage_0" / "current.set-aside-1").is_file()
    assert numbers(tmp_path) == whole


def test_a_stage_that_is_trained_twice_is_refused(tmp_path):
    """Its checkpoint would return the first training in place of the second."""

    toy = Toy()
    (one,) = toy.trainings(Config()).values()
    for _ in range(2):  # the second time the first training is found finished
        session = Session(tmp_path, "a fingerprint", 0.0, None)
        session.fit("alone", one)
        with pytest.raises(ValueError, match="'alone' is trained twice"):
            session.fit("alone", dataclasses.replace(one, optimizer=optax.sgd(0.1)))
    shutil.rmtree(tmp_path / "checkpoints")
    assert toy(tmp_path).ran  # another run in this process has stages of its own


def test_a_wrong_claim_is_an_error_but_loses_no_run(tmp_path):
    toy = Toy()
    (right,) = toy.experiment().claims
    wrong = dataclasses.replace(right, statistic=lambda record: record.arrays["parmas_0"])
    with pytest.raises(ValueError, match=r"toy\.train\.small.*'parmas_0'"):
        execute(dataclasses.replace(toy.experiment(), claims=(wrong,)), "smoke", Config(), tmp_path)
    outcome = toy(tmp_path)
    assert not outcome.ran
    assert [row["id"] for row in outcome.ledger] == [right.id]


def test_metrics_may_be_numbers_of_numpy_and_arrays_of_bfloat16(tmp_path):
    found = {"a": np.float32(0.5), "b": [np.arange(2), jnp.float32(0.25)]}
    measured = lambda config, fits: [(PARAMS.at(stage=0), jnp.full(2, 0.3, jnp.bfloat16)), ("facts", found)]  # noqa: E731
    outcome = execute(made_up("toy.train", Config(), measured, (PARAMS,)), "smoke", Config(), tmp_path)
    assert outcome.record.metrics == records.load(tmp_path).metrics == {"a": 0.5, "b": [[0, 1], 0.25]}
    for record in (outcome.record, records.load(tmp_path)):  # in float32: a mean of bfloat16 would be no mean
        assert record.arrays["params_0"].dtype == np.float32
        np.testing.assert_array_equal(record.arrays["params_0"], np.full(2, jnp.bfloat16(0.3), np.float32))


def test_what_another_preset_runs_is_left_out(tmp_path):
    """A claim about it is not judged; one that is misspelt is refused all the same."""
    toy = Toy()
    presets = {"smoke": Config(), "quick": Config(), "lab": Config(rates=(0.5, 0.1)), "paper": Config()}
    (claim,) = toy.experiment().claims
    claim = dataclasses.replace(claim, statistic=lambda record: record.arrays["params_1"])
    experiment = dataclasses.replace(toy.experiment(), presets=presets, claims=(claim,))
    assert experiment.left_out({"rates": [0.5]}) == {"params_1", "loss_1"}
    outcome = execute(experiment, "smoke", presets["smoke"], tmp_path / "smoke")
    assert "params_1" in outcome.ledger[0]["note"]
    assert not execute(experiment, "lab", presets["lab"], tmp_path / "lab").ledger[0]["note"].endswith("params_1")


def test_the_form_of_a_former_release_is_refused_and_shows_the_new_one():
    old, said = (lambda config, session: ({}, {})), []
    for args, options in (
        ((old, lambda record: {}, ()), {}),
        ((), {"run": old, "figures": lambda record: {}, "claims": ()}),
        *(((old, ()), {word: {}}) for word in OLDER),
    ):
        with pytest.raises(TypeError) as refused:
            Experiment("toy.old", "About.", {}, *args, **options)
        said.append(str(refused.value))
    assert len(set(said)) == 1
    assert said[0].startswith("toy.old: run(config, session) is now trainings(config)")
    assert not re.search(r"[.\n] ", said[0])
    (shown,) = re.findall(r"Experiment\((.*?)\)", said[0])
    words = [word.split("=")[0] for word in shown.split(", ")]
    fields = inspect.signature(Experiment.__init__)
    fields.bind(None, **dict.fromkeys(words))
    assert words[:5] == list(fields.parameters)[1:6]


@pytest.mark.parametrize("ids", [("toy.train.small", "toy.train.small"), ("toy.tarin.small",), ("small",)])
def test_an_id_that_is_not_the_claims_own_is_refused(ids):
    experiment = Toy().experiment()
    claims = tuple(dataclasses.replace(experiment.claims[0], id=name) for name in ids)
    with pytest.raises(ValueError, match=ids[0]):
        dataclasses.replace(experiment, claims=claims)


def test_a_training_that_nothing_asks_for_is_refused(tmp_path):
    unasked = dataclasses.replace(Toy().experiment(), measured=lambda config, fits: (), claims=())
    with pytest.raises(ValueError, match="nothing asks for the trainings stage_0"):
        execute(unasked, "smoke", Config(), tmp_path)


def test_a_record_keeps_the_final_parameters_or_what_is_measured_in_their_place(tmp_path):
    def kept(folder, *yielded):
        made = made_up("toy.params", Config(), lambda _, fits: (fits["a"], *yielded)[1:], trainings=trained)
        return execute(made, "smoke", Config(), folder).record.params

    def trained(config):
        (one,) = Toy().trainings(config).values()
        tree = {"init": lambda key, _: {"w": begin(key, _)}, "loss": lambda params, key, _: params["w"] ** 2}
        return {"a": dataclasses.replace(one, **tree)}

    assert {name: one.shape for name, one in kept(tmp_path / "own").items()} == {"a/w": (2,)}
    np.testing.assert_array_equal(kept(tmp_path / "other", ("params", {"b": {"w": np.ones(3)}}))["b/w"], np.ones(3))


def test_diverged_members_are_reported(tmp_path, log):
    Toy()(tmp_path, rates=(1e30,), steps=4, members=9)
    assert "stage_0: 9 of 9 members diverged and were stopped (member 0 at step 1, 1 at step 1" in log.text
    assert "7 at step 1, ...)" in log.text


@pytest.mark.parametrize(
    ("preset", "changes", "label"),
    [
        ("lab", {}, "lab"),
        ("lab", {"seed": 5}, "lab"),
        ("lab", {"members": 4}, "lab"),
        ("lab", {"members": 2}, "lab with members=2"),
        ("lab", {"steps": 4, "members": 9}, "lab with steps=4"),
        ("smoke", {"rates": (0.5, 0.1)}, "smoke with rates=(0.5, 0.1)"),
    ],
)
def test_what_differs_from_the_preset_is_in_the_label(preset, changes, label):
    toy = Toy().experiment()
    assert toy.label(preset, dataclasses.replace(toy.presets[preset], **changes)) == label


@pytest.mark.parametrize(
    ("changes", "verdict"), [({"members": 4}, "holds"), ({"members": 2}, "not judged"), ({"steps": 4}, "not judged")]
)
def test_only_the_preset_or_more_members_are_judged(tmp_path, changes, verdict):
    (row,) = Toy()(tmp_path, "lab", **changes).ledger
    assert (row["verdict"], row["preset"]) == (verdict, records.load(tmp_path).preset)


def test_a_configuration_that_is_not_allowed_writes_nothing(tmp_path):
    with pytest.raises(flags.FlagError, match="--members=0"):
        Toy()(tmp_path / "run", members=0)
    assert not (tmp_path / "run").exists()


def test_presets_that_are_missing_are_named():
    with pytest.raises(ValueError, match="must have smoke, quick, lab, paper; quick, paper is missing"):
        dataclasses.replace(Toy().experiment(), presets={"smoke": Config(), "lab": Config()}).check_complete()
