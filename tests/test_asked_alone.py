"""Models are asked whether they predict each prompt by itself, and Flax modules what they keep beside parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import icl_lab
from icl_lab.compare import compare, compare_batches, mean_loss, prefix_losses
from icl_lab.models import SelfAttention
from icl_lab.prompts import linear_regression, logistic_regression
from icl_lab.solvers import ridge
from icl_lab.training import Fit, Model, alone, training
from icl_lab.training.alone import check_alone
from icl_lab.training.trained import Trained

N, D = 6, 3
SAMPLER = linear_regression(context_length=N, input_size=D)
SAMPLES = SAMPLER(jax.random.key(1), 16)
SMALL = {"members": 2, "steps": 2, "batch": 8, "eval_tasks": 8, "progress": False}


class Mlp(nn.Module):
    """Of all numbers in a prompt; it may do one of the things that it should not."""

    mixing: str = ""
    dtype: type | None = None
    head: nn.initializers.Initializer = nn.initializers.lecun_normal()

    @nn.compact
    def __call__(self, prompts):
        pairs = jnp.concatenate([prompts.x, prompts.y], axis=2).reshape(len(prompts.x), -1)
        rows = jnp.concatenate([pairs, prompts.x_query], axis=1)
        hidden = nn.relu(nn.Dense(32, dtype=self.dtype)(rows))
        if self.mixing == "normalised":
            hidden = (hidden - hidden.mean(0, keepdims=True)) / (hidden.std(0, keepdims=True) + 1e-3)
        if self.mixing == "dropout":
            hidden = nn.Dropout(0.2, deterministic=False)(hidden, rng=jax.random.key(3))
        return nn.Dense(1, dtype=self.dtype, kernel_init=self.head)(hidden).astype(jnp.float32)


def mlp(**options):
    module = Mlp(**options)
    return Model(lambda key: module.init(key, SAMPLES.prompt), module.apply, name="Mlp")


def of_weight(predict):
    """A model of one weight, 1 at the start."""
    return Model(lambda key: {"w": jnp.ones(())}, lambda params, prompts: predict(params["w"], prompts), name="weight")


def means(prompts):
    return prompts.y.mean(axis=1)


def summed_either_way(w, prompts):
    """The sum of labels in half precision, in another order where a prompt is alone: other roundings."""
    total = 0 * prompts.y[:, 0]
    for k in range(N) if len(prompts.y) == 1 else reversed(range(N)):
        rounded = jax.lax.reduce_precision(total + prompts.y[:, k], exponent_bits=8, mantissa_bits=7)
        total = rounded.astype(jnp.bfloat16).astype(jnp.float32)
    return w * total


def standardised(values, least=0.0):
    """By mean and spread of the batch: 0 / 0 of one prompt, unless the spread is at least something."""
    return (values - values.mean(0, keepdims=True)) / jnp.maximum(values.std(0, keepdims=True), least)


MIXING = {
    "softmax over the batch": of_weight(lambda w, p: w * jax.nn.softmax(p.y.mean((1, 2)))[:, None]),
    "mean over the batch": of_weight(lambda w, p: w * (means(p) - means(p).mean(0, keepdims=True))),
    "norm over all": of_weight(lambda w, p: w * means(p) / p.x.std()),
    "the first of the batch": of_weight(lambda w, p: w * means(p) + 0.1 * p.y[:1, 0]),
    "its place in the batch": of_weight(lambda w, p: w * means(p) + 0.1 * jnp.arange(len(p.y))[:, None]),
    "how many there are": of_weight(lambda w, p: w * means(p) * len(p.y)),
    "not at its own weights": of_weight(lambda w, p: means(p) + (w - 1) * means(p).sum(0, keepdims=True)),
    "behind a head of zeros": mlp(mixing="normalised", head=nn.initializers.zeros),
    "batch norm by hand, no number of one prompt": of_weight(lambda w, p: w * standardised(means(p))),
    "the smaller of two outputs": of_weight(
        lambda w, p: jnp.hstack([1e4 * w * p.y[:, 0], standardised(means(p), 0.1)])
    ),
    "in half precision": mlp(mixing="normalised", dtype=jnp.bfloat16),
    "noise": mlp(mixing="dropout"),
}
ALONE = {
    "perceptron": mlp(),
    "half precision": mlp(dtype=jnp.bfloat16),
    "head of zeros": mlp(head=nn.initializers.zeros),
    "rounded in another order": of_weight(summed_either_way),
    "one for all": of_weight(lambda w, p: w + 0 * means(p)),
    "little beside much": of_weight(lambda w, p: 1e4 * w + 1e-3 * means(p)),
    "cancelling": of_weight(lambda w, p: (means(p) + 1e3 * w) - 1e3 * w),
    "whole numbers": Model(
        lambda key: {"w": jnp.ones(()), "row": jnp.int32(2)}, lambda params, p: params["w"] * p.y[:, params["row"]]
    ),
    "no parameters": Model(lambda key: {}, lambda params, p: means(p)),
    "not finite at random weights": of_weight(lambda w, p: jnp.log(w - 0.9) * means(p)),
}


def asked(model):
    check_alone(model, lambda key, _: model.init(key), lambda key, _: SAMPLER(key, 8).prompt)


@pytest.mark.parametrize("name", MIXING)
def test_a_model_that_mixes_prompts_is_refused_by_name_with_both_numbers(name):
    with pytest.raises(ValueError, match=rf"network {MIXING[name].name}: .* it is [-+.\denan]+ \w+ and [-+.\denan]+ "):
        asked(MIXING[name])


@pytest.mark.parametrize("name", ALONE)
def test_a_model_that_predicts_each_prompt_by_itself_is_taken(name):
    asked(ALONE[name])


def test_train_asks_before_it_begins_also_in_half_precision_and_with_settings(tmp_path):
    mixing = MIXING["softmax over the batch"]
    for options in ({}, {"dtype": jnp.bfloat16}, {"folder": tmp_path / "kept"}, {"start": {"w": jnp.ones(())}}):
        with pytest.raises(ValueError, match="network weight: its prediction for one prompt depends on the others"):
            icl_lab.train(mixing, SAMPLER, **SMALL, **options)
    assert not (tmp_path / "kept" / "checkpoints").exists()
    noisy = lambda noise: linear_regression(context_length=N, input_size=D, label_noise=noise)  # noqa: E731
    with pytest.raises(ValueError, match="depends on the others"):
        icl_lab.train(mixing, noisy, settings=jnp.array([0.0, 0.5]), **SMALL)


def test_members_that_were_never_asked_are_asked_by_whatever_measures_them():
    for measure in (
        lambda found: mean_loss(found, SAMPLES),
        lambda found: prefix_losses(found, SAMPLES),
        lambda found: compare(found, ridge(0.1), SAMPLES),
        lambda found: compare(ridge(0.1), found, SAMPLES),
        lambda found: compare_batches(found, found, SAMPLES),
    ):
        model = MIXING["behind a head of zeros"]
        params = jax.vmap(model.init)(jax.random.split(jax.random.key(0), 2))
        with pytest.raises(ValueError, match="network Mlp: its prediction for one prompt depends on the others"):
            measure(Trained(model, Fit(params, np.zeros(1), {}, np.full(2, -1)), {}))


def test_a_model_is_asked_once(monkeypatch):
    model, compiled = mlp(), []
    monkeypatch.setattr(
        alone.programs,
        "compiled",
        lambda traced, *_, real=alone.programs.compiled: compiled.append(1) or real(traced, {}),
    )
    params = jax.vmap(model.init)(jax.random.split(jax.random.key(0), 2))
    found = Trained(model, Fit(params, np.zeros(1), {}, np.full(2, -1)), {})
    for _ in range(2):
        mean_loss(found, SAMPLES)
        jax.jit(lambda samples: mean_loss(found, samples))(SAMPLES)  # inside a program nothing can be asked
    asked(model)
    assert len(compiled) == 1


def test_predictions_without_an_axis_of_prompts_are_refused():
    turned = of_weight(lambda w, p: (w * means(p)).T)
    with pytest.raises(ValueError, match=r"network weight must predict \(B, O\) for B prompts, got \(1, 8\) for 8"):
        asked(turned)


class Kept(nn.Module):
    """A table and running statistics beside the parameters."""

    @nn.compact
    def __call__(self, prompts):
        table = self.variable("constants", "table", lambda: jnp.ones(1))
        hidden = nn.BatchNorm(use_running_average=True)(prompts.x_query)
        return nn.Dense(1)(hidden) + table.value[None]


class KeptTokens(nn.Module):
    """A network of tokens with running statistics."""

    @nn.compact
    def __call__(self, tokens):
        return tokens + SelfAttention()(nn.BatchNorm(use_running_average=True)(tokens))


def init_of(*modules):
    return lambda key: [module.init(key, SAMPLES.prompt) for module in modules]


@pytest.mark.parametrize(
    ("network", "said"),
    [
        (
            Model(lambda key: Kept().init(key, SAMPLES.prompt), Kept().apply),
            "Model has the collections batch_stats, con",
        ),
        (
            Model(init_of(Mlp(), Kept()), lambda params, p: Kept().apply(params[1], p), name="two"),
            "two has the collections batch_stats, constants beside params",
        ),
        (KeptTokens(), "KeptTokens has the collection batch_stats beside params"),
    ],
)
def test_collections_beside_params_are_refused_by_name(network, said):
    for start in (icl_lab.train, training):
        with pytest.raises(ValueError, match=f"network {said}"):
            start(network, SAMPLER, **{name: value for name, value in SMALL.items() if name != "progress"})


def test_parameters_alone_are_taken_also_beside_empty_collections():
    model = Model(lambda key: {**Mlp().init(key, SAMPLES.prompt), "constants": {}}, Mlp().apply)
    training(model, SAMPLER)
    training(Model(lambda key: {"w": jnp.ones(1), "constants": jnp.ones(1)}, lambda params, p: means(p)), SAMPLER)


def test_labels_are_asked_as_they_are_drawn():
    labels = logistic_regression(context_length=N, input_size=D)
    counted = of_weight(lambda w, p: w * p.y[:, :, 0].sum(1, keepdims=True))
    icl_lab.train(counted, labels, objective=lambda f, s: jax.nn.softplus(-f * s.target)[:, 0], **SMALL)
