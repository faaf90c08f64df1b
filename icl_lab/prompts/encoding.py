"""A text task as token ids: in context, zero-shot, and as examples to fine-tune on, with their tokens matched.

Layout of Dai et al. 2022's released code: every demonstration ends with an end token in context and without one in
fine-tuning; one token begins the context, and each fine-tuning example.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Tokens = NDArray[np.int32]
Demonstration = tuple[Sequence[int], int]
"""The tokens of a question, and the token that answers it."""


class EncodedTask(NamedTuple):
    """Token ids, right-padded. C tokens of context with the one that begins it, Q of the longest query, S of the
    longest example, N demonstrations with D tokens, I queries, A answers. Tasks of equal shapes can be stacked.

    Attributes:
      in_context: (I, C + Q) begin, demonstrations each with its end token, query; the last token of query i is at
        C + query_lengths[i] - 1.
      zero_shot: (I, 1 + Q) begin, query; its last token is at query_lengths[i].
      query_lengths: (I,).
      examples: (N, S) begin, question, answer.
      example_lengths: (N,).
      matched: (D, 3) for each token of the demonstrations, without those that begin or end: its place in the context,
        its example, its place in the example.
      label_positions: (N,) place of each demonstration's answer in the context.
      candidates: (A,) the tokens that may answer.
      targets: (I,) index of the right one among them.
    """

    in_context: Tokens
    zero_shot: Tokens
    query_lengths: Tokens
    examples: Tokens
    example_lengths: Tokens
    matched: Tokens
    label_positions: Tokens
    candidates: Tokens
    targets: Tokens

    @property
    def context(self) -> int:
        """C."""
        return self.in_context.shape[-1] - self.zero_shot.shape[-1] + 1


def encode_task(
    demonstrations: Sequence[Demonstration],
    queries: Sequence[Sequence[int]],
    targets: ArrayLike,
    candidates: ArrayLike,
    *,
    begin: int,
    end: int,
    pad: int,
    positions: int | None = None,
) -> EncodedTask:
    """Lays a task out as token ids.

    Args:
      demonstrations: N of them, in their order; none is a task without context. Their answers need not be candidates:
        those of another task are a control.
      queries: I questions.
      targets: (I,) index of the right answer among the candidates.
      candidates: (A,) the tokens that may answer.
      begin: token that begins the context, and each example of fine-tuning.
      end: token that ends a demonstration in context.
      pad: token of the padding; may be any, it is never read.
      positions: tokens that the network takes at most, None for no limit.

    Returns:
      The task, of numpy arrays.

    Raises:
      ValueError: for no query or an empty question, repeated candidates, targets that do not fit, or more tokens than
        positions.
    """
    answers, right = np.asarray(candidates, np.int32), np.asarray(targets, np.int32)
    if not len(queries) or not all(map(len, queries)) or not all(len(question) for question, _ in demonstrations):
        raise ValueError("queries must be at least one, and every question must have a token")
    if answers.ndim != 1 or len(set(answers.tolist())) < max(1, len(answers)):
        raise ValueError(f"candidates must be different tokens (A,), got {answers.tolist()}")
    if right.shape != (len(queries),) or not ((right >= 0) & (right < len(answers))).all():
        raise ValueError(
            f"targets must be (I,) = ({len(queries)},) indices below the {len(answers)} candidates, "
            f"got {right.tolist()}"
        )
    texts = [[*map(int, question), int(answer)] for question, answer in demonstrations]
    context = [begin] + [token for text in texts for token in [*text, end]]
    lengths = [len(query) for query in queries]
    longest = len(context) + max(lengths)
    if positions is not None and longest > positions:
        raise ValueError(
            f"positions must be at least the {longest} tokens of {len(texts)} demonstrations and the longest query, "
            f"got {positions}: {longest - positions} too few"
        )
    return EncodedTask(
        in_context=_padded([[*context, *query] for query in queries], pad),
        zero_shot=_padded([[begin, *query] for query in queries], pad),
        query_lengths=np.asarray(lengths, np.int32),
        examples=_padded([[begin, *text] for text in texts], pad),
        example_lengths=np.asarray([1 + len(text) for text in texts], np.int32),
        **_places([len(text) for text in texts]),
        candidates=answers,
        targets=right,
    )


def with_demonstrations(task: EncodedTask, order: Sequence[int]) -> EncodedTask:
    """The task with these of its demonstrations, in this order: the first k, or a permutation.

    Permutations have equal shapes: fine-tuning's are its examples indexed, ``examples[order]``.

    Args:
      task: of numpy arrays.
      order: of the N demonstrations, k different ones.

    Raises:
      ValueError: for a demonstration that is not there, or is there twice.
    """
    n, chosen = len(task.examples), [int(i) for i in order]
    if len(set(chosen)) < len(chosen) or not all(0 <= i < n for i in chosen):
        raise ValueError(f"order must be of different demonstrations below {n}, got {chosen}")
    lengths = task.example_lengths[chosen]
    ends = task.label_positions + 2
    starts = ends - task.example_lengths
    spans = [np.arange(0, 1), *(np.arange(starts[i], ends[i]) for i in chosen)]
    spans.append(np.arange(task.context, task.in_context.shape[1]))
    return task._replace(
        in_context=task.in_context[:, np.concatenate(spans)],
        examples=task.examples[chosen],
        example_lengths=lengths,
        **_places([int(length) - 1 for length in lengths]),
    )


def _places(lengths: Sequence[int]) -> dict[str, Tokens]:
    """``matched`` and ``label_positions`` of demonstrations with so many tokens each, one begin token before them."""
    starts = 1 + np.cumsum([0, *(length + 1 for length in lengths)])
    rows = [(starts[n] + t, n, 1 + t) for n, length in enumerate(lengths) for t in range(length)]
    return {
        "matched": np.asarray(rows, np.int32).reshape(-1, 3),
        "label_positions": (starts[1:] - 2).astype(np.int32),
    }


def _padded(rows: Sequence[Sequence[int]], pad: int) -> Tokens:
    table = np.full((len(rows), max(map(len, rows), default=1)), pad, np.int32)
    for row, tokens in zip(table, rows):
        row[: len(tokens)] = tokens
    return table
