"""Grids of settings: what ``--grid`` means, and its cells."""

import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Any

from icl_lab import flags
from icl_lab.experiment import Experiment
from icl_lab.flags import FlagError
from icl_lab.records import digest

Grid = Mapping[str, tuple]
"""The values of every setting that varies, by name."""

LARGEST = 10_000
POOLED = "seed"
"""Cells that differ in the seed alone are more members of one setting."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One setting of a grid.

    Attributes:
      setting: the value of every setting that varies, by name.
      config: the whole configuration.
    """

    setting: Mapping[str, Any]
    config: Any

    @property
    def label(self) -> str:
        """``learning_rate=0.001,noise=0.5``: names the cell, and its folder."""
        return ",".join(f"{name}={_show(value)}" for name, value in self.setting.items())

    @property
    def folder(self) -> str:
        """The label as a folder's name: short, with what a file system does not like taken out."""
        plain = "".join(c if c.isalnum() or c in "=,.+-_" else "_" for c in self.label)
        unique = digest(flags.to_json(self.config))[:8]
        return plain if len(plain) <= 80 and plain == self.label else f"{plain[:80]}-{unique}"


def parse(text: str, config_class: type) -> dict[str, tuple]:
    """The grid of ``name:value,value;name:value``; in a setting that is itself a list, values are joined by ``+``.

    Raises:
      FlagError: naming what is wrong and what is allowed.
    """
    fields = {field.name: field for field in dataclasses.fields(config_class)}
    grid: dict[str, tuple] = {}
    for part in text.split(";"):
        name, colon, listed = (word.strip() for word in part.partition(":"))
        if name not in fields:
            raise FlagError(f"--grid={text}: there is no setting {name!r}; there are {', '.join(fields)}")
        if not colon or not listed:
            raise FlagError(f"--grid={text}: {name} has no values; allowed is {name}:value,value")
        if name in grid:
            raise FlagError(f"--grid={text}: {name} is given twice")
        try:
            values = tuple(flags.read(fields[name], word.strip()) for word in listed.split(","))
        except FlagError as error:
            raise FlagError(f"--grid={text}: {str(error).removeprefix('--')}") from error
        if len(set(values)) != len(values):
            raise FlagError(f"--grid={text}: a value of {name} is given twice")
        grid[name] = values
    if (count := math.prod(len(values) for values in grid.values())) > LARGEST:
        raise FlagError(f"--grid={text}: {count} cells; allowed are {LARGEST}")
    return grid


def cells(grid: Grid, config: Any, experiment: Experiment) -> list[Cell]:
    """Every combination, the last setting fastest; each is checked as a command line would be.

    Raises:
      FlagError: for a cell that is not allowed, naming it.
    """
    found = []
    for values in itertools.product(*grid.values()):
        setting = dict(zip(grid, values))
        cell = Cell(setting, dataclasses.replace(config, **setting))
        try:
            flags.validate(cell.config)
            experiment.check(cell.config)
        except FlagError as error:
            raise FlagError(f"{error} (in the cell {cell.label} of --grid)") from error
        found.append(cell)
    return found


def as_text(grid: Grid) -> str:
    """The grid as ``--grid`` takes it: one text for one grid."""
    return ";".join(f"{name}:{','.join(_show(value) for value in values)}" for name, values in grid.items())


def with_grid(config: Any, grid: Grid) -> Any:
    """The configuration with its grid as one more field, so that another grid is another run."""
    kind = type(config)
    about = flags.setting("", "settings run side by side")
    extended = dataclasses.make_dataclass("Config", [("grid", str, about)], bases=(kind,), frozen=True, kw_only=True)
    return extended(**{f.name: getattr(config, f.name) for f in dataclasses.fields(kind)}, grid=as_text(grid))


def without_grid(config: Any) -> Any:
    """The inverse of ``with_grid``."""
    kind = type(config).__bases__[0]
    return kind(**{f.name: getattr(config, f.name) for f in dataclasses.fields(kind)})


def _show(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, tuple) else str(value)
