"""What ``icl_lab.train`` takes beside sizes: an early end, curricula, rates in time, a start, another type, devices."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import icl_lab
from icl_lab.compare import mean_loss
from icl_lab.models import LinearSelfAttention
from icl_lab.prompts import linear_regression
from icl_lab.training import Model

SMALL = {"members": 2, "steps": 4, "batch": 4, "eval_tasks": 8, "measure_every": 1, "progress": False}
NETWORK = LinearSelfAttention(init_scale=0.1)


def sampler(noise=0.0):
    return linear_regression(context_length=4, input_size=2, label_noise=noise)


SHIFT = Model(lambda key: {"w": jnp.zeros(())}, lambda params, prompts: params["w"] + 0 * prompts.y[:, 0])


def shifted(to):
    """Tasks whose target is ``to``: half the squared error moves ``w`` towards it."""

    def draw(key, batch):
        samples = sampler()(key, batch)
        return type(samples)(samples.prompt, to + 0 * samples.target, samples.latent)

    return draw


def shift(**options):
    """The path of w under plain gradient descent of rate 0.5, on a target that the sampler says."""
    given = SMALL | {"members": 1, "optimizer": optax.sgd(0.5), "extra": lambda params, _: {"w": params["w"]}} | options
    return icl_lab.train(SHIFT, given.pop("sampler", shifted(1.0)), **given).fit


def test_until_ends_the_training_early():
    fitted = shift(until=lambda row: (row["w"] > 0.7).all())
    np.testing.assert_allclose(fitted.metrics["w"][0], [0, 0.5, 0.75])
    assert fitted.steps.tolist() == [0, 1, 2]


class Patience:
    """Ends a training after so many measurements; it keeps what it saw."""

    def __init__(self, most):
        self.most, self.seen = most, []

    def __call__(self, row):
        self.seen.append(float(row["w"][0]))
        return len(self.seen) >= self.most


def test_an_until_that_keeps_a_state_sees_every_measurement_once_also_with_a_folder_and_where_it_goes_on(tmp_path):
    alone, kept, gone_on = (Patience(6) for _ in range(3))
    straight = shift(until=alone, steps=20)
    assert straight.steps.tolist() == [0, 1, 2, 3, 4, 5]
    np.testing.assert_allclose(alone.seen, straight.metrics["w"][0])
    in_folder = shift(until=kept, steps=20, folder=tmp_path / "kept", name="a")
    assert (in_folder.steps.tolist(), kept.seen) == (straight.steps.tolist(), alone.seen)
    shift(until=Patience(6), steps=3, folder=tmp_path / "on", name="a")
    longer = shift(until=gone_on, steps=20, folder=tmp_path / "on", name="a")
    assert (longer.steps.tolist(), gone_on.seen) == (straight.steps.tolist(), alone.seen)


def test_a_schedule_is_a_curriculum_of_what_the_training_sampler_takes():
    """The target is 1 for two steps, then 3; measurements keep theirs."""
    rising = lambda _, step: jnp.where(step < 2, 1.0, 3.0)  # noqa: E731
    fitted = shift(training_sampler=shifted, schedule=rising)
    np.testing.assert_allclose(fitted.metrics["w"][0], [0, 0.5, 0.75, 1.875, 2.4375])
    np.testing.assert_allclose(fitted.metrics["loss"][0, -1], (2.4375 - 1) ** 2 / 2, rtol=1e-5)
    of_setting = shift(
        sampler=shifted, settings=jnp.array([1.0]), schedule=lambda s, step: s + 2 * (step > 1), steps=4
    )  # fmt: skip
    np.testing.assert_allclose(of_setting.metrics["w"], fitted.metrics["w"])
    np.testing.assert_allclose(of_setting.metrics["loss"], fitted.metrics["loss"])
    with pytest.raises(ValueError, match="schedule: no sampler depends on what it gives"):
        shift(schedule=rising)
    with pytest.raises(ValueError, match="setting -> sampler, as there is a schedule"):
        shift(schedule=rising, training_sampler=sampler())


def test_a_sampler_may_look_up_what_it_draws_in_its_setting():
    def from_table(targets):
        return lambda key, batch: shifted(targets[jax.random.randint(key, (), 0, 3)])(key, batch)

    fitted = shift(sampler=from_table, settings=np.ones((1, 3)))
    np.testing.assert_allclose(fitted.metrics["w"][0], 1 - 0.5 ** np.arange(5))


def test_a_learning_rate_may_be_a_schedule():
    half = optax.piecewise_constant_schedule(1e-2, {2: 0.5})
    network = lambda **given: icl_lab.train(NETWORK, sampler(), **SMALL, **given).fit.params  # noqa: E731
    one = network(learning_rate=half)
    other = network(optimizer=optax.chain(optax.clip_by_global_norm(10.0), optax.adam(half)))
    jax.tree.map(np.testing.assert_array_equal, one, other)
    with pytest.raises(ValueError, match=r"learning_rate must give one number for a step, got an array \(2,\)"):
        network(learning_rate=lambda step: jnp.ones(2))


def test_members_start_from_those_of_another_training_or_from_one_network():
    first = icl_lab.train(NETWORK, sampler(), **SMALL)
    still = {**SMALL, "optimizer": optax.set_to_zero(), "steps": 1}
    for start in (first, first.fit, first.fit.params):
        again = icl_lab.train(NETWORK, sampler(), **still, start=start)
        jax.tree.map(np.testing.assert_array_equal, again.fit.params, first.fit.params)
    noisy = {"settings": jnp.array([0.0, 0.5]), "schedule": lambda setting, step: setting}
    by_setting = lambda setting: optax.scale(0 * setting)  # noqa: E731
    one = icl_lab.train(NETWORK, sampler, **still | {"optimizer": by_setting}, start=first.params(1), **noisy)
    for member in (0, 1):
        jax.tree.map(np.testing.assert_array_equal, one.params(member), first.params(1))
    assert one.fit.metrics["loss"][0, -1] != one.fit.metrics["loss"][1, -1]
    for wrong, said in (
        (LinearSelfAttention(layers=2), r"start: .* is \(1, 1, 3, 3\); allowed is \(2, 1, 3, 3\), for all members"),
        (LinearSelfAttention(parametrisation="merged"), "start must be parameters of this network"),
    ):
        with pytest.raises(ValueError, match=said):
            icl_lab.train(wrong, sampler(), **SMALL, start=first.params(0))
    with pytest.raises(ValueError, match=r"or .*, one each"):
        icl_lab.train(NETWORK, sampler(), **SMALL | {"members": 3}, start=first)


@pytest.mark.parametrize("network", [NETWORK, SHIFT])
def test_predictions_in_bfloat16_of_float32_parameters(network):
    plain, half = (
        icl_lab.train(network, sampler(), **SMALL | {"steps": 2, "eval_tasks": 64}, dtype=dtype)
        for dtype in (None, jnp.bfloat16)
    )
    assert {leaf.dtype for leaf in jax.tree.leaves(half.fit.params)} == {jnp.dtype("float32")}
    assert half.fit.metrics["loss"].dtype == np.float32
    np.testing.assert_allclose(half.fit.metrics["loss"], plain.fit.metrics["loss"], rtol=2e-2)
    samples = sampler()(jax.random.key(1), 50)
    # three decimals of bfloat16: 2^-8 for each of some sums
    assert half.batch_learner()(samples.prompt).dtype == jnp.float32
    if network is NETWORK:
        assert (half.batch_learner()(samples.prompt) != plain.batch_learner()(samples.prompt)).any()
    np.testing.assert_allclose(mean_loss(half.learner(), samples), mean_loss(plain.learner(), samples), rtol=2e-2)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"lr": 1e-3}, "'lr'; did you mean learning_rate"),
        ({"batch_size": 8}, "'batch_size'; did you mean batch"),
        ({"folde": "x"}, "'folde'; did you mean folder"),
        ({"options": {}}, "'options'; "),
        ({"q": 8}, "'q'; allowed are members, steps, batch, .*, folder, "),
    ],
)
def test_an_option_that_there_is_not_is_named_with_one_that_is(option, said, tmp_path):
    for more in ({}, {"folder": tmp_path / "mine"}):
        with pytest.raises(TypeError, match=r"train\(\) has no option " + said):
            icl_lab.train(NETWORK, sampler(), **SMALL, **option, **more)
