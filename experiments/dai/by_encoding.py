"""What claims and figures read off a record: arrays of the networks of one position encoding, and which of them count.

A network that does not learn in context has no value in a claim that is about in-context learning, and networks of
different position encodings are never put together: they differ by construction.
"""

import functools
from collections.abc import Callable
from typing import Any, Concatenate

import numpy as np

from experiments.dai.analysis import present_mean
from experiments.dai.common import ACCURACY, encodings, passing
from experiments.statistics import Given
from icl_lab.claims import Beside
from icl_lab.lab import Claim, NotRun, Record
from icl_lab.lab.quantities import Quantity

MAIN, SECOND = "rotary", "sinusoidal"
"""The encoding that all claims are about, and the paper's, of which there are fewer networks: its claims end in its
name."""
TEN = 10
"""Networks that learn in context, without which a claim has no verdict."""
Values = Callable[[Record, str], np.ndarray]
"""(M, ..) values of the networks of an encoding."""


def of_encoding(function: Callable[Concatenate[Record, str, Given], np.ndarray]) -> Callable[Given, Values]:
    """As ``of_record``: written as a function of the record, an encoding and arguments, called with the last alone."""

    @functools.wraps(function)
    def given(*args: Given.args, **kwargs: Given.kwargs) -> Values:
        return lambda record, encoding: function(record, encoding, *args, **kwargs)

    return given


def of_networks(record: Record, quantity: Quantity, encoding: str) -> Any:
    """(M, ..) arrays of the networks of an encoding; a dict where the quantity has places left.

    Raises:
      NotRun: where the encoding was not run.
    """
    if encoding not in encodings(record):
        raise NotRun(f"networks of {encoding} positions")
    return quantity(record, positions=encoding)


def learned(record: Record, encoding: str) -> np.ndarray:
    """(M,) whether a network learns in context, by its accuracies in this record."""
    return passing(of_networks(record, ACCURACY, encoding))


def gate_of(record: Record, encoding: str) -> str:
    """How many networks of an encoding passed the gate, for titles and legends."""
    passed = learned(record, encoding)
    return f"{encoding}: {passed.sum()} of {passed.size} learn in context"


def values_of(quantity: Quantity) -> Values:
    """What a claim is about, of a quantity whose other places are filled."""
    return lambda record, encoding: of_networks(record, quantity, encoding)


def network_means(values: np.ndarray) -> np.ndarray:
    """(M,) mean of what is defined; NaN where nothing is."""
    return present_mean(values, tuple(range(1, np.ndim(values))))


def less(of: Values, over: Values) -> Values:
    """(M, ..) the difference of two metrics, value by value."""
    return lambda record, encoding: of(record, encoding) - over(record, encoding)


SECOND_TERM = "it is the second term of the difference that the claim is about, in the same run"


def claims_by_encoding(
    judged: Callable[..., Claim], name: str, statement: str, of: Values, over: Values | None = None, *,
    where: str, control: Values | None = None, second: bool = False, gate: bool = True, **more: Any,
) -> list[Claim]:  # fmt: skip
    """A claim about the networks of ``MAIN``, and another one about those of ``SECOND`` where that is asked for.

    Args:
      judged: what makes a claim of this figure (``claims_of``).
      name: of the claim.
      statement: a sentence.
      of: a metric; the claim is about its mean over tasks, and layers where it is defined.
      over: another of the same shape, whose values are taken off one by one; shown beside the claim.
      where: in the paper.
      control: what has the place of the difference in a changed run, in which the claim must fail.
      second: whether ``SECOND`` is judged too; a headline is about ``MAIN``.
      gate: only networks that learn in context have a value.
      more: keywords of the claim.
    """

    def claim_of(encoding: str, name: str, **overrides: Any) -> Claim:
        def by_network(values: Values) -> Callable[[Record], np.ndarray]:
            def means(record: Record) -> np.ndarray:
                of_all = network_means(values(record, encoding))
                return np.where(learned(record, encoding), of_all, np.nan) if gate else of_all

            return means

        options: dict[str, Any] = {"minimum_members": TEN if gate else 2}
        if control:
            options["control"] = by_network(control)
        if over:
            options["beside"] = Beside(by_network(over), SECOND_TERM)
        value = by_network(less(of, over) if over else of)
        return judged(name, statement, value, where=f"{where}; {encoding}", **options | more | overrides)

    claims = [claim_of(MAIN, name)]
    return [*claims, claim_of(SECOND, f"{name}_{SECOND}", headline=0, quick=None)] if second else claims
