import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from icl_lab.prompts import (
    NOVEL_CLASSES,
    burstiness_values,
    copies_without_bursts,
    evaluation_laws,
    item_label_classification,
    item_label_law,
)

KEY = jax.random.key(5)
SIGMAS = 4.5  # standard errors; some hundred comparisons in all
K, L, N, D, P = 32, 8, 4, 5, 12
SHARP = {"classes": K, "labels": L, "input_size": D, "spread": 0.0}  # an item tells its class
BATCH = 4000


def law_of(**options):
    return item_label_law(jax.random.fold_in(KEY, 1), **(SHARP | options))


@functools.partial(jax.jit, static_argnames=("batch", "n", "slots", "distinct_labels", "swapped"))
def draw(law, key=KEY, *, batch=BATCH, n=N, slots=P, distinct_labels=True, swapped=False):
    options = {"context_length": n, "slots": slots, "distinct_labels": distinct_labels, "swapped": swapped}
    return item_label_classification(law, **options)(key, batch)


def nearest(table, points):
    """Index of the nearest row, and the distance to it."""
    distance = np.linalg.norm(np.asarray(points)[..., None, :] - np.asarray(table), axis=-1)
    return distance.argmin(-1), distance.min(-1)


def classes_of(law, sample):
    """(B, N + 1) trained class of every item, -1 for a novel one."""
    items = np.concatenate([sample.prompt.x, sample.prompt.x_query[:, None]], axis=1)
    index, distance = nearest(law.class_means, items)
    return np.where(distance < 1e-5, index, -1)


def assert_uniform(values, size):
    """Independent draws from 0..size - 1."""
    counts = np.bincount(np.ravel(values), minlength=size)
    assert counts.size == size
    assert stats.chisquare(counts).pvalue > 1e-5


def assert_share(hits, expected):
    hits = np.asarray(hits, float)
    assert abs(hits.mean() - expected) <= SIGMAS * np.sqrt(expected * (1 - expected) / hits.size) + 1e-9


