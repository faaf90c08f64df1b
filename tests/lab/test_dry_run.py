import contextlib
import dataclasses
import json
import signal
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from rich.console import Console

from experiments.von_oswald import roll_out
from icl_lab.lab import command_line, dry_run
from icl_lab.lab.dry_run import Cost, Stage
from icl_lab.lab.experiment import PRESETS, Experiment
from icl_lab.lab.flags import FlagError, setting, to_json
from icl_lab.training.fitting import Fit, fit


@dataclasses.dataclass(frozen=True)
class Config:
    """As of a binary."""

    members: int = setting(3, "", at_least=1)
    steps: int = setting(8, "")
    rate: float = setting(0.1, "")
    seed: int = setting(0, "")


def arguments(config):
    return (
        lambda key, rate: {"w": jnp.ones((8, 8)) * rate},
        lambda params, key, rate: jnp.sum(jnp.sin(params["w"]) ** 2),
        optax.sgd(1e-3),
        jax.random.split(jax.random.key(0), config.members),
        jnp.arange(1.0, config.members + 1),
    )


def options(config):
    def measure(params, key, rate):
        return {"norm": jnp.sum(params["w"] ** 2), "all": params["w"]}

    return {"steps": config.steps, "measure_every": config.steps // 4, "measure": measure}


def of(run):
    return Experiment("paper.figure", "", dict.fromkeys(PRESETS, Config()), run, lambda record: {}, ())


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(dry_run, "TRIED", 0.01)


@pytest.fixture
def instant(monkeypatch):
    """Trainings that take ten seconds each, without trying."""

    def tried(limit, members, steps):
        return Stage(members, steps, 10.0 / steps, 0.0, 1, 0.0, 1), Fit({}, np.zeros(1), {}, np.full(members, -1))

    monkeypatch.setattr(dry_run, "_tried", tried)


def committed(gallery, seconds, stages, preset="lab", config=Config()):
    folder = gallery / "paper" / "figure" / preset
    folder.mkdir(parents=True)
    origin = {"seconds": seconds, "device": "1 x cpu", "cpus": 2, "stages": stages}
    (folder / "provenance.json").write_text(json.dumps({k: v for k, v in origin.items() if v is not None}))
    (folder / "config.json").write_text(json.dumps(to_json(config)))


def took(seconds, **more):
    return {"members": 3, "steps": 8, "seconds": seconds, "memory": 100} | more


def two_trainings(ran):
    def run(config, session):
        for name in ("first", "second"):
            session.fit(name, members=config.members, steps=config.steps)
            ran.append(name)

    return of(run)


def test_a_dry_training_gives_what_a_real_one_has_in_shape():
    config = Config()
    stage, dry = dry_run._tried(None, *arguments(config), **options(config))
    real = fit(*arguments(config), **options(config))
    assert jax.tree.map(jnp.shape, dry.params) == jax.tree.map(jnp.shape, real.params)
    assert {k: v.shape for k, v in dry.metrics.items()} == {k: v.shape for k, v in real.metrics.items()}
    np.testing.assert_array_equal(dry.steps, real.steps)
    np.testing.assert_array_equal(dry.diverged_at, real.diverged_at)
    assert (stage.members, stage.steps, stage.measurements) == (3, 8, 5)
    assert stage.memory == real.memory > 2 * 3 * 64 * 4  # parameters before and after
    of_steps, of_measurements = 8 * stage.step_seconds, 5 * stage.measure_seconds
    assert stage.seconds == pytest.approx(stage.compile_seconds + of_steps + of_measurements)


def test_a_long_training_is_tried_for_a_moment():
    config = Config(steps=40_000_000)  # all of them would take minutes
    stage, _ = dry_run._tried(None, *arguments(config), **options(config))
    assert stage.steps == 40_000_000
    assert stage.seconds > 10 * stage.compile_seconds


def test_a_run_that_ends_in_time_is_timed_as_it_is(instant, tmp_path):
    def run(config, session):
        session.fit("training", members=3, steps=8)
        with session.bar("tasks", 3) as advance:
            time.sleep(0.1)
            advance(3, 3)

    found = dry_run.cost(of(run), "quick", Config(), gallery=tmp_path)
    assert found.stages["training"].seconds == pytest.approx(10)
    assert 0.1 <= found.rest < 5
    assert found.seconds == pytest.approx(10 + found.rest)


def test_all_else_is_that_of_the_committed_run_scaled_by_the_speed_of_its_trainings(instant, tmp_path):
    committed(tmp_path, 100.0, {"first": took(4.0), "second": took(16.0)})
    ran = []
    found = dry_run.cost(two_trainings(ran), "lab", Config(), gallery=tmp_path)
    assert ran == ["first"]  # left when the last training of the committed run was tried
    assert found.rest == pytest.approx((100 - 20) * 20 / 20)
    assert found.seconds == pytest.approx(20 + 80)
    as_many = dry_run.cost(two_trainings([]), "lab", Config(members=6), gallery=tmp_path)
    assert as_many.rest == pytest.approx(
        80 * 20 / 40 * 2
    )  # half the time for each member, of which there are twice as many
    longer = dry_run.cost(two_trainings([]), "lab", Config(steps=80), gallery=tmp_path)
    assert longer.rest == pytest.approx(80 * 20 / 200)  # what follows a longer training takes no longer
    assert "steps=8 there" in longer.notes[-1]


def test_trainings_that_it_did_not_come_to_are_scaled_like_the_others(instant, tmp_path, monkeypatch):
    monkeypatch.setattr(dry_run, "BUDGET", 0.1)
    committed(tmp_path, 100.0, {"first": took(5.0), "second": took(15.0)})

    def run(config, session):
        session.fit("first", members=3, steps=8)
        while True:
            with_patience(0.01)

    found = dry_run.cost(of(run), "paper", Config(), gallery=tmp_path)
    assert found.others == {"second": pytest.approx(30.0)}
    assert found.rest == pytest.approx(2 * 80)
    assert found.seconds == pytest.approx(10 + 30 + 160)
    assert found.notes[0].startswith("1 of 2 trainings tried")


def with_patience(seconds):
    with contextlib.suppress(Exception):
        time.sleep(seconds)


def test_a_training_that_is_tried_is_not_broken_off(monkeypatch, tmp_path):
    monkeypatch.setattr(dry_run, "BUDGET", 0.05)
    before, ran = signal.getsignal(signal.SIGALRM), []

    def tried(limit):
        time.sleep(0.2)
        ran.append("tried")
        return Stage(1, 1, 1.0, 0.0, 1, 0.0, 1), None

    monkeypatch.setattr(dry_run, "_tried", tried)

    def run(config, session):
        session.fit("training")
        ran.append("what follows")

    found = dry_run.cost(of(run), "lab", Config(), gallery=tmp_path)
    assert ran == ["tried"]
    assert found.rest is None
    assert "there is no committed run" in found.notes[-1]
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_a_run_has_twice_the_time_until_its_first_training(instant, monkeypatch, tmp_path):
    monkeypatch.setattr(dry_run, "BUDGET", 0.3)

    def run(config, session):
        time.sleep(0.4)
        session.fit("first", members=3, steps=8)
        pytest.fail("it is late")

    assert list(dry_run.cost(of(run), "lab", Config(), gallery=tmp_path).stages) == ["first"]
    assert not dry_run.cost(of(lambda config, session: time.sleep(9)), "lab", Config(), gallery=tmp_path).stages


@pytest.mark.parametrize("stages", [None, {"first": took(5.0, memory=0)}, {"first": {"seconds": 5.0, "memory": 1}}])
def test_a_record_that_does_not_say_what_its_trainings_took_leaves_the_rest_unknown(
    instant, tmp_path, monkeypatch, stages
):
    monkeypatch.setattr(dry_run, "BUDGET", 0.05)
    committed(tmp_path, 100.0, stages)

    def run(config, session):
        session.fit("first", members=3, steps=8)
        time.sleep(10)

    found = dry_run.cost(of(run), "lab", Config(), gallery=tmp_path)
    assert found.rest is None
    assert "does not say" in found.notes[-1]
    assert "at least 10 s" in printed(found)


def test_a_committed_run_without_trainings_is_said_and_not_tried(tmp_path):
    committed(tmp_path, 100.0, {})
    found = dry_run.cost(of(lambda config, session: pytest.fail("it ran")), "lab", Config(), gallery=tmp_path)
    assert found.seconds == 100
    assert "lab run (1.7 min on 1 x cpu with 2 cores)" in found.notes[0]


def test_a_run_that_fails_on_untrained_networks_is_covered_up_to_there(instant, tmp_path):
    def run(config, session):
        session.fit("training", members=3, steps=8)
        raise ValueError("no transition")

    found = dry_run.cost(of(run), "lab", Config(), gallery=tmp_path)
    assert found.seconds == pytest.approx(10)
    assert found.notes[0].endswith("(ValueError: no transition)")


@pytest.mark.parametrize("error", [FlagError, ValueError])
def test_what_fails_before_any_training_or_is_refused_is_raised(error, tmp_path):
    def run(config, session):
        raise error("--networks: not there")

    with pytest.raises(error, match="not there"):
        dry_run.cost(of(run), "lab", Config(), gallery=tmp_path)


def test_cells_that_differ_in_real_numbers_or_the_seed_are_tried_once(instant):
    tried = []

    def run(config, session):
        tried.append(config)
        session.fit("training", members=config.members, steps=8)

    cells = [Config(rate=0.1), Config(rate=0.2, seed=1), Config(members=4)]
    found = dry_run.of_cells(of(run), "smoke", cells)
    assert tried == [cells[0], cells[2]]
    assert [one.runs for one in found] == [2, 1]
    assert sum(one.seconds for one in found) == pytest.approx(30, abs=1)


def printed(*costs):
    console = Console(width=160)
    with console.capture() as capture:
        console.print(dry_run.table(costs))
    return capture.get()


def test_the_table_says_what_was_timed_and_what_is_from_elsewhere():
    stage = Stage(64, 5000, 0.002, 0.5, 51, 4.0, 5 * 2**30)
    found = Cost({"training": stage}, {"a": 10.0, "b": 20.0}, 26.0, ("all else: as there",), 2)
    text = printed(found)
    for words in ("500 x 51", "2 other trainings", "all else: as there", "2 cells like this", "about 3.2 min on"):
        assert words in text
    assert found.seconds == pytest.approx(2 * (4 + 10 + 25.5 + 30 + 26))


@pytest.mark.parametrize(
    ("seconds", "words"), [(40, "40 s"), (240, "4 min"), (7000, "1.9 h"), (432_000, "120 h"), (0.2, "0 s")]
)
def test_durations_are_short(seconds, words):
    assert dry_run.duration(seconds) == words


@pytest.mark.parametrize(("grid", "cells"), [("", 1), ("--grid=learning_rate:0.1,0.2;members:2,3", 4)])
def test_a_dry_run_of_a_binary_prints_and_writes_nothing(tmp_path, monkeypatch, capsys, grid, cells):
    asked = []

    def cost(experiment, preset, config, limit):
        asked.append((experiment.name, preset, limit))
        return Cost({}, {}, 1.0, ())

    monkeypatch.setattr(dry_run, "cost", cost)
    outdir = f"--outdir={tmp_path / 'run'}"
    words = ["binary", "--preset=smoke", "--dry_run", "--memory_gb=2", outdir, *grid.split()]
    assert command_line.main(roll_out.EXPERIMENT, words) == command_line.DONE
    assert f"about {cells} s on" in capsys.readouterr().out
    assert set(asked) == {("von_oswald.roll_out", "smoke", 2 * 2**30)}
    assert not list(tmp_path.iterdir())


def test_several_processes_are_refused(tmp_path, capsys):
    words = ["binary", "--dry_run", "--distributed", f"--outdir={tmp_path}"]
    assert command_line.main(roll_out.EXPERIMENT, words) == command_line.REFUSED
    assert "--dry_run" in capsys.readouterr().err


def test_a_run_begins_with_what_the_committed_one_took(tmp_path, monkeypatch):
    said = []
    known = dry_run.Committed("smoke", to_json(roll_out.PRESETS["smoke"]), 240.0, "1 x cpu with 2 cores", None)
    monkeypatch.setattr(command_line.log, "info", lambda text, *words: said.append(text % words))
    monkeypatch.setattr(dry_run, "committed", lambda experiment, preset: known)
    command = command_line.parse_command_line(roll_out.EXPERIMENT, ["binary", "--preset=smoke", f"--outdir={tmp_path}"])
    command_line._say_what_it_took(command)
    command_line._say_what_it_took(command._replace(config=dataclasses.replace(command.config, members=99)))
    (line,) = said
    assert line.startswith("the committed smoke run (4 min on 1 x cpu with 2 cores)")
