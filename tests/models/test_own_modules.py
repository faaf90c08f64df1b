"""Sizes by layer, and networks of a user's own that use ``SelfAttention``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from linear_tasks import linear_tasks

import icl_lab
from icl_lab.fast import batch_learner
from icl_lab.models import Intervention, SelfAttention, Transformer, folded_weights, learner, traced
from icl_lab.prompts import linear_regression
from icl_lab.training.model import model_of

KEY = jax.random.key(2)
N, D = 5, 3
UNEVEN = {"heads": (1, 3), "key_size": (None, 2), "mlp_width": (4, 0)}


def weights(network, tokens=N + 1):
    shapes = jax.eval_shape(network.init, KEY, jax.ShapeDtypeStruct((tokens, D + 1), jnp.result_type(float)))
    draw = np.random.default_rng(0).normal
    return jax.tree.map(lambda leaf: jnp.asarray(0.5 * draw(size=leaf.shape), leaf.dtype), shapes)


@pytest.mark.parametrize("parametrisation", ["separate", "merged", "key_query"])
def test_layers_of_one_size_each_are_the_stack(parametrisation, x64):
    options = {"layers": 2, "parametrisation": parametrisation}
    stack = Transformer(heads=2, key_size=3, mlp_width=4, **options)
    each = Transformer(heads=(2, 2), key_size=(3, 3), mlp_width=(4, 4), **options)
    params = weights(stack)
    own = {f"{name}_{i}": value[i] for name, value in params["params"].items() for i in range(2)}
    assert jax.tree.map(jnp.shape, weights(each)["params"]) == jax.tree.map(jnp.shape, own)
    prompts = linear_tasks(N, D).prompt
    found = [jax.jit(batch_learner(*pair))(prompts) for pair in ((stack, params), (each, {"params": own}))]
    np.testing.assert_allclose(*found, rtol=1e-10)
    for a, b in zip(folded_weights(params), folded_weights({"params": own})):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_weights_by_layer_are_drawn_as_those_of_a_stack():
    wide = Transformer(layers=2, heads=2, key_size=50, init_scale=1.0)
    stack, each = (
        jax.jit(network.init)(KEY, jnp.zeros((N + 1, D + 1)))["params"] for network in (wide, wide.clone(heads=(2, 2)))
    )
    for name in ("w_q", "w_p"):  # 400 entries
        assert float(each[f"{name}_1"].std()) == pytest.approx(float(stack[name][1].std()), rel=0.2)


@pytest.mark.parametrize("options", [{"attention": ("softmax", "linear")}, {"attention": "linear", "averaged": True}])
def test_layers_of_their_own_sizes_in_both_forms(options, x64):
    network = Transformer(layers=2, **UNEVEN, **options)
    params, prompts = weights(network), linear_tasks(N, D).prompt
    assert {name: value.shape for name, value in params["params"].items() if name.startswith(("w_q", "mlp_in_0"))} == {
        "w_q_0": (1, 4, 4), "w_q_1": (3, 4, 2), "mlp_in_0": (4, 4)
    }  # fmt: skip

    @jax.jit
    def pulled(params):
        forms = (jax.vmap(learner(network, params)), batch_learner(network, params))
        return [jax.value_and_grad(lambda p, form=form: jnp.sum(jnp.sin(form(p))))(prompts) for form in forms]

    plain, fast = pulled(params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-10), plain, fast)
    one = jax.tree.map(lambda leaf: leaf[0], prompts)
    _, trace = jax.jit(traced(network, params))(one)
    assert trace.attention.shape == (2, 3, N + 1, N)
    assert not np.any(trace.head_output[0, 1:])
    assert np.all(np.any(trace.head_output[1], axis=(1, 2)))


class Block(nn.Module):
    """A user's network: two attentions with a gate between them, and a read-out of its own."""

    causal: bool = False

    @nn.compact
    def __call__(self, tokens):
        for _ in range(2):
            update = SelfAttention(heads=2, key_size=3, causal=self.causal)(nn.LayerNorm()(tokens))
            tokens = tokens + nn.sigmoid(nn.Dense(1)(tokens)) * update
        return nn.Dense(tokens.shape[-1])(tokens)


def test_a_module_that_uses_our_attention_is_traced_and_intervened_upon():
    network, params = Block(), weights(Block())
    prompt = jax.tree.map(lambda leaf: leaf[0], linear_tasks(N, D).prompt)
    run = jax.jit(traced(network, params))
    prediction, trace = run(prompt)
    np.testing.assert_allclose(prediction, learner(network, params)(prompt), rtol=1e-5)
    assert trace.attention.shape == (2, 2, N + 1, N + 1)
    np.testing.assert_allclose(trace.attention.sum(-1), 1, rtol=1e-5)
    assert trace.residual.shape == (2, N + 1, D + 1)
    for name in ("attention", "head_output"):
        value = getattr(trace, name)
        everywhere = {name: jnp.ones(value.shape, bool)}
        np.testing.assert_allclose(run(prompt, Intervention({name: value}, everywhere))[0], prediction, rtol=1e-5)
        other, seen = run(prompt, Intervention({name: 0.5 * value}, everywhere))
        assert not np.allclose(other, prediction)
        np.testing.assert_allclose(getattr(seen, name), 0.5 * value, rtol=1e-6)
        np.testing.assert_allclose(
            run(prompt, Intervention({name: 0.5 * value}, everywhere, start=3), 2)[0], prediction, rtol=1e-5
        )


