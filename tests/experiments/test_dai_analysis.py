"""What is asked of a network, and what is chosen, changed and compared."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.dai import analysis, controls, dual_form, implicit_finetuning, layers, material, programs
from experiments.dai.networks import RANDOM, check_networks, load_networks, one_network
from icl_lab.compare import jensen_shannon
from icl_lab.lab.flags import FlagError
from icl_lab.models import language_logits
from icl_lab.prompts.encoding import with_demonstrations
from icl_lab.prompts.text import BEGIN, FIRST_WORD

CONFIG = dataclasses.replace(
    implicit_finetuning.PRESETS["smoke"], development_queries=3, test_queries=5, state_queries=5, rates=(0.05, 0.5),
    jobs_at_once=2, prompts_at_once=4,
)  # fmt: skip


@pytest.fixture(scope="module")
def subject():
    networks = one_network(load_networks(RANDOM, "rotary", 1), 0)
    return analysis.subjects(jax.random.key(0), networks, dataclasses.replace(CONFIG, seeds=2))[1]  # five classes


@pytest.fixture(scope="module")
def task(subject):
    return material.encoded(subject.material, subject.material.sets[0], subject.material.test)


def test_splits_and_sets_are_different_and_of_their_sizes(subject):
    asked = subject.material
    assert [len(one) for one in asked.sets] == [2, 2]
    assert [len(split.tokens) for split in (asked.development, asked.test)] == [3, 5]
    questions = [tuple(q) for q, _ in (*asked.sets[0], *asked.sets[1])]
    questions += [tuple(q) for split in (asked.development, asked.test) for q in split.tokens]
    assert len(set(questions)) == len(questions)
    assert {answer for one in asked.sets for _, answer in one} <= set(asked.candidates.tolist())


def test_candidates_are_filled_up_without_changing_an_answer(subject):
    few = subject.material._replace(candidates=subject.material.candidates[:3], test=subject.material.test._replace(
        targets=subject.material.test.targets % 3
    ))  # fmt: skip
    task = material.encoded(few, [], few.test)
    assert task.candidates.tolist() == [*few.candidates, few.candidates[0], few.candidates[0]]
    logits = jnp.array(np.random.default_rng(0).normal(size=(2, 4, 3)), jnp.float32)
    filled = jnp.concatenate([logits, logits[..., :1], logits[..., :1]], axis=-1)
    assert (filled.argmax(-1) == logits.argmax(-1)).all()
    divergence = jensen_shannon(*programs.once(filled, task.candidates))
    np.testing.assert_allclose(divergence, jensen_shannon(*logits), rtol=1e-5)


def test_a_random_context_is_strange_and_leaves_the_questions(subject, task):
    strange = material.random_context(np.random.default_rng(0), task, subject.material.strangers)
    before, after = np.split(strange, [task.context], axis=1)
    np.testing.assert_array_equal(after, task.in_context[:, task.context :])
    assert (before[:, 0] == BEGIN).all()
    assert (before == before[:1]).all()
    assert (before[0, 1:] != task.in_context[0, 1 : task.context]).mean() > 0.5


def test_answers_are_read_behind_the_last_token_of_every_prompt(subject, task):
    shorter = with_demonstrations(task, [1])
    weights = programs.own_weights(subject.params)
    louder = {name: np.concatenate([value, 2 * value]) for name, value in weights.items()}
    found = analysis.candidate_logits(subject, louder, [task, shorter], "in_context")
    assert found.shape == (2, 2, 5, 5)
    for s, one in enumerate((task, shorter)):
        for f in range(2):
            params = programs.with_weights(subject.params, programs.rows(louder, f))
            direct = language_logits(subject.network, params, jnp.asarray(one.in_context))[:, -1][:, one.candidates]
            np.testing.assert_allclose(found[f, s], direct, rtol=2e-4, atol=1e-5)


def test_a_part_is_filled_up_and_the_filling_is_left_out():
    found = list(programs.chunks({"a": np.arange(5)}, 2))
    assert [part["a"].shape for part, _ in found] == [(2,)] * 3
    assert np.concatenate([part["a"][:own] for part, own in found]).tolist() == [0, 1, 2, 3, 4]


def test_a_network_that_diverged_is_wrong():
    logits = np.array([[1.0, 2.0], [np.nan, 0.0], [3.0, 1.0]])
    assert analysis.right(logits, [1, 0, 0]).tolist() == [True, False, True]


def test_the_first_demonstrations_are_those_with_a_rate(subject, task):
    whole = next(subject.finetuned(analysis.jobs_of(task, [0.5, 0.5], first=1)))[0]
    alone = next(subject.finetuned(analysis.jobs_of(with_demonstrations(task, [0]), [0.5, 0.5])))[0]
    both = next(subject.finetuned(analysis.jobs_of(task, [0.5, 0.5])))[0]
    for name, value in whole.weights.items():
        np.testing.assert_allclose(value, alone.weights[name], rtol=1e-5, atol=1e-7)
    assert np.abs(both.weights["w_v"] - whole.weights["w_v"]).max() > 1e-4


def test_the_table_and_the_order_of_demonstrations(subject):
    chosen = analysis.choose(subject, CONFIG)
    assert chosen.in_context.shape == chosen.finetuned.shape == (2,)
    assert chosen.rate in np.float32(CONFIG.rates)
    assert chosen.by_rate.shape == (2,)
    elsewhere = controls.Elsewhere(subject.material.sets[1], analysis.jobs_of(chosen.tasks[1], 0.5))
    names = ("random_update", "wrong_task", "full_batch", "random_context")
    table = controls.table_rows(jax.random.key(1), subject, chosen, CONFIG, names, elsewhere)
    assert list(table) == [controls.PAPER, "full_batch", "random_update", "wrong_task", "random_context"]
    tuned, noisy = table[controls.PAPER].tuned, table["random_update"].tuned
    start = subject.params["params"]["w_v"]
    sizes = [np.linalg.norm(one.weights["w_v"] - start) for one in (tuned, noisy)]
    np.testing.assert_allclose(*sizes, rtol=1e-3)
    assert np.abs(tuned.weights["w_v"] - noisy.weights["w_v"]).max() > 1e-3
    assert table["random_context"].tuned is tuned
    similar, numbers, undefined = controls.row_metrics(jax.random.key(2), table[controls.PAPER], CONFIG)
    assert set(similar) == set(controls.SIMILARITIES)
    assert set(numbers) == set(controls.NUMBERS)
    still = controls.Row(
        subject, tuned._replace(weights=programs.rows(programs.own_weights(subject.params), 0)), chosen.task
    )
    nothing, _, why = controls.row_metrics(jax.random.key(2), still, CONFIG)
    assert np.isnan(nothing["sim_aou"]).all()
    assert why["sim_aou"] == "no attention output changed in layers 1"
    assert "sim_aou" not in undefined
    assert np.isfinite(similar["sim_aou"]).all()
    faster = chosen._replace(rates=np.full_like(chosen.rates, 5))
    order = controls.order_metrics(jax.random.key(3), subject, faster, CONFIG, 4)
    assert order["full_batch"]["log_probability"] < 1e-5
    assert order["sequential"]["log_probability"] > 1e-4
    assert order["in_context"]["log_probability"] > 1e-4


@pytest.mark.parametrize(
    ("check", "field", "value", "said"),
    [
        (analysis.check, "state_queries", 6, "at most --test_queries=5"),
        (analysis.check, "rates", (0.1, 0.1), "each value once"),
        (check_networks, "demonstrations", 3, "at most 2"),
        (check_networks, "networks", "nowhere", "pretrain"),
    ],
)
def test_fields_that_do_not_fit_are_refused(check, field, value, said):
    with pytest.raises(FlagError, match=said) as error:
        check(dataclasses.replace(CONFIG, **{field: value}))
    assert f"--{field}" in str(error.value)


@pytest.mark.parametrize("binary", [implicit_finetuning, layers, dual_form])
def test_without_networks_nothing_is_begun(binary):
    with pytest.raises(FlagError, match="--networks=nowhere"):
        binary.run(dataclasses.replace(binary.PRESETS["smoke"], networks="nowhere"), None)


def test_a_mean_is_of_what_is_defined():
    values = np.array([[1.0, np.nan, np.nan], [3.0, 5.0, np.nan]])
    np.testing.assert_array_equal(controls.present_mean(values, 0), [2, 5, np.nan])
    assert controls.present_mean(values, None) == 3


def test_words_are_strangers_to_a_context_as_well(subject):
    assert subject.material.strangers.min() > 2
    assert subject.material.strangers.max() > FIRST_WORD
