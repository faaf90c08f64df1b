"""What claims of several binaries read off a record: one value a member."""

from collections.abc import Callable

import numpy as np

from icl_lab.lab.records import Record

Statistic = Callable[[Record], np.ndarray]


def array(name: str) -> Statistic:
    """(M,) an array of the record."""
    return lambda record: record.arrays[name]


def last(name: str) -> Statistic:
    """(M,) the last measurement of an array (M, R)."""
    return lambda record: record.arrays[name][:, -1]


def ratio(name: str, reference: str) -> Statistic:
    """(M,) one array over another, both measured on the same tasks."""
    return lambda record: record.arrays[name] / record.arrays[reference]
