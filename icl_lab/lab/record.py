"""A record: what a run found, by nested names, with the axes of every array."""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from icl_lab.prompts.naming import shortened

Axes = tuple[str, ...]
"""Names of the axes of an array; ``member`` is that of a configuration's members."""


class RecordError(ValueError):
    """A record that cannot be used: foreign, truncated or corrupt."""


class NoArrayError(KeyError):
    """An array that a record has not, by its name and in words."""

    def __str__(self) -> str:
        return self.args[-1]


@dataclasses.dataclass(frozen=True, repr=False)
class Record:
    """What a run found; figures and claims are pure functions of it."""

    experiment: str  # paper.figure
    preset: str  # its name; ``lab with steps=10`` where settings differ, which leaves claims not judged
    config: Mapping[str, Any]  # the configuration, plain JSON values by field
    metrics: Mapping[str, Any]  # plain JSON values by name: numbers a person reads
    arrays: Mapping[str, np.ndarray]  # by name: what figures and claims are made of
    provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # never part of a number
    axes: Mapping[str, Axes] = dataclasses.field(default_factory=dict)  # of every array, in the order of its dimensions
    params: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """Final parameters of every training, (members, ...) by name: stage, then place in the tree; if they were kept."""

    def __repr__(self) -> str:
        return f"Record({self.experiment}, {self.preset}, {len(self.arrays)} arrays)"

    def __getitem__(self, name: str) -> Any:
        """The array of this name, or a dict of all below it: ``record["looped_2/final"]["trained"]``.

        Raises:
          NoArrayError: a KeyError, if there is neither.
        """
        value = below(self.arrays, name)
        if value is None:
            has = shortened(", ".join(self.arrays), 200) or "no arrays"
            raise NoArrayError(name, f"the record of {self.experiment} holds no {name!r}; it has {has}")
        return value

    def table(self) -> Iterator[dict[str, Any]]:
        """One row for every number: ``array``, a column for each axis of any array (None where it has not), ``value``.

        An axis with ``coordinates`` is in their units (training steps), any other counts from 0. Of a grid each setting
        that varies is a column too (``--noise`` where an axis is called ``noise``).

        Raises:
          RecordError: if the record has not the axes of all its arrays, or was loaded without them.
        """
        self._check_axes()
        columns = dict.fromkeys(axis for axes in self.axes.values() for axis in axes)
        marks = {axis: values.tolist() for axis, values in self.coordinates().items()}
        cells = self.metrics.get("varied", {})
        for name, array in self.arrays.items():
            cell, _, inside = name.partition("/")
            start = {"array": inside if cell in cells else name}
            start |= {f"--{flag}" if flag in columns else flag: value for flag, value in cells.get(cell, {}).items()}
            for index in np.ndindex(array.shape):
                places = {axis: marks[axis][i] if axis in marks else i for axis, i in zip(self.axes[name], index)}
                yield {**start, **columns, **places, "value": array[index].item()}

    def coordinates(self) -> dict[str, np.ndarray]:
        """Where the values along an axis are: of an axis ``step`` the array ``steps``, of ``looped_2_step`` its own.

        Of axes to which one array, of that axis alone and of its name (with or without an s), belongs.
        """
        candidates: dict[str, list[np.ndarray]] = {}
        for name, axes in self.axes.items():
            word = "_".join(axes).split("_")[-1]
            if len(axes) == 1 and name in self.arrays and re.split("[/_]", name)[-1] in (word, f"{word}s"):
                candidates.setdefault(axes[0], []).append(self.arrays[name])
        return {axis: same[0] for axis, same in candidates.items() if all(np.array_equal(same[0], one) for one in same)}

    def dataset(self) -> Any:
        """The arrays as an ``xarray.Dataset`` whose dimensions are their axes, with their ``coordinates``.

        Raises:
          ImportError: where the extra ``xarray`` is not installed.
          RecordError: as ``table``.
        """
        self._check_axes()
        try:
            import xarray
        except ImportError as error:
            raise ImportError("a dataset needs xarray: pip install 'icl-lab[xarray]'") from error
        marks = self.coordinates()
        arrays = {name: (self.axes[name], array) for name, array in self.arrays.items() if name not in marks}
        return xarray.Dataset(arrays, marks, attrs={"experiment": self.experiment, "preset": self.preset})

    def _check_axes(self) -> None:
        if self.axes and not self.arrays:
            raise RecordError(f"{self.experiment}: this record is without its arrays (a gallery keeps no large ones)")
        if missing := self.arrays.keys() ^ self.axes.keys():
            raise RecordError(f"{self.experiment}: not both values and axes are known of {', '.join(sorted(missing))}")


def flat(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Nested dicts as one, names joined by ``/``: ``{"a": {"b": x}}`` -> ``{"a/b": x}``.

    Raises:
      ValueError: for a name that is given twice, as by ``{"a/b": x, "a": {"b": y}}``.
    """
    flattened: dict[str, Any] = {}
    for name, value in tree.items():
        leaves = flat(value) if isinstance(value, Mapping) else None
        new = {name: value} if leaves is None else {f"{name}/{rest}": leaf for rest, leaf in leaves.items()}
        if twice := flattened.keys() & new.keys():
            raise ValueError(f"{', '.join(sorted(twice))}: given twice; every array needs a name of its own")
        flattened |= new
    return flattened


def in_single(array: Any) -> Any:
    """An array of half precision in float32, which has all its numbers; any other as it is.

    In half precision sums over members would not be numbers anyone could judge.
    """
    kind = getattr(array, "dtype", None)
    half = kind is not None and jnp.issubdtype(kind, jnp.floating) and kind.itemsize < 4
    return np.asarray(array, np.float32) if half else array


def below(leaves: Mapping[str, Any], name: str) -> Any:
    """The leaf of this name, or nested dicts of all below it; None where there is neither. The inverse of ``flat``."""
    if name in leaves:
        return leaves[name]
    tree: dict[str, Any] = {}
    for path, leaf in leaves.items():
        if path.startswith(f"{name}/"):
            *parents, last = path.removeprefix(f"{name}/").split("/")
            branch = tree
            for parent in parents:
                branch = branch.setdefault(parent, {})
            branch[last] = leaf
    return tree or None
