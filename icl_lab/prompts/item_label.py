"""Item-label classification, in context and in weights (Reddy 2023, section 2; spec after the released code)."""

from collections.abc import Mapping
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array
from jax.typing import ArrayLike

from icl_lab.prompts.draws import centred_uniforms, normals
from icl_lab.prompts.naming import named_options
from icl_lab.prompts.prompt import Prompt, Sample, Sampler
from icl_lab.prompts.tracing import check_sizes, is_traced, one_program, whole
from icl_lab.prompts.unfused import unfused

NOVEL_CLASSES = 128
"""Fresh classes of a batch from which its novel-class sequences draw: the largest multiple of L among so many."""


@struct.dataclass
class ItemLabelLaw:
    """What an item-label sequence is drawn from (Reddy 2023, section 2).

    The scalars may be traced and differ between members, so that a grid over them is more members of one program.

    Attributes:
      class_means: (K, D) mean contents of the trained classes; class k has label k mod L.
      label_vectors: (L, D) contents of the labels.
      classes: how many of the K rows are in use, a multiple of L.
      labels: how many labels bursty and novel-class sequences with distinct labels draw from.
      burstiness: B, copies of each class in a bursty sequence; 0 for no bursty sequences.
      bursty_share: p_B, probability that a sequence of trained classes is bursty.
      novel_share: p_C, probability of a (bursty) sequence of novel classes, before p_B is asked.
      spread: epsilon, within-class spread.
      exponent: alpha of the rank-frequency law f(k) ~ k^-alpha.
    """

    class_means: Array
    label_vectors: Array
    classes: Array
    labels: Array
    burstiness: Array
    bursty_share: Array
    novel_share: Array
    spread: Array
    exponent: Array


@named_options
def item_label_law(
    key: Array,
    *,
    classes: ArrayLike,
    labels: int,
    input_size: int,
    burstiness: ArrayLike = 1,
    bursty_share: ArrayLike = 1.0,
    novel_share: ArrayLike = 0.0,
    spread: ArrayLike = 0.1,
    exponent: ArrayLike = 0.0,
    rows: int | None = None,
) -> ItemLabelLaw:
    """Draws the dictionaries of a run, entries N(0, 1/D); neither is trained (Reddy 2023, section 2).

    Args:
      key: typed PRNG key.
      classes: K, a multiple of L.
      labels: L, at most ``NOVEL_CLASSES``.
      input_size: D.
      burstiness: B.
      bursty_share: p_B.
      novel_share: p_C.
      spread: epsilon.
      exponent: alpha.
      rows: classes of the table, where distributions of several K share a program; None means ``classes``.

    Returns:
      An ``ItemLabelLaw`` that uses all labels.

    Raises:
      ValueError: for an argument that is not allowed (where it is not traced), or traced ``classes`` without ``rows``.
    """
    (input_size,) = check_sizes(input_size=input_size)
    if not 1 <= labels <= NOVEL_CLASSES:
        raise ValueError(f"labels must be 1 to {NOVEL_CLASSES}, the classes of novel sequences, got {labels}")
    if rows is None:
        if is_traced(classes):
            raise ValueError("rows, the classes of the table, must be given where classes is traced")
        rows = int(np.asarray(classes))
    scalars = {
        "classes": classes, "labels": labels, "burstiness": burstiness, "bursty_share": bursty_share,
        "novel_share": novel_share, "spread": spread, "exponent": exponent,
    }  # fmt: skip
    _check_scalars(scalars, rows, labels)
    class_key, label_key = jax.random.split(key)
    scale = input_size**-0.5
    integers = ("classes", "labels", "burstiness")
    return ItemLabelLaw(
        class_means=scale * jax.random.normal(class_key, (rows, input_size), jnp.float32),
        label_vectors=scale * jax.random.normal(label_key, (labels, input_size), jnp.float32),
        **{name: jnp.asarray(v, jnp.int32 if name in integers else jnp.float32) for name, v in scalars.items()},
    )


def burstiness_values(context_length: int) -> tuple[int, ...]:
    """The B > 0 that a context of N items can have, in rising order: divisors of N below it; 1 where N = 1.

    B = N is none of them, as then the answer is the one label there is.

    Raises:
      ValueError: for a context length below 1.
    """
    (n,) = check_sizes(context_length=context_length)
    return tuple(b for b in range(1, n + 1) if n % b == 0 and (b < n or n == 1))


def copies_without_bursts(context_length: int) -> int:
    """Copies of a class in the in-context tests where B = 0: the largest B of N (N/2 for even N, as released for 8)."""
    return burstiness_values(context_length)[-1]


