"""Material of a task as token ids: sets of demonstrations, and questions that are drawn apart from them."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from icl_lab.prompts.encoding import Demonstration, EncodedTask, encode_task
from icl_lab.prompts.text import BEGIN, CLASSES, END, FIRST_LABEL, PAD, Language, TextTask, sentences
from icl_lab.prompts.text_sequences import example_rows
from icl_lab.prompts.text_tasks import class_scores

Ints = NDArray[np.int32]


class Questions(NamedTuple):
    """Questions of one split, and the class that answers each."""

    tokens: Sequence[Sequence[int]]
    targets: Ints


class Material(NamedTuple):
    """One task.

    Attributes:
      sets: demonstrations of every seed, N each.
      development: what seeds and learning rates are chosen on.
      test: what is reported.
      candidates: (A,) tokens of the label words.
      marks: the tokens ``begin``, ``end`` and ``pad`` of ``encode_task``.
      strangers: tokens that a context of random tokens is drawn from.
      ceiling: accuracy of the Bayes answer to the test questions; NaN where it is not known.
    """

    sets: tuple[list[Demonstration], ...]
    development: Questions
    test: Questions
    candidates: Ints
    marks: dict[str, int]
    strangers: Ints
    ceiling: float = float("nan")


def toy_material(
    key: Array, of: Language, task: TextTask, *, seeds: Sequence[int], demonstrations: int, development: int, test: int
) -> Material:
    """A held-out task of the made-up language; every split is drawn independently.

    Args:
      key: of this network and task.
      of: the network's language.
      task: one task.
      seeds: of the sets of demonstrations.
      demonstrations: N.
      development: how many questions.
      test: how many.
    """
    development_key, test_key, sets_key = jax.random.split(key, 3)

    def drawn(key: Array, count: int) -> tuple[list[Demonstration], Questions]:
        rows, classes = (np.asarray(part) for part in _rows(key, of, task, count))
        texts = [(row[:-2].tolist(), int(row[-2])) for row in rows]  # question, label, end
        return texts, Questions([question for question, _ in texts], classes)

    return Material(
        sets=tuple(drawn(jax.random.fold_in(sets_key, seed), demonstrations)[0] for seed in seeds),
        development=drawn(development_key, development)[1],
        test=drawn(test_key, test)[1],
        candidates=np.asarray(FIRST_LABEL + task.labels)[: int(task.classes)],
        marks={"begin": BEGIN, "end": END, "pad": PAD},
        strangers=np.arange(END + 1, FIRST_LABEL + len(of.labels) + len(of.words), dtype=np.int32),
        ceiling=float(_bayes_accuracy(test_key, of, task, test)),
    )


@partial(jax.jit, static_argnames="count")
def _rows(key: Array, of: Language, task: TextTask, count: int) -> tuple[Array, Array]:
    words, classes = sentences(key, of, task, count)
    return example_rows(task, words, classes), classes


@partial(jax.jit, static_argnames="count")
def _bayes_accuracy(key: Array, of: Language, task: TextTask, count: int) -> Array:
    """On the questions that ``_rows`` draws with this key."""
    words, classes = sentences(key, of, task, count)
    return (class_scores(of, task, words).argmax(-1) == classes).mean()


def encoded(material: Material, demonstrations: Sequence[Demonstration], questions: Questions) -> EncodedTask:
    """The task as token ids, with the candidates repeated to the most that a task has.

    The first candidate is repeated, so the likeliest is never one that was added; and all tasks have one shape.
    """
    task = encode_task(demonstrations, questions.tokens, questions.targets, material.candidates, **material.marks)
    more = max(CLASSES - len(material.candidates), 0)
    return task._replace(candidates=np.pad(task.candidates, (0, more), constant_values=task.candidates[0]))


def random_context(generator: np.random.Generator, task: EncodedTask, strangers: Ints) -> Ints:
    """(I, T) the prompts with random tokens in place of the demonstrations, the same for all."""
    tokens = task.in_context.copy()
    tokens[:, 1 : task.context] = generator.choice(strangers, task.context - 1)
    return tokens
