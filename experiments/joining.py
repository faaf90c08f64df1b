"""Runs of single parts of a preset (``--only``), made by the same sources, as one record of the whole preset."""

import dataclasses
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from icl_lab.lab.experiment import Experiment
from icl_lab.lab.record import Record

SAME = ("sources", "versions", "precision", "seed")
"""What decides the numbers, beside the configuration."""


def joined(experiment: Experiment, found: Sequence[Record]) -> Record | None:
    """The record of ``--only=all`` that runs of single parts are together; None where they are not one.

    They are if their configurations differ in ``only`` alone, the same sources and versions made them, each part was
    run once, and no part is missing. Provenance names each part's commit and seconds; ``seconds`` is their sum.
    """
    whole = [{**record.config, "only": "all"} for record in found]
    made_by = [{key: record.provenance.get(key) for key in SAME} for record in found]
    names = [name for record in found for name in record.arrays]
    patterns = list(experiment.parts(whole[0])) if found else []
    if (
        len(found) < 2
        or any(one != whole[0] for one in whole)
        or any(one != made_by[0] for one in made_by)
        or len(set(names)) < len(names)
        or any(not any(fnmatchcase(name, pattern) for name in names) for pattern in patterns)
        or not patterns
    ):
        return None
    kept = ("commit", "command", "started", "finished", "seconds")
    parts = {record.config["only"]: {key: record.provenance.get(key) for key in kept} for record in found}
    origin = dict(found[0].provenance) | {
        "command": [found[0].provenance["command"][0], f"--preset={found[0].preset}"],
        "seconds": sum(record.provenance["seconds"] for record in found),
        "stages": _all(record.provenance.get("stages", {}) for record in found),
        "parts": parts,
    }
    origin = {key: value for key, value in origin.items() if key not in ("compilation", "started", "finished")}
    return dataclasses.replace(
        found[0], config=whole[0], metrics=_all(record.metrics for record in found), provenance=origin,
        arrays=_all(record.arrays for record in found), axes=_all(record.axes for record in found),
        params=_all(record.params for record in found),
    )  # fmt: skip


def _all(mappings: Any) -> dict[str, Any]:
    return {key: value for mapping in mappings for key, value in mapping.items()}