def evaluation_laws(law: ItemLabelLaw, context_length: int) -> dict[str, ItemLabelLaw]:
    """The distributions of the evaluation sets beside that of training itself (Reddy 2023, section 2).

    ``iwl``, in-weights: context and target are independent draws of trained classes. ``ic``, in-context: novel classes
    only. ``ic2``: bursty sequences of trained classes, to be sampled with ``swapped=True``. The two in-context
    distributions have the burstiness of training, ``copies_without_bursts`` where that is 0.
    """
    copies = jnp.where(law.burstiness > 0, law.burstiness, copies_without_bursts(context_length))
    zero, one = jnp.zeros_like(law.novel_share), jnp.ones_like(law.novel_share)
    return {
        "iwl": replace(law, burstiness=jnp.zeros_like(law.burstiness), bursty_share=zero, novel_share=zero),
        "ic": replace(law, burstiness=copies, bursty_share=one, novel_share=one),
        "ic2": replace(law, burstiness=copies, bursty_share=one, novel_share=zero),
    }


@named_options
def item_label_classification(
    law: ItemLabelLaw,
    *,
    context_length: int,
    slots: int | None = None,
    distinct_labels: bool = True,
    swapped: ArrayLike = False,
) -> Sampler:
    """Sampler of item-label sequences (Reddy 2023, section 2, and the released code).

    A bursty sequence has N/B classes, B times each and shuffled, and the target is another item of the class of one of
    its N entries. In a non-bursty one all N + 1 classes are independent draws from f(k). Novel-class sequences are
    bursty, on fresh means drawn anew for each batch, ``NOVEL_CLASSES`` or, where L is no divisor of it, the largest
    multiple of L below, so that every label has as many. Every occurrence of class k has the content
    (mu_k + epsilon eta) / sqrt(1 + epsilon^2), eta ~ N(0, I/D), the target too.

    Two modes of the bursty draw: with ``distinct_labels`` the N/B classes have different labels, uniformly, which
    ignores f(k): a trap of the released code, therefore an exponent is refused. Without it the classes are independent
    draws from f(k) (of the novel ones, uniform), so two of them may share a label or be the same class.

    Args:
      law: what to draw from; its scalars may be traced.
      context_length: N.
      slots: P, position slots; the first token's slot is uniform in 0..P - (2N + 1). None means slot 0.
      distinct_labels: mode of the bursty draw.
      swapped: every label of context and answer is the next one, (l + 1) mod L; may be traced.

    Returns:
      ``(key, batch) -> Sample`` with x (B, N, D), y (B, N, D) label vectors, x_query (B, D), offset (B,) int32, target
      (B,) int32, latent labels (B, N) int32 and match (B, N) bool: items of the target's class.

    Raises:
      ValueError: for a context length below 1, more tokens than slots, and where these are not traced: a burstiness
        that N cannot have (``burstiness_values``), fewer labels in use than different ones in a sequence, or an
        exponent with ``distinct_labels``.
    """
    if not isinstance(law, ItemLabelLaw):
        raise ValueError(f"law must be an ItemLabelLaw, as item_label_law gives; got {law!r}")
    n = whole("context_length", context_length)
    tokens, without_bursts = 2 * n + 1, copies_without_bursts(n)
    slots = None if slots is None else whole("slots", slots, at_least=tokens)  # 2N + 1
    _check_sequence(law, n, distinct_labels)
    offsets = 1 if slots is None else slots - tokens + 1
    size, labels = law.class_means.shape[-1], law.label_vectors.shape[-2]
    copies = jnp.where(law.burstiness > 0, law.burstiness, without_bursts)

    @one_program
    def sampler(key: Array, batch: int) -> Sample:
        choice_key, content_key = jax.random.split(key)
        u = 0.5 + centred_uniforms(choice_key, (1, 3 * n + 4, 1, batch))[0, :, 0]  # (3N + 4, B)
        choice, class_draw, label_draw, order = u[:4], u[4 : n + 4], u[n + 4 : 2 * n + 4], u[2 * n + 4 :]
        novel = choice[0] < law.novel_share
        bursty = novel | ((choice[1] < law.bursty_share) & (law.burstiness > 0))
        pool = jnp.where(novel, NOVEL_CLASSES - NOVEL_CLASSES % labels, law.classes)[None]  # (1, B)
        any_class = _rank_draw(law, jnp.concatenate([label_draw, choice[2:3]]), distinct_labels)  # (N + 1, B)
        if distinct_labels:
            label = _distinct(label_draw, law.labels, n // copies)
            group_class = label + labels * _uniform_integers(class_draw, pool // labels)
        else:
            group_class = jnp.where(novel[None], _uniform_integers(label_draw, pool), any_class[:n])
        rank = _ranks(order)
        shuffled = _pick(group_class, rank // copies)
        target = _pick(shuffled, _uniform_integers(choice[2:3], n))
        classes = jnp.where(bursty[None], jnp.concatenate([shuffled, target]), any_class).T  # (B, N + 1)
        match = classes[:, :n] == classes[:, n:]
        label = (classes + jnp.asarray(swapped, jnp.int32)) % labels

        draws = size**-0.5 * normals(content_key, (NOVEL_CLASSES + batch * (n + 1), size))
        eta = draws[NOVEL_CLASSES:].reshape(batch, n + 1, size)
        means = jnp.where(novel[:, None, None], _rows(draws, classes), _rows(law.class_means, classes))
        items = (means + law.spread * eta) / jnp.sqrt(1 + law.spread**2)
        prompt = Prompt(
            x=items[:, :n],
            y=_rows(law.label_vectors, label[:, :n]),
            x_query=items[:, n],
            offset=_uniform_integers(choice[3], offsets),
        )
        return Sample(prompt, target=label[:, n], latent={"labels": label[:, :n], "match": match})

    return sampler


def _rows(table: Array, index: Array) -> Array:
    """(K, D), (B, N) -> (B, N, D); an index of the other table may lie outside."""
    return table.at[index].get(mode="clip")


def _uniform_integers(u: Array, size: ArrayLike) -> Array:
    """Uniform draws in 0..size - 1 from uniform draws in (0, 1)."""
    return jnp.minimum((u * size).astype(jnp.int32), size - 1)


def _rank_draw(law: ItemLabelLaw, u: Array, uniform: bool) -> Array:
    """Classes drawn from f(k) ~ (k + 1)^-alpha, k = 0..classes - 1, by its quantile function."""
    if uniform:
        return _uniform_integers(u, law.classes)
    k = jnp.arange(law.class_means.shape[-2])
    weights = jnp.where(k < law.classes, jnp.exp(-law.exponent * jnp.log1p(k.astype(jnp.float32))), 0.0)
    total = jnp.cumsum(weights)
    return jnp.minimum(jnp.searchsorted(total, u * total[-1], side="right"), law.classes - 1).astype(jnp.int32)


def _distinct(u: Array, size: Array, count: Array) -> Array:
    """A uniform set of ``count`` of 0..size - 1 in the first rows of (N, B) (R. Floyd's sequential insertion).

    Not in uniform order: what is done with it must not depend on the order.
    """
    chosen: list[Array] = []
    for i in range(u.shape[0]):
        top = jnp.maximum(size - count + i, 0)
        draw = _uniform_integers(u[i], top + 1)
        taken = [draw == other for other in chosen]
        chosen.append(jnp.where(jnp.any(jnp.stack(taken), axis=0), top, draw) if taken else draw)
    return jnp.stack(chosen)


def _ranks(u: Array) -> Array:
    """(N, B) ranks 0..N - 1 of every column's entries; of equal ones the first is the lower."""
    i = jnp.arange(u.shape[0])
    before = (u[:, None] < u[None]) | ((u[:, None] == u[None]) & (i[:, None] < i[None])[:, :, None])
    return before.sum(0, dtype=jnp.int32)


@unfused
def _pick(values: Array, index: Array) -> Array:
    """values[index] along the first axis, (N, B), (I, B) -> (I, B), as sums of comparisons (faster than a gather)."""
    # unfused: what makes the values would be computed again for every index
    i = jnp.arange(values.shape[0], dtype=jnp.int32)[None, :, None]
    return jnp.where(index[:, None] == i, values[None], 0).sum(1)


def _check_scalars(scalars: Mapping[str, ArrayLike], rows: int, labels: int) -> None:
    for name, value in scalars.items():
        if is_traced(value):
            continue
        v = np.asarray(value)
        if name == "classes" and not (np.all(v >= 1) and np.all(v <= rows) and np.all(v % labels == 0)):
            raise ValueError(f"classes must be a multiple of labels = {labels}, up to the {rows} rows, got {value}")
        if name in ("bursty_share", "novel_share") and not np.all((v >= 0) & (v <= 1)):
            raise ValueError(f"{name} is a probability: allowed is 0 to 1, got {value}")
        if name in ("burstiness", "spread", "exponent") and not np.all((v >= 0) & np.isfinite(v)):
            raise ValueError(f"{name} must be a finite number >= 0, got {value}")


def _check_sequence(distribution: ItemLabelLaw, n: int, distinct_labels: bool) -> None:
    if is_traced(distribution.burstiness):
        return
    copies, allowed = np.asarray(distribution.burstiness), burstiness_values(n)
    if not np.isin(copies, (0, *allowed)).all():
        raise ValueError(f"burstiness must be 0 or a divisor of N below it: {list(allowed)}, got {copies}")
    if not distinct_labels:
        return
    if not is_traced(distribution.exponent) and np.any(np.asarray(distribution.exponent) > 0):
        raise ValueError("exponent must be 0 with distinct_labels, whose bursty sequences would ignore it")
    if not is_traced(distribution.labels):
        needed = n // np.where(copies > 0, copies, copies_without_bursts(n))
        if np.any(needed > np.asarray(distribution.labels)):
            raise ValueError(f"labels must be at least N/B = {needed.max()}, all different, got {distribution.labels}")
