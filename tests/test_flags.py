import dataclasses
import importlib
import json

import jax
import numpy as np
import pytest
from absl import flags as absl_flags
from hypothesis import given
from hypothesis import strategies as st

from experiments.binaries import discover
from icl_lab.lab import command_line, flags
from icl_lab.lab.experiment import PRESETS
from icl_lab.lab.flags import FlagError, arguments, setting
from icl_lab.lab.trainings import Fits
from icl_lab.training.fitting import member

BINARIES = discover()


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = setting(0, "seed", at_least=0)
    members: int = setting(3, "members", at_least=1)
    rate: float = setting(0.5, "rate", above=0, at_most=2)
    shift: float = setting(0.0, "any number")
    law: str = setting("uniform", "law", choices=("uniform", "normal"))
    looped: bool = setting(True, "looped")
    sizes: tuple[int, ...] = setting((2, 3), "sizes", at_least=2)
    scales: tuple[float, ...] = setting((0.5,), "scales", above=0)
    networks: tuple[str, ...] = setting(("a", "b"), "networks", choices=("a", "b", "c"))


configs = st.builds(
    Config,
    seed=st.integers(min_value=0),
    members=st.integers(min_value=1),
    rate=st.floats(0, 2, exclude_min=True),
    shift=st.floats(allow_nan=False, allow_infinity=False),
    law=st.sampled_from(["uniform", "normal"]),
    looped=st.booleans(),
    sizes=st.lists(st.integers(min_value=2), min_size=1).map(tuple),
    scales=st.lists(st.floats(0, exclude_min=True, allow_infinity=False), min_size=1).map(tuple),
    networks=st.lists(st.sampled_from("abc"), min_size=1).map(tuple),
)


def parse(preset, words):
    values = absl_flags.FlagValues()
    flags.define(type(preset), values)
    values(["binary", *words])
    return flags.parse(preset, values)


@given(configs)
def test_flags_round_trip(config):
    assert parse(Config(), flags.to_flags(config)) == config
    assert flags.from_json(Config, json.loads(json.dumps(flags.to_json(config)))) == config


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("binary", BINARIES)
def test_every_preset_round_trips(binary, preset):
    presets = BINARIES[binary].presets
    config, other = presets[preset], presets["smoke" if preset != "smoke" else "paper"]
    BINARIES[binary].validate(config)
    parsed = parse(other, flags.to_flags(config))
    assert parsed == config
    assert json.dumps(flags.to_json(parsed)) == json.dumps(flags.to_json(config))  # 1 and 1.0 name different folders
    assert flags.from_json(type(config), flags.to_json(config)) == config


@pytest.mark.parametrize("binary", BINARIES)
def test_every_flag_says_what_it_is_and_what_is_allowed(binary):
    config = BINARIES[binary].presets["paper"]
    assert set(BINARIES[binary].presets) == set(PRESETS)
    for field in dataclasses.fields(config):
        assert field.metadata["about"]
        assert flags.allowed(field)
        assert field.default == getattr(config, field.name)  # defaults are the paper's setting


def test_only_given_flags_change_the_preset():
    preset = Config(members=9, sizes=(4,))
    assert parse(preset, []) == preset
    assert parse(preset, ["--rate=1", "--nolooped"]) == dataclasses.replace(preset, rate=1.0, looped=False)


BAD = {
    "--members=0": "--members=0: allowed is whole number >= 1",
    "--members=2.5": "--members=2.5: allowed is whole number >= 1",
    "--members=": "--members=: allowed is whole number >= 1",
    "--rate=0": "--rate=0.0: allowed is number > 0 and <= 2",
    "--rate=2.1": "--rate=2.1: allowed is number > 0 and <= 2",
    "--rate=nan": "--rate=nan: allowed is number",
    "--rate=x": "--rate=x: allowed is number",
    "--shift=inf": "--shift=inf: allowed is number",
    "--shift=-nan": "--shift=nan: allowed is number",
    "--law=cauchy": "--law=cauchy: allowed is one of uniform, normal",
    "--sizes=2,1": "--sizes=1: allowed is comma-separated, each: whole number >= 2",
    "--sizes=2,x": "--sizes=x: allowed is comma-separated, each: whole number >= 2",
    "--sizes=": "at least one value; allowed: comma-separated, each: whole number >= 2",
    "--scales=1,inf": "--scales=inf: allowed is comma-separated, each: number > 0",
    "--networks=a,d": "--networks=d: allowed is comma-separated, each: one of a, b, c",
}


@pytest.mark.parametrize("word", BAD)
def test_a_bad_value_is_named_with_what_is_allowed(word):
    with pytest.raises(FlagError) as refusal:
        parse(Config(), [word])
    assert BAD[word] in str(refusal.value)


WRONG_TYPES = {"members": [True, 1.5, "3", None, (3,)], "sizes": [(), [2], 2, (2, True)]}


@pytest.mark.parametrize(("name", "value"), [(name, one) for name, values in WRONG_TYPES.items() for one in values])
def test_a_configuration_with_another_type_is_refused(name, value):
    with pytest.raises(FlagError, match=f"--{name}="):
        flags.validate(dataclasses.replace(Config(), **{name: value}))


def test_a_whole_number_is_a_number():
    flags.validate(Config(rate=1, scales=(1, 2), seed=10**400))


