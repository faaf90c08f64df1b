"""Every prefix of a context: losses, causal networks, objectives, padded contexts, curricula."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from linear_tasks import linear_tasks

from icl_lab.compare import from_every_prefix, prefix_losses
from icl_lab.fast import batch_learner
from icl_lab.models import GPT, Transformer, learner, prefix_predictions
from icl_lab.prompts import Prompt, Sample, linear_regression, one_prompt
from icl_lab.prompts.layouts import alternating_layout, causal_layout, separate_layout
from icl_lab.solvers import averaging, gradient_descent, lasso, least_squares, newton, ridge
from icl_lab.training import curriculum, every_prefix, fit, rising, training

KEY = jax.random.key(3)
N, D = 4, 3
PREFIXES = alternating_layout(prefixes=True)
GPT_SMALL = GPT(layers=1, heads=2, width=8)
LINEAR = Transformer(layers=1, heads=2, attention="linear", averaged=True, query_as_key=True)
SOFTMAX = Transformer(layers=2, attention="softmax", mlp_width=5)


def weights(network, width, seed=0):
    """Weights so large that every part matters."""
    shapes = jax.eval_shape(network.init, KEY, jax.ShapeDtypeStruct((3, width), jnp.result_type(float)))
    draw = np.random.default_rng(seed).normal
    return jax.tree.map(lambda leaf: jnp.asarray(0.5 * draw(size=leaf.shape), leaf.dtype), shapes)


def padded(samples, lengths):
    """The same tasks with contexts cut to these lengths and filled up with zeros."""
    lengths = jnp.asarray(lengths, jnp.int32)
    kept = (jnp.arange(N)[None] < lengths[:, None])[..., None]
    prompt = samples.prompt
    return dataclasses.replace(
        samples,
        prompt=prompt.replace(x=jnp.where(kept, prompt.x, 0), y=jnp.where(kept, prompt.y, 0), length=lengths),
    )


def cut(samples, length, task):
    prompt = jax.tree.map(lambda leaf: leaf[task], samples.prompt)
    return Prompt(prompt.x[:length], prompt.y[:length], prompt.x_query)


def test_least_squares_knows_k_of_d_directions_and_zero_is_said_without_examples(x64):
    samples = linear_regression(context_length=N, input_size=D, input_law="normal")(KEY, 4000)
    losses = 2 * jax.jit(functools.partial(prefix_losses, least_squares()))(samples) / D
    answers = np.concatenate([samples.prompt.y, samples.target[:, None]], axis=1)
    np.testing.assert_allclose(losses[0], (answers[:, 0] ** 2).mean() / D, rtol=1e-6)
    np.testing.assert_allclose(losses[: D + 1], 1 - np.arange(D + 1) / D, atol=0.12)  # squares of normals: 4 errors
    np.testing.assert_allclose(losses[D:], 0, atol=1e-9)


def test_a_prefix_is_a_prompt_that_ends_there(x64):
    samples = linear_tasks(N, D)
    params = weights(GPT_SMALL, D)
    whole = learner(GPT_SMALL, params, PREFIXES)
    each = from_every_prefix(learner(GPT_SMALL, params, alternating_layout()))
    assert from_every_prefix(whole)(jax.tree.map(lambda leaf: leaf[0], samples.prompt)).shape == (N + 1, 1)

    @jax.jit
    def predicted(prompts):
        cut_there = jax.vmap(from_every_prefix(ridge(0.1)))(prompts)
        return (
            [jax.vmap(one)(prompts) for one in (whole, each)],
            prefix_predictions(GPT_SMALL, params, prompts),
            cut_there,
        )

    (found, expected), fast, of_ridge = predicted(samples.prompt)
    np.testing.assert_allclose(found, expected, atol=1e-10)
    np.testing.assert_allclose(fast, expected, atol=1e-10)
    x, y, query = (np.asarray(part[0]) for part in (samples.prompt.x, samples.prompt.y, samples.prompt.x_query))
    for k, asked in ((2, x[2]), (N, query)):
        w = np.linalg.solve(x[:k].T @ x[:k] + 0.1 * np.eye(D), x[:k].T @ y[:k])
        np.testing.assert_allclose(of_ridge[0, k], asked @ w, rtol=1e-9)


@pytest.mark.parametrize("options", [{}, {"query_as_key": True, "averaged": True, "attention": "linear"}])
def test_one_causal_layer_does_for_every_prefix_what_it_does_for_a_prompt_that_ends_there(options, x64):
    network = Transformer(heads=2, causal=True, **options)
    params, samples = weights(network, D + 2), linear_tasks(N, D, 2)
    alone = from_every_prefix(learner(network.clone(causal=False), params))
    found = {
        "plain": jax.vmap(learner(network, params, causal_layout())),
        "batched": batch_learner(network, params, causal_layout()),
    }
    expected = jax.jit(jax.vmap(alone))(samples.prompt)
    assert np.abs(expected[:, 1:]).min() > 1e-6
    for name, predict in found.items():
        np.testing.assert_allclose(jax.jit(predict)(samples.prompt), expected, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("attention", ["linear", "softmax"])
def test_of_a_causal_stack_both_forms_agree_and_no_prefix_feels_what_comes_later(attention, x64):
    network = Transformer(layers=2, heads=2, attention=attention, mlp_width=4, layer_norm=True, causal=True)
    params, samples = weights(network, D + 1), linear_tasks(N, D)
    plain = jax.vmap(learner(network, params, causal_layout()))
    fast = batch_learner(network, params, causal_layout())

    @jax.jit
    def pulled(prompts):
        values, pulls = zip(*(jax.vjp(form, prompts) for form in (plain, fast)))
        units = jnp.eye(N + 1)[:, None, :, None] * jnp.ones((1, *values[0].shape))
        return values, [jax.vmap(pull)(units)[0] for pull in pulls]

    values, moved = pulled(samples.prompt)
    np.testing.assert_allclose(*values, atol=1e-10)
    for ours, theirs in zip(jax.tree.leaves(moved[0]), jax.tree.leaves(moved[1])):
        np.testing.assert_allclose(ours, theirs, atol=1e-9)
    felt = np.any(np.asarray(moved[1].y) != 0, axis=(1, 3))  # of which labels
    assert np.array_equal(felt, np.tril(np.ones((N + 1, N), bool), -1))


def test_every_prefix_is_the_mean_over_prefixes_of_what_is_trained_and_measured():
    sampler = linear_regression(context_length=N, input_size=D)
    references = {"ridge": jax.vmap(from_every_prefix(ridge(1.0)))}
    for network, layout in (
        (GPT_SMALL, PREFIXES),
        (LINEAR.clone(causal=True), causal_layout()),
        (Transformer(causal=True), causal_layout()),
    ):
        options = {"layout": layout, "objective": every_prefix, "members": 1, "steps": 2, "batch": 4, "eval_tasks": 5}
        planned = training(network, sampler, references=references if network is GPT_SMALL else None, **options)

        @jax.jit
        def found(key, planned=planned):
            params, samples = planned.init(key, None), sampler(key, 4)
            alone = one_prompt(planned.learner(params))
            return planned.loss(params, key, None), prefix_losses(alone, samples), planned.measure(params, key, None)

        loss, losses, measured = found(KEY)
        np.testing.assert_allclose(loss, losses.mean(), rtol=1e-5)
        assert losses.shape == (N + 1,)
        if network is GPT_SMALL:
            assert measured["ridge_prediction_difference"].shape == (N + 1,)


def test_of_padded_contexts_the_prefixes_that_there_are_count(x64):
    samples = linear_tasks(N, D, batch=3)
    short, lengths = padded(samples, [1, 3, 4]), (1, 3, 4)
    network, params = LINEAR.clone(causal=True, layers=2), weights(LINEAR.clone(layers=2), D + 1)
    gpt_params = weights(GPT_SMALL, D)
    for run, layout, net, p in (
        (lambda prompts: prefix_predictions(GPT_SMALL, gpt_params, prompts), PREFIXES, GPT_SMALL, gpt_params),
        (batch_learner(network, params, causal_layout()), causal_layout(), network, params),
    ):

        @jax.jit
        def both(short, samples, run=run, layout=layout, net=net, p=p):
            predict, curves = learner(net, p, layout), []
            for task, length in enumerate(lengths):
                one = jax.tree.map(lambda leaf: leaf[None], cut(samples, length, task))
                curves += [prefix_losses(predict, Sample(one, samples.target[task : task + 1], {}))]
            curve_of_all = [jnp.stack([curve[k] for curve in curves if k < len(curve)]).mean() for k in range(N + 1)]
            means = every_prefix(run(short.prompt), short), jnp.stack([curve.mean() for curve in curves])
            return means, (prefix_losses(predict, short), jnp.stack(curve_of_all))

        for found, expected in both(short, samples):
            np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("network", [LINEAR, SOFTMAX, LINEAR.clone(layers=2, query_as_key=False)], ids=str)
def test_a_padded_context_is_the_shorter_one(network, x64):
    samples = linear_tasks(N, D, batch=3)
    short, lengths = padded(samples, [0, 2, 4]), (0, 2, 4)
    params = weights(network, D + 1)

    @jax.jit
    def found(short, samples):
        alone = learner(network, params)
        expected = [alone(cut(samples, length, task)) for task, length in enumerate(lengths)]
        return expected, jax.vmap(alone)(short.prompt), batch_learner(network, params)(short.prompt)

    expected, plain, fast = found(short, samples)
    np.testing.assert_allclose(plain, expected, atol=1e-10)
    np.testing.assert_allclose(fast, expected, atol=1e-10)


@pytest.mark.parametrize("solver", [ridge(0.3), least_squares(), gradient_descent(0.5, 3), averaging(), lasso(0.05)])
def test_solvers_that_take_padded_contexts_do_not_count_zeros(solver, x64):
    samples = linear_tasks(N, D, batch=2)

    @jax.jit
    def both(short, samples):
        return jax.vmap(solver)(short), [solver(cut(samples, n, task)) for task, n in enumerate((2, 4))]

    np.testing.assert_allclose(*both(padded(samples, [2, 4]).prompt, samples), atol=1e-10)


def test_gpt_asked_at_the_end_of_a_padded_context(x64):
    samples, params = linear_tasks(N, D, batch=2), weights(GPT_SMALL, D)
    run = learner(GPT_SMALL, params, alternating_layout())
    found, expected = jax.jit(lambda short: (jax.vmap(run)(short)[0], run(cut(samples, 2, 0))))(
        padded(samples, [2, 4]).prompt
    )
    np.testing.assert_allclose(found, expected, atol=1e-10)


class Tokens(nn.Module):
    @nn.compact
    def __call__(self, tokens, intervention=None, step=0):
        return tokens, None


def refused(*, network=None, layout=None, lengths=False, run=None):
    samples = linear_tasks(N, D, batch=2)
    samples = padded(samples, [2, 3]) if lengths else samples
    run = run or learner(network, {} if isinstance(network, Tokens) else weights(network, D + 1), layout)
    return run(jax.tree.map(lambda leaf: leaf[0], samples.prompt))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"network": LINEAR, "layout": causal_layout()}, "layout and Transformer must both be causal or neither"),
        ({"network": LINEAR.clone(causal=True)}, "must both be causal"),
        ({"network": GPT_SMALL, "layout": causal_layout()}, "layout and GPT must both be causal"),
        ({"network": LINEAR, "layout": PREFIXES}, "must both be causal"),
        ({"network": Tokens(), "lengths": True}, "Tokens: a padded context"),
        ({"network": LINEAR, "layout": separate_layout(4), "lengths": True}, "takes no padded context"),
        ({"run": newton(0.1, 2), "lengths": True}, "takes no padded context"),
        ({"run": from_every_prefix(ridge(1.0)), "lengths": True}, "with a padded context"),
        ({"run": from_every_prefix(lambda p: p.x_query)}, r"of shape \(3,\); allowed is \(1,\)"),
    ],
)
def test_what_does_not_fit_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        refused(**wrong)


def test_an_objective_of_prefixes_needs_predictions_of_prefixes_and_losses_need_batches():
    sampler = linear_regression(context_length=N, input_size=D)
    planned = training(LINEAR, sampler, objective=every_prefix, members=1, steps=2, batch=4, eval_tasks=5)
    with pytest.raises(ValueError, match=r"needs predictions \(4, 5, 1\) from every prefix, got \(4, 1\)"):
        fit(planned.init, planned.loss, planned.optimizer, planned.keys, steps=2)
    with pytest.raises(ValueError, match="samples must be"):
        prefix_losses(ridge(1.0), jax.tree.map(lambda leaf: leaf[0], linear_tasks(N, D)))


def test_lengths_are_uniform_and_the_examples_those_of_whole_contexts():
    law = {"input_size": D, "label_noise": 0.3, "input_law": "normal"}
    whole = linear_regression(context_length=5, **law)(KEY, 6000)
    short = linear_regression(context_length=(2, 5), **law)(KEY, 6000)
    length = np.asarray(short.prompt.length)
    counts = np.bincount(length, minlength=6)
    assert counts[:2].sum() == 0
    assert np.abs(counts[2:] - 1500).max() < 4 * np.sqrt(1500)
    kept = np.arange(5)[None] < length[:, None]
    for name in ("x", "y"):
        ours, theirs = (np.asarray(getattr(sample.prompt, name)) for sample in (short, whole))
        np.testing.assert_array_equal(ours[kept], theirs[kept])
        assert not np.any(ours[~kept])
    np.testing.assert_array_equal(short.target, whole.target)


def test_numbers_of_examples_and_inputs_may_be_traced_and_weights_are_sparse():
    @jax.jit
    def draw(examples, inputs):
        law = linear_regression(context_length=N, input_size=D, examples=examples, used_inputs=inputs, used_weights=2)
        return law(KEY, 3000)

    sample = draw(2, 1)
    assert np.all(np.asarray(sample.prompt.length) == 2)
    assert not np.any(sample.prompt.x[:, 2:])
    assert not np.any(sample.prompt.x[:, :, 1:])
    assert not np.any(sample.prompt.x_query[:, 1:])
    assert np.all(sample.prompt.x[:, :2, 0] != 0)
    used = np.asarray(sample.latent["w"])[..., 0] != 0
    assert np.all(used.sum(1) == 2)
    assert np.abs(used.mean(0) - 2 / 3).max() < 4 * np.sqrt(2 / 9 / 3000)
    w, prompt = sample.latent["w"], sample.prompt
    np.testing.assert_allclose(prompt.y, jnp.einsum("bnd,bdo->bno", prompt.x, w), atol=1e-6)
    np.testing.assert_allclose(sample.target, jnp.einsum("bd,bdo->bo", prompt.x_query, w), atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"context_length": (5, 4)}, r"context_length must be N, or \(least, most\)"),
        ({"context_length": (0, 4)}, "context_length must be"),
        ({"context_length": (2, 4), "examples": 3}, "context_length must be N"),
        ({"context_length": 4, "examples": 5}, "examples must be at least 1 and at most 4, got 5"),
        ({"context_length": 4, "used_inputs": 0}, "used_inputs must be at least 1 and at most 3"),
        ({"context_length": 4, "used_weights": 4}, "used_weights must be at least 1 and at most 3"),
        ({"context_length": (2, 4), "corrupted_labels": 1}, "corrupted_labels must be at least 0 and at most 0"),
    ],
)
def test_numbers_that_no_task_has_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        linear_regression(input_size=D, **options)


def test_a_curriculum_rises_in_stages_to_its_end_and_leaves_other_settings():
    schedule = curriculum(inputs=rising(1, 3, every=10), examples=rising(2, 9, by=4, every=5))
    stages = [{k: int(v) for k, v in schedule({"noise": 7}, jnp.int32(t)).items()} for t in (0, 4, 5, 9, 10, 60)]
    assert stages[0] == stages[1] == {"noise": 7, "inputs": 1, "examples": 2}
    assert stages[2] == stages[3] == {"noise": 7, "inputs": 1, "examples": 6}
    assert stages[4] == {"noise": 7, "inputs": 2, "examples": 9}
    assert stages[5] == {"noise": 7, "inputs": 3, "examples": 9}
    for wrong in ({"start": 3, "end": 2}, {"start": 1, "end": 2, "by": 0}, {"start": 1, "end": 2, "every": 0}):
        with pytest.raises(ValueError, match="must be"):
            rising(**({"every": 1} | wrong))
