"""Optimizers that draw random numbers, and rates by member: members stay independent, wrong readings are refused."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import icl_lab
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts import linear_regression
from icl_lab.training.fitting import fit
from icl_lab.training.optimizers import check_rate

KEYS = jax.random.split(jax.random.key(0), 3)
RATES = jnp.array([1e-3, 2e-3, 3e-3])
SAMPLER = linear_regression(context_length=3, input_size=2)


def init(key, setting):
    return {"w": jnp.zeros((2, 3)), "b": jnp.zeros(3)}


def loss(params, key, setting):
    return 0.5 * jnp.sum((params["w"] - 1) ** 2) + jnp.sum(params["b"] ** 2)


def ended(optimizer, keys=KEYS, **options):
    """(M, 9) parameters after three steps from one start on one loss: only the optimizer can tell members apart."""
    params = fit(init, loss, optimizer, keys, steps=3, **options).params
    return np.concatenate([params["w"].reshape(len(keys), -1), params["b"]], axis=1)


def noisy(seed=0):
    return optax.chain(optax.add_noise(1.0, 0.55, jax.random.key(seed)), optax.sgd(0.1))


@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [
        (noisy(), None),
        (lambda rate: optax.chain(optax.add_noise(1.0, 0.55, 0), optax.sgd(rate)), RATES * 0 + 0.1),
        (optax.MultiSteps(noisy(), 1), None),
        (optax.noisy_sgd(0.1, key=7), None),
    ],
    ids=["chain", "of a setting", "inside", "noisy_sgd"],
)
def test_members_draw_noise_of_their_own(optimizer, settings):
    """Independent: the noise of two members is as different as that of one member and another training."""
    params = ended(optimizer, settings=settings)
    quiet = ended(optax.sgd(0.1))
    noise = (params - quiet) / np.std(params - quiet)
    assert len({row.tobytes() for row in noise}) == 3
    assert (np.abs(noise[:, None] - noise[None]) > 1e-6).sum() >= 6 * 8


def test_noise_is_that_of_the_seed_and_of_the_member_alone():
    first = ended(noisy())
    np.testing.assert_array_equal(ended(noisy()), first)
    np.testing.assert_array_equal(ended(noisy(), KEYS[1:]), first[1:])
    assert (ended(noisy(1)) != first).any(axis=1).all()


def with_state(state, draw):
    """A descent with noise that is drawn by its state, or whatever else ``draw`` takes."""

    def update(gradient, state, params=None):
        noise, state = draw(state)
        return jax.tree.map(lambda leaf: noise - 0.1 * leaf, gradient), state

    return optax.GradientTransformation(lambda params: state() if callable(state) else state, update)


def of_numpy():
    """A descent whose noise numpy draws while the program is made."""

    def moved(leaf):
        return np.random.default_rng().normal(size=leaf.shape).astype(np.float32) - 0.1 * leaf

    return optax.GradientTransformation(
        lambda params: (), lambda gradient, state, params=None: (jax.tree.map(moved, gradient), state)
    )


def in_a_loop(count):
    body = lambda i, total: total + jax.random.normal(jax.random.fold_in(jax.random.key(0), i))  # noqa: E731
    return jax.lax.fori_loop(0, 2, body, 0.0), count + 1


def in_a_branch(count):
    noise = lambda: jax.random.normal(jax.random.fold_in(jax.random.key(0), count))  # noqa: E731
    return jax.lax.cond(count > 0, noise, lambda: 0.0), count + 1


@pytest.mark.parametrize(
    "optimizer",
    [
        with_state(
            jnp.int32(0), lambda count: (jax.random.normal(jax.random.fold_in(jax.random.key(0), count)), count)
        ),
        with_state(jax.random.PRNGKey(0), lambda key: (jax.random.normal(key), jax.random.split(key)[0])),
        with_state(lambda: jax.random.normal(jax.random.key(0)), lambda drawn: (drawn, drawn)),
        with_state(jnp.int32(0), in_a_loop),
        with_state(jnp.int32(0), in_a_branch),
        optax.chain(noisy(), with_state(jnp.int32(0), in_a_loop)),
        of_numpy(),
    ],
    ids=[
        "a key of its own",
        "an untyped key",
        "at its start",
        "in a loop",
        "in a branch",
        "beside a good one",
        "numpy",
    ],
)
def test_noise_that_would_be_the_same_for_all_members_is_refused(optimizer):
    with pytest.raises(ValueError, match="optimizer draws the same random numbers for all members"):
        ended(optimizer)


def test_a_key_in_the_setting_of_a_member_is_its_own():
    keyed = with_state(jnp.int32(0), lambda count: (jax.random.normal(jax.random.key(0)), count))
    with pytest.raises(ValueError, match="draws the same random numbers"):
        ended(lambda _: keyed, settings=KEYS)
    of_key = lambda key: with_state(jnp.int32(0), lambda count: (jax.random.normal(key), count))  # noqa: E731
    assert (ended(of_key, settings=KEYS).std(axis=0) > 0).all()


class Falling:
    def __call__(self, step):
        return 1e-3 / (1 + step)


@pytest.mark.parametrize(
    "schedule",
    [
        lambda step: 1e-3,
        lambda count, scale=1e-3: scale,
        Falling(),
        functools.partial(lambda scale, step: scale, 1e-3),
        optax.cosine_decay_schedule(1e-3, 5),
        optax.warmup_cosine_decay_schedule(0.0, 1e-3, 1, 4),
        optax.constant_schedule(1e-3),
        optax.linear_schedule(1e-3, 0.0, 3),
    ],
)
def test_schedules_beside_settings(schedule):
    check_rate(schedule, RATES)


@pytest.mark.parametrize("function", [lambda r: r, lambda rate, step: rate, lambda: 1e-3, max, jnp.sqrt])
def test_another_function_beside_settings_is_no_schedule(function):
    with pytest.raises(ValueError, match=r"learning_rate: .* beside settings; .* named step or count; .*optimizer="):
        icl_lab.train(
            LinearSelfAttention(), lambda _: SAMPLER, members=3, steps=2, settings=RATES, learning_rate=function
        )


@pytest.mark.parametrize(
    "rate", [lambda step: float(step), lambda step: None, lambda: 1.0, optax.adam, optax.adam(1e-3), True, [1e-3, 1e-3]]
)
def test_what_is_no_learning_rate_is_refused_in_one_sentence(rate):
    with pytest.raises(ValueError, match=r"^learning_rate must [^\n]*$"):
        check_rate(rate, None)


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda rate: optax.adamw(optax.warmup_cosine_decay_schedule(0.0, rate, 2, 10)),
        lambda rate: optax.adam(float(rate)),
        lambda rate: optax.adam(np.sqrt(rate)),
    ],
)
def test_a_peak_that_has_no_value_yet_is_explained(optimizer):
    with pytest.raises(
        ValueError, match=r"optimizer: .* needs the value of a number .* a schedule for a peak of 1"
    ) as e:
        ended(optimizer, settings=RATES)
    assert "gets the gradient" not in str(e.value)
    assert "\n" not in str(e.value)


def test_what_the_refusal_shows_works():
    """The rates of members are those of the schedule of each."""
    unit = optax.warmup_cosine_decay_schedule(0.0, 1.0, 2, 10)
    together = ended(lambda rate: optax.adam(lambda step: rate * unit(step)), settings=RATES)
    for rate, params in zip(RATES.tolist(), together):
        alone = ended(optax.adam(optax.warmup_cosine_decay_schedule(0.0, rate, 2, 10)))
        np.testing.assert_allclose(params, alone[0], rtol=1e-5)


def test_a_step_whose_decision_has_no_value_is_told_without_settings():
    deciding = optax.stateless(lambda gradient, params: gradient if gradient["b"].sum() > 0 else params)
    with pytest.raises(ValueError, match=re.escape("allowed is jnp.where(...)")):
        ended(optax.chain(deciding, optax.sgd(0.1)))
