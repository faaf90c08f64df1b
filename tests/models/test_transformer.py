import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from linear_tasks import linear_tasks

from icl_lab.constructions import gd_plus_plus_weights, gradient_descent_weights
from icl_lab.models import (
    Intervention,
    LinearSelfAttention,
    Transformer,
    folded_weights,
    learner,
    traced,
)
from icl_lab.models.attention import ATTENTIONS, Attention, linear_pattern, softmax_pattern
from icl_lab.prompts import Prompt
from icl_lab.prompts.layouts import joint_layout
from icl_lab.solvers import gd_plus_plus, gradient_descent

KEY = jax.random.key(7)
# these tests are mostly compilation: one program for all operations of a test, compiled without optimisation
SIZES = {"n": st.integers(1, 9), "d": st.integers(1, 6), "o": st.integers(1, 3), "depth": st.integers(1, 4)}


def both(one, other, samples):
    """Predictions (S, O) of two learners, given as functions that make them, for the same prompts."""
    return jax.jit(lambda prompts: (jax.vmap(one())(prompts), jax.vmap(other())(prompts)))(samples.prompt)


def close(a, b, scale=1e-10):
    np.testing.assert_allclose(a, b, rtol=0, atol=scale * (1 + np.abs(np.asarray(b)).max()))


@pytest.mark.parametrize("looped", [False, True])
@settings(max_examples=7)  # each compiles its own programs
@given(**SIZES)
def test_constructed_network_is_gradient_descent(looped, n, d, o, depth):
    with jax.enable_x64(True):
        samples = linear_tasks(n, d, o)
        w0 = jax.random.normal(jax.random.fold_in(KEY, 1), (d, o))
        rates = 0.7 if looped else jnp.linspace(0.2, 1.0, depth)

        def network():
            weights = gradient_descent_weights(rates, context_length=n, input_size=d, output_size=o, w0=w0)
            return learner(LinearSelfAttention(layers=depth, looped=looped), weights, joint_layout(w0))

        close(*both(network, lambda: gradient_descent(rates, depth, w0), samples))


@settings(max_examples=7)  # each compiles its own programs
@given(**SIZES)
def test_constructed_network_is_gd_plus_plus(n, d, o, depth):
    with jax.enable_x64(True):
        samples = linear_tasks(n, d, o)
        rates, gammas = jnp.linspace(0.2, 1.0, depth), jnp.linspace(0.1, 0.02, depth)

        def network():
            weights = gd_plus_plus_weights(rates, gammas, context_length=n, input_size=d, output_size=o)
            return learner(LinearSelfAttention(layers=depth), weights)

        close(*both(network, lambda: gd_plus_plus(rates, gammas), samples))


@pytest.mark.parametrize("options", [{"layers": 1, "looped": True}, {"layers": 3}, {"layers": 3, "looped": True}])
def test_constructed_weights_are_the_pytree_of_init(options):
    network = LinearSelfAttention(**options)
    learned = jax.eval_shape(network.init, KEY, jnp.zeros((6, 4)))
    sets = 1 if network.looped else network.layers
    built = gd_plus_plus_weights(jnp.ones(sets), 0.1, context_length=5, input_size=3)
    assert jax.tree.map(jnp.shape, learned) == jax.tree.map(jnp.shape, built)
    assert jax.tree.map(lambda leaf: leaf.dtype, learned) == jax.tree.map(lambda leaf: leaf.dtype, built)


def test_initialisation_has_the_published_spread():
    # VarianceScaling(0.002 / layers, fan_in): fan_in is E for q, k, v and H K for the projection.
    network = LinearSelfAttention(layers=2, looped=True, heads=4, key_size=50, init_scale=0.002)
    params = jax.jit(network.init)(KEY, jnp.zeros((6, 40)))["params"]
    for name, fan_in in (("w_q", 40), ("w_k", 40), ("w_v", 40), ("w_p", 200)):
        assert params[name].std() == pytest.approx(np.sqrt(0.001 / fan_in), rel=0.03), name
    assert not np.allclose(params["w_q"], params["w_k"])


def random_params(network, n, d):
    rng, shapes = np.random.default_rng(7), jax.eval_shape(network.init, KEY, jnp.zeros((n + 1, d + 1)))
    return jax.tree.map(lambda leaf: (0.4 * rng.normal(size=leaf.shape)).astype(leaf.dtype), shapes)


