"""Networks of finished runs: which prompts they are asked, and how often a token clip acts."""

from pathlib import Path

import jax
import numpy as np
import pytest

from experiments.identification import of
from experiments.identification.networks import clipped, of_stage, sampler_of
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
