import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icl_lab.prompts import text
from icl_lab.prompts.text import (
    CLASSES,
    FAMILIES,
    FIRST_LABEL,
    FIRST_WORD,
    LABELS,
    LENGTH,
    WORDS,
    language,
    sentences,
    text_task,
)
from icl_lab.prompts.text_sequences import (
    EXAMPLE,
    STAGES,
    allowed_labels,
    curriculum,
    example_rows,
    sequence_length,
    unrelated,
)
from icl_lab.prompts.text_tasks import (
    BAND,
    HELD_OUT,
    TRIAL,
    ceiling_accuracy,
    class_scores,
    held_out_labels,
    held_out_sets,
    held_out_tasks,
    meaning_only_accuracy,
)

KEY = jax.random.key(0)
DEMONSTRATIONS = 4


@pytest.fixture(scope="module")
def spoken():
    return jax.jit(language)(KEY)


def task(spoken, family, alpha=0.5, classes=3, seed=1):
    labels = jnp.array([3, 7, 1, 20, 11])
    draw = jax.jit(text_task)
    return draw(jax.random.key(seed), spoken, FAMILIES.index(family), labels, classes, alpha)


def log_probabilities(spoken, directions):
    """(classes, places, words), in numpy."""
    logits = text.SHARPNESS * np.asarray(directions) @ np.asarray(spoken.words).T
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def test_words_are_drawn_with_their_probabilities(spoken):
    of = task(spoken, "topic")
    count = 60_000
    words, classes = map(np.asarray, jax.jit(sentences, static_argnums=3)(KEY, spoken, of, count))
    expected = np.exp(log_probabilities(spoken, of.directions))
    shares = np.zeros((3, 4, WORDS))
    for c in range(3):
        for place in range(4):
            shares[c, place] = np.bincount(words[classes == c, place], minlength=WORDS) / (classes == c).sum()
    deviation = (shares - expected[:3]) / np.sqrt(expected[:3] / (count / 3))
    assert np.sqrt((deviation**2).mean()) == pytest.approx(1, abs=0.1)
    np.testing.assert_allclose(np.bincount(classes) / count, 1 / 3, atol=0.01)


def test_alpha_is_the_part_of_a_direction_that_its_label_tells(spoken):
    told, untold = task(spoken, "topic", alpha=1.0), task(spoken, "topic", alpha=0.0)
    np.testing.assert_allclose(told.directions[:, 0], spoken.labels[told.labels], atol=1e-6)
    many = jax.jit(jax.vmap(lambda k: text._blend(spoken.labels[:1], jax.random.normal(k, (1, 4)), 0.6)))
    along = many(jax.random.split(KEY, 4000))[:, 0] @ spoken.labels[0]
    # alpha + sqrt(1 - alpha^2) c over its length, with c the cosine of a uniform direction in R^4
    cosines = np.cos(np.linspace(0, np.pi, 2001))
    density = 1 - cosines**2
    length = np.sqrt(1 + 2 * 0.6 * 0.8 * cosines)
    assert float(along.mean()) == pytest.approx(np.average((0.6 + 0.8 * cosines) / length, weights=density), abs=0.02)
    assert not np.allclose(untold.directions[:, 0], spoken.labels[told.labels], atol=0.1)


def test_families_are_what_they_are_called(spoken):
    polar, ordinal, order = (task(spoken, family) for family in ("polar", "ordinal", "order"))
    np.testing.assert_allclose(polar.directions[0], -polar.directions[1], atol=1e-6)
    assert [int(t.classes) for t in (polar, ordinal, order, task(spoken, "pair"))] == [2, 5, 2, 3]
    axis = ordinal.directions[-1, 0] / 1.5
    places = ordinal.directions[:, 0] @ axis
    np.testing.assert_allclose(places, np.linspace(-1.5, 1.5, 5), atol=1e-5)
    np.testing.assert_array_equal(order.directions[0, :2], order.directions[1, 2:])
    np.testing.assert_array_equal(order.directions[0, 2:], order.directions[1, :2])
    assert not np.allclose(order.directions[0, 0], order.directions[0, 2])


def test_halves_of_a_pair_are_alike_opposite_or_unrelated():
    halves = text._pairs(KEY, jnp.array([0, 1, 2] * 20))
    assert halves.shape == (60, 4, 4)
    cosine = jnp.einsum("id,id->i", halves[:, 0], halves[:, -1])
    np.testing.assert_allclose(cosine, [1, -1, 0] * 20, atol=1e-6)


def test_a_held_out_set_of_labels_is_never_given_and_any_other_is_kept():
    sets = held_out_sets(KEY)
    np.testing.assert_array_equal(sets.sum(0) <= 1, True)  # disjoint
    for labels in held_out_labels(KEY):
        others = jnp.array([k for k in range(LABELS) if k not in np.asarray(labels)])
        given = allowed_labels(jnp.concatenate([labels, others]), len(labels), sets)[: len(labels)]
        mask = np.isin(np.arange(LABELS), given)
        assert mask.sum() == len(labels)
        assert not (mask == np.asarray(sets)).all(1).any()
    free = jnp.concatenate([held_out_labels(KEY)[0][:1], held_out_labels(KEY)[1], jnp.arange(LABELS - 6)])
    np.testing.assert_array_equal(allowed_labels(free, 2, sets), free[:CLASSES])


