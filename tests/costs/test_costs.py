import dataclasses
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.reproduce import discover
from experiments.von_oswald import roll_out
from icl_lab import command_line, flags
from icl_lab.costs import cost as costs
from icl_lab.costs import dry_session
from icl_lab.costs import report as cost_report
from icl_lab.costs.compiling import Compiled
from icl_lab.costs.cost import Cost
from icl_lab.costs.operations import operations
from icl_lab.costs.parts import Rest, Stage
from icl_lab.flags import FlagError, setting
from icl_lab.training import fit

MATRIX, VECTOR = jnp.ones((4, 6)), jnp.ones(6)


def halve(x):
    return jax.lax.while_loop(lambda y: y.sum() > 1, lambda y: y / 2, x)


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda a, x: a @ x, 2 * 4 * 6),
        (lambda a, x: x + 1, 6),
        (lambda a, x: a.T.reshape(3, 8)[1:], 0),
        (lambda a, x: a.sum(), 24),
        (lambda a, x: jax.lax.scan(lambda c, _: (c * c, None), x, length=50)[0], 50 * 6),
        (lambda a, x: jax.vmap(lambda row: row @ x)(a), 2 * 4 * 6),
        (lambda a, x: jax.jit(lambda y: y - 2)(x), 6),
        (lambda a, x: jax.lax.cond(True, lambda y: y * 2, lambda y: y * 2 + 1, x), 12),
        (lambda a, x: halve(x), 6 + 6 + 1),  # a sum, a comparison and a division, once
        (lambda a, x: jax.lax.map(lambda row: row @ x, a), 4 * 2 * 6),
    ],
)
def test_operations_are_those_that_are_written(function, count):
    assert operations(function, MATRIX, VECTOR) == count


@dataclasses.dataclass(frozen=True)
class Config:
    """As of a binary."""

    members: int = setting(3, "", at_least=1)
    steps: int = setting(4000, "")
    tasks: int = setting(1000, "", at_least=1, scales=True)


def training(session, config, measure=None):
    return session.fit(
        "training",
        lambda key, rate: {"w": jnp.ones((8, 8)) * rate},
        lambda params, key, rate: jnp.sum(jnp.sin(params["w"]) ** 2),
        optax.sgd(1e-3),
        jax.random.split(jax.random.key(0), config.members),
        jnp.arange(1.0, config.members + 1),
        steps=config.steps,
        measure_every=config.steps // 4,
        measure=measure or (lambda params, key, rate: {"norm": jnp.sum(params["w"] ** 2), "all": params["w"]}),
    )


class Real:
    """A session that trains."""

    def fit(self, stage, *args, **options):
        return fit(*args, **options)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(dry_session, "TRIED", 0.01)


@pytest.fixture(scope="module")
def both():
    """What a dry and a real session give the same run, and the cost."""
    given, config = [], Config(steps=8)

    def run(config, session):
        given.append(training(session, config))
        given[-1].metrics["norm"][:] += 1  # a run may change what it was given
        time.sleep(config.tasks * 1e-4)

    found = costs.cost(run, config)
    return given[-1], training(Real(), config), found


def test_a_dry_training_gives_what_a_real_one_has_in_shape(both):
    dry, real, _ = both
    assert jax.tree.map(jnp.shape, dry.params) == jax.tree.map(jnp.shape, real.params)
    assert {k: v.shape for k, v in dry.metrics.items()} == {k: v.shape for k, v in real.metrics.items()}
    np.testing.assert_array_equal(dry.steps, real.steps)
    np.testing.assert_array_equal(dry.diverged_at, real.diverged_at)


def test_a_stage_says_what_is_trained(both):
    (stage,) = both[2].stages
    assert (stage.name, stage.members, stage.steps, stage.measurements) == ("training", 3, 8, 5)
    assert stage.operations % (3 * 8) == 0
    assert 3 * 8 * 64 * 2 < stage.operations < 3 * 8 * 64 * 30
    assert stage.memory > 2 * 3 * 64 * 4  # parameters before and after
    assert stage.seconds == pytest.approx(
        stage.compile_seconds + 8 * stage.step_seconds + 5 * stage.measure_seconds, rel=1e-9
    )


def test_a_long_training_is_tried_for_a_moment():
    session = dry_session.DrySession(None, Compiled())
    training(session, Config(steps=40_000_000), lambda params, key, rate: {})
    (stage,) = session.stages.values()
    assert stage.operations / 4e7 == pytest.approx(3 * 64 * 20, rel=0.9)
    assert stage.steps == 40_000_000  # all of them would take minutes


