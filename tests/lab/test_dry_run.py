import dataclasses
import json
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toys import made_up

from experiments.von_oswald import roll_out
from icl_lab.lab import command_line, dry_run
from icl_lab.lab.dry_run import Cost, Stage
from icl_lab.lab.flags import FlagError, setting, to_json
from icl_lab.training import Training, effort
from icl_lab.training.fitting import Fit


@dataclasses.dataclass(frozen=True)
class Config:
    """As of a binary."""

    members: int = setting(3, "", at_least=1)
    steps: int = setting(8, "")
    rate: float = setting(0.1, "")
    seed: int = setting(0, "")


def training(config):
    def measure(params, key, rate):
        return {"norm": jnp.sum(params["w"] ** 2), "all": params["w"]}

    return Training(
        lambda key, rate: {"w": jnp.ones((8, 8)) * rate},
        lambda params, key, rate: jnp.sum(jnp.sin(params["w"]) ** 2),
        optax.sgd(1e-3),
        jax.random.split(jax.random.key(0), config.members),
        jnp.arange(1.0, config.members + 1),
        steps=config.steps,
        measure_every=config.steps // 4,
        measure=measure,
    )


def of(measured, *stages):
    """An experiment that trains alike in every stage."""
    return made_up("paper.figure", Config(), measured, trainings=lambda config: dict.fromkeys(stages, training(config)))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(dry_run, "TRIED", 0.01)


@pytest.fixture
def instant(monkeypatch):
    """Trainings that take ten seconds each, without trying."""

    monkeypatch.setattr(dry_run, "_tried", lambda limit, one: tried(one))


def tried(one, compiling=0.0):
    members = len(one.keys)
    return Stage(members, one.steps, 10.0, 1, compiling), Fit({}, np.zeros(1), {}, np.full(members, -1))


def committed(gallery, seconds, stages, preset="lab", config=Config()):
    folder = gallery / "paper" / "figure" / preset
    folder.mkdir(parents=True)
    origin = {"seconds": seconds, "device": "1 x cpu", "cpus": 2, "stages": stages}
    (folder / "provenance.json").write_text(json.dumps({k: v for k, v in origin.items() if v is not None}))
    (folder / "config.json").write_text(json.dumps(to_json(config)))


def took(seconds, **more):
    return {"members": 3, "steps": 8, "seconds": seconds, "memory": 100} | more


def two_trainings(ran):
    def measured(config, fits):
        for name in fits:
            yield "facts", {"members": len(fits[name].diverged_at)}
            ran.append(name)

    return of(measured, "first", "second")


def test_a_dry_training_gives_what_a_real_one_has_in_shape():
    stage, dry = dry_run._tried(None, training(Config()))
    real = training(Config()).carried_out()
    assert jax.tree.map(jnp.shape, dry.params) == jax.tree.map(jnp.shape, real.params)
    assert {k: v.shape for k, v in dry.metrics.items()} == {k: v.shape for k, v in real.metrics.items()}
    np.testing.assert_array_equal(dry.steps, real.steps)
    np.testing.assert_array_equal(dry.diverged_at, real.diverged_at)
    assert (stage.members, stage.steps) == (3, 8)
    assert stage.memory == real.memory > 2 * 3 * 64 * 4  # parameters before and after


def test_a_long_training_is_tried_for_a_moment():
    began = time.perf_counter()
    stage, _ = dry_run._tried(None, training(Config(steps=2_000_000_000)))
    assert stage.steps == 2_000_000_000
    assert stage.seconds > 10 * (time.perf_counter() - began)  # all of them would take minutes


def test_a_run_that_ends_in_time_is_timed_as_it_is(instant, tmp_path):
    def measured(config, fits):
        kept = fits.checkpoint("pieces")
        assert kept.load(lambda: {}) is None
        kept.save(lambda: {}, finished=False)
        yield "facts", {"steps": fits["training"].steps}
        with fits.bar("tasks", 3) as advance:
            time.sleep(0.1)
            advance(3, 3)

    found = dry_run.cost(of(measured, "training"), "quick", Config(), gallery=tmp_path)
    assert found.stages["training"].seconds == 10
    assert 0.1 <= found.rest < 5
    assert found.seconds == 10 + found.rest


