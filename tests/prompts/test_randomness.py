"""All randomness of a sampler is its key's: a part that does not follow it, or another source, is told by name."""

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import icl_lab
from icl_lab.compare import implied_prior
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts import Prompt, Sample, linear_regression, same_tasks, sine_regression
from icl_lab.prompts.prompt import check_sampler
from icl_lab.solvers import gradient_descent, ridge

N, D = 4, 2
LINEAR = linear_regression(context_length=N, input_size=D)
PARTS = ("x", "y", "x_query", "target")


def changed(**parts):
    """The linear tasks with some parts made from them by a function of the part's array."""

    def draw(key, batch):
        drawn = LINEAR(key, batch)
        arrays = {"x": drawn.prompt.x, "y": drawn.prompt.y, "x_query": drawn.prompt.x_query, "target": drawn.target}
        x, y, query, target = (parts.get(name, lambda array: array)(arrays[name]) for name in PARTS)
        return Sample(Prompt(x, y, query), target, drawn.latent)

    return draw


def of_numpy(array):
    return np.random.default_rng(0).normal(size=array.shape).astype(np.float32)


def half_in_numpy(key, batch):  # the inputs of numpy, the weights of the key
    x = np.random.default_rng(0).normal(size=(batch, N, D)).astype(np.float32)
    weights, query = jax.random.normal(key, (batch, D, 1)), jax.random.normal(key, (batch, D))
    return Sample(Prompt(jnp.asarray(x), x @ weights, query), jnp.einsum("bd,bdo->bo", query, weights), {})


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_does_not_follow_the_key_is_named(part):
    for frozen in (of_numpy, jnp.ones_like):
        with pytest.warns(RuntimeWarning, match=rf"tasks draws the same {part} whatever its key"):
            check_sampler("tasks", changed(**{part: frozen}), 5)


def test_several_are_named_together_and_all_are_refused():
    with pytest.warns(RuntimeWarning, match="tasks draws the same x and x_query whatever its key"):
        check_sampler("tasks", changed(x=of_numpy, x_query=of_numpy), 5)
    with pytest.raises(ValueError, match="tasks draws the same tasks whatever its key"):
        check_sampler("tasks", changed(**dict.fromkeys(PARTS, of_numpy)), 5)


def test_train_warns_once_of_the_sampler_that_is_half_in_numpy():
    options = {"members": 1, "steps": 1, "batch": 4, "eval_tasks": 4, "progress": False}
    for given, name in (
        ({"sampler": half_in_numpy}, "sampler"),
        ({"sampler": LINEAR, "training_sampler": half_in_numpy}, "training_sampler"),
    ):
        with pytest.warns(RuntimeWarning, match=f"^{name} draws the same x whatever its key") as told:
            icl_lab.train(LinearSelfAttention(), **given, **options)
        assert len(told) == 1


RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    "noise",
    [
        lambda array: array + np.random.randn(*array.shape).astype(np.float32),
        lambda array: array * random.random(),
        lambda array: array + RNG.normal(),
        lambda array: jax.jit(lambda values: values * np.float32(RNG.normal()))(array),
    ],
)
def test_another_source_beside_the_key_is_told(noise):
    with pytest.warns(RuntimeWarning, match="tasks is another program each time it is traced"):
        check_sampler("tasks", changed(y=noise), 5)


def empty(key, batch):
    """Prompts without examples."""
    drawn = LINEAR(key, batch)
    return Sample(Prompt(drawn.prompt.x[:, :0], drawn.prompt.y[:, :0], drawn.prompt.x_query), drawn.target, {})


def called_back(method):
    """Inputs that numpy draws, seeded from the key, when the program runs."""

    def draw(key, batch):
        shape = jax.ShapeDtypeStruct((batch, N, D), np.float32)
        drawn = lambda words: np.random.default_rng(np.asarray(words)).normal(size=shape.shape).astype(np.float32)  # noqa: E731
        x = jax.pure_callback(drawn, shape, jax.random.key_data(key), vmap_method=method)
        return Sample(Prompt(x, x[:, :, :1], x[:, 0]), x[:, 0, :1], {})

    return draw


@pytest.mark.parametrize(
    "sampler",
    [
        LINEAR,
        sine_regression(context_length=N),
        changed(y=lambda array: array + of_numpy(array)),  # a constant that is the same each time
        changed(x=lambda array: 0 * array),
        same_tasks(changed(x=of_numpy), jax.random.key(0)),
        empty,
        called_back("sequential"),
        jax.jit(LINEAR, static_argnums=1),
    ],
)
def test_what_follows_its_key_is_taken_without_a_word(sampler):  # warnings are errors here
    check_sampler("tasks", sampler, 5)


@pytest.mark.parametrize(
    "seeded",
    [
        np.random.default_rng,
        np.random.seed,
        random.seed,
        hash,
        lambda key: np.random.default_rng(int(jax.random.key_data(key)[0])),
        lambda key: np.random.RandomState(np.asarray(jax.random.key_data(key))),
        lambda key: jax.random.key_data(key).tolist(),
    ],
)
def test_a_sampler_that_seeds_another_generator_from_its_key_is_told_of_callbacks(seeded):
    def draw(key, batch):
        seeded(key)
        return LINEAR(key, batch)

    for given in ({"sampler": draw}, {"sampler": LINEAR, "training_sampler": draw}):
        with pytest.raises(ValueError, match=f"^{list(given)[-1]} must draw inside a program, .* jax.pure_callback"):
            icl_lab.train(LinearSelfAttention(), **given)


@pytest.mark.parametrize(
    ("sampler", "said"),
    [
        (called_back(None), "tasks must draw for several members at once.*vmap_method='sequential'"),
        (lambda key, batch: LINEAR(key, batch).prompt.x + "a", r"tasks\(key, 5\) raised TypeError: "),
        (lambda key, batch: LINEAR(key, batch).prompt, "tasks must give a Sample, got Prompt"),
    ],
)
def test_a_sampler_that_fails_inside_is_not_said_to_be_no_function_of_key_and_batch(sampler, said):
    with pytest.raises(ValueError, match=said) as caught:
        check_sampler("tasks", sampler, 5)
    assert "\n" not in str(caught.value)


def test_parts_that_are_not_used_may_be_anything():
    certain = lambda prompts: (np.zeros((len(prompts.x), 1)), np.ones((len(prompts.x), 1)))  # noqa: E731
    inputs = changed(y=jnp.zeros_like, target=jnp.zeros_like)
    assert implied_prior(certain, inputs, jax.random.key(0), rollouts=3).tasks.shape == (3, D)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: linear_regression(noise=0.1),
            r"linear_regression\(\) has no option 'noise'; did you mean label_noise\?",
        ),
        (
            lambda: linear_regression(10, 5),
            r"linear_regression\(\) got 2 arguments without a name; .*\(context_length=",
        ),
        (lambda: sine_regression(q=1), r"sine_regression\(\) has no option 'q'; allowed are context_length, "),
        (lambda: ridge(lamda=0.1), r"ridge\(\) has no option 'lamda'; allowed are strength"),
        (lambda: gradient_descent(0.1, step=2), r"gradient_descent\(\) has no option 'step'; did you mean steps\?"),
    ],
)
def test_an_option_that_there_is_not_is_named_with_one_that_is(call, said):
    with pytest.raises(TypeError, match=said):
        call()
