import numpy as np
import pytest

from icl_lab.compare.scores import agreement_where_wrong, recall_to_finetuning


def flags(text):
    return np.asarray([c == "1" for c in text])


def test_recall_on_counted_examples():
    found = recall_to_finetuning(flags("1100000000"), flags("0111110000"), flags("1111001000"))
    # zero-shot wrong: 8, of them fine-tuning mends 4; in context 2 of these and 1 of the other 4
    expected = {"recall": 2 / 4, "base_rate": 3 / 8, "lift": 1 / 8, "contrast": 1 / 4}
    assert {name: score.value for name, score in found.items()} == expected
    assert all(not score.reason for score in found.values())


def test_recall_without_examples_is_nan_and_says_why():
    nothing_mended = recall_to_finetuning(flags("1000"), flags("1000"), flags("1100"))
    assert np.isnan(nothing_mended["recall"].value)
    assert nothing_mended["base_rate"].value == 1 / 3
    for name in ("recall", "lift", "contrast"):
        assert nothing_mended[name].reason == "no example is wrong zero-shot and right after fine-tuning"
    all_mended = recall_to_finetuning(flags("1000"), flags("1111"), flags("1100"))
    assert all_mended["contrast"].reason == "no example is wrong both zero-shot and after fine-tuning"
    assert all_mended["lift"].value == 0
    assert not all_mended["lift"].reason
    none_wrong = recall_to_finetuning(flags("11"), flags("11"), flags("01"))
    assert none_wrong["base_rate"].reason == "no example is wrong zero-shot"
    assert all(np.isnan(score.value) == bool(score.reason) for score in none_wrong.values())


def test_agreement_where_zero_shot_is_wrong():
    #          right  wrong
    target = [0, 0, 1, 1, 2, 2, 0]
    zero = [0, 0, 0, 0, 0, 0, 1]
    tuned = [1, 0, 1, 1, 2, 0, 0]
    context = [2, 2, 1, 2, 2, 0, 1]
    found = agreement_where_wrong(target, zero, tuned, context)
    chance = 2 / 5 * 1 / 5 + 2 / 5 * 2 / 5 + 1 / 5 * 2 / 5  # of 0, 1, 2
    np.testing.assert_allclose(found["agreement"].value, 3 / 5)
    np.testing.assert_allclose(found["kappa"].value, (3 / 5 - chance) / (1 - chance))
    one_answer = agreement_where_wrong([0, 0], [1, 1], [2, 2], [2, 2])
    assert one_answer["agreement"].value == 1
    assert np.isnan(one_answer["kappa"].value)
    assert one_answer["kappa"].reason == "both always give one and the same answer"
    never = agreement_where_wrong([0, 0], [0, 0], [2, 2], [2, 1])
    assert all(np.isnan(score.value) and score.reason == "no example is wrong zero-shot" for score in never.values())


REFUSED = {
    "finetuned must be": lambda: recall_to_finetuning(flags("01"), [0, 1], flags("01")),
    "in_context must have 2": lambda: recall_to_finetuning(flags("01"), flags("01"), flags("011")),
    "target must be": lambda: agreement_where_wrong([0.5, 1.0], [0, 1], [0, 1], [0, 1]),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what):
    with pytest.raises(ValueError, match=what):
        REFUSED[what]()