@pytest.mark.parametrize("attention", ["linear", "softmax"])
@settings(max_examples=5)
@given(n=st.integers(2, 8), depth=st.integers(1, 3))
def test_prediction_does_not_depend_on_the_order_of_the_context(attention, n, depth):
    with jax.enable_x64(True):
        network = Transformer(layers=depth, heads=2, attention=attention, mlp_width=3)
        params, samples = random_params(network, n, 3), linear_tasks(n, 3)
        order = np.random.default_rng(3).permutation(n)

        def of_both_orders(prompts):
            shuffled = prompts.replace(x=prompts.x[:, order], y=prompts.y[:, order])
            return [jax.vmap(learner(network, params))(p) for p in (shuffled, prompts)]

        close(*jax.jit(of_both_orders)(samples.prompt))


def test_query_is_not_among_the_keys():
    # the context's tokens must not feel the query: their gradient with respect to it is exactly zero
    network = Transformer(layers=2, attention="softmax")
    params = random_params(network, 4, 3)
    prompt = jax.tree.map(lambda leaf: leaf[0], linear_tasks(4, 3).prompt)

    def context_after(x_query):
        _, trace = traced(network, params)(prompt.replace(x_query=x_query))
        return trace.residual[:, :-1]

    assert not np.any(jax.jit(jax.jacobian(context_after))(prompt.x_query))
    assert np.any(jax.jit(jax.jacobian(learner(network, params)))(prompt).x_query)


def test_softmax_pattern_is_scaled_and_normalised():
    q, k = jnp.array([[2.0, 0.0, 0.0, 0.0]]), jnp.array([[1.0, 0, 0, 0], [0.0, 1, 0, 0]])
    np.testing.assert_allclose(softmax_pattern(q, k), [[np.e / (1 + np.e), 1 / (1 + np.e)]], rtol=1e-6)


def test_a_share_of_attention_is_kept_only_where_rows_sum_to_one(monkeypatch):
    monkeypatch.setitem(ATTENTIONS, "cubed", Attention(lambda q, k: linear_pattern(q, k) ** 3))
    share = Intervention(share=jnp.ones((1, 1, 5, 1)), group=jnp.ones((1, 1, 5, 4), bool))
    for kind in ("linear", "cubed"):
        network = Transformer(attention=kind)
        with pytest.raises(ValueError, match=f"rows sum to one, which is not so of '{kind}'"):
            jax.eval_shape(lambda key, network=network: network.init(key, jnp.zeros((5, 4)), share), KEY)


def test_folded_weights_agree_between_parametrisations():
    separate = LinearSelfAttention(layers=2, heads=2)
    params = random_params(separate, 4, 3)
    a, b = folded_weights(params)
    merged = LinearSelfAttention(layers=2, heads=2, parametrisation="merged")
    prompts = linear_tasks(4, 3).prompt
    one = jax.jit(jax.vmap(learner(separate, params)))(prompts)
    other = jax.jit(jax.vmap(learner(merged, {"params": {"w_kq": a, "w_pv": b}})))(prompts)
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": 0}, "layers must be an int of at least 1, got 0"),
        ({"heads": 0}, "heads must be at least 1, got 0"),
        ({"layers": "2"}, "layers must be an int of at least 1, got '2'"),
        ({"attention": "cosine"}, "attention must be one of"),
        ({"parametrisation": "joint"}, "parametrisation must be"),
        ({"averaged": True, "attention": "softmax"}, "softmax attention averages already"),
        ({"token_clip": -1.0}, "token_clip"),
        ({"updated_channels": 5}, "updated_channels"),
        ({"embedding": 3, "updated_channels": 4}, "updated_channels"),
        ({"embedding": -1}, "embedding"),
        ({"embedding_mlp": -1}, "embedding_mlp"),
        ({"layer_norm": True}, "layer_norm"),
        ({"key_size": 0}, "key_size must be at least 1, got 0"),
        ({"layers": 2, "attention": ("softmax",)}, "attention"),
        ({"layers": 2, "attention": ("softmax", "linear"), "looped": True}, "looped"),
        ({"layers": 2, "heads": (1, 2), "looped": True}, "a looped stack has one set of weights"),
        ({"layers": 2, "heads": (1, 2, 3)}, r"heads must be 2 numbers \(one a layer\) of at least 1, got \(1, 2, 3\)"),
        ({"layers": 2, "mlp_width": (4, -1)}, r"mlp_width must be 2 numbers \(one a layer\) of at least 0"),
    ],
)
def test_settings_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Transformer(**options).init(KEY, jnp.zeros((5, 4)))


@pytest.mark.parametrize("attention", ["linear", "softmax"])
def test_without_examples_attention_adds_nothing(attention):
    prompt = Prompt(x=jnp.ones((0, 3)), y=jnp.ones((0, 1)), x_query=jnp.ones(3))
    network = Transformer(layers=2, attention=attention, init_scale=1.0)
    prediction, trace = traced(network, network.init(KEY, jnp.zeros((4, 4))))(prompt)
    assert not np.any(prediction)
    assert trace.attention.shape == (2, 1, 1, 0)
