"""Embedding, LayerNorm and one attention a layer: what these blocks of the stack are, by themselves."""

import jax
import jax.numpy as jnp
import numpy as np

from icl_lab.models import LinearSelfAttention, Transformer

TOKENS = jnp.asarray(np.random.default_rng(0).normal(size=(5, 4)), jnp.float32)


def start(network, tokens=TOKENS, spread=0.3):
    """Parameters far enough from the initialisation that every block acts."""
    params, draw = jax.jit(network.init)(jax.random.key(1), tokens), np.random.default_rng(2)
    return jax.tree.map(lambda leaf: np.asarray(leaf) + spread * draw.normal(size=leaf.shape).astype("f"), params)


def applied(network, params, tokens=TOKENS):
    return jax.jit(network.apply)(params, tokens)


def test_what_a_normalised_layer_adds_does_not_depend_on_the_scale_of_its_tokens():
    network = LinearSelfAttention(layers=1, looped=True, layer_norm=True)
    params = start(network)
    added = [applied(network, params, scale * TOKENS)[0] - scale * TOKENS for scale in (1.0, 7.0)]
    np.testing.assert_allclose(added[0], added[1], rtol=2e-3, atol=2e-3)
    assert np.abs(added[0]).max() > 0.1


def test_looped_stacks_have_one_norm_and_free_ones_none_before_the_first_layer():
    shapes = {
        layers: jax.eval_shape(
            LinearSelfAttention(layers=layers, looped=looped, layer_norm=True).init, jax.random.key(0), TOKENS
        )["params"]["norm_scale"].shape
        for layers, looped in ((3, True), (4, False))
    }
    assert shapes == {3: (1, 4), 4: (3, 4)}
    free = LinearSelfAttention(layers=2, layer_norm=True)
    params = start(free)
    first = {"params": {k: v[:1] for k, v in params["params"].items() if k.startswith("w_")}}
    plain, _ = applied(LinearSelfAttention(layers=1), first)
    np.testing.assert_allclose(applied(free, params)[1].residual[1], plain, rtol=1e-5)


def test_each_layer_has_its_own_attention():
    network = Transformer(layers=2, attention=("softmax", "linear"))
    params = start(network)
    patterns = applied(network, params)[1].attention
    sums = patterns.sum(axis=-1)
    np.testing.assert_allclose(sums[0], 1, rtol=1e-5)
    assert np.abs(sums[1] - 1).max() > 0.1


def test_the_residual_stream_starts_behind_the_embedding():
    network = LinearSelfAttention(layers=1, looped=True, embedding=7, embedding_mlp=9)
    params = start(network)
    p = params["params"]
    out, trace = applied(network, params)
    embedded = TOKENS @ p["embedding"]
    hidden = jax.nn.gelu(embedded @ p["embedding_mlp_in"] + p["embedding_mlp_in_bias"][None])
    expected = embedded + hidden @ p["embedding_mlp_out"] + p["embedding_mlp_out_bias"][None]
    np.testing.assert_allclose(trace.residual[0], expected, rtol=1e-5, atol=1e-6)
    assert out.shape == (5, 7)
    assert p["w_q"].shape == (1, 1, 7, 7)
