"""What claims of several binaries read off a record: one value a member."""

from collections.abc import Callable

import numpy as np

from icl_lab.lab.records import Record

Statistic = Callable[[Record], np.ndarray]


def array(name: str) -> Statistic:
    """(M,) an array of the record."""
    return lambda record: record.arrays[name]


def last(of: str | Statistic) -> Statistic:
    """(M,) the last measurement of an array (M, R), by its handle or name."""
    curve = _read(of)
    return lambda record: curve(record)[:, -1]


def ratio(of: str | Statistic, reference: str | Statistic) -> Statistic:
    """(M,) one array over another, both measured on the same tasks; by their handles or names."""
    over, under = _read(of), _read(reference)
    return lambda record: over(record) / under(record)


def _read(of: str | Statistic) -> Statistic:
    return array(of) if isinstance(of, str) else of