def test_all_else_is_not_scaled_by_compilation_and_a_resumed_record_says_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(dry_run, "_tried", lambda limit, one: tried(one, compiling=6.0))
    committed(tmp_path / "a", 100.0, {"first": took(4.0), "second": took(16.0)})
    assert dry_run.cost(two_trainings([]), "lab", Config(), gallery=tmp_path / "a").rest == pytest.approx(80 * 8 / 20)
    committed(tmp_path / "b", 100.0, {"first": took(4.0, resumed=4), "second": took(16.0)})
    found = dry_run.cost(two_trainings([]), "lab", Config(), gallery=tmp_path / "b")
    assert found.note == "timed just now"


def test_a_dry_run_compiles_with_the_effort_of_its_preset(tmp_path, compile_fully):
    found = []

    def measured(config, fits):
        found.append(effort.of("full"))
        return ()

    experiment = dataclasses.replace(of(measured), effort={"quick": "little"})
    for preset in ("quick", "lab"):
        with experiment.compiling(preset):
            found.append(effort.of("full"))
        dry_run.cost(experiment, preset, Config(), gallery=tmp_path)
    assert found[0] == found[1] != found[2] == found[3]


def test_all_else_is_that_of_the_committed_run_scaled_by_the_speed_of_its_trainings(instant, tmp_path):
    committed(tmp_path, 100.0, {"first": took(4.0), "second": took(16.0)})
    ran = []
    found = dry_run.cost(two_trainings(ran), "lab", Config(), gallery=tmp_path)
    assert ran == ["first"]  # left when the last training of the committed run was tried
    assert found.rest == pytest.approx((100 - 20) * 20 / 20)
    assert found.seconds == pytest.approx(20 + 80)
    as_many = dry_run.cost(two_trainings([]), "lab", Config(members=6), gallery=tmp_path)
    # half the time for each member, of which there are twice as many
    assert as_many.rest == pytest.approx(80 * 20 / 40 * 2)
    longer = dry_run.cost(two_trainings([]), "lab", Config(steps=80), gallery=tmp_path)
    assert longer.rest == pytest.approx(80 * 20 / 200)  # what follows a longer training takes no longer
    assert "steps=8" in longer.note


def test_trainings_that_the_committed_run_has_not_are_counted_too(instant, tmp_path):
    @dataclasses.dataclass(frozen=True)
    class Named(Config):
        names: tuple[str, ...] = ("first",)

    experiment = made_up(
        "paper.figure", Named(), lambda config, fits: [{} for _ in fits.values()],
        trainings=lambda config: dict.fromkeys(config.names, training(config)),
    )  # fmt: skip
    committed(tmp_path, 100.0, {"first": took(4.0)}, config=Named())
    found = dry_run.cost(experiment, "lab", Named(names=("first", "second", "third"), steps=80), gallery=tmp_path)
    assert list(found.stages) == ["first", "second", "third"]
    assert found.seconds == pytest.approx(30, abs=1)


def test_a_record_of_another_preset_does_not_say_which_training_is_the_last(instant, tmp_path):
    committed(tmp_path, 100.0, {"first": took(4.0)})
    ran = []
    dry_run.cost(two_trainings(ran), "paper", Config(), gallery=tmp_path)
    assert ran == ["first", "second"]


@pytest.mark.parametrize("place", ["training", "bar", "checkpoint", "piece"])
def test_what_it_did_not_come_to_in_its_budget_is_that_of_the_committed_run(instant, tmp_path, monkeypatch, place):
    monkeypatch.setattr(dry_run, "BUDGET", 0.05)
    committed(tmp_path, 100.0, {"first": took(5.0), "second": took(15.0)})

    def measured(config, fits):
        if place == "training":
            time.sleep(0.1)  # one that has begun is finished
        assert fits["first"]
        with fits.bar("tasks", 1000) as advance:
            for i in range(1000):
                time.sleep(0.01)
                if place == "bar":
                    advance(i, 1000)
                elif place == "checkpoint":
                    fits.checkpoint("pieces").save(lambda: {}, finished=False)
                else:
                    yield "facts", {"piece": i}
        pytest.fail("it is late")

    found = dry_run.cost(of(measured, "first", "second"), "paper", Config(), gallery=tmp_path)
    assert found.rest == pytest.approx(2 * 95)
    assert found.seconds == pytest.approx(10 + 190)
    assert "1 trainings not tried, 95 s of the committed lab run on 1 x cpu" in found.note


