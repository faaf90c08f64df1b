import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icl_lab.constructions import functional_gradient_descent_weights
from icl_lab.models import LinearSelfAttention, Transformer, learner
from icl_lab.models.kernels import embedding_features, kernel_form
from icl_lab.prompts import Prompt
from icl_lab.solvers import feature_kernel, functional_gradient_descent, gradient_descent, kernel_smoothing

RATES = np.array([0.3, 0.1, 0.2])


def random_arrays(seed):
    """Draws standard normal arrays of any shape, in the current precision."""
    generator = np.random.default_rng(seed)
    return lambda *shape: jnp.asarray(generator.normal(size=shape))


def a_prompt(normal, n=6, d=3, o=2):
    return Prompt(x=normal(n, d), y=normal(n, o), x_query=normal(d))


def feature_weights(normal, d=3, features=5, hidden=7):
    shapes = {"in": (features, hidden), "out": (hidden, features), "in_bias": (hidden,), "out_bias": (features,)}
    mlp = {f"embedding_mlp_{name}": normal(*shape) / 2 for name, shape in shapes.items()}
    return {"embedding": normal(d, features)} | (mlp if hidden else {})


def cosine_features(x):
    return jnp.cos(jnp.concatenate([x, 2 * x, x.sum()[None]]))


def gaussian(a, b):
    return jnp.exp(-jnp.sum((a - b) ** 2) / 2)


@settings(max_examples=6)
@given(seed=st.integers(0, 2**30), n=st.integers(1, 6), o=st.integers(1, 3))
def test_it_is_gradient_descent_on_the_last_layer(seed, n, o):
    """Descends the gradient of the written loss of W m(x), with respect to W."""
    with jax.enable_x64(True):
        prompt = a_prompt(random_arrays(seed), n, o=o)

        def descended(prompt):
            features = jax.vmap(cosine_features)(prompt.x)
            slope = jax.grad(lambda w: jnp.sum((features @ w - prompt.y) ** 2) / (2 * n))
            w = jnp.zeros((features.shape[1], o))
            for rate in RATES:
                w = w - rate * slope(w)
            return cosine_features(prompt.x_query) @ w

        predict = functional_gradient_descent(feature_kernel(cosine_features), RATES)
        found, expected = jax.jit(lambda prompt: (predict(prompt), descended(prompt)))(prompt)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_one_step_is_kernel_smoothing(x64):
    prompt = a_prompt(random_arrays(0))
    weights = [gaussian(x, prompt.x_query) for x in prompt.x]
    expected = 0.7 / 6 * sum(weight * y for weight, y in zip(weights, prompt.y))
    np.testing.assert_allclose(kernel_smoothing(gaussian, 0.7)(prompt), expected, rtol=1e-12)
    np.testing.assert_allclose(functional_gradient_descent(gaussian, [0.7])(prompt), expected, rtol=1e-12)


def test_linear_features_give_gradient_descent(x64):
    prompt = a_prompt(random_arrays(1))
    predict = functional_gradient_descent(lambda a, b: a @ b, RATES)
    np.testing.assert_allclose(predict(prompt), gradient_descent(RATES)(prompt), rtol=1e-11)


def test_one_step_for_each_eigenvalue_is_kernel_interpolation(x64):
    """Rates N / lambda remove the residual's eigenvectors one after the other."""
    prompt = a_prompt(random_arrays(2))
    gram = jax.vmap(lambda a: jax.vmap(lambda b: gaussian(a, b))(prompt.x))(prompt.x)
    overlap = jax.vmap(lambda a: gaussian(a, prompt.x_query))(prompt.x)
    predict = functional_gradient_descent(gaussian, 6 / jnp.linalg.eigvalsh(gram)[::-1])
    np.testing.assert_allclose(predict(prompt), overlap @ jnp.linalg.solve(gram, prompt.y), rtol=1e-9)


