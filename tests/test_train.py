"""``icl_lab.train``: members in one call, the same as the plain loop, refused before work where sizes make no sense."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

import icl_lab
from icl_lab.compare import mean_loss
from icl_lab.identify import identify
from icl_lab.lab import Session
from icl_lab.models import LinearSelfAttention, learner
from icl_lab.prompts import linear_regression, same_tasks
from icl_lab.prompts.layouts import joint_layout
from icl_lab.prompts.prompt import check_sampler
from icl_lab.solvers import gradient_descent
from icl_lab.training import training
from icl_lab.training.clamping import fit_clamped
from icl_lab.training.model import Model
from icl_lab.training.plans import squared_error

N, D = 5, 3
KEYS = jax.random.split(jax.random.key(0), 2)
NETWORK = LinearSelfAttention(init_scale=0.1)
SMALL = {"steps": 20, "batch": 16, "eval_tasks": 64, "learning_rate": 3e-3}


def sampler(noise=0.0):
    return linear_regression(context_length=N, input_size=D, label_noise=noise)


def test_members_are_those_of_a_plain_loop():
    trained = icl_lab.train(NETWORK, sampler(), members=2, **SMALL)
    keys = jax.random.split(jax.random.key(0), 2)
    optimizer = optax.chain(optax.clip_by_global_norm(10.0), optax.adam(3e-3))

    @jax.jit
    def step(params, state, key):
        samples = sampler()(key, 16)
        loss = lambda p: mean_loss(learner(NETWORK, p), samples)  # noqa: E731
        updates, state = optimizer.update(jax.grad(loss)(params), state)
        return optax.apply_updates(params, updates), state

    init_key, data_key, eval_key = jax.random.split(keys[1], 3)
    params = NETWORK.init(init_key, jnp.zeros((N + 1, D + 1)))
    state = optimizer.init(params)
    for t in range(20):
        params, state = step(params, state, jax.random.fold_in(data_key, t))
    for ours, plain in zip(jax.tree.leaves(trained.params(1)), jax.tree.leaves(params)):
        np.testing.assert_allclose(ours, plain, rtol=1e-4, atol=1e-6)
    evaluation = sampler()(eval_key, 64)
    final = trained.fit.metrics["loss"][1, -1]
    assert trained.fit.metrics["loss"].shape == (2, len(trained.fit.steps))
    assert trained.fit.steps[-1] == 20
    np.testing.assert_allclose(mean_loss(trained.learner(1), evaluation), final, rtol=1e-5)
    (prediction,) = trained.batch_learner(1)(jax.tree.map(lambda leaf: leaf[:1], evaluation.prompt))
    np.testing.assert_array_equal(
        prediction, trained.learners()[1](jax.tree.map(lambda leaf: leaf[0], evaluation.prompt))
    )
    assert len(trained.learners()) == 2


def test_settings_give_each_member_its_own_rate_and_task_distribution():
    multiple = Model(lambda key: {"w": jnp.zeros(())}, lambda params, prompts: params["w"] * prompts.y[:, 0])

    def shifted(setting):  # the same tasks with all outputs moved
        def draw(key, batch):
            samples = sampler()(key, batch)
            return dataclasses.replace(samples, target=samples.target + setting["shift"])

        return draw

    trained = icl_lab.train(
        multiple, shifted, **(SMALL | {"steps": 1, "learning_rate": None}),
        settings={"shift": jnp.array([0.0, 0.0, 5.0]), "rate": jnp.array([0.0, 0.1, 0.0])},
        keys=jax.random.split(jax.random.key(1), 3)[jnp.array([0, 0, 0])],
        optimizer=lambda setting: optax.sgd(setting["rate"]), progress=False,
        references={"gd": jax.vmap(gradient_descent(1.0, steps=1))},
    )  # fmt: skip
    still, moved, also_still = trained.fit.params["w"]
    assert still == also_still == 0 != moved
    first, _, third = trained.fit.metrics["loss"][:, 0]
    assert third > first + 5
    assert {"loss", "gd_loss", "gd_prediction_difference"} <= set(trained.fit.metrics)


def test_a_member_that_is_not_there_is_refused():
    trained = icl_lab.train(NETWORK, sampler(), members=1, **(SMALL | {"steps": 1, "eval_tasks": 1, "batch": 1}))
    with pytest.raises(IndexError, match="no member 1; allowed is 0 to 0"):
        trained.learner(1)
    with pytest.raises(IndexError, match="no member -1"):
        trained.params(-1)


def test_a_member_that_diverges_is_named_in_a_warning():
    with pytest.warns(RuntimeWarning, match="2 of 2 members diverged and were stopped: 0, 1"):
        trained = icl_lab.train(NETWORK, sampler(), members=2, **SMALL | {"learning_rate": 1e30})
    assert (trained.fit.diverged_at >= 0).all()


def test_a_session_carries_a_training_out_and_says_itself_what_diverged(tmp_path, caplog):
    session = Session(tmp_path, "these settings", 0.0, None)
    planned = training(NETWORK, sampler(), members=2, **SMALL | {"learning_rate": 1e30})
    assert (session.fit("stage", planned).diverged_at >= 0).all()
    assert session.stages["stage"]["members"] == 2
    assert "2 of 2 members diverged" in caplog.text  # by the log, not by a warning, which tests take for an error


def frozen(key, batch):
    return sampler()(jax.random.key(0), batch)


STEPS = itertools.count()


def counted(key, batch):
    return sampler()(jax.random.key(next(STEPS)), batch)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (frozen, "draws the same tasks whatever its key"),
        (counted, "draws the same tasks whatever its key"),
        (lambda key, batch: sampler()(key, 7), r"must draw as many tasks as it is asked for, .*; got an array \(7, "),
    ],
    ids=["key inside", "counter", "batch"],
)
def test_a_sampler_that_ignores_its_key_or_its_batch_is_refused(wrong, said):
    for given in ({"sampler": wrong}, {"sampler": sampler(), "training_sampler": wrong}):
        with pytest.raises(ValueError, match=f"{list(given)[-1]} {said}"):
            icl_lab.train(NETWORK, **given, **SMALL)
    if wrong is not counted:  # drawn from outside of programs, a counter counts
        with pytest.raises(ValueError, match=f"sampler {said}"):
            identify(gradient_descent(1.0, 1), context_length=N, input_size=D, sampler=wrong)
    with pytest.raises(ValueError, match=f"law {said}"):
        fit_clamped(None, None, None, lambda _: wrong, optax.sgd(0.1), KEYS, None, batch=4, steps=1)


def test_samplers_that_repeat_on_purpose_or_in_part_are_trained_on():
    pool = sampler()(jax.random.key(3), 4).latent["w"]

    def pooled(key, batch):  # of four tasks, with fresh prompts
        fresh = sampler()(key, batch)
        w = pool[jnp.arange(batch) % 4]
        y, target = jnp.einsum("bnd,bdo->bno", fresh.prompt.x, w), jnp.einsum("bd,bdo->bo", fresh.prompt.x_query, w)
        return dataclasses.replace(fresh, prompt=dataclasses.replace(fresh.prompt, y=y), target=target)

    for repeating in (same_tasks(sampler(), jax.random.key(0)), pooled, jax.jit(sampler(), static_argnums=1)):
        found = check_sampler("sampler", repeating, 5)
        assert found.prompt.x.shape == (5, N, D)
    trained = icl_lab.train(
        NETWORK, sampler(), training_sampler=same_tasks(frozen, jax.random.key(0)), members=1, **SMALL | {"steps": 1}
    )
    assert np.isfinite(trained.fit.metrics["loss"]).all()


@pytest.mark.parametrize("beside", [{"members": 2}, {"seed": 0}])
def test_keys_beside_members_or_a_seed_are_refused(beside):
    with pytest.raises(ValueError, match="keys are given in place of members"):
        icl_lab.train(NETWORK, sampler(), **SMALL, **beside, keys=KEYS)


@pytest.mark.parametrize(
    ("references", "said"),
    [
        (
            {"gd": gradient_descent(1.0, 1)},
            r"references\['gd'\] must take B prompts at once \(jax.vmap a learner of one\); it raised",
        ),
        ({"mean": lambda prompt: prompt.y.mean(axis=0)}, r"references\['mean'\] answers 64 prompts with \(5, 1\)"),
        ({"train": jax.vmap(gradient_descent(1.0, 1))}, "train_loss: a name that is empty or taken"),
        ({"": jax.vmap(gradient_descent(1.0, 1))}, "_loss, .*: a name that is empty or taken"),
    ],
)
def test_a_reference_of_one_prompt_or_with_a_name_that_is_taken_is_refused(references, said):
    with pytest.raises(ValueError, match=said):
        icl_lab.train(NETWORK, sampler(), members=2, **SMALL, references=references)
    if "train" in references:
        with pytest.raises(ValueError, match="train_loss: a name"):
            icl_lab.train(NETWORK, sampler(), members=2, **SMALL, variants=lambda _: references)


MEAN = Model(lambda key: {}, lambda params, prompts: prompts.y.mean(axis=1))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"learning_rate": 0.1, "optimizer": optax.sgd(0.1)}, r"learning_rate=0\.1 is of the default optimizer"),
        ({"settings": [0.0, 1.0]}, "leading axis of members"),
        ({"settings": jnp.zeros(2)}, "setting -> sampler"),
        ({"objective": lambda p, s: (p - s.target) ** 2}, r"one loss a task, \(8,\); got \(8, 1\)"),
        ({"network": MEAN, "layout": joint_layout()}, r"layout: a Model brings its own"),
        ({"network": MEAN, "sampler": lambda key, batch: (key, batch)}, "must give a Sample, got tuple"),
        ({"network": nn.Dense(3)}, "Dense: a network is called with"),
    ],
)
def test_what_cannot_be_trained_is_refused_by_name(wrong, message):
    given = {
        "network": LinearSelfAttention(layers=1), "sampler": linear_regression(context_length=3, input_size=2),
        "members": 2, "steps": 2, "batch": 8, "eval_tasks": 8,
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        icl_lab.train(**given | wrong)


@pytest.mark.parametrize("shape", [(3,), (1, 2), (3, 1), (1, 1)])
def test_predictions_of_another_shape_than_the_targets_are_refused(shape):
    samples = linear_regression(context_length=2, input_size=2, output_size=2)(jax.random.key(0), 3)
    with pytest.raises(AssertionError), jax.numpy_rank_promotion("allow"):  # as in a run
        squared_error(jnp.zeros(shape), samples)
    found = squared_error(jnp.zeros((3, 2)), samples)
    np.testing.assert_allclose(found, 0.5 * np.sum(np.square(samples.target), axis=1), rtol=1e-6)
