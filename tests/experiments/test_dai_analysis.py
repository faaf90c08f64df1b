"""What is asked of a network, and what is chosen, changed and compared."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.dai import analysis, comparison, controls, dual_form, implicit_finetuning, layers, material, programs
from experiments.dai.common import RANDOM, stacked
from experiments.dai.networks import check_networks, load_networks, one_network
from icl_lab.compare import jensen_shannon, relative_sizes
from icl_lab.lab.flags import FlagError
from icl_lab.lab.trainings import Fits
from icl_lab.models import language_logits
from icl_lab.prompts.encoding import with_demonstrations
from icl_lab.prompts.text import BEGIN, FIRST_WORD

CONFIG = dataclasses.replace(
    implicit_finetuning.PRESETS["smoke"], development_queries=5, test_queries=5, rates=(0.05, 0.5), jobs_at_once=2,
    prompts_at_once=4,
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
    assert [len(split.tokens) for split in (asked.development, asked.test)] == [5, 5]
    questions = [tuple(q) for q, _ in (*asked.sets[0], *asked.sets[1])]
    questions += [tuple(q) for split in (asked.development, asked.test) for q in split.tokens]
    assert len(set(questions)) == len(questions)
    assert {answer for one in asked.sets for _, answer in one} <= set(asked.candidates.tolist())


def test_candidates_are_filled_up_without_changing_an_answer(subject):
    few = subject.material._replace(
        candidates=subject.material.candidates[:3],
        test=subject.material.test._replace(targets=subject.material.test.targets % 3),
    )
    task = material.encoded(few, [], few.test)
    assert task.candidates.tolist() == [*few.candidates, few.candidates[0], few.candidates[0]]
    logits = jnp.array(np.random.default_rng(0).normal(size=(2, 4, 3)), jnp.float32)
    filled = jnp.concatenate([logits, logits[..., :1], logits[..., :1]], axis=-1)
    assert (filled.argmax(-1) == logits.argmax(-1)).all()
    divergence = jensen_shannon(*programs.unrepeated(filled, task.candidates))
    np.testing.assert_allclose(divergence, jensen_shannon(*logits), rtol=1e-5)


def test_a_random_context_is_strange_and_leaves_the_questions(subject, task):
    strange = material.random_context(np.random.default_rng(0), task, subject.material.strangers)
    before, after = np.split(strange, [task.context], axis=1)
    np.testing.assert_array_equal(after, task.in_context[:, task.context :])
    assert (before[:, 0] == BEGIN).all()
    assert (before == before[:1]).all()
    assert (before[0, 1:] != task.in_context[0, 1 : task.context]).mean() > 0.5


def test_answers_are_read_behind_the_last_token_of_every_prompt(subject, task):
    weights = programs.own_weights(subject.params)
    louder = {name: np.concatenate([value, 2 * value]) for name, value in weights.items()}
    found = subject.read_all(louder, task, "in_context")
    logs = programs.right_log_probabilities(found.candidate_logits, task)
    for f in range(2):
        params = programs.with_weights(subject.params, programs.rows(louder, f))
        logits = jax.jit(language_logits, static_argnums=0)(subject.network, params, task.in_context)
        direct = np.asarray(logits)[:, -1][:, task.candidates]
        np.testing.assert_allclose(found.candidate_logits[f], direct, rtol=2e-4, atol=1e-5)
        right = jax.nn.log_softmax(direct)[np.arange(5), task.targets]  # five classes: no candidate is repeated
        np.testing.assert_allclose(logs[f], right, rtol=2e-4, atol=1e-5)


def test_a_part_is_filled_up_and_the_filling_is_left_out():
    found = list(programs.chunks({"a": np.arange(5)}, 2))
    assert [part["a"].shape for part, _ in found] == [(2,)] * 3
    assert np.concatenate([part["a"][:own] for part, own in found]).tolist() == [0, 1, 2, 3, 4]


def test_a_network_that_diverged_is_wrong():
    logits = np.array([[1.0, 2.0], [np.nan, 0.0], [3.0, 1.0]])
    assert analysis.right(logits, [1, 0, 0]).tolist() == [True, False, True]


def test_the_first_demonstrations_are_those_with_a_rate(subject, task):
    whole = next(subject.tuned(analysis.jobs_of(task, [0.5, 0.5], first=1)))[0]
    alone = next(subject.tuned(analysis.jobs_of(with_demonstrations(task, [0]), [0.5, 0.5])))[0]
    both = next(subject.tuned(analysis.jobs_of(task, [0.5, 0.5])))[0]
    for name, value in whole.weights.items():
        np.testing.assert_allclose(value, alone.weights[name], rtol=1e-5, atol=1e-7)
    assert np.abs(both.weights["w_v"] - whole.weights["w_v"]).max() > 1e-4


NAMES = ("full_batch", "random_update", "wrong_task", "shuffled_labels", "random_context")


@pytest.fixture(scope="module")
def chosen(subject):
    return analysis.choose(subject, CONFIG, 0, jax.random.key(5))


@pytest.fixture(scope="module")
def table(subject, chosen):
    other = material.encoded(subject.material, subject.material.sets[1], subject.material.test)
    elsewhere = controls.Elsewhere(subject.material.sets[1], analysis.jobs_of(other, 0.5))
    return controls.readings(jax.random.key(1), subject, chosen, CONFIG, NAMES, elsewhere)


def test_the_whole_grid_is_measured(chosen):
    assert chosen.rate in CONFIG.rates
    assert chosen.free_rate in CONFIG.rates
    assert {name: path.shape for name, path in chosen.path.items()} == (
        dict.fromkeys(controls.SIMILARITIES, (2, 1)) | dict.fromkeys(("accuracy", "size", "log_probability"), (2,))
    )
    assert chosen.path["size"][1] > chosen.path["size"][0] > 0


def test_controls_change_as_much_as_fine_tuning(subject, table):
    assert list(table) == [controls.PAPER, *(name for name in controls.CONTROLS if name in NAMES)]
    paper = table[controls.PAPER]
    size = relative_sizes(paper.zero_shot.output, paper.finetuned.output)
    for name in ("full_batch", "random_update", "wrong_task", "shuffled_labels"):
        own = table[name]
        np.testing.assert_allclose(relative_sizes(own.zero_shot.output, own.finetuned.output), size, rtol=2e-3)
        assert np.abs(own.mismatch).max() < 2e-3
    for name in ("random_update", "wrong_task"):
        change = table[name].finetuned.output - paper.finetuned.output
        assert np.abs(change).max() > 0.05 * np.abs(paper.finetuned.output - paper.zero_shot.output).max()
    assert table["random_context"].finetuned is paper.finetuned
    assert np.abs(table["random_context"].in_context.output - paper.in_context.output).max() > 1e-3


def test_metrics_of_a_row(table, chosen):
    found = controls.metrics(jax.random.key(2), table[controls.PAPER], chosen.task, CONFIG)
    assert set(found.similarities) == set(controls.SIMILARITIES)
    assert set(found.divergences) == set(controls.DIVERGENCES)
    assert np.isfinite(found.similarities["sim_aou"]).all()
    assert np.isnan(found.similarities["kendall"][:, 0]).all()  # queries of the first layer are frozen
    smaller = table[controls.PAPER]._replace(mismatch=np.array([-0.5]))
    unlike = controls.metrics(jax.random.key(2), smaller, chosen.task, CONFIG)
    assert np.isnan(unlike.similarities["sim_aou"]).all()  # not of equal size
    still = table[controls.PAPER]._replace(finetuned=table[controls.PAPER].zero_shot)
    nothing = controls.metrics(jax.random.key(2), still, chosen.task, CONFIG)
    assert np.isnan(nothing.similarities["sim_aou"]).all()
    numbers, why = controls.numbers_of(stacked([nothing]), chosen.task.targets)
    assert set(numbers) == set(controls.NUMBERS)
    assert why["sim_aou"] == "nothing changed in layers 1"


def test_scores_count_all_sets_alike_and_halves_share_no_question():
    targets = np.array([0, 1, 0, 1])
    said = np.zeros((2, 4, 3), int)
    said[..., 2] = targets  # fine-tuned answers are right
    said[0, :, 1] = targets  # after the first set
    hits = said == targets[:, None]
    similarities, divergences = {"sim_aou": np.arange(8.0).reshape(2, 4, 1)}, {"shannon": said[..., 0] + 0.0}
    row = controls.Measured(similarities, divergences, said, hits)
    numbers, _ = controls.numbers_of(row, targets)
    assert numbers["accuracy_finetuned"] == 1
    assert numbers["accuracy_zero_shot"] == 0.5
    assert numbers["accuracy_in_context"] == 0.75
    assert numbers["recall"] == numbers["base_rate"] == 0.5  # two errors after each set
    halves = [comparison.retested(row, targets, half) for half in (0, 1)]
    assert [half["sim_aou"] for half in halves] == [1, 6]  # questions 0 and 2 of the first set, 1 and 3 of the second
    assert [half["accuracy_in_context"] for half in halves] == [1, 0]
    assert np.isnan(halves[0]["recall"])  # questions 0 and 2 are right without anything


def test_outputs_of_all_layers_carry_the_answer(subject, table, chosen):
    found = comparison.carried(subject, table[controls.PAPER], chosen.task)
    for name in ("in_context", "finetuned"):
        for of in found[name].values():
            np.testing.assert_allclose(of["all"], of["answer"], atol=1e-5)
            np.testing.assert_allclose(of["layer"][0], of["all"], atol=1e-6)  # it has one layer
    gained = [found[name]["log_probability"]["answer"] for name in ("in_context", "finetuned")]
    assert abs(gained[0] - gained[1]) > 1e-4
    assert set(found["finetuned_sized"]["accuracy"]) == {"layer", "all"}


def test_what_two_fine_tunings_change_is_compared(table):
    paper = table[controls.PAPER]
    same = comparison.alpha(paper, paper)
    np.testing.assert_allclose([same["scores"], same["outputs"]], 1, rtol=1e-5)
    assert abs(comparison.alpha(paper, table["random_update"])["outputs"]) < 0.9


def test_the_order_of_demonstrations(subject, chosen):
    faster = chosen._replace(rate=5.0)
    order = controls.order_metrics(jax.random.key(3), subject, faster, 4)
    assert order["full_batch"]["log_probability"] < 1e-5
    assert order["sequential"]["log_probability"] > 1e-4
    assert order["in_context"]["log_probability"] > 1e-4


def test_networks_that_do_not_fit_are_refused():
    with pytest.raises(FlagError, match=r"--demonstrations.*at most 2"):
        check_networks(dataclasses.replace(CONFIG, demonstrations=3))


@pytest.mark.parametrize("binary", [implicit_finetuning, layers, dual_form])
def test_without_networks_nothing_is_begun(binary):
    nowhere = dataclasses.replace(binary.PRESETS["smoke"], networks="nowhere")
    with pytest.raises(FlagError, match="--networks=nowhere"):
        binary.EXPERIMENT.carried_out(nowhere, Fits(binary.EXPERIMENT.trainings(nowhere), pytest.fail))


def test_a_mean_is_of_what_is_defined():
    values = np.array([[1.0, np.nan, np.nan], [3.0, 5.0, np.nan]])
    np.testing.assert_array_equal(analysis.present_mean(values, 0), [2, 5, np.nan])
    assert analysis.present_mean(values, None) == 3


def test_words_are_strangers_to_a_context_as_well(subject):
    assert subject.material.strangers.min() > 2
    assert subject.material.strangers.max() > FIRST_WORD
