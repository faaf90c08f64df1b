from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from linear_tasks import linear_tasks

from icl_lab.compare import compare, mean_loss, task_losses
from icl_lab.constructions import gd_plus_plus_weights
from icl_lab.models import LinearSelfAttention, Transformer, learner
from icl_lab.prompts import item_label_classification, item_label_law
from icl_lab.solvers import gd_plus_plus, gradient_descent, least_squares, ridge

N, D = 5, 3


def draw(batch=6, outputs=2):
    return linear_tasks(N, D, outputs, batch=batch, largest=0.5)


def softmax_learner(outputs, seed=1):
    network = Transformer(layers=1, heads=2, init_scale=4.0)
    return learner(network, jax.jit(network.init)(jax.random.key(seed), jnp.ones((N + 1, D + outputs))))


def numbers(a, b, samples, step=1e-5):
    """The three metrics with sensitivities from central differences."""
    moves = step * np.concatenate([np.zeros((1, D)), np.eye(D), -np.eye(D)])

    def values(learn):
        moved = jax.vmap(lambda p: jax.vmap(lambda h: learn(p.replace(x_query=p.x_query + h)))(moves))
        f = np.asarray(jax.jit(moved)(samples.prompt))  # (B, 1 + 2 D, O)
        return f[:, 0], (f[:, 1 : 1 + D] - f[:, 1 + D :]) / (2 * step)

    (f, s_f), (g, s_g) = values(a), values(b)
    norm = lambda s: np.sqrt((s**2).sum((1, 2)))  # noqa: E731
    cosine = (s_f * s_g).sum((1, 2)) / ((norm(s_f) + 1e-8) * (norm(s_g) + 1e-8))
    return np.linalg.norm(f - g, axis=1).mean(), cosine.mean(), norm(s_f - s_g).mean()


@pytest.mark.parametrize("outputs", [1, 4])
def test_metrics_agree_with_finite_differences(x64, outputs):
    a, b, samples = softmax_learner(outputs), gradient_descent(2.0, 3), draw(4, outputs)
    metrics = jax.jit(lambda samples: compare(a, b, samples))(samples)
    names = ("prediction_difference", "sensitivity_cosine", "sensitivity_difference")
    np.testing.assert_allclose([metrics[name] for name in names], numbers(a, b, samples), rtol=1e-6)
    assert set(metrics) == set(names)


@pytest.mark.parametrize("make", [lambda: ridge(0.1), lambda: softmax_learner(2)])
def test_a_learner_equals_itself(x64, make):
    one, other = make(), make()
    metrics = jax.jit(lambda samples: compare(one, other, samples))(draw())
    assert metrics["prediction_difference"] == metrics["sensitivity_difference"] == 0
    np.testing.assert_allclose(metrics["sensitivity_cosine"], 1, atol=1e-6)


def placed(prompt):
    """A learner that looks at the slot of the first token."""
    return (prompt.offset + 1.0) * jnp.array([prompt.x_query[0], prompt.x_query @ prompt.x[0]])


def test_learners_see_the_whole_prompt(x64):
    samples = draw()
    offset = np.arange(6)
    samples = samples.replace(prompt=samples.prompt.replace(offset=jnp.asarray(offset)))
    metrics = jax.jit(lambda samples: compare(placed, lambda p: 2 * placed(p), samples))(samples)
    x, query = np.asarray(samples.prompt.x), np.asarray(samples.prompt.x_query)
    values = (offset + 1) * np.hypot(query[:, 0], (query * x[:, 0]).sum(1))
    np.testing.assert_allclose(metrics["prediction_difference"], values.mean(), rtol=1e-12)
    slopes = (offset + 1) * np.sqrt(1 + (x[:, 0] ** 2).sum(1))
    np.testing.assert_allclose(metrics["sensitivity_difference"], slopes.mean(), rtol=1e-12)


LABELS = 8


