import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stacks import N, aligner, distance, for_each, gap, merged, predict, prompts, random_weights

from icl_lab.compare import align_weights, compare, interpolate
from icl_lab.constructions import gd_plus_plus_weights, gradient_descent_weights
from icl_lab.models import LinearSelfAttention, folded_weights, learner
from icl_lab.prompts import linear_regression
from icl_lab.solvers import gradient_descent


def test_distance_is_the_plain_formula(x64):
    d, width, rng = 2, 3, np.random.default_rng(0)
    weights = [random_weights(rng, 2, heads, width) for heads in (2, 3)]
    apart = distance(*(merged(*w) for w in weights), layers=2, looped=False, input_size=d)
    s_a, s_b = (np.einsum("shij,shkm->sijkm", *w) for w in weights)
    s_a, s_b = ((s + s.swapaxes(2, 3)) / 2 for s in (s_a, s_b))
    s_a[1, ..., :d], s_b[1, ..., :d] = 0, 0
    norm = lambda s: np.sqrt((s**2).sum((1, 2, 3, 4)))  # noqa: E731
    np.testing.assert_allclose(apart, norm(s_a - s_b) / norm(s_b), rtol=1e-12)


def test_canonical_weights_are_the_same_layer_in_one_gauge(x64):
    rng, d, width = np.random.default_rng(0), 2, 3
    a, b = random_weights(rng, 2, 2, width)
    mix = np.array([[1.0, 2.0], [-0.5, 3.0]])
    twin = merged(np.einsum("gh,shij->sgij", mix, a), np.einsum("hg,shij->sgij", np.linalg.inv(mix), b))
    align = jax.jit(lambda *params: align_weights(*params, layers=2, looped=False, input_size=d))
    aligned = align(merged(a, b), twin)
    for one, other in zip(aligned["canonical_a"], aligned["canonical_b"]):
        np.testing.assert_allclose(one, other, atol=1e-12)
    assert gap(merged(a, b), merged(*aligned["canonical_b"]), prompts(rng, d, 1), 2, False) < 1e-12
    single = align(merged(-3 * a[:, :1], b[:, :1]), twin)["canonical_a"]
    np.testing.assert_allclose(np.diagonal(single[0], axis1=2, axis2=3)[..., :d].mean(-1), 1)
    assert gap(merged(-3 * a[:, :1], b[:, :1]), merged(*single), prompts(rng, d, 1), 2, False) < 1e-12


def test_width_41_jit_vmap_and_float32():
    rng = np.random.default_rng(0)
    a, b = jnp.asarray(rng.normal(size=(2, 2, 1, 1, 41, 41)), jnp.float32)  # two members
    align = for_each(aligner(layers=2, looped=True, input_size=40))
    apart = align(merged(a, b), merged(-2 * a[0], -b[0] / 2))
    assert apart.dtype == jnp.float32
    assert apart[0, 0] < 1e-6 < 1 < apart[1, 0]


def test_softmax_heads_are_matched_with_their_logit_scale(x64):
    rng, width, key_size = np.random.default_rng(0), 3, 6
    a, b = random_weights(rng, 1, 2, width)
    pad = lambda w: np.concatenate([w, np.zeros_like(w)], axis=-1)  # noqa: E731
    q, k, v = pad(a) * np.sqrt(key_size / width), pad(np.zeros_like(a) + np.eye(width)), pad(b)
    p = np.concatenate([np.zeros_like(a) + np.eye(width), np.zeros_like(a)], axis=-2)
    wide = {"params": {name: w[:, ::-1] for name, w in (("w_q", q), ("w_k", k), ("w_v", v), ("w_p", p))}}
    aligned = align_weights(wide, merged(a, b), layers=1, looped=True, input_size=2, attention="softmax")
    assert aligned["distance"][0] < 1e-14
    for one, other in zip(aligned["canonical_a"], aligned["canonical_b"]):
        np.testing.assert_allclose(one, other, atol=1e-14)


def gd(rate, layers=1):
    return gradient_descent_weights([rate] * layers, context_length=N, input_size=2)


