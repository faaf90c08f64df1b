"""What holds for every exported sampler: a new one without an example here fails."""

import typing

import jax
import numpy as np
import pytest

from icl_lab import prompts
from icl_lab.prompts.prompt import check_sampler

LINEAR = prompts.linear_regression(context_length=3, input_size=5)
SAMPLERS = {
    "context_in_an_orthant": prompts.context_in_an_orthant(LINEAR),
    "correlated_context": prompts.correlated_context(LINEAR, 0.5),
    "gaussian_regression": prompts.gaussian_regression(context_length=3, covariance=np.eye(5)),
    "in_a_subspace": prompts.in_a_subspace(LINEAR, 2),
    "item_label_classification": lambda key, batch: prompts.item_label_classification(
        prompts.item_label_law(jax.random.key(1), classes=8, labels=4, input_size=5), context_length=4
    )(key, batch),
    "linear_regression": LINEAR,
    "logistic_regression": prompts.logistic_regression(context_length=3, input_size=5),
    "random_covariance_regression": prompts.random_covariance_regression(context_length=3, input_size=5),
    "sine_regression": prompts.sine_regression(context_length=3),
    "with_orthogonal_query": prompts.with_orthogonal_query(LINEAR),
}
FIXED = {"same_tasks"}  # the same tasks whatever the key: that is what it is for
BATCH = 6


def test_every_exported_sampler_has_an_example():
    returned = {
        name: typing.get_type_hints(made).get("return")
        for name in prompts.__all__
        if callable(made := getattr(prompts, name)) and not isinstance(made, type) and hasattr(made, "__annotations__")
    }
    assert {name for name, kind in returned.items() if kind == prompts.Sampler} == SAMPLERS.keys() | FIXED


@pytest.mark.parametrize("name", SAMPLERS)
def test_training_takes_every_sampler(name):
    check_sampler(name, SAMPLERS[name], BATCH)


@pytest.mark.parametrize("batch", [1, 65])  # more than a block of random numbers
@pytest.mark.parametrize("name", SAMPLERS)
def test_shapes_and_types(name, batch):
    sample = jax.jit(SAMPLERS[name], static_argnums=1)(jax.random.key(0), batch)
    n, d = {"sine_regression": (3, 1), "item_label_classification": (4, 5)}.get(name, (3, 5))
    classes = name == "item_label_classification"
    shapes = [leaf.shape for leaf in (sample.prompt.x, sample.prompt.y, sample.prompt.x_query, sample.target)]
    assert shapes == [(batch, n, d), (batch, n, d if classes else 1), (batch, d), (batch,) if classes else (batch, 1)]
    assert {leaf.dtype for leaf in jax.tree.leaves(sample)} <= {np.dtype("float32"), np.dtype("int32"), np.dtype(bool)}
    assert all(len(leaf) == batch for leaf in jax.tree.leaves(sample.latent))
    assert sample.target.dtype == (np.int32 if classes else np.float32)


LAWS = {
    "linear": (prompts.linear_regression, lambda s: {"label_noise": s, "input_range": 1 + s, "task_scale": s}),
    "random covariance": (prompts.random_covariance_regression, lambda s: {"law": "lognormal", "shape": s, "scale": s}),
    "sine": (prompts.sine_regression, lambda s: {"input_range": s, "amplitude": (0.1, s)}),
    "logistic": (prompts.logistic_regression, lambda s: {"input_range": s, "task_scale": s}),
}


@pytest.mark.parametrize("name", LAWS)
def test_a_law_may_be_traced(name):
    make, law = LAWS[name]
    sizes = {"context_length": 2} | ({} if name == "sine" else {"input_size": 3})
    draw = lambda s: make(**sizes, **law(s))(jax.random.key(0), 70)  # noqa: E731
    for a, b in zip(jax.tree.leaves(jax.jit(draw)(np.float32(0.5))), jax.tree.leaves(draw(0.5)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", SAMPLERS)
def test_draws_follow_the_key_tasks_differ_and_the_query_is_not_in_the_context(name):
    draw = jax.jit(SAMPLERS[name], static_argnums=1)
    drawn, again, other = (draw(jax.random.key(seed), BATCH) for seed in (0, 0, 2))
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(drawn), jax.tree.leaves(again), strict=True))
    parts = zip(jax.tree_util.tree_leaves_with_path(drawn), jax.tree.leaves(other), strict=True)
    assert [jax.tree_util.keystr(path) for (path, leaf), another in parts if same(path, leaf, another)] == []
    for part in ("x", "x_query"):
        inputs, others = (getattr(sample.prompt, part).reshape(BATCH, -1) for sample in (drawn, other))
        assert np.all(inputs != others)
        assert len(np.unique(inputs, axis=0)) == BATCH
    assert not np.any(np.all(drawn.prompt.x == drawn.prompt.x_query[:, None], axis=2))
    if np.unique(drawn.target).size == drawn.target.size:  # not of classes
        assert not np.any(drawn.prompt.y == drawn.target[:, None])


def same(path, leaf, another):
    """Whether a part that chance decides is the same for two keys; where positions begin, it does not."""
    return np.array_equal(leaf, another) and path[-1] != jax.tree_util.GetAttrKey("offset")


def test_a_fixed_set_of_tasks_is_that_of_its_own_key():
    fixed = jax.jit(prompts.same_tasks(LINEAR, jax.random.key(3)), static_argnums=1)
    drawn, other = (fixed(jax.random.key(seed), BATCH) for seed in (0, 1))
    expected = jax.jit(LINEAR, static_argnums=1)(jax.random.key(3), BATCH)
    assert jax.tree.leaves(drawn.latent)
    for leaves in zip(*map(jax.tree.leaves, (drawn, other, expected)), strict=True):
        assert all(np.array_equal(leaf, leaves[0]) for leaf in leaves)