def labelled(batch=9):
    """Tasks whose answer is a label; no prompt starts at the first slot."""
    law = item_label_law(jax.random.key(3), classes=16, labels=LABELS, input_size=D)
    draw = item_label_classification(law, context_length=4, slots=12)
    return jax.jit(draw, static_argnums=1)(jax.random.key(4), batch)


def scores(scale):
    w = jnp.asarray(scale * np.random.default_rng(5).normal(size=(D, LABELS)))
    return lambda p: p.x_query @ w + jnp.arange(LABELS) * (p.offset + p.y.sum())


def test_logits_agree_and_diverge_as_in_a_loop(x64):
    samples, (a, b) = labelled(), (scores(1.0), scores(-0.5))
    metrics = jax.jit(lambda samples: compare(a, b, samples))(samples)
    same, divergences = [], []
    for i in range(9):
        one = jax.tree.map(lambda leaf, i=i: leaf[i], samples.prompt)
        f, g = np.asarray(a(one)), np.asarray(b(one))
        p, q = np.exp(f) / np.exp(f).sum(), np.exp(g) / np.exp(g).sum()
        m = (p + q) / 2
        same.append(f.argmax() == g.argmax())
        divergences.append(0.5 * (p * np.log(p / m)).sum() + 0.5 * (q * np.log(q / m)).sum())
    assert set(metrics) == {"agreement", "jensen_shannon"}
    assert 0 < np.mean(same) < 1
    np.testing.assert_allclose(metrics["agreement"], np.mean(same), rtol=1e-12)
    np.testing.assert_allclose(metrics["jensen_shannon"], np.mean(divergences), rtol=1e-9)


def test_predictions_of_every_prefix_are_compared_one_by_one(x64):
    samples = draw()
    whole = lambda scale: lambda p: scale * jnp.concatenate([p.y, (p.x_query @ p.x.T @ p.y)[None]])  # noqa: E731
    metrics = jax.jit(lambda samples: compare(whole(1.0), whole(3.0), samples))(samples)
    last = jax.jit(lambda samples: compare(lambda p: whole(1.0)(p)[-1], lambda p: whole(3.0)(p)[-1], samples))(samples)
    norms = np.linalg.norm(samples.prompt.y, axis=2).mean(0)
    np.testing.assert_allclose(metrics["prediction_difference"][:N], 2 * norms, rtol=1e-12)
    np.testing.assert_allclose(metrics.pop("prediction_difference")[N], last.pop("prediction_difference"), rtol=1e-12)
    np.testing.assert_allclose(list(metrics.values()), list(last.values()), rtol=1e-12)
    logits = lambda p: jnp.cumsum(jnp.ones((5, LABELS)) * p.x_query[0], 0)  # noqa: E731
    assert jax.jit(lambda samples: compare(logits, logits, samples))(labelled())["agreement"].shape == (5,)


def test_a_silent_learner_has_cosine_zero_not_nan():
    metrics = jax.jit(lambda samples: compare(lambda prompt: 0 * prompt.y[0], ridge(0.1), samples))(draw())
    assert metrics["sensitivity_cosine"] == 0
    assert jnp.isfinite(metrics["prediction_difference"])


@pytest.mark.parametrize("value", [jnp.nan, jnp.inf])
def test_a_learner_without_a_finite_answer_is_at_no_distance(value):
    broken = lambda prompt: ridge(1.0)(prompt) + value * prompt.x_query[0]  # noqa: E731
    found = jax.jit(lambda samples: compare(broken, ridge(1.0), samples))(draw())
    assert not [name for name, distance in found.items() if jnp.isfinite(distance)]


