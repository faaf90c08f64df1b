"""Runs of single parts of a preset (``--only``), made by the same sources, as one record of the whole preset."""

import dataclasses
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from icl_lab.lab.experiment import Experiment
from icl_lab.lab.flags import to_json
from icl_lab.lab.record import Record

SAME = ("sources", "versions", "precision", "seed")
"""What decides the numbers, beside the configuration."""


def is_whole(experiment: Experiment, preset: str, config: Mapping[str, Any]) -> bool:
    """Whether a run of the preset has all parts: its ``only``, where there is one, is the preset's."""
    everything = to_json(experiment.presets[preset]).get("only")
    return config.get("only", everything) == everything


def joined(experiment: Experiment, preset: str, found: Sequence[Record]) -> Record:
    """The record of the whole preset that runs of single parts are together.

    Provenance names each part's commit and seconds; ``seconds`` is their sum.

    Raises:
      ValueError: saying why they are not one: configurations that differ in more than ``only``, other sources, versions
        or precision, a part that is missing or was run twice, an array that is not the same in all that have it.
    """
    only = to_json(experiment.presets[preset])["only"]
    whole = [{**record.config, "only": only} for record in found]
    made_by = [{key: record.provenance.get(key) for key in SAME} for record in found]
    chosen = [str(record.config["only"]) for record in found]
    patterns = list(experiment.parts(whole[0]))
    if not patterns:
        raise ValueError(f"{experiment.name} names no parts")
    if any(one != whole[0] for one in whole):
        raise ValueError("their configurations differ in more than only")
    if any(one != made_by[0] or not one["sources"] for one in made_by):
        raise ValueError(f"they differ in {', '.join(SAME)}, or do not say their sources")
    if twice := {name for name in chosen if chosen.count(name) > 1}:
        raise ValueError(f"run twice: {', '.join(sorted(twice))}")
    names = {name for record in found for name in record.arrays}
    if missing := [pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in names)]:
        raise ValueError(f"not run: {', '.join(missing)}")
    for name in sorted(names):
        first, *others = [record.arrays[name] for record in found if name in record.arrays]
        if not all(np.array_equal(first, one, equal_nan=True) for one in others):
            raise ValueError(f"the array {name} is not the same in all parts")
    kept = ("commit", "command", "started", "finished", "seconds")
    parts = {name: {key: record.provenance.get(key) for key in kept} for name, record in zip(chosen, found)}
    origin = dict(found[0].provenance) | {
        "command": [found[0].provenance["command"][0], f"--preset={found[0].preset}"],
        "seconds": sum(record.provenance["seconds"] for record in found),
        "stages": stages(found),
        "parts": parts,
    }
    origin = {key: value for key, value in origin.items() if key not in ("compilation", "started", "finished")}
    return dataclasses.replace(
        found[0], config=whole[0], metrics=_all(record.metrics for record in found), provenance=origin,
        arrays=_all(record.arrays for record in found), axes=_all(record.axes for record in found),
        params=_of_one_training(found),
    )  # fmt: skip


def stages(found: Sequence[Record]) -> dict[str, dict[str, Any]]:
    """What each training took: members and seconds of all runs that have it, the largest memory, the most steps."""
    every: dict[str, dict[str, Any]] = {}
    for record in found:
        for name, one in record.provenance.get("stages", {}).items():
            there = every.setdefault(name, {})
            for key, value in one.items():
                together = sum if key in ("members", "seconds") else max
                there[key] = together([there[key], value]) if key in there else value
    return every


def _of_one_training(found: Sequence[Record]) -> dict[str, np.ndarray]:
    """Final parameters, but for those of a training that parts do under conditions of their own: it has no one set."""
    every = [item for record in found for item in record.params.items()]
    kept = dict(every)
    odd = {name.split("/")[0] for name, values in every if not np.array_equal(values, kept[name], equal_nan=True)}
    return {name: values for name, values in kept.items() if name.split("/")[0] not in odd}


def _all(mappings: Any) -> dict[str, Any]:
    return {key: value for mapping in mappings for key, value in mapping.items()}
