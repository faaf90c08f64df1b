"""What claims of several binaries read off a record, one value a member, and when a training has gone far enough."""

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

import numpy as np

from icl_lab.claims import Criterion
from icl_lab.lab import NotRun, Record
from icl_lab.lab.quantities import Quantity

Statistic = Callable[[Record], np.ndarray]
Given = ParamSpec("Given")


def of_record(function: Callable[Concatenate[Record, Given], np.ndarray]) -> Callable[Given, Statistic]:
    """Written as a function of the record and of arguments, called with the arguments alone: ``f(*given)(record)``."""

    @functools.wraps(function)
    def given(*args: Given.args, **kwargs: Given.kwargs) -> Statistic:
        return lambda record: function(record, *args, **kwargs)

    return given


def last(curve: Statistic) -> Statistic:
    """(M,) the last measurement of an array (M, R)."""
    return lambda record: curve(record)[:, -1]


def ratio(of: Statistic, reference: Statistic) -> Statistic:
    """(M,) one array over another, both measured on the same tasks."""
    return lambda record: of(record) / reference(record)


def log_ratio(of: Statistic, reference: Statistic) -> Statistic:
    """(M, ...) log of one array over another, both measured on the same tasks."""
    over = ratio(of, reference)
    return lambda record: np.log(over(record).astype(float))


def largest(*curves: Statistic) -> Statistic:
    """(M,) largest size of a value in several arrays (M, R)."""
    return lambda record: np.max([np.abs(one(record)).max(axis=1) for one in curves], axis=0)


def off_identity(matrices: np.ndarray) -> np.ndarray:
    """(...) distance of matrices (..., D, D) from their mean diagonal times I, over the norm of that."""
    eye = np.eye(matrices.shape[-1])
    scaled = matrices / np.diagonal(matrices, axis1=-2, axis2=-1).mean(axis=-1)[..., None, None]
    return np.linalg.norm(scaled - eye, axis=(-2, -1)) / np.linalg.norm(eye)


def late(times: np.ndarray) -> np.ndarray:
    """(M,) 1 for members whose time is at least twice the median."""
    return (times >= 2 * np.median(times)).astype(float)


def difference(one: Statistic, other: Statistic) -> Statistic:
    """(M,) one statistic less another, member by member."""
    return lambda record: one(record) - other(record)


def among(which: Statistic, statistic: Statistic) -> Statistic:
    """(M,) a statistic of the members for which ``which`` is true; NaN for the others."""
    return lambda record: np.where(which(record).astype(bool), statistic(record), np.nan)


def place_of(record: Record, field: str, value: Any, what: str) -> int:
    """The index of a value in a list of the configuration.

    Raises:
      NotRun: ``what``, where it is not in it.
    """
    values = list(record.config[field])
    if value not in values:
        raise NotRun(what)
    return values.index(value)


def change(curves: np.ndarray) -> float:
    """Relative change of the median member's curve, of (M, R), between the last two fifths of the training."""
    fifth = curves.shape[1] // 5
    before, last = (curves[:, at].mean(axis=1) for at in (slice(-2 * fifth, -fifth), slice(-fifth, None)))
    return float(abs(np.median(last / before) - 1))


def settled(*curves: Quantity) -> Criterion:
    """The median member's curves (M, R) change by less than 2 % between the last two fifths of the training."""
    what = " and ".join(one.name.format(**one.bound) for one in curves)
    return Criterion(
        f"{what} changes by less than 2 % between the last two fifths of the training",
        lambda record: max(change(one(record)) for one in curves) < 0.02,
    )
