"""In-context classification of sentences in a small made-up language (this lab; the setting of Dai et al. 2022).

Words and label words have hidden meanings, unit vectors in R^4 that no network sees. A sentence of a class is words
drawn near the class's direction, and that direction agrees with the meaning of its label word to a degree alpha: what
alpha gives can be answered zero-shot, the rest must come from the demonstrations. Tasks of five families:

- ``topic``: each class has a direction of its own.
- ``polar``: two classes, the two ends of an axis.
- ``ordinal``: five classes, places on an axis.
- ``order``: two directions, which of them comes first in the sentence.
- ``pair``: the second half of a sentence is like the first, its opposite, or unrelated.

A task is data of one shape whatever its family, so one program holds all.
"""

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jax.typing import ArrayLike

PAD, BEGIN, END = 0, 1, 2
TEMPLATES, LABELS, WORDS = 6, 24, 64
FIRST_TEMPLATE = 4
FIRST_LABEL = FIRST_TEMPLATE + 2 * TEMPLATES
FIRST_WORD = FIRST_LABEL + LABELS
VOCABULARY = FIRST_WORD + WORDS
MEANING = 4
LENGTH = 4
CLASSES = 5
SHARPNESS = 4.0
FAMILIES = ("topic", "polar", "ordinal", "order", "pair")


@struct.dataclass
class Language:
    """Hidden meanings, unit vectors.

    Attributes:
      words: (64, 4).
      labels: (24, 4).
    """

    words: Array
    labels: Array


@struct.dataclass
class TextTask:
    """One classification task.

    Attributes:
      template: () which pair of field tokens.
      labels: (5,) label words, 0 to 23, of the classes; those after the last class are not used.
      classes: () number of classes.
      directions: (5, 4, 4) by class and place in the sentence, the meaning that words there are near.
      pair: () whether the first half of a sentence has a direction of its own instead.
    """

    template: Array
    labels: Array
    classes: Array
    directions: Array
    pair: Array


def language(key: Array) -> Language:
    """A language: independent meanings, uniform on the sphere."""
    words, labels = jax.random.split(key)
    return Language(
        unit(jax.random.normal(words, (WORDS, MEANING))), unit(jax.random.normal(labels, (LABELS, MEANING)))
    )


def text_task(
    key: Array, of: Language, family: ArrayLike, labels: Array, classes: ArrayLike, alpha: ArrayLike
) -> TextTask:
    """A task with these label words.

    Args:
      key: for its directions and template.
      of: the language.
      family: index into ``FAMILIES``, may be traced.
      labels: (5,) label words.
      classes: 2 to 4 for topic; the others have their own (2, 5, 2, 3), and this is not used.
      alpha: in [0, 1], how much of a class direction is the meaning of its label.
    """
    family = jnp.asarray(family)
    noise, axis_noise, template = jax.random.split(key, 3)
    class_directions = _blend(of.labels[labels], jax.random.normal(noise, (CLASSES, MEANING)), alpha)
    classes = class_count(family, classes)
    ordinal = family == FAMILIES.index("ordinal")
    last = jnp.where(ordinal, CLASSES - 1, 1)
    raw = of.labels[labels[last]] - of.labels[labels[0]]
    # the labels of a scale stand in the order of their meanings along it
    along = of.labels[labels] @ raw
    labels = jnp.where(ordinal, labels[jnp.argsort(along)], labels)
    axis = _blend(raw, jax.random.normal(axis_noise, (MEANING,)), alpha)
    polar_places = jnp.array([-1.0, 1.0, 0.0, 0.0, 0.0])
    places = jnp.where(ordinal, jnp.linspace(-1.5, 1.5, CLASSES), polar_places)
    on_axis = places[:, None] * axis[None]
    flat = jnp.where((family == 1) | ordinal, on_axis, class_directions)
    still = jnp.broadcast_to(flat[:, None], (CLASSES, LENGTH, MEANING))
    first, second = class_directions[0], class_directions[1]
    turned = jnp.stack([halves(first, second, 0), halves(second, first, 0)])
    ordered = jnp.concatenate([turned, jnp.zeros((CLASSES - 2, LENGTH, MEANING))])
    directions = jnp.where(family == FAMILIES.index("order"), ordered, still)
    return TextTask(
        jax.random.randint(template, (), 0, TEMPLATES), labels, classes, directions, family == FAMILIES.index("pair")
    )


def class_count(family: ArrayLike, topics: ArrayLike) -> Array:
    """() number of classes: that of topics for ``topic``, each other family has its own."""
    return jnp.where(jnp.asarray(family) == 0, jnp.asarray(topics), jnp.array([0, 2, CLASSES, 2, 3])[family])


def sentences(
    key: Array, of: Language, task: TextTask, count: int, sharpness: ArrayLike = SHARPNESS
) -> tuple[Array, Array]:
    """Examples of a task: (count, 4) words, 0 to 63, and (count,) classes, uniform.

    Words are independent, with probabilities softmax(sharpness * meaning . direction).
    """
    of_class, of_words, of_pair = jax.random.split(key, 3)
    classes = jnp.floor(jax.random.uniform(of_class, (count,)) * task.classes).astype(jnp.int32)
    directions = jnp.where(task.pair, _pairs(of_pair, classes), task.directions[classes])
    logits = sharpness * jnp.einsum("ild,wd->ilw", directions, of.words)
    return jax.random.categorical(of_words, logits), classes


def _pairs(key: Array, classes: Array) -> Array:
    """(count, 4, 4) a direction for the first half; the same, the opposite, or an orthogonal one for the second."""
    first, orthogonal = right_angles(key, len(classes))
    chosen = classes[:, None]
    second = jnp.where(chosen == 0, first, jnp.where(chosen == 1, -first, orthogonal))
    return halves(first, second, axis=1)


def right_angles(key: Array, count: int) -> tuple[Array, Array]:
    """Random directions, and one orthogonal to each: (count, 4) both."""
    first, other = unit(jax.random.normal(key, (2, count, MEANING)))
    return first, unit(other - (other * first).sum(-1, keepdims=True) * first)


def halves(first: Array, second: Array, axis: int) -> Array:
    """One direction for the first half of a sentence and one for the second: an axis of its places is added."""
    return jnp.stack([first] * (LENGTH // 2) + [second] * (LENGTH // 2), axis=axis)


def _blend(meaning: Array, noise: Array, alpha: ArrayLike) -> Array:
    alpha = jnp.asarray(alpha)
    return unit(alpha * unit(meaning) + jnp.sqrt(1 - alpha**2) * unit(noise))


def unit(vectors: Array) -> Array:
    """Vectors (.., D) of length 1; zero stays zero."""
    return vectors / jnp.maximum(jnp.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
