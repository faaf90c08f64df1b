"""Networks of finished runs: which prompts they are asked, and how often a token clip acts."""

from pathlib import Path

import jax
import numpy as np
import pytest
from stranger_learners import gained, linear, ridge_weights

from experiments.identification import of
from experiments.identification.networks import (
    clipped,
    held_back_losses,
    of_stage,
    sampler_of,
)
from experiments.identification.von_oswald import NAMES, arrays_of
from icl_lab.identify import FAMILIES, Identified, Member, identify
from icl_lab.identify.decision import asymmetry_by_chance
from icl_lab.lab import load_run

GALLERY = Path(__file__).parents[2] / "figures"
CONFIG = {"context_length": 7, "input_size": 3, "input_range": 2.0}


def test_the_sizes_of_a_training_are_those_of_the_configuration():
    config = CONFIG | {"lengths": [25], "sizes": [2]}
    assert of_stage(config, "training") == config
    assert of_stage(config, "length_25") == config | {"context_length": 25}
    assert of_stage(config, "size_2") == config | {"input_size": 2, "context_length": 2}
    assert of_stage(config, "onset_2048") == config
    assert of_stage(CONFIG, "length_25") == CONFIG  # of another binary: no size is read off a name
    assert of_stage({"context_length": 7, "spectrum": [2.0, 1.0]}, "training")["input_size"] == 2


def test_prompts_are_those_of_the_configuration():
    x = np.asarray(sampler_of(CONFIG)(jax.random.key(0), 4000).prompt.x)
    assert x.shape == (4000, 7, 3)
    assert 0.99 < np.abs(x).max() <= 1
    x = np.asarray(sampler_of({"context_length": 7, "spectrum": [4.0, 1.0]})(jax.random.key(0), 4000).prompt.x)
    np.testing.assert_allclose(x.std((0, 1)), [2, 1], rtol=0.02)
    for config in ({"vocabulary": 5}, CONFIG | {"laws": ["uniform"]}):
        with pytest.raises(ValueError, match="identify needs prompts of linear regression"):
            sampler_of(config)


def test_a_token_clip_acts_more_often_on_larger_inputs_and_none_where_there_is_none():
    run = load_run(GALLERY / "von_oswald" / "multi_step" / "lab")
    shares = [share.mean() for share in clipped(run, "free_5", members=1).values()]
    assert shares == sorted(shares)
    assert shares[0] < 0.05
    assert shares[-1] > 0.9
    assert clipped(run, "looped_2", members=1) == {}


def test_the_command_says_what_is_refused(capsys):
    folder = GALLERY / "von_oswald" / "weight_maps" / "lab"
    assert of.main(["of", f"--run={folder}", "--stage=looped_2"]) == 2
    assert "looped_2" in capsys.readouterr().err
    assert of.main(["of", "--run=nowhere"]) == 2
    assert "allowed is the folder of a finished run" in capsys.readouterr().err


def test_random_layers_are_seldom_as_symmetric_as_chance_allows():
    for size in (2, 5):
        a = np.random.default_rng(0).normal(size=(40_000, size, size))
        asymmetry = np.sqrt(1 - np.trace(a, axis1=1, axis2=2) ** 2 / size / (a**2).sum((1, 2)))
        assert abs((asymmetry < asymmetry_by_chance(size)).mean() - 0.01) < 0.002


def test_what_identify_measures_of_one_layer_is_the_asymmetry_of_its_weights():
    a = np.eye(3) + np.random.default_rng(1).normal(size=(3, 3))
    layer = lambda x, y, q: (y.swapaxes(1, 2) @ x @ a @ q[:, :, None])[:, 0] / x.shape[1]  # noqa: E731
    row = identify(layer, context_length=8, input_size=3, families={"zero": FAMILIES["zero"]}).members[0]
    assert abs(row.asymmetry - np.sqrt(1 - np.trace(a) ** 2 / 3 / (a**2).sum())) < 0.05


def test_a_record_keeps_the_set_of_steps_and_counts_no_family_that_only_contains_the_name():
    common = {"verdict": "identified", "residual": 0.0, "asymmetry": 0.0, "noise": 0.0, "stability": 0.02}
    rows = [
        Member(family="GD", equals=("GD", "GD++"), steps=(3, 4), intervals={"learning_rate": (1.0, 2.0)}, **common),
        Member(family="least squares", equals=("least squares", "ridge"), gain=0.98, **common),
    ]
    grid = np.zeros((2, 4))
    kept = arrays_of(Identified("mixed", None, rows, {}, (grid[0], grid, grid), None, {}))
    assert kept["steps"].tolist() == [3, 0]
    assert kept["steps_most"].tolist() == [4, 0]
    assert [[NAMES[k] for k in np.flatnonzero(row)] for row in kept["equals"]] == [["GD"], ["least squares"]]
    assert kept["stability"].tolist() == [0.02, 0.02]
    np.testing.assert_array_equal(kept["gain"], [np.nan, 0.98])


def test_the_gain_of_a_name_is_in_the_loss_that_it_predicts():
    shrunk, ridge = gained(linear(ridge_weights(2.0)), 1.02), {"ridge": FAMILIES["ridge"]}
    found = identify(shrunk, context_length=7, input_size=3, sampler=sampler_of(CONFIG), families=ridge)
    losses = held_back_losses(found, [shrunk], CONFIG, 0)
    np.testing.assert_allclose(losses["by_algorithm"], losses["loss"], atol=1e-6)
