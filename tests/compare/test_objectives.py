"""Measured by the loss of the training: mean_loss, prefix_losses and references of a network of another objective."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import icl_lab
from icl_lab.compare import from_every_prefix, mean_loss, prefix_losses, task_losses
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts import item_label_classification, item_label_law, linear_regression, logistic_regression
from icl_lab.prompts.prompt import all_answers, all_inputs
from icl_lab.solvers import logistic_gradient_descent, ridge
from icl_lab.training import Model, every_prefix

N, D, M = 4, 2, 2
LABELS = logistic_regression(context_length=N, input_size=D)
SAMPLES = LABELS(jax.random.key(1), 9)
SMALL = {"members": M, "steps": 2, "batch": 8, "eval_tasks": 8, "progress": False}


def from_prefixes(params, prompts):
    """A step of gradient descent after every prefix, (B, N + 1, 1)."""
    products = jnp.cumsum(prompts.x * prompts.y, axis=1)
    steps = jnp.pad(products, ((0, 0), (1, 0), (0, 0)))
    return params["rate"] * (steps * jax.vmap(all_inputs)(prompts)).sum(-1, keepdims=True)


NETWORK = Model(lambda key: {"rate": jax.random.normal(key)}, from_prefixes, name="descent")


def nats(logits, answers):
    """(..., O) logits and labels -1 and +1 -> cross-entropies (...)."""
    return jax.nn.softplus(-logits * answers).sum(-1)


def entropy(logits, samples):
    """Of the query's label."""
    return nats(logits, samples.target)


def entropies(logits, samples):
    """Of the label after every prefix, their mean."""
    return nats(logits, jax.vmap(all_answers)(samples)).mean(1)


def summed(logits, samples):
    return nats(logits, jax.vmap(all_answers)(samples)).sum(1)


@pytest.fixture(scope="module")
def of_prefixes():
    references = {"descent": jax.vmap(from_every_prefix(logistic_gradient_descent(1.0, 1)))}
    return icl_lab.train(NETWORK, LABELS, objective=entropies, references=references, **SMALL)


@pytest.fixture(scope="module")
def of_query():
    return icl_lab.train(LinearSelfAttention(init_scale=0.5), LABELS, objective=entropy, **SMALL)


def by_hand(found):
    """(M, B, N + 1) cross-entropies of every prefix."""
    logits = np.stack([jax.vmap(from_every_prefix(one))(SAMPLES.prompt) for one in found.learners()])
    answers = np.concatenate([SAMPLES.prompt.y, SAMPLES.target[:, None]], axis=1)
    return np.log1p(np.exp(-logits[..., 0] * answers[None, ..., 0]))


def test_members_are_measured_by_the_loss_of_their_training(of_prefixes, of_query):
    expected = by_hand(of_prefixes)
    np.testing.assert_allclose(prefix_losses(of_prefixes, SAMPLES), expected.mean(1), rtol=1e-5)
    np.testing.assert_allclose(mean_loss(of_prefixes, SAMPLES), expected.mean((1, 2)), rtol=1e-5)
    np.testing.assert_allclose(task_losses(of_prefixes, SAMPLES), expected.mean(2), rtol=1e-5)
    expected = by_hand(of_query)
    np.testing.assert_allclose(prefix_losses(of_query, SAMPLES), expected.mean(1), rtol=1e-5)
    np.testing.assert_allclose(mean_loss(of_query, SAMPLES), expected[:, :, -1].mean(1), rtol=1e-5)


def test_the_loss_that_is_measured_in_training_is_that_of_mean_loss(of_query):
    key = jax.random.split(jax.random.split(jax.random.key(0), M)[1], 3)[2]
    evaluation = LABELS(key, SMALL["eval_tasks"])
    np.testing.assert_allclose(mean_loss(of_query, evaluation)[1], of_query.fit.metrics["loss"][1, -1], rtol=1e-5)


@pytest.mark.parametrize("objective", [entropy, entropies, summed])
def test_an_objective_has_one_meaning_whether_of_one_prediction_or_of_all(objective, of_prefixes):
    expected = by_hand(of_prefixes).mean(1)
    np.testing.assert_allclose(prefix_losses(of_prefixes, SAMPLES, objective=objective), expected, rtol=1e-5)
    alone = prefix_losses(of_prefixes.learner(1), SAMPLES, objective=objective)
    np.testing.assert_allclose(alone, expected[1], rtol=1e-5)


