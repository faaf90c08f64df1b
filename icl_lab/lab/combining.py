"""One record of several of one binary: single parts of a preset, some members each, cells of a grid."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from icl_lab.lab.provenance import USUAL, of_others
from icl_lab.lab.record import Record


def combine(found: Sequence[Record], along: str) -> Record:
    """One record of several, whose arrays lie one after the other along an axis.

    An array with that axis, or with one of a group (along ``member`` also ``rotary_member``), is what the records have
    of it, in their order. Of any other array there is one: the record has those of all, and where several have it, it
    must be the same. So runs of single parts are one record along an axis that no array has.

    Args:
      found: at least one; whether one configuration and the same sources made them is for the caller to check
        (``differing_origins``).
      along: name of the axis.

    Returns:
      A record with configuration and preset of the first, facts of all, and the provenance of the first, but for
      ``seconds``, which are the sum, and ``stages`` (see there). Parameters are put together along ``member`` where it
      is the axis; else a training has them that is the same in all records that did it.

    Raises:
      ValueError: naming an array that is not the same in all records.
    """
    axes = _all(record.axes for record in found)
    arrays = {}
    for name in sorted({name for record in found for name in record.arrays}):
        parts = [record.arrays[name] for record in found if name in record.arrays]
        place = [n for n, axis in enumerate(axes.get(name, ())) if axis == along or axis.endswith(f"_{along}")]
        if not place and not all(np.array_equal(parts[0], one, equal_nan=True) for one in parts):
            raise ValueError(f"the array {name} is not the same in all of them")
        arrays[name] = np.concatenate(parts, place[0]) if place else parts[0]
    seconds = round(sum(record.provenance.get("seconds") or 0.0 for record in found), 1)
    return dataclasses.replace(
        found[0], metrics=_all(record.metrics for record in found), arrays=arrays, axes=axes,
        provenance={**found[0].provenance, "stages": stages(found), "seconds": seconds},
        params=_of_members(found) if along == "member" else _of_one_training(found),
    )  # fmt: skip


def differing_origins(found: Sequence[Record]) -> list[str]:
    """In what the code that made these records differs: names of ``code_of``."""
    first, *others = map(code_of, found)
    return [name for name in first if any(other[name] != first[name] for other in others)]


def code_of(record: Record) -> dict[str, Any]:
    """``sources``, ``versions`` and ``precision`` that made a record; equal ones give equal numbers.

    The sources of one commit have one digest. A record that does not name the digest has the commit instead, where no
    file differed from it. What a record does not name is None, but for a setting of JAX, which is the usual one.
    """
    origin: Mapping[str, Any] = record.provenance
    commit = origin.get("commit") if origin.get("uncommitted_changes") is False else None
    return {
        "sources": origin.get("sources") or commit,
        "versions": of_others(origin.get("versions") or {}) or None,
        "precision": USUAL | dict(origin.get("precision") or {}),
    }


def stages(found: Sequence[Record]) -> dict[str, dict[str, Any]]:
    """What each training took: members and seconds of all records that have it, the largest memory, the most steps."""
    every: dict[str, dict[str, Any]] = {}
    for record in found:
        for name, one in record.provenance.get("stages", {}).items():
            stage = every.setdefault(name, {})
            for key, value in one.items():
                together = sum if key in ("members", "seconds") else max
                stage[key] = together([stage[key], value]) if key in stage else value
    return every


def _of_members(records: Sequence[Record]) -> dict[str, np.ndarray]:
    names = {name for record in records for name in record.params}
    return {name: np.concatenate([one.params[name] for one in records if name in one.params]) for name in sorted(names)}


def _of_one_training(records: Sequence[Record]) -> dict[str, np.ndarray]:
    """Those of all trainings but one that records did under conditions of their own: it has no one set."""
    every = [item for record in records for item in record.params.items()]
    kept = dict(every)
    odd = {name.split("/")[0] for name, values in every if not np.array_equal(values, kept[name], equal_nan=True)}
    return {name: values for name, values in kept.items() if name.split("/")[0] not in odd}


def _all(mappings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {key: value for mapping in mappings for key, value in mapping.items()}
