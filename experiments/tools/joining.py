"""Runs of single parts of a preset (``--only``), by the same code, as one record of the preset."""

import dataclasses
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from icl_lab.lab.combining import code_of, combine, differing_origins
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.flags import to_json
from icl_lab.lab.record import Record


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
    chosen = [str(record.config["only"]) for record in found]
    patterns = list(experiment.parts(whole[0]))
    if not patterns:
        raise ValueError(f"{experiment.name} names no parts")
    if any(one != whole[0] for one in whole):
        raise ValueError("their configurations differ in more than only")
    if differing := differing_origins(found):
        raise ValueError(f"they differ in {', '.join(differing)}")
    if not code_of(found[0])["sources"]:
        raise ValueError("they name neither their sources nor a commit")
    if twice := {name for name in chosen if chosen.count(name) > 1}:
        raise ValueError(f"run twice: {', '.join(sorted(twice))}")
    record = combine(found, along="part")
    if missing := [pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in record.arrays)]:
        raise ValueError(f"not run: {', '.join(missing)}")
    kept = ("commit", "sources", "command", "started", "finished", "seconds")
    parts = {name: {key: one.provenance.get(key) for key in kept} for name, one in zip(chosen, found)}
    command = [record.provenance["command"][0], f"--preset={record.preset}"]
    of_one = ("compilation", "started", "finished")
    origin = {key: value for key, value in record.provenance.items() if key not in of_one}
    origin |= {"command": command, "parts": parts}
    return dataclasses.replace(record, config=whole[0], provenance=origin)
