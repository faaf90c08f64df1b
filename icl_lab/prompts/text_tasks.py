"""The six held-out tasks of the made-up language, and how well they can be answered by one who knows it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from icl_lab.prompts.text import (
    FAMILIES,
    LABELS,
    LENGTH,
    MEANING,
    SHARPNESS,
    Language,
    TextTask,
    sentences,
    text_task,
    unit,
)

CANDIDATES, TRIAL = 16, 256
DIRECTIONS = 256


class HeldOut(NamedTuple):
    """What a held-out task is like.

    Attributes:
      stands_for: the data set of the paper whose place it takes.
      family: of ``FAMILIES``.
      classes: number of labels.
      alpha: how much of a class direction is the meaning of its label.
    """

    stands_for: str
    family: str
    classes: int
    alpha: float


HELD_OUT = (
    HeldOut("SST2", "polar", 2, 0.3),
    HeldOut("SST5", "ordinal", 5, 0.4),
    HeldOut("MR", "polar", 2, 0.2),
    HeldOut("Subj", "order", 2, 0.3),
    HeldOut("AGNews", "topic", 4, 0.3),
    HeldOut("CB", "pair", 3, 0.0),
)


def held_out_labels(key: Array) -> tuple[Array, ...]:
    """The label words of each held-out task, (classes,) each; no label is in two of them."""
    order, at, chosen = jax.random.permutation(key, LABELS), 0, []
    for task in HELD_OUT:
        chosen.append(order[at : at + task.classes])
        at += task.classes
    return tuple(chosen)


def held_out_sets(key: Array) -> Array:
    """(6, 24) the same as masks."""
    return jnp.stack([jnp.zeros(LABELS, bool).at[labels].set(True) for labels in held_out_labels(key)])


def held_out_tasks(key: Array, of: Language, most_zero_shot: float = 0.8) -> TextTask:
    """The six tasks, stacked.

    Of ``CANDIDATES`` draws of a task the first is taken that leaves headroom: the meanings of the labels alone answer
    at most ``most_zero_shot`` of its sentences; if none does, the last.

    Args:
      key: that of ``held_out_sets``.
      of: the language.
      most_zero_shot: share in (0, 1].
    """
    longest = max(task.classes for task in HELD_OUT)
    labels = [jnp.concatenate([own, jnp.zeros(longest - len(own), own.dtype)]) for own in held_out_labels(key)]
    kinds = [(FAMILIES.index(kind.family), kind.classes, kind.alpha) for kind in HELD_OUT]
    families, classes, alphas = (jnp.array(column) for column in zip(*kinds))

    def chosen(i: Array, family: Array, labels: Array, classes: Array, alpha: Array) -> TextTask:
        draw = lambda k: text_task(k, of, family, labels, classes, alpha)  # noqa: E731
        drawn = jax.vmap(draw)(jax.random.split(jax.random.fold_in(key, i), CANDIDATES))
        share = jax.vmap(lambda task: zero_shot_accuracy(jax.random.key(0), of, task))(drawn)
        good = share <= most_zero_shot
        first = jnp.where(good.any(), good.argmax(), CANDIDATES - 1)
        return jax.tree.map(lambda leaf: leaf[first], drawn)

    return jax.vmap(chosen)(jnp.arange(len(HELD_OUT)), families, jnp.stack(labels), classes, alphas)


def class_scores(of: Language, task: TextTask, words: Array, sharpness: ArrayLike = SHARPNESS) -> Array:
    """Log-probabilities of sentences (I, 4) under each class: (I, 5), -inf behind the last class.

    Their argmax is the Bayes answer. Of ``pair`` tasks the direction of the first half is not known; it is
    averaged over ``DIRECTIONS`` fixed ones, and the orthogonal direction of the third class over one for each.
    """
    known = _log_probability(of, task.directions, words, sharpness)
    first, other = unit(jax.random.normal(jax.random.key(1), (2, DIRECTIONS, MEANING)))
    orthogonal = unit(other - (other * first).sum(-1, keepdims=True) * first)
    half = LENGTH // 2
    seconds = jnp.stack([first, -first, orthogonal, first, first])
    halves = jnp.stack([jnp.broadcast_to(first[None], seconds.shape)] * half + [seconds] * half, axis=2)
    unknown = jax.nn.logsumexp(
        _log_probability(of, halves.reshape(-1, LENGTH, MEANING), words, sharpness).reshape(len(words), 5, -1), axis=-1
    )
    scores = jnp.where(task.pair, unknown, known)
    return jnp.where(jnp.arange(5)[None] < task.classes, scores, -jnp.inf)


def ceiling_accuracy(key: Array, of: Language, task: TextTask) -> Array:
    """() the share of sentences that the Bayes answer gets right, of 4096: what no learner can exceed."""
    words, classes = sentences(key, of, task, 16 * TRIAL)
    return (class_scores(of, task, words).argmax(-1) == classes).mean()


def zero_shot_accuracy(key: Array, of: Language, task: TextTask) -> Array:
    """() the share of sentences that are nearest to the meaning of their label word, of 256.

    What can be known of a task without demonstrations, for tasks whose classes differ in the words of the whole
    sentence; one half of the words for each label of ``order``.
    """
    words, classes = sentences(key, of, task, TRIAL)
    meaning = of.labels[task.labels]
    still = jnp.broadcast_to(meaning[:, None], (5, LENGTH, MEANING))
    scores = _log_probability(of, still, words, SHARPNESS)
    return (jnp.where(jnp.arange(5)[None] < task.classes, scores, -jnp.inf).argmax(-1) == classes).mean()


def _log_probability(of: Language, directions: Array, words: Array, sharpness: ArrayLike) -> Array:
    """(I, C) of sentences (I, 4) under directions (C, 4, 4)."""
    by_word = jax.nn.log_softmax(sharpness * jnp.einsum("cld,wd->clw", directions, of.words), axis=-1)
    chosen = jnp.take_along_axis(by_word[None], words[:, None, :, None], axis=-1)[..., 0]
    return chosen.sum(-1)
