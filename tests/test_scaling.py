import dataclasses

import jax
import numpy as np
import pytest

from experiments.benchmarks import scaling
from experiments.benchmarks.timing import Config, Timing

TINY = dataclasses.replace(Config(), rounds=1, chunk=1, batch=8, ensemble_batch=8)


@pytest.mark.parametrize("power", [0.0, 1.0, 2.5])
def test_exponents_are_those_of_a_power_law(power):
    timings = {size: Timing(0.0, np.array([3.0 * size**power] * 3)) for size in (5, 10, 40)}
    rows = [row.flat() for row in scaling.with_exponents("N", timings)]
    assert [row["name"] for row in rows] == ["N = 5", "N = 10", "N = 40"]
    np.testing.assert_allclose([row["exponent"] for row in rows], power, atol=1e-12)
    np.testing.assert_allclose([row["local exponent"] for row in rows[1:]], power, atol=1e-12)


def test_a_bend_shows_in_the_local_exponents():
    timings = {size: Timing(0.0, np.array([1.0 + (size / 10) ** 2])) for size in (1, 10, 100)}
    first, last = (row.flat()["local exponent"] for row in scaling.with_exponents("N", timings)[1:])
    assert 0 < first < 0.5 < 1.5 < last < 2


def test_every_size_is_timed(monkeypatch):
    def train(config, name, size):  # programs take too long to compile here
        return lambda progress: [progress(step, 99) for step in range(99)]

    monkeypatch.setattr(scaling, "LINEAR", {"L": (1, 2)})
    monkeypatch.setattr(scaling, "INDUCTION", {"members": (1, 2)})
    monkeypatch.setattr(scaling, "_linear", train)
    monkeypatch.setattr(scaling, "_induction", train)
    linear, induction = scaling.scaling(TINY).values()
    assert [row.name for row in linear] == ["L = 1", "L = 2"]
    assert [row.name for row in induction] == ["members = 1", "members = 2"]
    assert all(row.milliseconds > 0 and np.isfinite(row.columns["exponent"]) for row in (*linear, *induction))


@pytest.mark.parametrize("name", ["N", "members"])
def test_induction_networks_are_built_at_a_size(monkeypatch, name):
    monkeypatch.setattr(scaling, "in_chunks", lambda program, chunk, **options: program)
    program = scaling._induction(TINY, name, 3)
    settings = jax.tree.map(lambda leaf: leaf[0], program.settings)
    params = jax.eval_shape(program.init, program.keys[0], settings)
    assert jax.eval_shape(program.loss, params, program.keys[0], settings).shape == ()
    assert len(program.keys) == (3 if name == "members" else 1)


@pytest.mark.parametrize(
    ("name", "changed"), [("N", "context_length"), ("D", "input_size"), ("batch", "batch"), ("members", None)]
)
def test_one_size_varies_alone(monkeypatch, name, changed):
    seen = []
    monkeypatch.setattr(scaling, "by_fit", lambda network, setting, chunk, members: seen.append((setting, members)))
    for size in (20, 30):
        scaling._linear(TINY, name, size)
    (small, few), (large, many) = ((dataclasses.asdict(setting), members) for setting, members in seen)
    differing = {field for field in small if small[field] != large[field]}
    assert differing == ({changed} if changed else set())
    assert (few, many) == ((20, 30) if name == "members" else (1, 1))
