"""How hard XLA works: little on what runs once, no more of it where an option is unknown, and the same numbers."""

import contextlib
import dataclasses
import functools
import logging
import os

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
from toys import Config, made_up

from icl_lab.lab.execution import execute
from icl_lab.lab.profile import OUTSIDE, Profile, table
from icl_lab.training import effort


def known(name):
    """The options of an effort that this release of XLA takes: the locked one takes all."""
    found = {}
    for option, value in effort.OPTIONS[name].items():
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            jax.jit(lambda: 0).lower().compile({option: value})
            found[option] = value
    assert jaxlib.__version__ != effort.RELEASE or found == effort.OPTIONS[name]
    return found


def test_a_block_lowers_the_effort_and_never_raises_it(compile_fully):
    assert effort.of("full") == known("full") != effort.of("some") != effort.of("little")
    with effort.at_most("some"):
        assert effort.of("full") == known("some")
        assert effort.of("little") == known("little")
        assert not jax.config.read("jax_disable_most_optimizations")
        with effort.at_most("full"):
            assert effort.of("full") == known("some")
        with effort.at_most("little"):
            assert effort.of("full") == effort.of("some") == known("little")
            assert jax.config.read("jax_disable_most_optimizations")
    assert effort.of("full") == known("full")
    assert not jax.config.read("jax_disable_most_optimizations")


def test_an_experiment_says_how_hard_xla_works_on_a_preset(compile_fully, tmp_path):
    found = []

    def measured(config, fits):
        found.append(effort.of("full"))
        return ()

    config = Config()
    usual = made_up("toy.a", config, measured)
    lowered = dataclasses.replace(usual, effort={"quick": "little"})
    for experiment, preset in ((usual, "quick"), (lowered, "quick"), (usual, "lab"), (lowered, "lab")):
        execute(experiment, preset, config, tmp_path / str(len(found)))
    assert found == [known("some"), known("little"), known("full"), known("full")]


def test_an_option_that_xla_does_not_know_leaves_the_one_that_it_does(monkeypatch):
    level = {"xla_backend_optimization_level": 0}
    monkeypatch.setitem(effort.OPTIONS, "little", level | {"xla_no_such_option": True})
    monkeypatch.setattr(effort, "_options", effort._options.__wrapped__)
    assert effort.of("little") == level


def test_after_an_upgrade_flags_that_xla_does_not_know_are_off_and_said(monkeypatch, caplog):
    monkeypatch.setattr(logging.getLogger("icl_lab"), "propagate", True)
    monkeypatch.setenv("XLA_FLAGS", "--of_the_user")
    monkeypatch.setattr(effort, "RELEASE", "0.0.1")
    own = {"xla_cpu_use_fusion_emitters": False, "xla_no_such_option": 1}
    monkeypatch.setitem(effort.OPTIONS, "little", own)
    monkeypatch.setattr(effort, "known", functools.cache(effort.known.__wrapped__))
    effort.whole_process("little")
    (said,) = set(caplog.messages)  # a handler of another test may hear it too
    assert "not compared with their anchors" in said
    assert said.endswith("are off: --xla_no_such_option=1")
    assert os.environ["XLA_FLAGS"] == "--xla_cpu_use_fusion_emitters=false --of_the_user"


def test_another_platform_gets_no_options(monkeypatch, compile_fully):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with effort.at_most("little"):
        assert effort.of("little") == effort.of("full") == {}
        assert not jax.config.read("jax_disable_most_optimizations")


def test_effort_changes_no_more_than_rounding(compile_fully):
    def begin(key):
        return jax.random.truncated_normal(key, -2.0, 2.0, (50, 40)) * jnp.sqrt(0.3)

    lowered = jax.jit(begin).lower(jax.random.key(0))
    much, little = (np.asarray(lowered.compile(how)(jax.random.key(0))) for how in (None, effort.of("little")))
    np.testing.assert_allclose(much, little, rtol=1e-5)


def test_a_profile_counts_programs_where_they_are_compiled():
    profile = Profile()
    with profile.listening():
        with profile.training("first"):
            jax.jit(lambda x: x + 1)(np.float32(1))
        twice = jax.jit(lambda x: x * 3)
        twice(np.float32(1)), twice(np.float32(2)), twice(np.zeros(3, np.float32))
    jax.jit(lambda x: x - 1)(np.float32(1))
    found = profile.summary()
    assert {stage: one["programs"] for stage, one in found["stages"].items()} == {"first": 1, OUTSIDE: 2}


def test_the_table_tells_steps_a_second_without_compilation():
    phases = {"tracing": 1.0, "lowering": 0.5, "compiling": 2.5}
    stages = {"first": phases | {"programs": 3, "cached": 1}, OUTSIDE: phases | {"programs": 2, "cached": 0}}
    trained = {"first": {"seconds": 10.0, "members": 3, "steps": 200}}
    shown = table({"seconds": 15.0, "stages": trained, "compilation": {"stages": stages}})
    name, seconds, *_, programs, cached, rate = (list(column.cells) for column in shown.columns)
    assert (name, seconds) == (["first", OUTSIDE], ["10.0", "5.0"])
    assert (programs, cached, rate) == (["3", "2"], ["1", "0"], ["100", ""])
