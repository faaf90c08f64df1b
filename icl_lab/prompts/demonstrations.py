"""Demonstrations spoiled in one respect each: the controls of what a network takes from them.

Dai et al.'s critics (Shen et al. 2024) and this lab. Demonstrations of another task need no function.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from icl_lab.prompts.encoding import Demonstration


def shuffled_labels(rng: np.random.Generator, demonstrations: Sequence[Demonstration]) -> list[Demonstration]:
    """The same questions with the answers permuted at random: as many of each, right by chance."""
    order = rng.permutation(len(demonstrations))
    return [(question, demonstrations[i][1]) for (question, _), i in zip(demonstrations, order)]


def wrong_labels(
    rng: np.random.Generator, demonstrations: Sequence[Demonstration], candidates: ArrayLike
) -> list[Demonstration]:
    """The same questions, each with one of the other candidates at random: never right.

    Raises:
      ValueError: for fewer than two different candidates, or an answer that is none of them.
    """
    tokens = np.asarray(candidates).tolist()
    missing = {int(answer) for _, answer in demonstrations} - set(tokens)
    if len(set(tokens)) < 2 or missing:
        raise ValueError(
            f"candidates must be at least 2 different ones and hold every answer, got {tokens}"
            + (f" without {sorted(missing)}" if missing else "")
        )
    return [
        (question, int(rng.choice([token for token in tokens if token != answer])))
        for question, answer in demonstrations
    ]
