"""What claims and figures read off a record: arrays of the networks of one position encoding, and which of them count.

A network that does not learn in context has no value in a claim that is about in-context learning, and networks of
different position encodings are never put together: they differ by construction.
"""

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from experiments.dai.analysis import present_mean
from experiments.dai.common import encodings, gated
from icl_lab.lab import Claim, NotRun, Record

MAIN, SECOND = "rotary", "sinusoidal"
"""The encoding that all claims are about, and the paper's, of which there are fewer networks: its claims end in its
name."""
TEN = 10
"""Networks that learn in context, without which a claim has no verdict."""
Values = Callable[[Record, str], np.ndarray]
"""(M, ..) values of the networks of an encoding."""


def of_networks(record: Record, name: str, positions: str) -> np.ndarray:
    """(M, ..) an array of the networks of an encoding.

    Raises:
      NotRun: where the encoding was not run.
    """
    if positions not in encodings(record):
        raise NotRun(f"networks of {positions} positions")
    return record[f"{positions}/{name}"]


def learned(record: Record, positions: str) -> np.ndarray:
    """(M,) whether a network learns in context, by its accuracies in this record."""
    ends = (of_networks(record, name, positions) for name in ("zero_shot", "in_context"))
    return gated(np.stack([*ends], axis=-1))


def array(name: str, first_layer: int = 0) -> Values:
    """An array by its name, from a layer on."""
    of = lambda record, positions: of_networks(record, name, positions)  # noqa: E731
    return (lambda record, positions: of(record, positions)[..., first_layer:]) if first_layer else of


def network_means(values: np.ndarray) -> np.ndarray:
    """(M,) mean of what is defined; NaN where nothing is."""
    return present_mean(values, tuple(range(1, np.ndim(values))))


def claims_by_encoding(
    judged: Callable[..., Claim], name: str, where: str, statement: str, of: Values, over: Values | None = None,
    expected: float = 0.0, *, second: bool = False, gate: bool = True, **more: Any,
) -> list[Claim]:  # fmt: skip
    """A claim about the networks of ``MAIN``, and another one about those of ``SECOND`` where that is asked for.

    Args:
      judged: what makes a claim of this figure (``claims_of``).
      name: of the claim.
      where: in the paper.
      statement: a sentence.
      of: a metric; the claim is about its mean over tasks, and layers where it is defined.
      over: another of the same shape, whose values are taken off one by one.
      expected: as in ``Claim``.
      second: whether ``SECOND`` is judged too.
      gate: only networks that learn in context have a value.
      more: fields of ``Claim``.
    """

    def of_encoding(positions: str, name: str) -> Claim:
        def value(record: Record) -> np.ndarray:
            found = network_means(of(record, positions) - (over(record, positions) if over else 0))
            return np.where(learned(record, positions), found, np.nan) if gate else found

        control = (lambda record: network_means(over(record, positions))) if over else None
        options = {"minimum_members": TEN if gate else 2} | more
        return judged(name, f"{where}; {positions}", statement, value, expected, control=control, **options)

    there: Collection[tuple[str, str]] = [(MAIN, name), (SECOND, f"{name}_{SECOND}")][: 1 + second]
    return [of_encoding(positions, own) for positions, own in there]