@pytest.fixture(scope="module")
def drawn(spoken):
    samplers = curriculum(spoken, held_out_sets(KEY), DEMONSTRATIONS)
    assert tuple(samplers) == STAGES
    draw = lambda sample: jax.jit(sample, static_argnums=1)(jax.random.key(5), 64)  # noqa: E731
    return {stage: jax.tree.map(np.asarray, draw(sample)) for stage, sample in samplers.items()}


@pytest.mark.parametrize("stage", STAGES)
def test_sequences_have_one_length_and_their_labels_are_labels(drawn, stage):
    sequences = drawn[stage]
    assert sequences.tokens.shape == (64, sequence_length(DEMONSTRATIONS))
    labels = (sequences.tokens >= FIRST_LABEL) & (sequences.tokens < FIRST_WORD)
    if stage != "strings":
        np.testing.assert_array_equal(sequences.labels, labels)
        assert (sequences.late <= sequences.labels).all()
    assert sequences.late.any()


def test_examples_of_unrelated_text_share_no_task(spoken):
    """Five examples have nearly five labels, where most tasks have two; each label is nearer to its own sentence."""
    sequences = jax.jit(unrelated(spoken, held_out_sets(KEY), DEMONSTRATIONS), static_argnums=1)(jax.random.key(5), 64)
    tokens, labels, late = (np.asarray(vars(sequences)[name]) for name in ("tokens", "labels", "late"))
    assert tokens.shape == (64, sequence_length(DEMONSTRATIONS))
    np.testing.assert_array_equal(labels.sum(1), DEMONSTRATIONS + 1)
    assert (late <= labels).all()
    rows = tokens[:, 1:].reshape(64, DEMONSTRATIONS + 1, -1)
    assert np.mean([len(set(row[:, -2])) for row in rows]) > DEMONSTRATIONS
    meanings = np.asarray(spoken.words)[rows[..., 1 : 1 + LENGTH] - FIRST_WORD].mean(2)
    own = np.asarray(spoken.labels)[rows[..., -2] - FIRST_LABEL]
    others = np.roll(own, 1, axis=0)
    assert (own * meanings).sum(-1).mean() > 0.1 + (others * meanings).sum(-1).mean()


def test_strings_repeat(drawn):
    for tokens, late in zip(drawn["strings"].tokens, drawn["strings"].late):
        period = int(np.argmax(late))
        np.testing.assert_array_equal(tokens[period:], tokens[:-period])
        assert late[period:].all()


def test_a_late_label_of_a_couple_has_stood_behind_its_word(drawn):
    forms = set()
    for tokens, labels, late in zip(*(vars(drawn["couples"])[name] for name in ("tokens", "labels", "late"))):
        known, at = {}, np.flatnonzero(labels)
        words = [t for t in range(len(tokens)) if tokens[t] >= FIRST_WORD]
        for t in at:
            word = tokens[max(w for w in words if w < t)]
            assert (word in known) == late[t]
            assert known.setdefault(word, tokens[t]) == tokens[t]
        forms.add((tokens[1] >= FIRST_WORD, at[1] - at[0]))
    assert len(forms) > 8  # of 14: with a first field 3 to 7 tokens, without 2 to 7, ...


def test_sequences_of_tasks_have_as_many_labels_as_their_entropy_says(drawn):
    for stage in ("clear", "mixture"):
        for tokens, labels, entropy in zip(drawn[stage].tokens, drawn[stage].labels, drawn[stage].entropy):
            assert len(set(tokens[labels])) <= round(float(np.exp(entropy))) <= CLASSES


def test_rows_are_field_words_field_label_end(spoken):
    of = task(spoken, "polar")
    words, classes = sentences(KEY, spoken, of, 5)
    rows = example_rows(of, words, classes)
    assert rows.shape == (5, EXAMPLE)
    np.testing.assert_array_equal(rows[:, 1:5] - FIRST_WORD, words)
    np.testing.assert_array_equal(rows[:, 6] - FIRST_LABEL, of.labels[classes])
    np.testing.assert_array_equal(rows[:, 5], rows[:, 0] + 1)
    np.testing.assert_array_equal(rows[:, 7], text.END)


def test_the_bayes_answer_is_the_most_likely_class(spoken):
    of = task(spoken, "ordinal")
    words, _ = sentences(KEY, spoken, of, 20)
    by_word = log_probabilities(spoken, of.directions)
    by_hand = by_word[:, np.arange(4)[:, None], np.asarray(words).T].sum(1).T
    np.testing.assert_allclose(class_scores(spoken, of, words), by_hand, rtol=1e-4)


