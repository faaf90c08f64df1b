"""The form that training uses against ``vmap`` of the plain form: values, gradients, sensitivities."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icl_lab.fast import batch_learner
from icl_lab.fast.tasks_last import contract
from icl_lab.models import InductionNetwork, LinearSelfAttention, Transformer, learner
from icl_lab.models.attention import (
    ATTENTIONS,
    MAX_UNROLLED_KEYS,
    Attention,
    linear_pattern,
    softmax_of_scores,
)
from icl_lab.prompts import Prompt
from icl_lab.prompts.layouts import content_layout, joint_layout, separate_layout

KEY = jax.random.key(7)
W0 = np.linspace(-1.0, 1.0, 3)[:, None]
LAYOUTS = {
    "joint": None,
    "joint, plus": joint_layout(sign=1),
    "joint, W0": joint_layout(W0),
    "separate": separate_layout(4),
    "separate, label": separate_layout(12, positions="one_hot", readout="label"),
}

# as users compile; what the tests compile otherwise is hardly optimised (conftest.py)
fully = functools.partial(
    jax.jit, compiler_options={"xla_backend_optimization_level": 3, "xla_llvm_disable_expensive_passes": False}
)


def prompts_of(n, d, o=1, batch=4):
    """Of linear tasks; drawn by numpy, because each shape would be a program of jax."""
    rng, dtype = np.random.default_rng(7), jnp.result_type(float)
    x, x_query = rng.uniform(-2, 2, (batch, n, d)).astype(dtype), rng.uniform(-2, 2, (batch, d)).astype(dtype)
    return Prompt(x=x, y=x @ rng.normal(size=(batch, d, o)).astype(dtype), x_query=x_query)


def random_params(network, prompts, layout=None, size=0.4, seed=7):
    tokens = jax.eval_shape(jax.vmap((layout or joint_layout()).encode), prompts)
    one = jax.ShapeDtypeStruct(tokens.shape[1:], tokens.dtype)
    rng, shapes = np.random.default_rng(seed), jax.eval_shape(network.init, KEY, one)
    return jax.tree.map(lambda leaf: (size * rng.normal(size=leaf.shape)).astype(tokens.dtype), shapes)


def both_forms(network, prompts, layout=None):
    """Predictions with their gradients by weights and queries, plain and batched, as functions of the weights."""
    weighting = jnp.linspace(-1, 1, len(prompts.x))[:, None]

    def evaluated(predict):
        def weighted(params, x_query):
            found = predict(params, prompts.replace(x_query=x_query))
            return jnp.sum(weighting * found), found

        return lambda params: jax.grad(weighted, argnums=(0, 1), has_aux=True)(params, prompts.x_query)

    plain = evaluated(lambda params, p: jax.vmap(learner(network, params, layout))(p))
    return plain, evaluated(lambda params, p: batch_learner(network, params, layout)(p))


def assert_equal(found, expected, rounding=1e-10):
    """Arrays of two pytrees equal to rounding, relative to the largest entry of each."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
        np.testing.assert_allclose(a, b, rtol=0, atol=rounding * (1 + np.abs(b).max()))


@st.composite
def networks(draw):
    layers, looped = draw(st.integers(1, 2)), draw(st.booleans())
    averaged = draw(st.booleans())
    kinds = st.sampled_from(["linear"] if averaged else ["linear", "softmax"])
    return Transformer(
        layers=layers,
        looped=looped,
        heads=draw(st.integers(1, 2)),
        key_size=draw(st.sampled_from([None, 2, 5])),
        attention=draw(kinds if looped else st.tuples(*[kinds] * layers)),
        parametrisation=draw(st.sampled_from(["separate", "merged", "key_query"])),
        query_as_key=draw(st.booleans()),
        averaged=averaged,
        embedding=draw(st.sampled_from([0, 0, 15])),
        embedding_mlp=draw(st.sampled_from([0, 3])),
        mlp_width=draw(st.sampled_from([0, 6])),
        layer_norm=draw(st.booleans()) and (looped or layers > 1),
        token_clip=draw(st.sampled_from([0.0, 0.8])),
        damping=draw(st.sampled_from([1.0, 0.5])),
        updated_channels=draw(st.integers(0, 2)),
    )


