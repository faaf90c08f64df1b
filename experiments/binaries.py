"""The binaries of the laboratory by name, and which records are of their present presets."""

import difflib
import importlib
import os
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from icl_lab.lab import flags
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.provenance import changed

HERE = Path(__file__).parent
GALLERY = HERE.parent / "figures"
ABOVE = ("page", "tools")
"""Packages beside those of papers: they look at records of all."""


def discover() -> dict[str, Experiment]:
    """Every binary by name, sorted: the modules ``experiments.<paper>.<figure>`` that have an ``EXPERIMENT``."""
    binaries = {}
    for paper in pkgutil.iter_modules([os.fspath(HERE)]):  # whatever else Python calls experiments
        if not paper.ispkg or paper.name in ABOVE:
            continue
        package = importlib.import_module(f"experiments.{paper.name}")
        for figure in pkgutil.iter_modules(package.__path__, f"experiments.{paper.name}."):
            if figure.name.endswith("_shown"):  # of a binary, and imported when it is asked for
                continue
            experiment = getattr(importlib.import_module(figure.name), "EXPERIMENT", None)
            if isinstance(experiment, Experiment):
                binaries[figure.name.removeprefix("experiments.")] = experiment
    return dict(sorted(binaries.items()))


def choose(found: dict[str, Experiment], only: str) -> dict[str, Experiment]:
    """The binaries named, comma-separated; a folder stands for its binaries. All of them where none is named.

    Raises:
      FlagError: for a name that is not among them.
    """
    names = [name.strip() for name in only.split(",") if name.strip()]
    for name in names:
        if name not in {*found, *(one.split(".")[0] for one in found)}:
            raise flags.FlagError(f"--only={name}: there is no such binary; {_nearest(name, found)}")
    return {one: e for one, e in found.items() if not names or {one, one.split(".")[0]} & {*names}}


def _nearest(name: str, binaries: Mapping[str, Experiment]) -> str:
    """The binaries whose whole or second name is most like it; all, where none is."""
    figures = {one: one.split(".", 1)[-1] for one in binaries}
    whole, figure = difflib.get_close_matches(name, binaries, cutoff=0.7), name.split(".", 1)[-1]
    close = difflib.get_close_matches(figure, set(figures.values()), n=1)
    near = [one for one in binaries if figures[one] == figure] or whole or [o for o in binaries if figures[o] in close]
    return f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(binaries)}"


def belongs(experiment: Experiment, preset: str, label: str, config: Mapping[str, Any]) -> bool:
    """Whether a record is of the present preset; more members are welcome, and so is one network of several.

    A setting that is younger than the record has its default there, the paper's: nobody could change it yet.
    """
    return label == preset and not unlike(experiment, preset, config)


def unlike(experiment: Experiment, preset: str, config: Mapping[str, Any]) -> str:
    """The settings in which the configuration of a record is not that of the present preset, in words."""
    wanted = flags.to_json(experiment.presets[preset])
    config = flags.to_json(type(experiment.presets[preset])()) | dict(config)
    free = {"only"} | ({"members"} if config.get("members", 0) >= wanted["members"] else set())
    return changed(*({name: value for name, value in one.items() if name not in free} for one in (config, wanted)))