def test_constructed_network_is_gd_plus_plus_and_all_runs_inside_jit():
    samples = draw()

    @jax.jit
    def measure(samples):
        rates, gammas = jnp.array([2.0, 1.0]), jnp.array([0.2, 0.1])
        params = gd_plus_plus_weights(rates, gammas, context_length=N, input_size=D, output_size=2)
        network = learner(LinearSelfAttention(layers=2), params)
        return compare(network, gd_plus_plus(rates, gammas), samples) | {"loss": mean_loss(network, samples)}

    metrics = measure(samples)
    assert all(value.shape == () and value.dtype == jnp.float32 for value in metrics.values())
    assert metrics["prediction_difference"] < 1e-6
    assert metrics["sensitivity_difference"] < 1e-5
    np.testing.assert_allclose(metrics["sensitivity_cosine"], 1, atol=1e-5)


def test_losses_by_hand(x64):
    samples = draw()
    np.testing.assert_allclose(task_losses(lambda p: p.y[0], samples).shape, (6,))
    expected = 0.5 * np.sum(np.asarray(samples.target) ** 2, axis=1)
    np.testing.assert_allclose(task_losses(lambda p: jnp.zeros(2), samples), expected)
    np.testing.assert_allclose(mean_loss(lambda p: jnp.zeros(2), samples), expected.mean())
    assert mean_loss(lambda p: p.x_query @ jnp.zeros((D, 2)), samples) > mean_loss(least_squares(), samples)


def test_wrong_shapes_are_refused():
    samples = draw()

    def without_outputs(prompt):  # (B,) would be compared with every task's (2,)
        return prompt.y[0, 0]

    said = r"without_outputs predicts \(6,\) for 6 tasks; expected is \(6, 2\) or, from every prefix, \(6, 6, 2\)"
    for pair in ((without_outputs, least_squares()), (least_squares(), without_outputs)):
        with pytest.raises(AssertionError, match=said):
            compare(*pair, samples)
    with pytest.raises(AssertionError, match=r"without_outputs .* expected is \(9, L\) or"):
        compare(without_outputs, without_outputs, labelled())
    for a, b, of in (
        (lambda prompt: prompt.y, lambda prompt: prompt.y, samples),
        (lambda prompt: prompt.y, least_squares(), samples),
        (lambda prompt: jnp.zeros((N + 1, 2)), least_squares(), samples),
        (scores(1.0), lambda prompt: scores(1.0)(prompt)[:-1], labelled()),
    ):
        with pytest.raises(AssertionError):
            compare(a, b, of)
    with pytest.raises(AssertionError, match=r"without_outputs predicts \(\) for one task; expected is \(2,\)"):
        task_losses(without_outputs, samples)
    with pytest.raises(AssertionError):
        task_losses(lambda prompt: prompt.y[0, :1], samples)


def test_distances_have_a_gradient_where_learners_agree_or_say_nothing():
    samples = draw()
    distance = lambda rate: compare(gradient_descent(rate, 1), gradient_descent(2.0, 1), samples)  # noqa: E731
    for name, rate in (("prediction_difference", 2.0), ("sensitivity_difference", 2.0), ("sensitivity_cosine", 0.0)):
        assert jnp.isfinite(jax.grad(lambda r, name=name: distance(r)[name])(rate))


def test_a_learner_that_jax_cannot_trace_is_refused_by_name():
    def of_numpy(prompt):
        return np.asarray(prompt.x_query)[:1]

    samples = draw(4, outputs=1)
    with pytest.raises(TypeError, match="of_numpy cannot be traced by JAX"):
        compare(of_numpy, of_numpy, samples)


def test_whole_numbers_are_labels_of_two_logits_or_more():
    samples = draw(outputs=1)
    of_values = replace(samples, target=jnp.sign(samples.target).astype(jnp.int32))
    with pytest.raises(AssertionError, match=r"labels \(B,\), got \(6, 1\)"):
        compare(ridge(0.1), ridge(0.2), of_values)
    with pytest.raises(AssertionError, match="one logit"):
        compare(ridge(0.1), ridge(0.2), replace(of_values, target=of_values.target[:, 0]))


def test_no_task_is_refused():
    with pytest.raises(AssertionError, match="at least one"):
        compare(ridge(0.1), ridge(0.2), jax.tree.map(lambda leaf: leaf[:0], draw()))
