"""What is given as a learner and is none: one sentence that names the argument and says what is allowed."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import icl_lab
from icl_lab import models
from icl_lab.compare import compare, compare_batches, from_every_prefix, mean_loss, prefix_losses, task_losses
from icl_lab.models import LinearSelfAttention, Transformer
from icl_lab.prompts import linear_regression
from icl_lab.prompts.layouts import causal_layout
from icl_lab.solvers import averaging, gradient_descent, ridge
from icl_lab.training import Model, every_prefix, training

N, D = 4, 2
SAMPLER = linear_regression(context_length=N, input_size=D)
SAMPLES = SAMPLER(jax.random.key(0), 5)
LONGER = linear_regression(context_length=N + 1, input_size=D)(jax.random.key(0), 5)
RIDGE = ridge(0.1)
NETWORK = LinearSelfAttention()
SMALL = {"members": 2, "steps": 2, "batch": 8, "eval_tasks": 8, "progress": False}
TAKES = {
    "compare": lambda learner: compare(learner, RIDGE, SAMPLES),
    "compare b": lambda learner: compare(RIDGE, learner, SAMPLES),
    "mean_loss": lambda learner: mean_loss(learner, SAMPLES),
    "task_losses": lambda learner: task_losses(learner, SAMPLES),
    "prefix_losses": lambda learner: prefix_losses(learner, SAMPLES),
    "from_every_prefix": lambda learner: compare(from_every_prefix(learner), from_every_prefix(RIDGE), SAMPLES),
}


class Fixed(nn.Module):
    """A network of one length of context."""

    @nn.compact
    def __call__(self, prompts):
        return nn.Dense(1)(jnp.concatenate([prompts.y[:, :, 0], prompts.x_query], axis=1))


FIXED = Model(lambda key: Fixed().init(key, SAMPLES.prompt), Fixed().apply, name="Fixed")


def maker(scale):
    return lambda prompt: scale * prompt.y.mean(0)


def of_two(prompt, scale):
    return scale * prompt.y.mean(0)


NO_LEARNERS = [
    (NETWORK, "got the network LinearSelfAttention, which predicts nothing without parameters"),
    (LinearSelfAttention, "got the network LinearSelfAttention, which predicts nothing without parameters"),
    (FIXED, "got the network Model, which predicts nothing without parameters: .*icl_lab.models.learner"),
    (ridge, r"called first, ridge\("),
    (gradient_descent, r"called first, gradient_descent\("),
    (averaging, r"got a function of no argument: .* called first, averaging\("),
    (functools.partial(gradient_descent, 0.1, steps=1), r"called first, gradient_descent\("),
    (models.learner, r"got a function of network, params, layout: .* called first, learner\("),
    (maker, r"called first, maker\("),
    (lambda: RIDGE, "got a function of no argument: "),
    (of_two, "got a function of prompt, scale: "),
    (SAMPLES, "or what icl_lab.train returns; got Sample"),
    ({"w": 1}, "got {'w': 1}"),
]


@pytest.mark.parametrize("takes", TAKES)
@pytest.mark.parametrize(("wrong", "said"), NO_LEARNERS)
def test_what_is_no_learner_is_named_with_what_would_be_one(takes, wrong, said):
    argument = {"compare": "a", "compare b": "b"}.get(takes, "learner")
    with pytest.raises(ValueError, match=f"^{argument} must be a learner of one prompt.*{said}") as caught:
        TAKES[takes](wrong)
    assert "\n" not in str(caught.value)


def of_numpy(prompt):
    return np.asarray(prompt.y).mean(0)


def of_float(prompt):
    return jnp.ones(1) * float(prompt.y[0, 0])


def of_branches(prompt):
    return prompt.y[0] if prompt.y[0, 0] > 0 else prompt.y[1]


@pytest.mark.parametrize("takes", TAKES)
@pytest.mark.parametrize("wrong", [of_numpy, of_float, of_branches])
def test_a_learner_that_jax_cannot_trace_is_named(takes, wrong):
    with pytest.raises(TypeError, match=f"^{wrong.__name__} cannot be traced by JAX, .*numpy") as caught:
        TAKES[takes](wrong)
    assert "\n" not in str(caught.value)


def test_a_network_of_fixed_length_is_named_where_it_is_asked_at_another():
    found = icl_lab.train(FIXED, SAMPLER, **SMALL)
    for call in (
        lambda: compare(found, RIDGE, LONGER),
        lambda: compare(RIDGE, found, LONGER),
        lambda: mean_loss(found, LONGER),
        lambda: mean_loss(found.learner(1), LONGER),
        lambda: compare_batches(found.batch_learner(0), jax.vmap(RIDGE), LONGER),
    ):
        with pytest.raises(
            ValueError, match=r"member .*of Fixed takes no prompts as Prompt\(x .*a network of fixed length"
        ):
            call()
    for learner in (found, found.learner(0)):
        with pytest.raises(
            ValueError, match=r"member .*of Fixed takes prompts of 4 examples and not of 0, as networks of"
        ):
            prefix_losses(learner, SAMPLES)


def test_predictions_from_every_prefix_are_told_of_what_takes_them():
    network = Transformer(attention="linear", causal=True)
    found = icl_lab.train(network, SAMPLER, layout=causal_layout(), objective=every_prefix, **SMALL)
    with pytest.raises(ValueError, match=r"predicts \(5, 1\) for one task; .*prefix_losses.*from_every_prefix"):
        mean_loss(found.learner(0), SAMPLES)
    with pytest.raises(ValueError, match="from_every_prefix"):
        mean_loss(RIDGE, SAMPLES, objective=every_prefix)
    with pytest.raises(ValueError, match="allowed is one shape for both, as from_every_prefix"):
        compare(found, RIDGE, SAMPLES)
    assert compare(found, from_every_prefix(RIDGE), SAMPLES)["prediction_difference"].shape == (2, N + 1)


@pytest.mark.parametrize("network", [NETWORK, FIXED])
def test_network_and_sampler_in_the_wrong_order_are_told(network):
    for start in (icl_lab.train, training):
        with pytest.raises(ValueError, match="network and sampler are given in the wrong order"):
            start(SAMPLER, network)
