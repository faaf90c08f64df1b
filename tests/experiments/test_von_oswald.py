"""Parts of the binaries of von Oswald et al. against what is known of them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import measured_with

from experiments.von_oswald import (
    common,
    grokking,
    grokking_shown,
    logistic,
    noisy_labels_retrained,
    noisy_labels_retrained_shown,
    noisy_labels_shown,
    roll_out,
    roll_out_shown,
)
from experiments.von_oswald.tuning import best_step
from icl_lab.lab import records
from icl_lab.lab.flags import to_json
from icl_lab.models import LinearSelfAttention
from icl_lab.solvers import gradient_descent

TASK = common.Task(members=2, context_length=6, input_size=3)


@pytest.fixture
def looped():
    return common.model(LinearSelfAttention(layers=2, looped=True), TASK)


@pytest.fixture
def samples():
    return common.sampler(TASK, task_scale=3.0)(jax.random.key(1), 50)


def test_without_label_couplings_the_construction_stays_and_what_is_added_to_them_goes(looped, samples):
    built = common.constructed(TASK, 1.0, 0.1)
    rng = np.random.default_rng(0)
    weights = {name: np.array(leaf) for name, leaf in built["params"].items()}
    couplings = dict.fromkeys(("w_q", "w_p"), np.zeros((4, 4)))
    couplings["w_q"] = np.where(np.add.outer(np.arange(4) == 3, np.arange(4) == 3), rng.normal(size=(4, 4)), 0)
    mixed = {n: jnp.asarray(leaf + 0.3 * couplings.get(n, 0), jnp.float32) for n, leaf in weights.items()}
    plain, spoilt = looped.learner(built)(samples.prompt), looped.learner({"params": mixed})(samples.prompt)
    cleaned = common.decoupled(looped, TASK)({"params": mixed})(samples.prompt)
    assert np.abs(spoilt - plain).max() > 0.1
    np.testing.assert_allclose(cleaned, plain, atol=1e-5)


def test_the_rate_is_constant_as_published_or_falls_to_zero_over_the_last_steps():
    config = common.Setting(members=2, steps=100, learning_rate=0.1, gradient_clip=10.0)
    moved = {}
    for decay in (0, 40):
        optimizer = common.optimizer(config, decay)
        state, moved[decay] = optimizer.init(jnp.zeros(1)), []
        for _ in range(100):
            update, state = optimizer.update(jnp.ones(1), state, jnp.zeros(1))
            moved[decay].append(-float(update[0]))
    np.testing.assert_allclose(moved[0], 0.1, rtol=1e-4)
    np.testing.assert_allclose(moved[40][:60], 0.1, rtol=1e-4)
    np.testing.assert_allclose(moved[40][60:], 0.1 * (40 - np.arange(40)) / 40, rtol=1e-4)


def test_undamped_gradient_descent_turns_up_and_so_does_the_exact_loss_it_is_held_against():
    config = roll_out.Config(members=2, eval_tasks=10, oracle_contexts=20_000)
    eta = best_step(config)[0]
    for damping, upturn in ((1.0, 5), (0.875, 9)):
        exact = roll_out.exact(config, damping * eta)
        assert np.argmin(exact) + 1 == pytest.approx(upturn, abs=2)
        assert exact[-1] > 1000 * exact.min()


def test_a_layer_diverges_when_its_loss_exceeds_that_of_predicting_zero():
    losses = np.array([[0.2, 0.5, np.nan, 0.1], [0.2, 0.1, 0.1, 0.1]])
    config = {"input_size": 10, "input_range": 1.0, "applications": 4, "dampings": [1.0]}
    record = measured_with(config, [(roll_out.ROLLED_OUT.at(damping=1.0), {"trained": losses})])
    np.testing.assert_array_equal(roll_out_shown.diverges_at(record, 1.0, "trained"), [2, 5])


@pytest.mark.parametrize(("corrupted", "noise"), [(0, 0.0), (3, 0.0), (6, 0.7), (2, 1.5)])
def test_the_exact_loss_of_a_gd_step_on_noisy_labels(corrupted, noise):
    noisy = common.sampler(TASK, corrupted_labels=corrupted, label_noise=noise)(jax.random.key(0), 100_000)
    loss = 0.5 * np.square(jax.vmap(gradient_descent(4.0, 1))(noisy.prompt) - noisy.target)
    exact = noisy_labels_shown.exact(TASK, 4.0, corrupted, noise)
    np.testing.assert_allclose(loss.mean(), exact, atol=4 * loss.std() / loss.size**0.5)


def searched(losses, own, config):
    """A record of ``grokking`` with these losses on fresh tasks and on the set, (M, R) by cell."""
    pieces = [(grokking.STEPS, np.arange(0, 100, 10))]
    pieces += [(grokking.LOSS.at(cell=cell), {"loss": losses[cell], "train_loss": own[cell]}) for cell in losses]
    return measured_with(config, [*pieces, ("facts", {"predict_zero": 0.4, "closed_form": 0.2})])


def drops(*at):
    return np.stack([np.where(np.arange(0, 100, 10) < one, 0.4, 0.2) for one in at])


def test_a_training_is_late_where_fresh_tasks_take_twice_the_steps_of_the_set_and_shoots_up_above_predicting_zero():
    fresh, steps = drops(60, 30, 1000), np.arange(0, 100, 10)
    fresh[0, (steps > 10) & (steps < 60)] = 0.6
    record = searched({"cell": fresh}, {"cell": drops(20, 20, 20)}, {})
    assert grokking_shown.late(record, "cell").tolist() == [True, False, False]
    assert grokking_shown.shoots_up(record, "cell").tolist() == [True, False, False]


def test_the_cell_where_most_members_are_late_is_judged():
    config = to_json(grokking.PRESETS["smoke"])
    few, most = grokking.cells(config)
    record = searched(
        {few: drops(30, 30, 60), most: drops(30, 60, 60)}, dict.fromkeys((few, most), drops(20, 20, 20)), config
    )
    late, late_and_up = (claim.statistic(record) for claim in grokking_shown.CLAIMS)
    assert late.tolist() == [0, 1, 1]
    assert not late_and_up.any()


def test_batches_of_a_set_hold_its_tasks_and_a_whole_batch_is_the_set():
    tasks = common.sampler(TASK)(jax.random.key(0), 12)
    few = grokking.from_set(tasks)(jax.random.key(1), 5)
    assert np.isin(few.target, tasks.target).all()
    np.testing.assert_array_equal(grokking.from_set(tasks)(jax.random.key(1), 12).target, tasks.target)


def test_a_logistic_run_of_one_network_leaves_out_the_arrays_of_the_others():
    lab = logistic.PRESETS["lab"]
    one = set(
        logistic.EXPERIMENT.parts(to_json(dataclasses.replace(lab, networks=("linear_1",), algorithms=("logistic_1",))))
    )
    left_out = set(logistic.EXPERIMENT.parts(to_json(lab))) - one
    assert {"linear_1/*", "final/logistic_1", "cosines/linear_1"} <= one
    assert {"linear_2/*", "softmax_1/*", "final/gd++_2"} <= left_out


def test_logistic_keeps_the_effective_draws_of_its_bayes_predictor(smoke_run):
    effective = logistic.DRAWS(records.load(smoke_run("von_oswald.logistic").folder))
    assert effective.shape == (4,)
    assert ((effective >= 1) & (effective <= 16)).all()


def test_a_member_on_the_plateau_of_corrupted_labels_does_not_count():
    """Zero has a loss of .4167; the second member waits at m = 8 where GD has .40, the third everywhere."""
    final = {"gd": [[0.16] * 3, [0.4] * 3], "gd++": [[0.11] * 3, [0.4] * 3]}
    final["trained"] = [[0.1155, 0.1166, 0.41], [0.402, 0.43, 0.413]]
    pieces = [(noisy_labels_retrained.FINAL, {name: np.array(losses) for name, losses in final.items()})]
    made = measured_with(to_json(noisy_labels_retrained.PRESETS["lab"]), pieces)
    np.testing.assert_allclose(noisy_labels_retrained_shown.past("trained", "gd++")(made), [1.05, 1.06, np.nan])