@pytest.mark.parametrize("stages", [None, {"first": took(5.0, memory=0)}, {"first": {"seconds": 5.0, "memory": 1}}])
def test_a_record_that_does_not_say_what_its_trainings_took_leaves_the_rest_unknown(
    instant, tmp_path, monkeypatch, stages
):
    monkeypatch.setattr(dry_run, "BUDGET", 0.0)
    committed(tmp_path, 100.0, stages)
    found = dry_run.cost(two_trainings([]), "lab", Config(), gallery=tmp_path)
    assert found.rest is None
    assert "no committed run says" in found.note
    assert "at least 10 s" in dry_run.said(found)


def test_a_committed_run_without_trainings_is_said_and_not_tried(tmp_path):
    committed(tmp_path, 100.0, {})
    found = dry_run.cost(of(lambda config, fits: pytest.fail("it ran")), "lab", Config(), gallery=tmp_path)
    assert found.seconds == 100
    assert "as in the committed lab run" in found.note


def test_a_run_unlike_the_committed_one_is_tried_though_that_had_no_trainings(tmp_path):
    committed(tmp_path, 100.0, {})
    ran = []
    found = dry_run.cost(of(lambda config, fits: ran.append(config) or ()), "lab", Config(steps=80), gallery=tmp_path)
    assert ran
    assert found.seconds < 100  # those of the committed run


def test_a_run_that_fails_on_untrained_networks_is_covered_up_to_there(instant, tmp_path):
    def measured(config, fits):
        yield "facts", {"steps": fits["training"].steps}
        raise ValueError("no transition")

    found = dry_run.cost(of(measured, "training"), "lab", Config(), gallery=tmp_path)
    assert found.seconds == 10
    assert "(ValueError: no transition)" in found.note


@pytest.mark.parametrize("error", [FlagError, ValueError])
def test_what_fails_before_any_training_or_is_refused_is_raised(error, tmp_path):
    def refused(*_):
        raise error("--networks: not there")

    for experiment in (of(refused), made_up("paper.figure", Config(), trainings=refused)):
        with pytest.raises(error, match="not there"):
            dry_run.cost(experiment, "lab", Config(), gallery=tmp_path)


def test_what_is_said_names_what_was_timed_and_what_is_from_elsewhere():
    found = Cost({"training": Stage(64, 5000, 40.0, 5 * 2**30)}, 56.0, "as there")
    training, rest, total = dry_run.said(found, 2).splitlines()
    assert training == "training: 64 members x 5000 steps x 0.125 ms = 40 s with compilation, 5 GiB on each device"
    assert rest == "all else: 56 s; as there"
    assert total.startswith("about 3.2 min on")
    assert total.endswith("for 2 cells like the first")


@pytest.mark.parametrize(("grid", "cells"), [("", 1), ("--grid=learning_rate:0.1,0.2;members:2,3", 4)])
def test_a_dry_run_of_a_binary_prints_and_writes_nothing(tmp_path, monkeypatch, capsys, grid, cells):
    asked = []

    def cost(experiment, preset, config, limit):
        asked.append((experiment.name, preset, limit))
        return Cost({}, 1.0, "")

    monkeypatch.setattr(dry_run, "cost", cost)
    outdir = f"--outdir={tmp_path / 'run'}"
    words = ["binary", "--preset=smoke", "--dry_run", "--memory_gb=2", outdir, *grid.split()]
    assert command_line.main(roll_out.EXPERIMENT, words) == command_line.DONE
    assert f"about {cells} s on" in capsys.readouterr().out
    assert set(asked) == {("von_oswald.roll_out", "smoke", 2 * 2**30)}
    assert not list(tmp_path.iterdir())


def test_a_program_that_takes_no_time_is_tried_a_hundred_times():
    calls = []
    dry_run._timed(lambda: calls.append(1))
    assert len(calls) == dry_run.CALLS
