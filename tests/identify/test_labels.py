"""Learners of labels whose algorithm is known are named; their structure is as derived; outsiders are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.identification.label_outsiders import three_nearest
from experiments.identification.labels import learner_of
from icl_lab.identify import LearnerError, identify_classifier
from icl_lab.identify.label_families import LABEL_FAMILIES
from icl_lab.identify.labels import BAR, label_battery, total_variation
from icl_lab.prompts import item_label_classification, item_label_law, linear_regression

N, D, C = 8, 4, 3
SIZES = {"context_length": N, "input_size": D, "labels": C}
ON, _ = label_battery(None, N, D, C, 7)


def family(name, *theta):
    return learner_of(lambda on: LABEL_FAMILIES[name].predict(on, *theta), C)


def says(name, *theta):
    return LABEL_FAMILIES[name].predict(ON, *theta)


@pytest.mark.parametrize(
    ("name", "theta"),
    [
        ("flat", ()), ("majority", (0.7,)), ("nearest label", (0.8,)), ("logistic step", (3.0,)),
        ("kernel vote (dot product)", (2.0,)), ("kernel vote (distance)", (2.0,)), ("induction copy", (0.9, 0.5)),
    ],
)  # fmt: skip
def test_a_family_is_named_with_its_numbers(name, theta):
    found = identify_classifier(family(name, *theta), **SIZES)
    assert (found.verdict, found.family) == ("identified", name)
    assert found.fit.distance < 5e-3
    for value, (low, high) in zip(theta, found.fit.intervals.values()):
        assert low / 1.2 <= value <= high * 1.2  # neighbours on the grid are at most so far apart
    assert max(list(found.structure.values())[:3]) < 1e-10
    assert (found.structure["query_independence"] < 1e-10) == (name in ("flat", "majority"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("kernel vote (distance)", 1e-9), ("nearest label", 1.0)),
        (("kernel vote (distance)", 1e12), ("majority", 0.0)),
        (("kernel vote (dot product)", 1e12), ("majority", 0.0)),
        (("induction copy", 0.7, 1e9), ("nearest label", 0.7)),
        (("nearest label", 1 / C), ("flat",)),
        (("majority", 1e12), ("flat",)),
        (("logistic step", 0.0), ("flat",)),
    ],
)
def test_families_that_are_the_same_in_a_limit(one, other):
    assert total_variation(says(*one), says(*other)) < 1e-8


def test_the_step_is_that_of_the_gradient_of_the_cross_entropy():
    x, labels, q = ON.x[0], ON.labels[0], ON.q[0]

    def loss(w):
        return optax.softmax_cross_entropy_with_integer_labels(x @ w, labels).mean()

    logits = q @ (-0.8 * jax.grad(loss)(jnp.zeros((D, C))))
    np.testing.assert_allclose(says("logistic step", 0.8)[0], jax.nn.softmax(logits), atol=1e-5)


def test_scaled_logits_scale_a_rate_and_sharpen_a_confidence():
    for name, theta, expected in (
        ("logistic step", 1.5, 4.5),
        ("nearest label", 0.6, 0.6**3 / (0.6**3 + (C - 1) * (0.4 / (C - 1)) ** 3)),
    ):
        plain = family(name, theta)
        found = identify_classifier(lambda *prompt, plain=plain: 3 * plain(*prompt), **SIZES)
        assert found.family == name
        np.testing.assert_allclose(list(found.fit.parameters.values()), expected, rtol=0.02)  # the grid is finer


def test_the_last_label_depends_on_the_order_as_often_as_another_label_comes_last():
    confidence = 0.9
    said = lambda x, c, q: np.log(np.where(np.eye(C)[c[:, -1]], confidence, (1 - confidence) / (C - 1)))  # noqa: E731
    found = identify_classifier(said, **SIZES)
    share = (1 - 1 / N) * (1 - 1 / C)  # another example comes last, and has another label
    change = confidence - (1 - confidence) / (C - 1)
    deviation = change * np.sqrt(share * (1 - share) / len(ON.x))
    assert abs(found.structure["order"] - change * share) < 4 * deviation
    assert found.structure["label_permutation"] < 1e-12
    assert found.family is None
    assert "with the order of the examples" in found.reason


def test_what_a_learner_lacks_is_the_reason():
    vote = family("kernel vote (distance)", 1.0)
    cases = {
        "the names of labels": lambda x, c, q: vote(x, c, q) + 3 * np.eye(C)[0],
        "the basis of the inputs": lambda x, c, q: vote(x[:, :, :1], c, q[:, :1]),
    }
    for said, learner in cases.items():
        found = identify_classifier(learner, **SIZES)
        assert found.family is None
        assert said.removeprefix("the ") in found.reason


def test_an_outsider_is_refused_by_its_distance():
    found = identify_classifier(learner_of(lambda on: three_nearest(on, 0.1), C), **SIZES)
    assert (found.verdict, found.family, found.fit) == ("none of these", None, None)
    assert found.fits[0].distance > BAR
    assert f"further than {BAR}" in found.reason
    assert "none of these" in str(found)


@pytest.mark.parametrize(
    ("learner", "said"),
    [
        (3, "not a function"),
        (lambda x, c, q: np.zeros((len(x), 2)), "not floats"),
        (lambda x, c, q: np.full((len(x), C), np.nan), "NaN"),
        (lambda x, c, q: np.full((len(x), C), -np.inf), "minus infinity"),
        (lambda x, c, q: q @ np.ones(9), "raised ValueError"),
        (lambda x, c, q: np.arange(len(x))[:, None] % 5 * np.eye(C)[:1], "differently"),
    ],
)
def test_what_answers_wrongly_is_refused(learner, said):
    with pytest.raises(LearnerError, match=said):
        identify_classifier(learner, **SIZES)


def test_prompts_are_those_of_the_sampler():
    law = item_label_law(jax.random.key(0), classes=8, labels=4, input_size=6)
    sampler = item_label_classification(law, context_length=2)
    on, _ = label_battery(sampler, 2, 6, 4, 0)
    assert set(np.unique(on.labels)) == set(range(4))
    assert np.all(on.labels[:, 0] != on.labels[:, 1])  # two classes, of different labels
    distance = np.sqrt(on.distances.min(1) / on.size)
    kind = np.arange(len(distance)) // 4 % 3
    assert np.all(distance[kind == 0] == 0)
    assert np.all((distance[kind == 1] > 0) & (distance[kind == 1] < 1.0001))
    with pytest.raises(ValueError, match=r"sampler must draw x .* below 3"):
        label_battery(sampler, 2, 6, 3, 0)
    with pytest.raises(ValueError, match="latent labels"):
        label_battery(linear_regression(context_length=2, input_size=6), 2, 6, 3, 0)


def test_the_wide_prompts_have_the_same_mean_size():
    rows = np.arange(len(ON.x)) // 2 % 2 == 1
    sizes = (ON.x**2).sum(2).mean(1) / D
    deviation = sizes[rows].std() / np.sqrt(rows.sum())
    assert abs(sizes[rows].mean() - 1) < 5 * deviation
    assert sizes[rows].std() > 2 * sizes[~rows].std()


def test_an_answer_is_short_and_drawn():
    for learner in (family("nearest label", 0.8), learner_of(lambda on: three_nearest(on, 0.1), C)):
        found = identify_classifier(learner, **SIZES)
        assert len(repr(found)) <= 300
        assert str(found).splitlines()[0][:40] in repr(found)
        assert "data:image/png;base64," in found._repr_html_()
        distances, changes = found.plot().axes
        assert [text.get_text() for text in distances.get_yticklabels()] == [one.family for one in found.fits]
        np.testing.assert_allclose(distances.lines[0].get_xdata(), [max(one.distance, 1e-5) for one in found.fits])
        assert len(changes.lines[0].get_xdata()) == len(found.structure)
