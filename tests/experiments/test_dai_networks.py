import dataclasses
import json

import jax
import numpy as np
import pytest

from experiments.dai.analysis import Analysis
from experiments.dai.common import RANDOM, Network, network
from experiments.dai.networks import every_network, load_networks, one_network, source_digest
from icl_lab.lab import records
from icl_lab.lab.flags import FlagError
from icl_lab.lab.record import flat
from icl_lab.lab.trainings import Fits

SIZES = Network(members=2, layers=1, heads=2, width=4, demonstrations=3)


@pytest.fixture
def folder(tmp_path):
    """A run of pretrain with two networks of rotary positions."""
    config = dataclasses.asdict(SIZES) | {"positions": ["rotary"], "first": 0}
    shapes = jax.eval_shape(network(SIZES, "rotary").init, jax.random.key(0), np.zeros(1, np.int32))["params"]
    drawn = load_networks(RANDOM, "rotary", 2)
    weights = {name: np.random.default_rng(0).normal(size=(2, *s.shape)) for name, s in shapes.items()}
    arrays = flat({"language": vars(drawn.languages), "task": vars(drawn.tasks)})
    params = flat({"rotary": {"params": weights}})
    records.save(records.Record("dai.pretrain", "lab", config, {}, arrays, params=params), tmp_path, [])
    return tmp_path


def test_the_first_networks_of_a_run_with_what_they_were_trained_on(folder):
    stored = records.load(folder)
    w_k, labels, words = stored.params["rotary/params/w_k"], stored["task/labels"], stored["language/words"]
    found = load_networks(str(folder), "rotary", 1)
    assert (found.module.layers, found.module.width, found.module.rotary) == (1, 4, SIZES.rotary_base)
    assert found.demonstrations == 3
    np.testing.assert_array_equal(found.params["params"]["w_k"], w_k[:1])
    np.testing.assert_array_equal(found.tasks.labels, labels[:1])
    second = one_network(load_networks(str(folder), "rotary", 2), 1)
    np.testing.assert_array_equal(second.params["params"]["w_k"], w_k[1])
    np.testing.assert_array_equal(second.languages.words, words[1])
    logits, _ = jax.jit(second.module.apply)(second.params, np.arange(5))
    assert np.isfinite(logits).all()


def refused(folder, positions="rotary", members=1):
    with pytest.raises(FlagError) as error:
        load_networks(str(folder), positions, members)
    message = str(error.value)
    assert f"--networks={folder}" in message
    assert "experiments.dai.pretrain" in message
    return message


def test_what_a_run_does_not_have_is_refused(folder, tmp_path):
    assert "rotary" in refused(folder, positions="learned")
    assert "networks 0 to 2 of rotary positions; it has 0 to 1" in refused(folder, members=3)
    assert "--preset=lab --members=2 --layers=1" in refused(folder, members=3)  # more of its kind
    with pytest.raises(FlagError, match="networks 2 to 2 of rotary positions; it has 0 to 1"):
        load_networks(str(folder), "rotary", 1, first=2)
    refused(tmp_path / "nothing")
    whole = (folder / "params.npz").read_bytes()
    (folder / "params.npz").write_bytes(whole[:-1])
    assert "differs from the digest" in refused(folder)
    (folder / "params.npz").unlink()
    assert "kept its final parameters" in refused(folder)


def test_a_run_of_another_binary_is_refused(folder):
    content = records.load(folder)
    records.save(dataclasses.replace(content, experiment="dai.layers"), folder, [])
    assert "dai.layers" in refused(folder)


def test_the_digest_is_that_of_the_networks(folder):
    before = source_digest(str(folder))
    assert before == json.loads((folder / "record.json").read_text())["params"]
    (folder / "params.npz").write_bytes(b"others")
    assert source_digest(str(folder)) != before


def test_networks_by_their_numbers_are_those_of_the_whole(folder):
    def found(**networks):
        config = Analysis(networks=str(folder), positions=("rotary",), demonstrations=3, **networks)
        return list(every_network(config, Fits({}, pytest.fail), 5))

    (_, key, whole), (_, own, alone) = found(members=2)[1], found(first=1, members=1)[0]
    assert jax.random.key_data(key).tolist() == jax.random.key_data(own).tolist()
    jax.tree.map(np.testing.assert_array_equal, (whole[1:], whole.params), (alone[1:], alone.params))
