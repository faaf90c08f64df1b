"""What the axes of the arrays of a record are: quantities name them (``lab.quantities``), here they are checked."""

from collections.abc import Mapping

import numpy as np

Axes = tuple[str, ...]

MEMBER = "member"
"""The axis of a configuration's members."""


class AxesError(ValueError):
    """An array whose axes an experiment does not name, or names wrongly."""


def checked(found: dict[str, Axes], arrays: Mapping[str, np.ndarray], members: int) -> dict[str, Axes]:
    """The axes as they are, if they fit the arrays.

    Args:
      found: axis names of every array.
      arrays: by name.
      members: length of the axis ``member``.

    Raises:
      AxesError: naming the array that has another number of axes than are named or one of them twice, or in which an
        axis has another length than elsewhere.
    """
    lengths = {MEMBER: (members, "the configuration")}
    for name, array in arrays.items():
        names = found[name]
        if len(names) != array.ndim or len(set(names)) != len(names):
            raise AxesError(f"array {name} has shape {array.shape}, but its axes are {', '.join(names) or 'none'}")
        for axis, length in zip(names, array.shape):
            expected, where = lengths.setdefault(axis, (length, f"array {name}"))
            if length != expected:
                raise AxesError(f"array {name} has length {length} on its axis {axis}, which is {expected} in {where}")
    return found