@settings(max_examples=10)
@given(data=st.data(), batch=st.sampled_from([1, 5, 67]))
def test_any_network_in_any_layout(data, batch):
    with jax.enable_x64(True):
        name = data.draw(st.sampled_from(["joint", "joint", *LAYOUTS]))
        network, layout = data.draw(networks()), LAYOUTS[name]
        outputs = data.draw(st.integers(1, 2)) if name in ("joint", "joint, plus") else 1
        prompts = prompts_of(data.draw(st.integers(1, 5)), 3, outputs, batch)
        params = random_params(network, prompts, layout)
        plain, batched = both_forms(network, prompts, layout)
        assert_equal(jax.jit(batched)(params), jax.jit(plain)(params))


ONE_LAYER, TWO_LAYERS = {"layers": 1}, {"layers": 2, "looped": True, "heads": 2}
CLIPPED = {"layers": 3, "token_clip": 0.6}
MLP = {"layers": 3, "heads": 4, "mlp_width": 9, "token_clip": 0.6}
LAYER_NORM = {"layers": 2, "layer_norm": True}
QUERY_AS_KEY = {"query_as_key": True, "averaged": True}
SOFTMAX = {"layers": 1, "attention": "softmax", "heads": 2, "key_size": 2}
EMBEDDED = {"layers": 1, "embedding": 8, "embedding_mlp": 12}  # wider than the tokens, or not
NARROW = EMBEDDED | {"embedding": 4}
DELTA = {"layers": 2, "attention": ("delta", "linear"), "heads": 2, "key_size": 2}
LONG = (40, 2, 37)  # context, inputs, batch: Gram matrices, sums in pieces; two blocks of three layers
SHORT = (2, 4, 130)  # patterns, three blocks


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        *((o, LONG) for o in (TWO_LAYERS, CLIPPED, LAYER_NORM, SOFTMAX)),
        (DELTA, (6, 2, 130)),
        *((o, SHORT) for o in (ONE_LAYER, MLP, EMBEDDED, NARROW)),
        *((o | QUERY_AS_KEY, LONG) for o in (TWO_LAYERS, CLIPPED, LAYER_NORM)),
        (QUERY_AS_KEY, SHORT),
    ],
    ids=str,
)
def test_published_networks_with_long_and_short_contexts(options, sizes):
    n, d, batch = sizes
    with jax.enable_x64(True):
        network, prompts = LinearSelfAttention(**options), prompts_of(n, d, batch=batch)
        params = random_params(network, prompts, size=0.4 if n < 10 else 0.1)
        plain, batched = both_forms(network, prompts)
        assert_equal(jax.jit(batched)(params), jax.jit(plain)(params))


@pytest.mark.parametrize("options", [{"layers": 4, "token_clip": 10.0}, {"layers": 2, "heads": 4, "mlp_width": 44}])
def test_float32_agrees_to_its_rounding(options):
    network, prompts = LinearSelfAttention(**options), prompts_of(10, 10, batch=256)
    params = random_params(network, prompts, size=0.12)
    plain, batched = both_forms(network, prompts)
    expected, found = jax.jit(plain)(params), fully(batched)(params)
    assert np.abs(expected[1]).max() > 0.1  # predictions are of order 1, so that layers act
    # up to four layers of sums over at most 44 terms: some hundred roundings of 6e-8, relative to the largest entry
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-5 * np.abs(b).max())


@pytest.mark.parametrize(
    "options", [CLIPPED | {"layers": 2}, LAYER_NORM | {"attention": "softmax", "mlp_width": 3}], ids=str
)
def test_under_vmap_over_members_inside_a_scan(options):
    with jax.enable_x64(True):
        network, prompts = LinearSelfAttention(**options), prompts_of(4, 3, batch=5)
        members = [random_params(network, prompts, seed=i) for i in range(3)]
        plain, batched = both_forms(network, prompts)
        plain = jax.jit(plain)

        def trained(params):
            step = lambda p, _: (jax.tree.map(lambda w, g: w - 0.01 * g, p, batched(p)[0][0]), batched(p)[1])  # noqa: E731
            return jax.lax.scan(step, params, None, length=2)

        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)
        together, predictions = jax.jit(jax.vmap(trained))(stacked)
        for i, params in enumerate(members):
            after = jax.tree.map(lambda w, g: w - 0.01 * g, params, plain(params)[0][0])
            end = jax.tree.map(lambda w, g: w - 0.01 * g, after, plain(after)[0][0])
            assert_equal(jax.tree.map(lambda leaf, i=i: leaf[i], together), end)
            assert_equal(predictions[i], jnp.stack([plain(params)[1], plain(after)[1]]))