def test_a_causal_attention_sees_what_stands_before():
    network, tokens = SelfAttention(heads=2, causal=True), jnp.asarray(np.random.default_rng(1).normal(size=(4, 4)))
    params = jax.jit(network.init)(KEY, tokens)
    felt = jax.jit(jax.jacrev(lambda rows: network.apply(params, rows).sum(1)))(tokens)
    assert np.array_equal(np.any(np.asarray(felt) != 0, axis=2), np.tril(np.ones((4, 4), bool)))


def test_such_a_module_is_trained_like_any_other():
    trained = icl_lab.train(
        Block(causal=True), linear_regression(context_length=N, input_size=D), members=2, steps=2, batch=4, eval_tasks=4
    )
    assert trained.fit.metrics["loss"].shape[0] == 2


@pytest.mark.parametrize(
    ("network", "intervention", "message"),
    [
        (nn.Dense(4), None, r"Dense must return \(tokens, Trace\), or be called with tokens and use SelfAttention"),
        (Block(), Intervention({"residual": jnp.zeros(())}, {"residual": jnp.ones((2, 1, 1), bool)}), "residual: only"),
        (Block(), Intervention({"attention": jnp.zeros((3, 1, 1, 1))}, {"attention": jnp.ones((3, 1, 1, 1), bool)}),
         "of another number of layers"),
        (SelfAttention(attention="cosine"), None, "attention must be one of"),
        (SelfAttention(heads=0), None, "need heads and key_size of at least 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_traced_is_refused(network, intervention, message):
    prompt = jax.tree.map(lambda leaf: leaf[0], linear_tasks(N, D).prompt)
    with pytest.raises(ValueError, match=message):
        traced(network, jax.jit(network.init)(KEY, jnp.zeros((N + 1, D + 1))))(prompt, intervention)


def test_a_module_that_takes_a_prompt_is_no_network_of_tokens():
    class Whole(nn.Module):
        @nn.compact
        def __call__(self, prompt):
            return nn.Dense(1)(prompt.x_query)

    prompt = jax.tree.map(lambda leaf: leaf[0], linear_tasks(N, D).prompt)
    params = Whole().init(KEY, prompt)
    for made in (learner, traced):
        with pytest.raises(ValueError, match=r"network Whole must take tokens \(T, E\), .*; .* is given as .*Model"):
            made(Whole(), params)(prompt)
    with pytest.raises(ValueError, match="Whole: a network is called with"):
        model_of(Whole(), prompt)


def test_an_attribute_that_a_module_of_its_own_lacks_is_its_own_error():
    class Broken(nn.Module):
        @nn.compact
        def __call__(self, tokens):
            return tokens * self.scale

    with pytest.raises(AttributeError, match="scale"):
        model_of(Broken(), jax.tree.map(lambda leaf: leaf[0], linear_tasks(N, D).prompt))


class OneAttention(nn.Module):
    """One attention and a layer, each added to the stream."""

    @nn.compact
    def __call__(self, tokens):
        tokens = tokens + SelfAttention()(tokens)
        return tokens + nn.Dense(tokens.shape[-1])(tokens)


class Step(nn.Module):
    """A block as ``nn.scan`` takes it."""

    @nn.compact
    def __call__(self, tokens, _):
        return OneAttention(name="block")(tokens), None


class Lifted(nn.Module):
    """Two blocks inside a transformation of Flax."""

    how: str = "remat"

    @nn.compact
    def __call__(self, tokens):
        axes = {"variable_axes": {"params": 0}, "split_rngs": {"params": True}}
        if self.how == "scan":
            return nn.scan(Step, length=2, **axes)()(tokens, None)[0]
        if self.how == "vmap":
            return nn.vmap(OneAttention, **axes)()(jnp.stack([tokens, tokens])).mean(0)
        block = {"remat": nn.remat, "jit": nn.jit, "plain": lambda kind: kind}[self.how](OneAttention)
        return block(name="second")(block(name="first")(tokens))


@pytest.mark.parametrize("how", ["remat", "jit", "scan", "vmap"])
def test_attention_inside_a_transformation_of_flax_trains_and_is_not_traced(how):
    network, sampler = Lifted(how), linear_regression(context_length=N, input_size=D)
    found = icl_lab.train(network, sampler, members=1, steps=2, batch=4, eval_tasks=8, progress=False)
    assert np.isfinite(found.fit.metrics["loss"]).all()
    prompt = jax.tree.map(lambda leaf: leaf[0], sampler(KEY, 1).prompt)
    for _ in range(2):  # nn.jit does not run a block again
        answer = learner(network, found.params())(prompt)
        assert np.isfinite(answer).all()
        for look in (traced(network, found.params()), jax.jit(traced(network, found.params()))):
            with pytest.raises(
                ValueError, match=r"inside nn\.remat, nn\.jit, nn\.scan or nn\.vmap .* traced cannot see"
            ):
                look(prompt)
    if how in ("remat", "jit"):  # the blocks have names, so that the parameters are those of the plain network
        same, trace = traced(Lifted("plain"), found.params())(prompt)
        np.testing.assert_allclose(answer, same, rtol=1e-5)
        assert trace.attention.shape == (2, 1, N + 1, N + 1)