def test_any_learner_is_measured_by_an_objective(of_query):
    descent = logistic_gradient_descent(1.0, 1)
    logits = jax.vmap(descent)(SAMPLES.prompt)
    np.testing.assert_allclose(
        mean_loss(descent, SAMPLES, objective=entropy), entropy(logits, SAMPLES).mean(), rtol=1e-5
    )
    curve = prefix_losses(descent, SAMPLES, objective=entropy)
    np.testing.assert_allclose(curve[0], np.log(2), rtol=1e-6)  # no example: probability 1/2
    np.testing.assert_allclose(curve[-1], entropy(logits, SAMPLES).mean(), rtol=1e-5)
    examples = prefix_losses(descent, SAMPLES, objective=lambda logits, s: jnp.full(len(logits), s.prompt.x.shape[1]))
    np.testing.assert_array_equal(examples, np.arange(N + 1))
    squares = mean_loss(of_query.learner(0), SAMPLES)  # a learner does not say how it was trained
    assert squares != mean_loss(of_query, SAMPLES)[0]


def test_squared_errors_of_every_prefix_are_the_curve_that_they_were():
    sampler = linear_regression(context_length=N, input_size=D)
    found = icl_lab.train(NETWORK, sampler, objective=every_prefix, **SMALL)
    samples = sampler(jax.random.key(2), 6)
    curves = prefix_losses(found, samples)
    np.testing.assert_allclose(curves, [prefix_losses(one, samples) for one in found.learners()], rtol=1e-5)
    np.testing.assert_allclose(mean_loss(found, samples), curves.mean(1), rtol=1e-5)
    solver = from_every_prefix(ridge(0.1))
    expected = prefix_losses(ridge(0.1), samples).mean()
    np.testing.assert_allclose(mean_loss(solver, samples, objective=every_prefix), expected, rtol=1e-5)


def test_padded_contexts_count_the_prefixes_that_there_are():
    sampler = linear_regression(context_length=(1, N), input_size=D)
    samples = sampler(jax.random.key(2), 20)
    found = icl_lab.train(NETWORK, sampler, objective=every_prefix, **SMALL)
    plain = [prefix_losses(one, samples) for one in found.learners()]
    np.testing.assert_allclose(prefix_losses(found, samples), plain, rtol=1e-5)


def test_what_may_be_logits_is_not_compared_with_references(of_prefixes):
    assert set(of_prefixes.fit.metrics) == {"train_loss", "loss", "descent_loss"}
    values = icl_lab.train(
        LinearSelfAttention(), linear_regression(context_length=N, input_size=D), **SMALL,
        references={"ridge": jax.vmap(ridge(0.1))},
    )  # fmt: skip
    assert "ridge_prediction_difference" in values.fit.metrics
    law = item_label_law(jax.random.key(0), classes=8, labels=4, input_size=D)
    chosen = Model(lambda key: {"w": jnp.ones((D, 4))}, lambda params, prompts: prompts.x_query @ params["w"])
    classes = icl_lab.train(
        chosen, item_label_classification(law, context_length=N), **SMALL,
        objective=lambda logits, samples: -jax.nn.log_softmax(logits)[jnp.arange(len(logits)), samples.target],
        references={"flat": lambda prompts: jnp.zeros((len(prompts.x), 4))},
    )  # fmt: skip
    assert {"flat_agreement", "flat_jensen_shannon", "flat_loss"} <= set(classes.fit.metrics)


def test_loaded_members_of_another_objective_need_it(of_query, of_prefixes, tmp_path):
    of_query.save(tmp_path / "query")
    loaded = icl_lab.load(tmp_path / "query")
    with pytest.raises(ValueError, match="objective must be given for members that were loaded"):
        mean_loss(loaded, SAMPLES)
    expected = mean_loss(of_query, SAMPLES)
    np.testing.assert_allclose(mean_loss(loaded, SAMPLES, objective=entropy), expected, rtol=1e-5)
    sampler = linear_regression(context_length=N, input_size=D)
    squares = icl_lab.train(LinearSelfAttention(), sampler, **SMALL, folder=tmp_path / "squares")
    samples = sampler(jax.random.key(2), 6)
    loaded = icl_lab.load(tmp_path / "squares")
    np.testing.assert_array_equal(mean_loss(loaded, samples), mean_loss(squares, samples))


def without_first(logits, samples):
    return nats(logits, jax.vmap(all_answers)(samples))[:, 1:].mean(1)


def weighted(logits, samples):
    losses = nats(logits, jax.vmap(all_answers)(samples))
    return (losses * jnp.arange(losses.shape[1])[None]).mean(1)


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        ("entropy", "objective must be a function"),
        (lambda logits, samples: logits, "objective must give one loss a task"),
        (without_first, "objective must be a mean over the prefixes"),
        (weighted, "objective must be a mean over the prefixes"),
        (lambda logits, samples: samples.latent["probability"][:, 0] * logits[:, 0], "objective must .* no latent"),
    ],
)
def test_an_objective_that_says_nothing_of_a_prefix_is_refused(objective, said, of_prefixes):
    with pytest.raises(ValueError, match=said):
        prefix_losses(of_prefixes, SAMPLES, objective=objective)