CUBED = Attention(lambda q, k: linear_pattern(q, k) ** 3, lambda scores: scores**3)
SCALED = Attention(lambda q, k: jnp.tanh(linear_pattern(q, k) / q.shape[-1] ** 0.5), jnp.tanh, scaled=True)
KINDS = ATTENTIONS | {"cubed": CUBED, "scaled": SCALED}


@pytest.mark.parametrize("sizes", [(5, 2, 3), (2, 3, 3)], ids=["Gram", "patterns"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_attention_is_one_function_in_both_forms(kind, sizes, monkeypatch, x64):
    monkeypatch.setitem(ATTENTIONS, kind, KINDS[kind])
    n, d, batch = sizes
    network, prompts = Transformer(layers=2, heads=2, key_size=3, attention=kind), prompts_of(n, d, batch=batch)
    params = random_params(network, prompts)
    plain, batched = both_forms(network, prompts)
    found = jax.jit(batched)(params)
    assert_equal(found, jax.jit(plain)(params))
    if kind != "linear":
        linear = batch_learner(LinearSelfAttention(layers=2, heads=2, key_size=3), params)
        assert np.abs(found[1] - jax.jit(linear)(prompts)).max() > 1e-3


@pytest.mark.parametrize("keys", [1, MAX_UNROLLED_KEYS, MAX_UNROLLED_KEYS + 1])
def test_softmax_over_few_and_many_keys(keys, x64):
    scores = 300 * np.random.default_rng(0).normal(size=(2, 3, keys, 4))
    slope = np.random.default_rng(1).normal(size=scores.shape)
    expected, pull = jax.vjp(lambda s: jax.nn.softmax(s, axis=2), scores)
    found, pull_found = jax.vjp(jax.jit(softmax_of_scores), scores)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(pull_found(slope)[0], pull(slope)[0], rtol=1e-9, atol=1e-15)


def test_an_attention_without_a_form_for_batches_is_refused(monkeypatch):
    monkeypatch.setitem(ATTENTIONS, "cubed", CUBED._replace(of_scores=None))
    prompts = prompts_of(3, 2)
    network = Transformer(layers=2, attention=("softmax", "cubed"))
    params = random_params(network, prompts)
    assert np.isfinite(jax.jit(jax.vmap(learner(network, params)))(prompts)).all()
    with pytest.raises(ValueError, match=r"attention 'cubed' has no form for batches: .* needs of_scores"):
        batch_learner(network, params)(prompts)
    with pytest.raises(ValueError, match="attention must be one of"):
        batch_learner(Transformer(attention="squared"), params)(prompts)


def test_what_a_transformer_does_not_predict_is_refused():
    prompts = prompts_of(3, 2, o=2)
    network = LinearSelfAttention()
    params = random_params(network, prompts, content_layout())
    with pytest.raises(ValueError, match="has no logits for this layout"):
        batch_learner(network, params, content_layout())(prompts)
    with pytest.raises(ValueError, match=r"InductionNetwork is no Transformer: use jax.vmap"):
        batch_learner(InductionNetwork(labels=3, slots=9), params)


@pytest.mark.parametrize("axes", [(1, 1), (1, 2), (2, 1), (2, 2)])
@pytest.mark.parametrize("length", [3, 50])  # 50: unrolled in pieces, with a rest
def test_contraction_and_its_gradients_are_those_of_a_matrix_product(axes, length):
    with jax.enable_x64(True):
        shapes = [(2, *((length, m) if axis == 1 else (m, length)), 3) for m, axis in zip((2, 4), axes)]
        a, b = (jax.random.normal(jax.random.fold_in(KEY, i), shape, float) for i, shape in enumerate(shapes))
        first, second = (("skit", "sikt")[axes[0] - 1], ("skjt", "sjkt")[axes[1] - 1])

        def pulled(product):
            found, pull = jax.vjp(product, a, b)
            return found, pull(jnp.sin(found))

        found = jax.jit(lambda: pulled(lambda u, v: contract(u, v, axes)))()
        assert_equal(found, jax.jit(lambda: pulled(lambda u, v: jnp.einsum(f"{first},{second}->sijt", u, v)))())