@pytest.mark.parametrize("layers", [1, 2])
def test_interpolating_gd_with_a_gauge_transformed_copy_is_gd(x64, layers):
    plain = gd(1.5, layers)
    copy = {"params": {name: w * {"w_q": -3.0, "w_p": -1 / 3}.get(name, 1.0) for name, w in plain["params"].items()}}
    samples = linear_regression(context_length=N, input_size=2)(jax.random.key(0), 5)

    @jax.jit
    @jax.vmap
    def measure(weight):
        network = learner(LinearSelfAttention(layers=layers), interpolate(copy, plain, input_size=2, weight=weight))
        return compare(network, gradient_descent(1.5, layers), samples)

    metrics = measure(jnp.array([0.0, 0.3, 0.5, 1.0]))
    assert metrics["prediction_difference"].max() < 1e-14
    assert metrics["sensitivity_difference"].max() < 1e-13


def test_interpolation_endpoints_and_middle(x64):
    rng = np.random.default_rng(0)
    a, b = random_weights(rng, 2, 1, 3)
    one = merged(a + 2 * np.eye(3), b)
    two = gd_plus_plus_weights([1.0, 2.0], [0.1, 0.2], context_length=N, input_size=2)
    batch = prompts(rng, 2, 1)
    for weight, end in ((0.0, one), (1.0, two)):
        mixed = interpolate(one, two, input_size=2, weight=weight)
        np.testing.assert_allclose(predict(mixed, batch, 2, False), predict(end, batch, 2, False), rtol=1e-12)
        assert jax.tree.map(jnp.shape, mixed) == jax.tree.map(jnp.shape, two)
    beta = np.diagonal(np.asarray(one["params"]["w_kq"]), axis1=2, axis2=3)[..., :2].mean(-1)[..., None, None]
    half = folded_weights(interpolate(one, two, input_size=2))
    expected = [(f * g + h) / 2 for f, g, h in zip(folded_weights(one), (1 / beta, beta), folded_weights(two))]
    for value, wanted in zip(half, expected):
        np.testing.assert_allclose(value, wanted, rtol=1e-12)


def test_interpolate_takes_members_and_gradients():
    weights = jnp.array([0.0, 0.5])
    mixed = jax.jit(jax.vmap(lambda w: interpolate(gd(1.0), gd(2.0), input_size=2, weight=w)))(weights)
    np.testing.assert_allclose(mixed["params"]["w_p"][:, 0, 0, 2, 2], [-1 / N, -1.5 / N], rtol=1e-6)
    slope = jax.grad(lambda w: interpolate(gd(1.0), gd(2.0), input_size=2, weight=w)["params"]["w_p"].sum())
    np.testing.assert_allclose(slope(0.5), -1 / N, rtol=1e-6)


def test_what_does_not_fit_is_refused():
    heads = merged(*np.ones((2, 1, 2, 3, 3)))
    mlp = {"params": gd(1.0)["params"] | {"mlp_in": jnp.ones((1, 3, 4))}}
    for bad in (heads, gd(1.0, 2), gradient_descent_weights(1.0, context_length=N, input_size=3), mlp):
        with pytest.raises(ValueError, match=r"one head|attention alone"):
            interpolate(bad, gd(1.0), input_size=2)
    good = {"layers": 1, "looped": True, "input_size": 2}
    for bad, options, message in (
        (gd(1.0, 2), good, "do not fit"),
        (gd(1.0), good | {"input_size": 3}, "1 <= D < E"),
        (gd(1.0), good | {"attention": "cosine"}, "attention must be"),
        (gd(1.0), good | {"constant_direction": jnp.ones(3)}, "softmax attention only"),
        (heads, good | {"attention": "softmax"}, "equally many"),
        (mlp, good, "attention alone; the network also has mlp_in"),
        ({"params": gd(1.0)["params"] | {"embedding": jnp.ones((3, 3))}}, good, "also has embedding"),
    ):
        with pytest.raises(ValueError, match=message):
            align_weights(bad, gd(1.0), **options)
