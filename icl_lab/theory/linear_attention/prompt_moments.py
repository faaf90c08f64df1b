"""Exact moments of a linear-attention prompt: means of products of bilinear forms, by Isserlis' theorem.

A chain is a product such as w^T S A x_q, written ``("w", "S", "A", "q")``: the task w ~ N(0, I) and the query
x_q ~ N(0, Lam) at its ends, between them S = (1/N) sum_i x_i x_i^T of the context and fixed matrices: A, its transpose
T, and symmetric F and G. The mean of a product of chains is a sum over pairings of the Gaussian vectors of each kind. A
pairing closes chains to loops, each the trace of a word in L = Lam, A, T, F and G, and the vectors of the context to
cycles, each a factor N. Thousands of pairings are tens of different terms, and nothing larger than a (D, D) matrix is
formed.
"""

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

Chain = tuple[str, ...]
Polynomial = Mapping[tuple[tuple[str, ...], int], float]
"""Coefficient by (words whose traces are multiplied, power of N)."""

TRANSPOSED = str.maketrans("AT", "TA")


class _Legs(NamedTuple):
    kinds: list[str]  # w, q or s, the two ends of an S
    along: dict[int, tuple[int, str]]  # the leg at the other end of a form, and the matrices on the way
    across: dict[int, int]  # the other end of the same S


@functools.cache
def mean_of_chains(*chains: Chain) -> Polynomial:
    """Mean of a product of chains, as a polynomial in N and in traces of words.

    Raises:
      ValueError: for a chain that does not begin and end with ``w`` or ``q``, or has other letters than S, A, T, F,
        G between.
    """
    legs = _legs(chains)
    pairings = [list(_pairings([i for i, kind in enumerate(legs.kinds) if kind == one])) for one in "wqs"]
    terms: Counter[tuple[tuple[str, ...], int]] = Counter()
    for choice in itertools.product(*pairings):
        partner = {i: j for pairs in choice for pair in pairs for i, j in (pair, pair[::-1])}
        terms[_words(legs, partner), _cycles(legs, partner) - len(legs.across) // 2] += 1
    return dict(terms)


def combined(*weighted: tuple[float, int, Polynomial]) -> Polynomial:
    """Sum of polynomials, each times (factor, power of N)."""
    total: dict[tuple[tuple[str, ...], int], float] = {}
    for factor, shift, polynomial in weighted:
        for (words, power), count in polynomial.items():
            key = (words, power + shift)
            total[key] = total.get(key, 0.0) + factor * count
    return total


def evaluate(polynomial: Polynomial, context_length: float, **letters: ArrayLike) -> float:
    """The polynomial at N and at the matrices (D, D) of its letters L, A, F and G, in float64; they are not checked."""
    matrices = {letter: np.asarray(matrix, np.float64) for letter, matrix in letters.items()}
    if "A" in matrices:
        matrices["T"] = matrices["A"].T
    size, n = len(matrices["L"]), float(context_length)
    traces = {word: _trace([matrices[x] for x in word], size) for words, _ in polynomial for word in words}
    return sum(c * n**power * math.prod(traces[word] for word in words) for (words, power), c in polynomial.items())


def _legs(chains: tuple[Chain, ...]) -> _Legs:
    legs = _Legs([], {}, {})
    for chain in chains:
        if len(chain) < 2 or not {chain[0], chain[-1]} <= set("wq") or not set(chain[1:-1]) <= set("SATFG"):
            raise ValueError(f"a chain is w or q, then S, A, T, F and G, then w or q, got {chain}")
        start, word = -1, ""
        for letter in chain:
            if letter in "ATFG":
                word += letter
                continue
            leg = len(legs.kinds)
            if start >= 0:
                legs.along[start], legs.along[leg] = (leg, word), (start, word[::-1].translate(TRANSPOSED))
            legs.kinds.extend("ss" if letter == "S" else letter)
            if letter == "S":
                legs.across[leg], legs.across[leg + 1] = leg + 1, leg
            start, word = len(legs.kinds) - 1, ""
    return legs


def _pairings(items: list[int]) -> Iterator[tuple[tuple[int, int], ...]]:
    """All ways to pair the items; none for an odd number."""
    if not items:
        yield ()
    for k in range(1, len(items)):
        for rest in _pairings(items[1:k] + items[k + 1 :]):
            yield ((items[0], items[k]), *rest)


def _words(legs: _Legs, partner: dict[int, int]) -> tuple[str, ...]:
    """The loops of forms and pairs as sorted words; a pair of w is the identity, any other Lam."""
    words, left = [], set(legs.along)
    while left:
        word, leg = "", min(left)
        while leg in left:
            other, matrices = legs.along[leg]
            left -= {leg, other}
            word += matrices + ("" if legs.kinds[other] == "w" else "L")
            leg = partner[other]
        words.append(_canonical(word))
    return tuple(sorted(words))


def _cycles(legs: _Legs, partner: dict[int, int]) -> int:
    """How many different context vectors a pairing leaves free."""
    count, left = 0, set(legs.across)
    while left:
        count, leg = count + 1, min(left)
        while leg in left:
            other = legs.across[leg]
            left -= {leg, other}
            leg = partner[other]
    return count


def _canonical(word: str) -> str:
    """One of the words with the same trace: rotations, and transposes."""
    turns = range(max(1, len(word)))
    return min(one[k:] + one[:k] for one in (word, word[::-1].translate(TRANSPOSED)) for k in turns)


def _trace(matrices: list[np.ndarray], size: int) -> float:
    if len(matrices) < 2:
        return float(np.trace(matrices[0]) if matrices else size)
    return float((functools.reduce(np.matmul, matrices[:-1]) * matrices[-1].T).sum())
