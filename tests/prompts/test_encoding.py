import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icl_lab.prompts.demonstrations import shuffled_labels, wrong_labels
from icl_lab.prompts.encoding import encode_task, with_demonstrations

PAD, BEGIN, END = 0, 1, 2
DEMONSTRATIONS = [([10, 11], 20), ([12], 21), ([13, 14, 15], 20)]
QUERIES = [[16, 17, 18], [19]]


def encoded(demonstrations=DEMONSTRATIONS, **changes):
    given = {"queries": QUERIES, "targets": [1, 0], "candidates": [20, 21], "begin": BEGIN, "end": END, "pad": PAD}
    return encode_task(demonstrations, **given | changes)


def same(a, b):
    for name, one, other in zip(a._fields, a, b):
        np.testing.assert_array_equal(one, other, err_msg=name)


def test_a_task_by_hand():
    task = encoded()
    context = [1, 10, 11, 20, 2, 12, 21, 2, 13, 14, 15, 20, 2]
    assert task.context == len(context)
    np.testing.assert_array_equal(task.in_context, [[*context, 16, 17, 18], [*context, 19, 0, 0]])
    np.testing.assert_array_equal(task.zero_shot, [[1, 16, 17, 18], [1, 19, 0, 0]])
    np.testing.assert_array_equal(task.query_lengths, [3, 1])
    np.testing.assert_array_equal(task.examples, [[1, 10, 11, 20, 0], [1, 12, 21, 0, 0], [1, 13, 14, 15, 20]])
    np.testing.assert_array_equal(task.example_lengths, [4, 3, 5])
    np.testing.assert_array_equal(task.label_positions, [3, 6, 11])


def test_demonstration_tokens_match_one_to_one():
    task = encoded()
    place, example, inside = task.matched.T
    np.testing.assert_array_equal(task.in_context[0, place], task.examples[example, inside])
    everything = sum(len(question) + 1 for question, _ in DEMONSTRATIONS)
    assert len(set(place)) == len({*zip(example, inside)}) == len(place) == everything
    assert not set(task.in_context[0, place]) & {PAD, BEGIN, END}


@pytest.mark.parametrize("order", [[0, 1], [2, 0, 1], [1], []])
def test_chosen_demonstrations_are_as_if_encoded(order):
    task, other = with_demonstrations(encoded(), order), encoded([DEMONSTRATIONS[i] for i in order])
    width = other.examples.shape[1]
    assert not task.examples[:, width:].any()
    same(task._replace(examples=task.examples[:, :width] if order else other.examples), other)


def test_permutations_can_be_stacked():
    stacked = jax.tree.map(
        lambda *leaves: jnp.stack(leaves), *(with_demonstrations(encoded(), o) for o in ([0, 1, 2], [2, 1, 0]))
    )
    assert stacked.context == encoded().context
    assert stacked.examples.shape == (2, 3, 5)


@pytest.mark.parametrize("order", [[0, 0], [3], [-1]])
def test_order_is_of_demonstrations_that_are_there(order):
    with pytest.raises(ValueError, match="order must be of different demonstrations below 3"):
        with_demonstrations(encoded(), order)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"positions": 15}, "positions must be at least the 16 tokens of 3 demonstrations .* got 15: 1 too few"),
        ({"queries": [], "targets": []}, "queries must be at least one"),
        ({"queries": [[16], []]}, "every question must have a token"),
        ({"demonstrations": [([], 20)]}, "every question must have a token"),
        ({"targets": [2, 0]}, "targets must be .* below the 2 candidates"),
        ({"targets": [0]}, "targets must be"),
        ({"candidates": [20, 20]}, "candidates must be different tokens"),
        ({"candidates": [], "targets": [0, 0]}, "candidates must be different tokens"),
    ],
)
def test_what_does_not_fit_is_refused(changes, named):
    with pytest.raises(ValueError, match=named):
        encoded(**changes)


def test_positions_that_are_just_enough():
    same(encoded(positions=16), encoded())


def test_shuffled_labels_keep_questions_and_counts():
    shuffles = [shuffled_labels(np.random.default_rng(seed), DEMONSTRATIONS) for seed in range(20)]
    for shuffled in shuffles:
        assert [question for question, _ in shuffled] == [question for question, _ in DEMONSTRATIONS]
        assert sorted(answer for _, answer in shuffled) == [20, 20, 21]
    assert len({tuple(answer for _, answer in shuffled) for shuffled in shuffles}) == 3


def test_wrong_labels_are_never_right():
    found = [wrong_labels(np.random.default_rng(seed), DEMONSTRATIONS, [20, 21, 22]) for seed in range(20)]
    assert all(answer != right for wrong in found for (_, answer), (_, right) in zip(wrong, DEMONSTRATIONS))
    assert {answer for wrong in found for _, answer in wrong} == {20, 21, 22}


@pytest.mark.parametrize("candidates", [[20], [20, 20], [20, 22]])
def test_wrong_labels_need_another_candidate(candidates):
    with pytest.raises(ValueError, match="candidates must be at least 2 different ones and hold every answer"):
        wrong_labels(np.random.default_rng(0), DEMONSTRATIONS, candidates)