class Clock:
    """Time that passes only where it is told to."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now

    def passes(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(dry_session, "time", found)
    return found


def test_what_grows_with_a_size_is_extrapolated_and_what_does_not_is_not(clock):
    ran = []

    def run(config, session):
        ran.append(config.tasks)
        clock.passes(2 + 0.05 * config.tasks)

    found = costs.cost(run, Config())
    assert found.seconds == pytest.approx(2 + 0.05 * 1000)
    assert len(ran) == 2
    assert sum(ran) < 300
    assert found.rest.share == ran[1] / 1000
    assert found.rest.sizes == ("tasks",)


def test_sizes_that_cost_little_are_run_in_full(clock):
    ran = []

    def run(config, session):
        ran.append(config.tasks)
        clock.passes(1e-3 + 1e-3 * config.tasks)

    found = costs.cost(run, Config())
    assert ran[-1] == 1000
    assert found.rest.share == 1
    assert found.seconds == pytest.approx(1.001)


def test_a_long_loop_of_like_items_is_left_and_counted_in_full(clock):
    done_items = []

    def run(config, session):
        with session.bar("networks", 40) as advance:
            for i in range(40):
                clock.passes(4.0)
                done_items.append(i)
                advance(i + 1, 40)

    @dataclasses.dataclass(frozen=True)
    class Plain:
        members: int = setting(3, "")

    found = costs.cost(run, Plain())
    assert found.seconds == pytest.approx(160)
    assert len(done_items) < 10
    assert "networks: 4 of 40 run" in found.rest.notes[0]


def test_trainings_that_only_the_smaller_run_comes_to_count(clock):
    def run(config, session):
        with session.bar("flows", 10) as advance:
            for i in range(10):
                clock.passes(0.05 * config.tasks)
                advance(i + 1, 10)
        training(session, config)

    found = costs.cost(run, Config(steps=8))
    assert [stage.name for stage in found.stages] == ["training"]  # the larger run ends in the loop
    assert found.rest.seconds == pytest.approx(0.05 * 1000 * 10, rel=0.1)
    assert found.rest.notes[0].endswith("as before; what follows the loop is not counted")


def test_time_of_trainings_in_a_loop_is_not_time_of_the_loop(clock):
    def run(config, session):
        with session.bar("laws", 4) as advance:
            for i in range(4):
                session.fit(f"stage_{i}", lambda: clock.passes(100.0))
                clock.passes(1.0)
                advance(i + 1, 4)

    session = dry_session.DrySession(None, Compiled())
    session._once = lambda stage, tried: (tried(), None)
    assert session.tried(run, Config(), 15.0).seconds == pytest.approx(4)
    assert len(session.stages) == 4


def test_items_that_differ_are_told_by_the_smaller_run(clock):
    def run(config, session):
        with session.bar("flows", 3) as advance:
            for i, each in enumerate((1.0, 1.0, 6.0)):
                clock.passes(each * (0.1 + config.tasks / 25))
                advance(i + 1, 3)

    assert costs.cost(run, Config()).seconds == pytest.approx(8 * (0.1 + 1000 / 25), rel=0.02)


def test_a_run_that_fails_on_untrained_networks_is_covered_up_to_there(clock):
    def run(config, session):
        clock.passes(3.0)
        raise ValueError("no transition")

    found = costs.cost(run, Config(tasks=1))
    assert found.seconds == pytest.approx(3)
    assert found.rest.notes == ("not covered: what follows where it stopped (ValueError: no transition)",)


def test_what_is_refused_is_refused():
    def run(config, session):
        raise FlagError("--networks: not there")

    with pytest.raises(FlagError, match="not there"):
        costs.cost(run, Config())


def test_tracing_inside_tracing_counts_once():
    counted = Compiled()
    for start, stop in ((1, 2), (3, 5), (0, 6), (7, 8)):
        counted("/jax/core/compile/jaxpr_trace_duration", start, stop)
    counted("/jax/other", 8, 99)
    assert counted.seconds == 7


def test_compilation_is_not_taken_for_work():
    def run(config, session):
        jax.jit(lambda x: jnp.linalg.qr(x @ x)[0])(np.ones((3, 3), np.float32))

    found = costs.cost(run, Config(tasks=1))
    assert found.rest.compile_seconds > found.rest.seconds > 0


def test_the_table_says_what_was_measured_and_what_was_not():
    stage = Stage("training", 64, 5000, 3.2e12, 5 * 2**30, 0.002, 0.5, 51, 4.0)
    found = Cost(
        [stage], Rest(20.0, 4.0, 6.0, 0.04, ("population_tasks",), ("networks: 1 of 6 run, the others alike",))
    )
    text = _printed(found)
    many = _printed(found._replace(rest=found.rest._replace(notes=tuple(f"cell {i}" for i in range(99)))))
    assert "... and 91 more notes like these" in many
    for words in ("3.2 T", "5 GiB", "500 x 51", "4 % of --population_tasks", "networks: 1 of 6", "about 66 s on"):
        assert words in text
    assert found.seconds == pytest.approx(4 + 10 + 25.5 + 26)


def _printed(cost):
    from rich.console import Console

    console = Console(width=160)
    with console.capture() as capture:
        console.print(cost_report.table(cost))
    return capture.get()


@pytest.mark.parametrize(
    ("seconds", "words"), [(40, "40 s"), (240, "4 min"), (7000, "1.9 h"), (5 * 86_400, "5 days"), (0.2, "0 s")]
)
def test_durations_are_short(seconds, words):
    assert cost_report.duration(seconds) == words


def test_a_dry_run_of_a_binary_prints_and_writes_nothing(tmp_path, monkeypatch, capsys):
    asked = []
    found = Cost([], Rest(1.0, 1.0, 0.0, 1.0, (), ()))
    monkeypatch.setattr(costs, "cost", lambda run, config, limit: asked.append((config, limit)) or found)
    outdir = tmp_path / "run"
    words = ["binary", "--preset=smoke", "--dry_run", "--memory_gb=2", f"--outdir={outdir}"]
    assert command_line.main(roll_out.EXPERIMENT, words) == command_line.DONE
    assert "about 1 s on" in capsys.readouterr().out
    assert asked == [(roll_out.PRESETS["smoke"], 2 * 2**30)]
    assert not list(tmp_path.iterdir())


EXPERIMENTS = discover()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_share_of_the_sizes_is_allowed(name):
    """A dry run builds these configurations, of which a command line would refuse none."""
    experiment = EXPERIMENTS[name]
    for preset in experiment.presets.values():
        sizes = [f for f in dataclasses.fields(preset) if f.metadata["scales"]]
        for share in (costs.SMALL, 4 * costs.SMALL, 0.37, 0.99, 1.0):
            scaled, of_all = costs._scaled(preset, sizes, share)
            flags.validate(scaled)
            experiment.check(scaled)
            assert share - 1e-9 <= of_all <= 1