@pytest.mark.parametrize("copies", [1, 2])
def test_bursty_sequences_hold_copies_of_classes_with_different_labels(copies):
    law = law_of(burstiness=copies)
    sample = draw(law)
    classes, labels = classes_of(law, sample), np.asarray(sample.latent["labels"])
    assert (np.sort(classes[:, :N], axis=1).reshape(BATCH, -1, copies).std(-1) == 0).all()  # each class B times
    assert (np.asarray([np.unique(row).size for row in labels]) == N // copies).all()
    np.testing.assert_array_equal(labels, classes[:, :N] % L)
    np.testing.assert_array_equal(sample.target, classes[:, N] % L)
    np.testing.assert_array_equal(sample.latent["match"], classes[:, :N] == classes[:, N:])
    assert (np.asarray(sample.latent["match"]).sum(1) == copies).all()
    np.testing.assert_array_equal(sample.prompt.y, np.asarray(law.label_vectors)[labels])
    for column in range(N):
        assert_uniform(classes[:, column], K)
        assert_share(sample.latent["match"][:, column], copies / N)
    first_pair = (classes[:, 0] // L) * (K // L) + classes[:, 1] // L  # two labels' classes are drawn independently
    assert_uniform(first_pair if copies == 1 else classes[:, N], (K // L) ** 2 if copies == 1 else K)
    same = classes[:, 0] == classes[:, 1]  # the order is shuffled
    assert_share(same, (copies - 1) / (N - 1))
    assert_uniform(sample.prompt.offset, P - 2 * N)


def test_fewer_labels_in_use():
    law = dataclasses.replace(law_of(burstiness=2), labels=jnp.int32(2))
    labels = np.asarray(draw(law).latent["labels"])
    assert set(np.unique(labels)) == {0, 1}
    assert (labels.sum(1) == N // 2).all()


def test_non_bursty_sequences_are_independent_draws_from_the_rank_frequency_law():
    law = law_of(burstiness=0, exponent=0.0)
    classes = classes_of(law, draw(law))
    for column in range(N + 1):
        assert_uniform(classes[:, column], K)
    assert_uniform(classes[:, 0] // L * 4 + classes[:, N] // L, 16)
    assert_share((classes[:, :N] == classes[:, N:]).any(1), 1 - (1 - 1 / K) ** N)
    for used in (K, K // 2):  # of the rows of the table
        zipf = law_of(classes=used, rows=K, burstiness=0, exponent=1.0)
        counts = np.bincount(classes_of(zipf, draw(zipf, distinct_labels=False)).ravel(), minlength=used)
        weight = 1 / np.arange(1.0, used + 1)
        assert stats.chisquare(counts, counts.sum() * weight / weight.sum()).pvalue > 1e-5


def test_without_distinct_labels_bursty_classes_follow_the_rank_frequency_law():
    law = law_of(burstiness=2, exponent=1.5)
    sample = draw(law, distinct_labels=False)
    classes = classes_of(law, sample)
    assert (np.sort(classes[:, :N], axis=1).reshape(BATCH, -1, 2).std(-1) == 0).all()
    assert (np.asarray(sample.latent["match"]).sum(1) >= 2).all()
    weight = np.arange(1.0, K + 1) ** -1.5
    weight = weight / weight.sum()
    assert_share(np.asarray(sample.latent["match"]).sum(1) == 4, (weight**2).sum())  # two draws of one class
    for column in (0, N):
        assert stats.chisquare(np.bincount(classes[:, column], minlength=K), BATCH * weight).pvalue > 1e-5


def test_shares_of_bursty_and_novel_sequences():
    law = law_of(bursty_share=0.25, novel_share=0.4)
    sample = draw(law)
    novel = (classes_of(law, sample) < 0).all(1)
    assert_share(novel, 0.4)
    assert_share(np.asarray(sample.latent["match"])[novel].sum(1) == 1, 1.0)
    by_chance = 1 - (1 - 1 / K) ** N
    assert_share(np.asarray(sample.latent["match"])[~novel].any(1), 0.25 + 0.75 * by_chance)


def test_evaluation_laws():
    law = law_of(burstiness=jnp.array(0), bursty_share=0.5, novel_share=0.5)
    laws = evaluation_laws(law, N)
    in_weights, in_context = draw(laws["iwl"]), draw(laws["ic"])
    classes = classes_of(law, in_weights)
    assert (classes >= 0).all()
    assert_share((classes[:, :N] == classes[:, N:]).any(1), 1 - (1 - 1 / K) ** N)
    assert (classes_of(law, in_context) < 0).all()
    assert (np.asarray(in_context.latent["match"]).sum(1) == N // 2).all()
    items = np.concatenate([in_context.prompt.x, in_context.prompt.x_query[:, None]], axis=1).reshape(-1, D)
    assert len(np.unique(items.round(4), axis=0)) == NOVEL_CLASSES
    other = np.asarray(draw(laws["ic"], jax.random.fold_in(KEY, 2)).prompt.x).reshape(-1, D)
    assert not np.isin(other.round(4), items.round(4)).all(1).any()  # fresh ones in every batch
    swapped = draw(laws["ic2"], swapped=True)
    classes = classes_of(law, swapped)
    np.testing.assert_array_equal(swapped.latent["labels"], (classes[:, :N] + 1) % L)
    np.testing.assert_array_equal(swapped.target, (classes[:, N] + 1) % L)
    np.testing.assert_array_equal(swapped.prompt.y, np.asarray(law.label_vectors)[(classes[:, :N] + 1) % L])
    assert (np.asarray(swapped.latent["match"]).sum(1) == N // 2).all()
    assert np.asarray(evaluation_laws(law_of(burstiness=1), N)["ic"].burstiness) == 1


@pytest.mark.parametrize("distinct_labels", [True, False])
def test_every_label_has_as_many_novel_classes_where_it_does_not_divide_them(distinct_labels):
    labels, classes = 12, 120
    law = evaluation_laws(law_of(labels=labels, classes=36), N)["ic"]
    sample = draw(law, distinct_labels=distinct_labels)
    items = np.asarray(sample.prompt.x).reshape(-1, D)
    found, which = np.unique(items.round(4), axis=0, return_inverse=True)
    assert len(found) == classes  # a novel class for each is used, none beyond
    of_class = [np.unique(np.ravel(sample.latent["labels"])[which == k]) for k in range(classes)]
    assert np.bincount(np.concatenate(of_class)).tolist() == [classes // labels] * labels
    assert_uniform(sample.target, labels)


def test_copies_where_no_sequence_is_bursty():
    assert [copies_without_bursts(n) for n in (1, 2, 3, 4, 5, 8, 9, 15)] == [1, 1, 1, 2, 1, 4, 3, 5]
    assert burstiness_values(12) == (1, 2, 3, 4, 6)
    n = 5  # half of which is no divisor
    law = evaluation_laws(law_of(burstiness=0), n)["ic"]
    for sample in (draw(law, n=n), draw(dataclasses.replace(law, burstiness=jnp.int32(0)), n=n)):
        assert (np.asarray([np.unique(row).size for row in sample.latent["labels"]]) == n).all()
        for column in range(n):
            assert_share(sample.latent["match"][:, column], 1 / n)


def test_contents_have_unit_norm_and_fresh_noise_in_every_item():
    size, spread = 200, 0.5
    law = law_of(input_size=size, spread=spread)
    np.testing.assert_allclose(np.linalg.norm(law.class_means, axis=1), 1, atol=6 * (2 * size) ** -0.5)
    np.testing.assert_allclose(np.linalg.norm(law.label_vectors, axis=1), 1, atol=6 * (2 * size) ** -0.5)
    sample = draw(law, batch=60)
    items = np.concatenate([sample.prompt.x, sample.prompt.x_query[:, None]], axis=1)
    classes, _ = nearest(law.class_means, items)
    noise = items * np.sqrt(1 + spread**2) - np.asarray(law.class_means)[classes]
    assert stats.kstest(noise.ravel() * size**0.5 / spread, "norm").pvalue > 1e-5
    rows = noise.reshape(-1, size)
    cosine = rows @ rows.T * (1 / spread**2)
    assert np.abs(cosine - np.diag(np.diag(cosine))).max() < 6 * size**-0.5


def test_members_of_different_laws_share_a_program():
    scalars = {"classes": jnp.array([16, 32]), "burstiness": jnp.array([1, 2]), "spread": jnp.array([0.0, 0.3])}
    keys = jax.random.split(KEY, 2)
    laws = jax.jit(jax.vmap(lambda key, s: item_label_law(key, **(SHARP | s), rows=32)))(keys, scalars)
    together = jax.tree.map(np.asarray, jax.jit(jax.vmap(draw))(laws, keys))
    laws = jax.tree.map(np.asarray, laws)
    for m in range(2):
        law, sample = jax.tree.map(lambda leaf: leaf[m], (laws, together))  # noqa: B023
        alone = draw(law, keys[m])
        for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(sample)):
            np.testing.assert_allclose(a, b, atol=1e-6)
        assert (sample.latent["match"].sum(-1) == m + 1).all()
        if m == 0:
            assert classes_of(law, sample).max() < 16


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"labels": 129}, "labels must be 1 to 128, the classes of novel sequences, got 129"),
        ({"input_size": 0}, "input_size must be a whole number of at least 1, got 0"),
        ({"classes": 12}, "classes must be a multiple of labels = 8.*got 12"),
        ({"classes": 64, "rows": 32}, "up to the 32 rows, got 64"),
        ({"burstiness": -1}, "burstiness must be a finite number >= 0, got -1"),
        ({"novel_share": 1.5}, "novel_share is a probability.*got 1.5"),
        ({"spread": float("nan")}, "spread must be a finite number"),
    ],
)
def test_a_law_that_is_none_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        law_of(**wrong)
    with pytest.raises(ValueError, match=r"rows.*must be given where classes is traced"):
        jax.jit(lambda k: law_of(classes=k))(32)


@pytest.mark.parametrize(
    ("law", "wrong", "message"),
    [
        ({}, {"context_length": 0}, "context_length must be a whole number of at least 1"),
        ({}, {"slots": 8}, "slots must be a whole number of at least 9, got 8"),
        ({"burstiness": 3}, {}, r"burstiness must be 0 or a divisor of N below it: \[1, 2\], got 3"),
        ({"burstiness": 4}, {}, r"burstiness must be 0 or a divisor of N below it: \[1, 2\], got 4"),
        ({}, {"context_length": 9}, "labels must be at least N/B = 9, all different, got 8"),
        ({"exponent": 0.5}, {}, "exponent must be 0 with distinct_labels"),
    ],
)
def test_a_sequence_that_is_none_is_refused(law, wrong, message):
    with pytest.raises(ValueError, match=message):
        item_label_classification(law_of(**law), **({"context_length": N} | wrong))
