"""Losses over many tasks are means over exactly as many as were asked for, a remainder of the chunks included."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.dai import momentum_regression
from experiments.settings import member_keys
from experiments.training import always, paired_losses
from experiments.zhang_frei_bartlett import random_covariance
from icl_lab.prompts import Prompt, Sample, random_covariance_regression


def recording(sampler, sizes):
    """The sampler, noting how many tasks it is asked for."""

    def draw(key, batch):
        sizes.append(batch)
        return sampler(key, batch)

    return draw


def one_number(key, batch):
    """Tasks whose answer is one random number."""
    prompt = Prompt(jnp.zeros((batch, 1, 1)), jnp.zeros((batch, 1, 1)), jnp.zeros((batch, 1)))
    return Sample(prompt, jax.random.normal(key, (batch, 1)), {})


def zero(prompts):
    return jnp.zeros((prompts.x.shape[0], 1))


@pytest.mark.parametrize("tasks", [3, 8, 11])
def test_the_mean_is_over_every_task_that_is_asked_for(tasks):
    sizes, keys = [], jax.random.split(jax.random.key(0), 2)
    law = always(recording(one_number, sizes))
    found = paired_losses(lambda _: {"zero": zero}, law, jnp.zeros(2), keys, tasks, chunk=4)
    parts = [4] * (tasks // 4) + [tasks % 4] * (tasks % 4 > 0)
    assert sorted(set(sizes)) == sorted(set(parts))
    for key, loss in zip(keys, found["zero"], strict=True):
        drawn = [one_number(k, size).target for k, size in zip(jax.random.split(key, len(parts)), parts)]
        np.testing.assert_allclose(loss, 0.5 * np.mean(np.concatenate(drawn) ** 2), rtol=1e-6)


def test_whole_chunks_give_the_bits_of_their_plain_mean():
    key = jax.random.key(1)
    found = paired_losses(lambda _: {"zero": zero}, always(one_number), jnp.zeros(1), key[None], 12, chunk=4)
    loss = lambda k: (0.5 * jnp.sum(one_number(k, 4).target ** 2, axis=1)).mean()  # noqa: E731
    plain = jax.jit(lambda k: jnp.mean(jax.lax.map(loss, jax.random.split(k, 3))))(key)
    np.testing.assert_array_equal(found["zero"], plain[None])


def test_final_losses_of_momentum_regression_count_every_task(monkeypatch):
    config = dataclasses.replace(
        momentum_regression.PRESETS["smoke"], mixers=("vanilla",), members=1, population_tasks=15_000
    )
    sizes = []
    draw = recording(momentum_regression._sampler(config, 2), sizes)
    monkeypatch.setattr(momentum_regression, "_sampler", lambda *_: draw)
    learners = lambda params, own: {"trained": zero}  # noqa: E731
    found = momentum_regression._finals(config, jnp.zeros(1), {"own": jnp.zeros(1)}, 2, learners)
    assert sorted(set(sizes)) == [5_000, 10_000]
    first, rest = jax.random.split(member_keys(config, 902)[0])
    drawn = jax.jit(draw, static_argnums=1)
    answers = np.concatenate([drawn(first, 10_000).target, drawn(rest, 5_000).target])
    np.testing.assert_allclose(found["final"]["trained"], [0.5 * np.mean(answers**2)], rtol=1e-5)


def test_the_conditional_prediction_of_random_covariances_counts_every_prompt(monkeypatch):
    config = dataclasses.replace(random_covariance.PRESETS["smoke"], members=1, risk_tasks=15_000)
    monkeypatch.setattr(random_covariance, "predictions", lambda _, prompts: jnp.abs(prompts.x_query[:, :1]))
    sizes = []
    draw = recording(random_covariance_regression(context_length=3, input_size=1), sizes)
    keys = member_keys(config, 3)
    found = random_covariance._conditional(config, draw, {"none": jnp.zeros(1)}, keys)
    assert sorted(set(sizes)) == [5_000, 10_000]
    first, rest = jax.random.split(keys[0])
    drawn = [jax.jit(draw, static_argnums=1)(*of) for of in ((first, 10_000), (rest, 5_000))]
    query, w = (np.concatenate(parts) for parts in zip(*((s.prompt.x_query, s.latent["w"][..., 0]) for s in drawn)))
    answer = w * query
    np.testing.assert_allclose(found["slope"], [(np.abs(query) * answer).sum() / (answer**2).sum()], atol=1e-5)