@pytest.mark.parametrize("hidden", [0, 7])
@pytest.mark.parametrize(("layers", "outputs"), [(1, 1), (3, 1), (3, 2)])
def test_layers_behind_an_embedding_can_be_functional_gradient_descent(x64, hidden, layers, outputs):
    normal, rates = random_arrays(4), RATES[:layers]
    prompt, weights = a_prompt(normal, o=outputs), feature_weights(normal, hidden=hidden)
    params = functional_gradient_descent_weights(weights, rates, context_length=6, output_size=outputs)
    network = LinearSelfAttention(layers=layers, embedding=5 + outputs, embedding_mlp=hidden)
    drawn = jax.eval_shape(network.init, jax.random.key(0), jnp.zeros((7, 3 + outputs)))
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(jnp.shape, drawn)
    features = embedding_features(weights)
    expected = jax.jit(functional_gradient_descent(feature_kernel(features), rates))(prompt)
    np.testing.assert_allclose(jax.jit(learner(network, params))(prompt), expected, rtol=1e-10)
    slopes = jax.jit(jax.jacobian(features))(prompt.x_query)
    assert np.abs(slopes).min() > 1e-3  # every feature moves with every input


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"embedding_mlp_in_bias": jnp.zeros(6)}, r"in_bias': \(7,\).*got.*in_bias': \(6,\)"),
        ({"embedding_mlp_out": None}, "features must have shapes"),
        ({"another": jnp.zeros(1)}, "features must have shapes"),
    ],
)
def test_feature_weights_that_do_not_fit_are_refused(change, message):
    weights = {k: v for k, v in (feature_weights(random_arrays(5)) | change).items() if v is not None}
    with pytest.raises(ValueError, match=message):
        functional_gradient_descent_weights(weights, 0.1, context_length=3)


@pytest.mark.parametrize("attention", ["linear", "softmax"])
@pytest.mark.parametrize(
    "options",
    [{}, {"heads": 2, "embedding": 6, "embedding_mlp": 4, "damping": 0.5}, {"parametrisation": "merged", "heads": 3}],
)
def test_one_layer_is_a_kernel_smoother_of_tokens(x64, attention, options):
    normal = random_arrays(6)
    network, prompt = Transformer(attention=attention, **options), a_prompt(normal, o=2)
    start = jax.eval_shape(network.init, jax.random.key(0), jnp.zeros((7, 5)))
    params = jax.tree.map(lambda leaf: normal(*leaf.shape) / 2, start)
    form = jax.jit(kernel_form(network, params))(prompt)
    assert [part.shape for part in form] == [(network.heads, 6), (network.heads, 6, 2), (2,)]
    np.testing.assert_allclose(form.prediction(), jax.jit(learner(network, params))(prompt), rtol=1e-11)
    if attention == "linear" and not options:  # the kernel and the values, written out
        weights = {name: value[0, 0] for name, value in params["params"].items()}
        tokens, query = jnp.concatenate([prompt.x, prompt.y], 1), jnp.concatenate([prompt.x_query, jnp.zeros(2)])
        kernel = query @ weights["w_q"] @ weights["w_k"].T @ tokens.T
        np.testing.assert_allclose(form.kernel[0], kernel, rtol=1e-10)
        np.testing.assert_allclose(form.values[0], -(tokens @ weights["w_v"] @ weights["w_p"])[:, 3:], rtol=1e-10)


def test_the_kernel_form_of_the_construction_is_proposition_2(x64):
    normal = random_arrays(7)
    prompt, weights = a_prompt(normal, o=1), feature_weights(normal)
    params = functional_gradient_descent_weights(weights, 0.4, context_length=6)
    form = jax.jit(kernel_form(LinearSelfAttention(layers=1, embedding=6, embedding_mlp=7), params))(prompt)
    kernel = jax.jit(feature_kernel(embedding_features(weights)))
    np.testing.assert_allclose(form.kernel[0], [kernel(prompt.x_query, x) for x in prompt.x], rtol=1e-10)
    np.testing.assert_allclose(form.values[0], 0.4 / 6 * prompt.y, rtol=1e-10)
    np.testing.assert_allclose(form.offset, 0, atol=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {"layers": 2},
        {"mlp_width": 3},
        {"token_clip": 1.0},
        {"layer_norm": True, "looped": True},
        {"updated_channels": 1},
    ],
)
def test_other_networks_have_no_kernel_form(options):
    with pytest.raises(ValueError, match="kernel_form needs one layer"):
        kernel_form(Transformer(**options), {})
