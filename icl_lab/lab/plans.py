"""A plan is a list of runs: a binary, a configuration and a folder each. What ``--grid`` means, and its cells.

Of trainings, which are plans in another sense, see ``icl_lab.training.plans``.
"""

import contextlib
import dataclasses
import importlib.util
import itertools
import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from icl_lab.lab import flags, records
from icl_lab.lab.execution import default_outdir, say_commit, warn_of_settings
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.flags import FlagError
from icl_lab.lab.provenance import digest
from icl_lab.lab.record import Record, RecordError

LARGEST = 10_000
"""Cells that a grid may have."""


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """One run of a plan. It is locked, goes on from its checkpoints, and is not run again when it is finished.

    ``options`` are more words for the command line, ``setting`` the values in this cell of all that varies in a grid.
    """

    name: str
    experiment: Experiment
    preset: str
    config: Any
    folder: Path
    options: tuple[str, ...] = ()
    setting: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def command(self) -> list[str]:
        """The command line that runs it as a process of its own, which waits for another that is at work on it."""
        program = [sys.executable, *program_of(self.experiment), f"--preset={self.preset}"]
        return [*program, *flags.to_flags(self.config), *self.options, "--wait", f"--outdir={self.folder}"]

    def record(self) -> Record | None:
        """The record, None where there is none that can be used.

        Raises:
          RecordError: where the folder holds a run of another configuration.
        """
        try:
            record = records.load(self.folder)
        except RecordError:
            return None
        if record.experiment != self.experiment.name or dict(record.config) != flags.to_json(self.config):
            raise RecordError(f"{self.folder} holds a run of another configuration; choose another --outdir")
        return record

    def is_finished(self) -> bool:
        """Whether there is a record that can be used; says where other code or other settings of JAX made it."""
        if record := self.record():
            warn_of_settings(record, self.folder)
            say_commit(record, self.experiment, self.folder)
        return record is not None


def program_of(experiment: Experiment) -> list[str]:
    """The words after ``python`` that start a binary: one of ``experiments``, or else the program that runs now."""
    module = f"experiments.{experiment.name}"
    with contextlib.suppress(ModuleNotFoundError):
        if importlib.util.find_spec(module):
            return [*["-P"] * sys.flags.safe_path, "-m", module]
    return [os.path.abspath(sys.argv[0])]


class Grid(NamedTuple):
    """Every combination of ``values`` of some settings of one binary; ``config`` is what the cells change.

    The merged record goes into ``outdir`` (None: a folder named by preset, configuration and grid), the cells into
    ``cells/`` there. ``options`` are more words for the command line of every cell.
    """

    experiment: Experiment
    preset: str
    config: Any
    values: Mapping[str, tuple]
    outdir: Path | None = None
    options: tuple[str, ...] = ()

    def text(self) -> str:
        """The grid as ``--grid`` takes it: one text for one grid."""
        return ";".join(f"{name}:{','.join(map(flags.text, values))}" for name, values in self.values.items())

    def as_config(self) -> dict[str, Any]:
        """The configuration of the merged record: that of the cells, lists of what varies, and the grid."""
        varied = {name: [flags.plain(value) for value in values] for name, values in self.values.items()}
        return flags.to_json(self.config) | varied | {"grid": self.text()}

    @property
    def folder(self) -> Path:
        """The folder of the merged record."""
        usual = default_outdir(self.experiment, self.preset, self.config)
        return self.outdir or usual.with_name(f"{self.preset}-grid-{digest(self.as_config())[:8]}")

    def runs(self) -> list[Run]:
        """The plan: a run for each cell, the last setting fastest, each checked as a command line would be.

        Raises:
          FlagError: for a cell that is not allowed, naming it.
        """
        runs = []
        for values in itertools.product(*self.values.values()):
            setting = dict(zip(self.values, values))
            name = ",".join(f"{key}={flags.text(value)}" for key, value in setting.items())
            config = dataclasses.replace(self.config, **setting)
            try:
                flags.validate(config)
                self.experiment.validate(config)
            except FlagError as error:
                raise FlagError(f"{error} (in the cell {name} of --grid)") from error
            # the cell's name where every file system takes it, and keeps it apart from others; else with a digest
            place = "".join(c if c.isalnum() or c in "=,.+-_" else "_" for c in name)
            if place != name.lower() or len(place) > 80:
                place = f"{place[:80]}-{digest(flags.to_json(config))[:8]}"
            folder = self.folder / "cells" / place
            runs.append(Run(name, self.experiment, self.preset, config, folder, self.options, setting))
        return runs


def parse_grid(text: str, config_class: type) -> dict[str, tuple]:
    """The values in ``name:value,value;name:value``; in a setting that is itself a list, values are joined by ``+``.

    Raises:
      FlagError: naming what is wrong and what is allowed.
    """
    fields = {field.name: field for field in dataclasses.fields(config_class)}
    grid: dict[str, tuple] = {}
    for part in text.split(";"):
        name, _, listed = (word.strip() for word in part.partition(":"))
        if name not in fields:
            raise FlagError(f"--grid={text}: there is no setting {name!r}; there are {', '.join(fields)}")
        if not listed:
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