BAD_COMMANDS = [
    ("von_oswald.one_step", ["--members=0"], ["--members=0", ">= 1"]),
    ("von_oswald.one_step", ["--batch=-5"], ["--batch=-5", ">= 1"]),
    ("von_oswald.one_step", ["--seed=-1"], ["--seed=-1", ">= 0"]),
    ("von_oswald.one_step", ["--learning_rate=nan"], ["--learning_rate=nan", "> 0"]),
    ("von_oswald.one_step", ["--steps=30", "--measure_every=20"], ["--steps=30", "multiple of --measure_every=20"]),
    ("von_oswald.one_step", ["--preset=huge"], ["--preset=huge", "one of smoke, quick, lab, paper"]),
    ("von_oswald.one_step", ["--memebrs=3"], ["memebrs", "Did you mean", "members"]),
    ("von_oswald.one_step", ["--checkpoint_seconds=-1"], ["--checkpoint_seconds=-1"]),
    ("von_oswald.one_step", ["--checkpoint_seconds=nan"], ["--checkpoint_seconds=nan", ">= 0"]),
    ("von_oswald.one_step", ["--overwrite=maybe"], ["--overwrite=maybe"]),
    ("von_oswald.one_step", ["smoke"], ["unexpected argument 'smoke'", "--name=value"]),
    ("von_oswald.multi_step", ["--heads=1,2,3,4,5,6,7"], ["--heads", "7", "one for each of --networks"]),
    ("von_oswald.multi_step", ["--preset=smoke", "--networks=free_0,looped_2"], ["free_0", "looped_K or free_K"]),
    ("von_oswald.multi_step", ["--preset=smoke", "--steps=20,21"], ["--steps=20,21", "multiple"]),
]


@pytest.mark.parametrize(("binary", "words", "named"), BAD_COMMANDS)
def test_a_bad_command_is_refused_before_anything_is_written(tmp_path, monkeypatch, capsys, binary, words, named):
    monkeypatch.chdir(tmp_path)
    assert command_line.main(BINARIES[binary], ["binary", f"--outdir={tmp_path / 'run'}", *words]) == 2
    message = capsys.readouterr().err
    assert all(part in message for part in (*named, "--help")), message
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("outdir", ["file", "file/below", "file/far/below", "x" * 300])
def test_an_outdir_that_cannot_be_is_refused(tmp_path, monkeypatch, capsys, outdir):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("kept")
    assert command_line.main(BINARIES["von_oswald.one_step"], ["binary", "--preset=smoke", f"--outdir={outdir}"]) == 2
    assert outdir in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "kept"


@dataclasses.dataclass(frozen=True)
class Physics:
    rate: float = setting(0.1, "a rate", above=0)
    noise: float = setting(0.0, "a noise", at_least=0)
    decay: float = setting(0.9, "a constant", argument=False)
    size: int = setting(3, "a size", at_least=1)
    scales: tuple[float, ...] = setting((1.0, 2.0), "a list")


def test_real_numbers_are_arguments_of_a_program():
    """Another rate is the same program; a noise that is switched on is another one, once."""
    traces = []

    @jax.jit
    def program(config):
        traces.append(config)
        return config.rate * config.size * config.decay + (config.noise if isinstance(config.noise, jax.Array) else 0)

    values = [program(arguments(Physics(rate=rate), 2)) for rate in (0.1, 0.2, 0.3)]
    np.testing.assert_allclose(values, 2.7 * np.array([[0.1] * 2, [0.2] * 2, [0.3] * 2]), rtol=1e-6)
    assert len(traces) == 1
    assert (traces[0].noise, traces[0].decay, traces[0].size, traces[0].scales) == (0.0, 0.9, 3, (1.0, 2.0))
    noisy = [program(arguments(Physics(noise=noise), 2)) for noise in (0.5, 0.7)]
    np.testing.assert_allclose(noisy, 0.27 + np.array([[0.5] * 2, [0.7] * 2]), rtol=1e-6)
    assert len(traces) == 2
    program(arguments(Physics(size=4), 2))
    assert len(traces) == 3


@pytest.mark.parametrize(
    ("binary", "changes"),
    [
        ("von_oswald.one_step", {"learning_rate": 0.07, "gradient_clip": 0.3, "input_range": 1.7}),
        ("zhang_frei_bartlett.risk", {"learning_rate": 0.07}),
        ("reddy.transition", {"learning_rate": 0.07, "shrink": 1e-3}),
        ("dai.momentum_regression", {"learning_rate": 0.07, "gradient_clip": 0.3}),
    ],
)
def test_a_binary_trains_at_another_rate_by_the_same_program(binary, changes):
    def first_program(config):
        class Found(Exception):  # noqa: N818
            pass

        def fit(stage, training):
            one, of = member(training.init, training.loss, training.optimizer), (training.keys, training.settings)
            state = jax.eval_shape(jax.vmap(one.begin), *of)
            raise Found(jax.jit(jax.vmap(one.step)).lower(state, *of).as_text())

        with pytest.raises(Found) as found:
            experiment.carried_out(config, Fits(experiment.trainings(config), fit))
        return str(found.value)

    experiment = importlib.import_module(f"experiments.{binary}").EXPERIMENT
    smoke = experiment.presets["smoke"]
    assert all(getattr(smoke, name) != value for name, value in changes.items())
    assert first_program(smoke) == first_program(dataclasses.replace(smoke, **changes))


@dataclasses.dataclass(frozen=True)
class Bare:
    seed: int = 0


Named = dataclasses.make_dataclass("Named", [("seed", "int", setting(0, "seed"))], frozen=True)


@pytest.mark.parametrize(
    ("config_class", "message"),
    [
        (Bare, r"Bare\.seed must be a setting"),
        (Named, "must have a type, not its name"),
        (dataclasses.make_dataclass("Other", [], bases=(), frozen=True), "no field members"),
    ],
)
def test_a_class_of_which_no_flags_can_be_made_is_refused(config_class, message):
    with pytest.raises(ValueError, match=message):
        flags.check_class(config_class, needed=("members",))
