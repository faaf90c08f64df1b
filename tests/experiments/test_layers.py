"""``identification.layers``: what is read of layers that are built as gradient descent."""

import jax
import jax.numpy as jnp
import numpy as np

from experiments.identification import layers as binary
from experiments.identification.layers import after_each, backwards, flat, read_out, streams
from experiments.identification.networks import sampler_of
from experiments.von_oswald import multi_step
from experiments.von_oswald.common import constructed
from icl_lab.identify import battery, fingerprint, in_units
from icl_lab.lab.flags import to_json
from icl_lab.models import GPT, learner
from icl_lab.prompts import linear_regression
from icl_lab.prompts.layouts import alternating_layout


def test_layers_built_as_gradient_descent_are_read_as_it():
    of = multi_step.PRESETS["lab"]
    config = binary.Config(members=1)
    rates = np.array([0.3, 0.6, 0.2, 0.5, 0.4])
    built = jax.tree.map(np.asarray, constructed(of, rates))
    n, d = of.context_length, of.input_size
    units, _, _ = battery(sampler_of(to_json(of)), n, d, 0)
    for j, (member, _, turned) in enumerate(after_each(config, of, "free_5", [built]), 1):
        for one, order in ((member, rates), (turned, rates[::-1])):
            found = fingerprint(in_units(flat(one), units), units, n, d, 0)
            exact = np.prod([1 - rate * units.eigenvalue * found["grid"] for rate in order[:j]], axis=0)
            np.testing.assert_allclose(found["r"], exact, atol=2e-4 * np.abs(exact).max())


def gpt(layers=2):
    network = GPT(layers, 2, 8, positions=11, spread=0.4)
    params = network.init(jax.random.key(0), jnp.zeros((1, 3)))
    return network, params, linear_regression(context_length=4, input_size=3)(jax.random.key(1), 6)


def test_the_stream_behind_the_last_layer_is_what_gpt_2_reads():
    network, params, samples = gpt()
    stream, weights = streams(network, params, samples), params["params"]
    assert stream.shape == (3, 6, 8)
    said = jax.vmap(learner(network, params, alternating_layout()))(samples.prompt)
    np.testing.assert_allclose(stream[-1] @ weights["read_out"], said, atol=1e-5)  # the bias starts at 0


def test_layers_in_the_opposite_order_are_those_of_the_same_network():
    network, params, samples = gpt()
    there = streams(network, backwards(params), samples)
    np.testing.assert_array_equal(there[0], streams(network, params, samples)[0])  # what stands before layers stays
    assert np.abs(there[-1] - streams(network, params, samples)[-1]).max() > 0.01
    jax.tree.map(np.testing.assert_array_equal, backwards(backwards(params)), params)


def test_a_read_out_knows_what_is_linear_in_the_stream_and_nothing_else():
    rng = np.random.default_rng(0)
    stream, other = rng.normal(size=(2, 4000, 8))
    assert read_out(stream, stream @ np.arange(8.0) + 3) < 1e-20
    assert 0.9 < read_out(other, rng.normal(size=4000)) < 1.1
    half = stream[:, 0] + rng.normal(size=4000)  # half of the variance is in the stream
    assert abs(read_out(stream, half) - 0.5) < 0.05
