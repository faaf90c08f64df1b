"""What the axes of the arrays of a record are: an experiment names them by patterns, every array gets its own."""

import re
from collections.abc import Iterable, Mapping

import numpy as np

Axes = tuple[str, ...]

MEMBER = "member"
"""The axis of a configuration's members."""


class AxesError(ValueError):
    """An array whose axes an experiment does not name, or names wrongly."""


def named(patterns: Mapping[str, Axes], names: Iterable[str]) -> dict[str, Axes]:
    """The axis names of every array, in the order of its dimensions.

    Args:
      patterns: axis names by a pattern of array names, in which ``*`` is any text, as short as can be; the first that
        matches a whole name counts. ``{0}`` in an axis name stands for what the first ``*`` is, ``{1}`` the second:
        ``"*_loss": ("member", "{0}_step")`` gives every training steps of its own.
      names: of arrays.

    Raises:
      AxesError: naming the array that no pattern matches.
    """
    return {name: _named(name, patterns) for name in names}


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


def resolved(patterns: Mapping[str, Axes], arrays: Mapping[str, np.ndarray], members: int) -> dict[str, Axes]:
    """``checked`` axes of the ``named`` patterns."""
    return checked(named(patterns, arrays), arrays, members)


def _named(name: str, patterns: Mapping[str, Axes]) -> Axes:
    for pattern, axes in patterns.items():
        if match := re.fullmatch(re.escape(pattern).replace(r"\*", "(.*?)"), name):
            return tuple(axis.format(*match.groups()) for axis in axes)
    raise AxesError(f"array {name}: no pattern of the experiment's axes matches it ({', '.join(patterns) or 'none'})")
