"""Sequences that a language model is trained on: four stages towards in-context classification.

From a random start on the classification sequences alone a small network learns to guess among the labels of its
context, and no more. ``strings`` teach it to repeat what stood after a token, or after a few. The step from a word's
label right after the word to one after the fields of an example it does not find by itself: ``couples`` are words
with their labels in all forms between the two. ``clear`` are sentences whose classes are far apart, and ``mixture`` is
the setting itself, all families of ``icl_lab.prompts.text``.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array
from jax.typing import ArrayLike

from icl_lab.prompts.text import (
    BEGIN,
    CLASSES,
    END,
    FAMILIES,
    FIRST_LABEL,
    FIRST_TEMPLATE,
    FIRST_WORD,
    LABELS,
    LENGTH,
    SHARPNESS,
    TEMPLATES,
    VOCABULARY,
    WORDS,
    Language,
    TextTask,
    class_count,
    sentences,
    text_task,
)

STAGES = ("strings", "couples", "clear", "mixture")
EXAMPLE = LENGTH + 4
"""Tokens of an example: field, four words, field, label, end."""
PERIODS, ALPHABETS = (3, 24), (4, 100)
NUMBERS = (2, 7)
CLEAR = 12.0
FAMILY_SHARES = (0.25, 0.2, 0.2, 0.2, 0.15)
MOST_ALPHA = 0.7


@struct.dataclass
class Sequences:
    """Tokens of a batch, and what can be known of them.

    Attributes:
      tokens: (B, T).
      labels: (B, T) True for the label words.
      late: (B, T) True for tokens that the ones before them tell, as far as anything does: the repetition of a string,
        labels of words that occurred before, and of sentences in the second half.
      entropy: (B,) log of the number of labels of the sequence, what guessing among them costs.
    """

    tokens: Array
    labels: Array
    late: Array
    entropy: Array


def sequence_length(demonstrations: int) -> int:
    """T: the first token, the demonstrations, and an example more."""
    return 1 + EXAMPLE * (demonstrations + 1)


def curriculum(of: Language, held_out: Array, demonstrations: int) -> dict[str, Callable[[Array, int], Sequences]]:
    """A sampler of sequences ``(key, batch) -> Sequences`` for each of ``STAGES``, all of one length.

    Args:
      of: the language.
      held_out: (H, 24) sets of labels, as masks, that no task may have; disjoint.
      demonstrations: examples before the last one of the mixture.
    """
    length = sequence_length(demonstrations)
    drawn: dict[str, Callable[[Array], Sequences]] = {
        "strings": lambda key: _strings(key, length),
        "couples": lambda key: _couples(key, length),
        "clear": lambda key: _classified(key, of, held_out, length, clear=True),
        "mixture": lambda key: _classified(key, of, held_out, length, clear=False),
    }
    return {stage: _batched(one) for stage, one in drawn.items()}


def unrelated(of: Language, held_out: Array, demonstrations: int) -> Callable[[Array, int], Sequences]:
    """A sampler of text without in-context tasks, in the form of the mixture: every example is of a task of its own.

    The directions of that task are made of the meanings of its labels alone (alpha = 1), and no other example of the
    sequence tells anything of it.
    """
    length = sequence_length(demonstrations)

    def one(key: Array) -> Sequences:
        keys = jax.random.split(key, demonstrations + 1)
        examples = jax.vmap(lambda k: _classified(k, of, held_out, 1 + EXAMPLE, clear=False, alpha=1.0))(keys)
        tokens = jnp.concatenate([jnp.array([BEGIN]), examples.tokens[:, 1:].reshape(-1)])
        return _labelled(tokens, jnp.arange(length) >= length // 2, examples.entropy.mean())

    return _batched(one)


def _batched(one: Callable[[Array], Sequences]) -> Callable[[Array, int], Sequences]:
    return lambda key, batch: jax.vmap(one)(jax.random.split(key, batch))


def example_rows(task: TextTask, words: Array, classes: Array) -> Array:
    """(count, 8) tokens of examples of one task, from (count, 4) words and (count,) classes."""
    field, labels = FIRST_TEMPLATE + 2 * task.template, FIRST_LABEL + task.labels[classes]
    column = lambda token: jnp.broadcast_to(token, (len(words), 1))  # noqa: E731
    parts = [column(field), FIRST_WORD + words, column(field + 1), labels[:, None], column(END)]
    return jnp.concatenate(parts, axis=1)


def allowed_labels(labels: Array, classes: ArrayLike, held_out: Array) -> Array:
    """(5,) labels whose set of the first ``classes`` is none of the held-out sets, from (24,) labels in random order.

    A held-out set is left by exchanging its first label for one that no set is left with: held-out sets are disjoint,
    so what remains belongs to that set alone.
    """
    used = jnp.zeros(LABELS, bool).at[jnp.where(jnp.arange(LABELS) < classes, labels, LABELS)].set(True, mode="drop")
    taken = (used[None] == held_out).all(1).any()
    return jnp.where(taken & (jnp.arange(LABELS) == 0), labels[-1], labels)[:CLASSES]


def _strings(key: Array, length: int) -> Sequences:
    """A random string, repeated. Short periods are learned first; small alphabets ask for more than the last token."""
    of_period, of_size, of_alphabet, of_string = jax.random.split(key, 4)
    period = _log_uniform(of_period, PERIODS)
    alphabet = jax.random.randint(of_alphabet, ALPHABETS[1:], FIRST_TEMPLATE, VOCABULARY)
    place = jnp.arange(length)
    drawn = jax.random.randint(of_string, (length,), 0, _log_uniform(of_size, ALPHABETS))
    nothing = jnp.zeros(length, bool)
    return Sequences(alphabet[drawn[place % period]], nothing, place >= period, jnp.zeros(()))


def _log_uniform(key: Array, ends: tuple[int, int]) -> Array:
    low, high = np.log(ends)
    return jnp.floor(jnp.exp(jax.random.uniform(key, minval=low, maxval=high))).astype(jnp.int32)


def _couples(key: Array, length: int) -> Sequences:
    """A few words and their labels, in random order, in a form of this sequence alone.

    An example is a field or none, the word one to four times, a field or none, the label, an end or none. What is
    learned of the easiest form, word and label, is soon found to hold for the form of the tasks.
    """
    of_number, of_words, of_labels, of_order, of_form, of_field = jax.random.split(key, 6)
    number = jax.random.randint(of_number, (), *NUMBERS)
    words = jax.random.permutation(of_words, WORDS)[: NUMBERS[1]]
    labels = jax.random.permutation(of_labels, LABELS)[: NUMBERS[1]]
    order = jnp.floor(jax.random.uniform(of_order, (length,)) * number).astype(jnp.int32)
    seen = jnp.tril(order[:, None] == order[None], -1).any(1)
    first, repeats, second, end = jnp.floor(
        jax.random.uniform(of_form, (4,)) * jnp.array([2, LENGTH, 2, 2]) + jnp.array([0, 1, 0, 0])
    ).astype(jnp.int32)
    ends = jnp.cumsum(jnp.stack([first, repeats, second, jnp.int32(1), end]))
    example, place = jnp.divmod(jnp.arange(length - 1), ends[-1])
    field = FIRST_TEMPLATE + 2 * jax.random.randint(of_field, (), 0, TEMPLATES)
    parts = [field, FIRST_WORD + words[order[example]], field + 1, FIRST_LABEL + labels[order[example]]]
    tokens = jnp.select([place < end for end in ends[:4]], [jnp.broadcast_to(p, place.shape) for p in parts], END)
    begun = jnp.concatenate([jnp.array([BEGIN]), tokens])
    return _labelled(begun, jnp.concatenate([jnp.array([False]), seen[example]]), jnp.log(number))


def _classified(
    key: Array, of: Language, held_out: Array, length: int, clear: bool, alpha: float | None = None
) -> Sequences:
    """Examples of a task: of two to four topics that are far apart, or of any family; ``alpha`` is drawn where None."""
    of_family, of_classes, of_labels, of_alpha, of_task, of_examples = jax.random.split(key, 6)
    share = jax.random.uniform(of_alpha, maxval=MOST_ALPHA) if alpha is None else alpha
    family = jnp.int32(0) if clear else jax.random.choice(of_family, len(FAMILIES), p=jnp.array(FAMILY_SHARES))
    classes = class_count(family, jax.random.randint(of_classes, (), 2, 5))
    labels = allowed_labels(jax.random.permutation(of_labels, LABELS), classes, held_out)
    task = text_task(of_task, of, family, labels, classes, share)
    words, chosen = sentences(of_examples, of, task, (length - 1) // EXAMPLE, CLEAR if clear else SHARPNESS)
    tokens = jnp.concatenate([jnp.array([BEGIN]), example_rows(task, words, chosen).reshape(-1)])
    return _labelled(tokens, jnp.arange(length) >= length // 2, jnp.log(task.classes))


def _labelled(tokens: Array, late: Array, entropy: Array) -> Sequences:
    labels = (tokens >= FIRST_LABEL) & (tokens < FIRST_WORD)
    return Sequences(tokens, labels, labels & late, entropy)