def test_halves_of_a_pair_are_averaged_over_their_directions(spoken):
    of = task(spoken, "pair")
    words = jnp.array([[5, 5, 5, 5]])
    alike, opposite, _ = class_scores(spoken, of, words)[0, :3]
    assert alike > opposite + 2
    rng = np.random.default_rng(0)
    first = rng.normal(size=(4000, 4))
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    log = log_probabilities(spoken, first)[:, 5]
    log_back = log_probabilities(spoken, -first)[:, 5]
    expected = np.log(np.exp(4 * log).mean() / np.exp(2 * log + 2 * log_back).mean())
    assert float(alike - opposite) == pytest.approx(expected, abs=0.5)  # 256 directions


@pytest.fixture(scope="module")
def worlds():
    """Accuracies (30, 6) of held-out tasks in fresh languages, from meanings alone and of the Bayes answer."""

    def measured(key):
        of = language(key)
        tasks, fresh = held_out_tasks(key, of), jax.random.fold_in(key, 1)
        alone = jax.vmap(lambda one: meaning_only_accuracy(fresh, of, one, 512))(tasks)
        return tasks.classes, alone, jax.vmap(lambda one: ceiling_accuracy(fresh, of, one, 512))(tasks)

    quick = {"xla_backend_optimization_level": 1, "xla_llvm_disable_expensive_passes": False}  # it computes for long
    of_all = jax.jit(lambda keys: jax.lax.map(measured, keys), compiler_options=quick)
    return tuple(map(np.asarray, of_all(jax.random.split(KEY, 30))))


def test_held_out_tasks_are_near_chance_without_demonstrations_and_far_above_it_with_them(worlds):
    classes, alone, ceiling = worlds
    chance = 1 / classes
    assert (classes == [kind.classes for kind in HELD_OUT]).all()
    noise = 4 * np.sqrt(0.25 / TRIAL + 0.25 / 512)  # the rule looks at TRIAL sentences, this test at 512 others
    assert (np.abs(alone - chance) <= BAND + noise).all()
    assert (ceiling > 1.5 * chance).mean() > 0.95
    assert ((ceiling - alone)[:, :5] > 0.1).mean() > 0.95  # pair tasks have less


def accuracy_in_float64(rng, told, sentences_each):
    """Meaning-only accuracy on polar tasks whose axis is blended by hand: one world, drawn with numpy."""
    unit = lambda v: v / np.linalg.norm(v, axis=-1, keepdims=True)  # noqa: E731
    words, labels = unit(rng.normal(size=(WORDS, 4))), unit(rng.normal(size=(2, 4)))
    axis = unit(told * unit(labels[1] - labels[0]) + np.sqrt(1 - told**2) * unit(rng.normal(size=4)))
    odds = np.exp(text.SHARPNESS * np.outer([-1, 1], axis @ words.T))
    by_label = np.log(np.exp(text.SHARPNESS * labels @ words.T))
    by_label -= np.log(np.exp(by_label).sum(1, keepdims=True))
    right = 0.0
    for c, probabilities in enumerate(odds / odds.sum(1, keepdims=True)):
        drawn = rng.choice(WORDS, size=(sentences_each, 4), p=probabilities)
        right += (by_label[:, drawn].sum(-1).argmax(0) == c).mean() / 2
    return right


COUNT = 600


def meaning_only(family, classes, told):
    """Accuracies (COUNT,) of meanings alone on tasks in fresh languages, and chance."""
    found, chance = _meaning_only(jax.random.split(KEY, COUNT), FAMILIES.index(family), classes, told)
    return np.asarray(found, np.float64), np.asarray(chance, np.float64)


@jax.jit
def _meaning_only(keys, family, classes, told):
    def measured(key):
        of_language, of_task, of_sentences = jax.random.split(key, 3)
        of = language(of_language)
        one = text_task(of_task, of, family, jnp.arange(CLASSES), classes, told)
        return meaning_only_accuracy(of_sentences, of, one, 64), 1 / one.classes

    return jax.lax.map(measured, keys)


def test_meanings_alone_are_worth_what_an_independent_computation_says():
    told = 0.3
    found, _ = meaning_only("polar", 2, told)
    rng = np.random.default_rng(0)
    expected = np.array([accuracy_in_float64(rng, told, 32) for _ in range(COUNT)])
    error = np.sqrt(found.var() / COUNT + expected.var() / COUNT)
    assert found.mean() == pytest.approx(expected.mean(), abs=4 * error)
    assert expected.mean() > 0.5 + 4 * error  # unselected, meanings tell something
    assert found.std() == pytest.approx(expected.std(), rel=0.15)


@pytest.mark.parametrize("family", ["topic", "polar", "order", "pair"])
def test_meanings_tell_nothing_of_a_task_whose_directions_ignore_them(family):
    # by symmetry exact in the mean over languages: labels and directions are drawn apart
    found, chance = meaning_only(family, 4, 0.0)
    above = found - chance
    assert abs(above.mean()) < 4 * above.std() / np.sqrt(COUNT)
