"""One record of all cells of a grid: what is estimated at each setting, all arrays, and where each cell comes from."""

import contextlib
import dataclasses
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from icl_lab.lab import flags, records, summaries
from icl_lab.lab.axes import Axes, of_members
from icl_lab.lab.claims import judge, t_interval
from icl_lab.lab.experiment import Experiment, draw
from icl_lab.lab.plans import Grid
from icl_lab.lab.provenance import provenance
from icl_lab.lab.records import Record, RecordError, digest

OF_A_CELL = ("commit", "versions", "device", "precision", "seconds")
"""What the provenance of a merged record keeps of every cell."""
ALIKE = ("commit", "versions", "precision")
"""What decides the numbers: there is a warning where it is not the same in all cells."""
log = logging.getLogger("icl_lab")


def merge(grid: Grid, cells: Sequence[Record], seconds: float) -> Record:
    """Writes the merged record, its table and its figure; a record of another grid in the folder is set aside."""
    record, folder = merged(grid, cells, seconds), grid.folder()
    with records.locked(folder, wait=True):
        with contextlib.suppress(RecordError):
            if dict(records.load(folder, arrays=False).config) != dict(record.config):
                aside = records.set_record_aside(folder)
                log.warning("the record of another grid is kept as %s", ", ".join(path.name for path in aside))
        records.save(record, folder, claims=[])
        records.write_atomically(folder / "summary.csv", summaries.as_csv(record).encode())
        draw(dataclasses.replace(grid.experiment, figures=summaries.figures), record, folder)
    return record


def merged(grid: Grid, cells: Sequence[Record], seconds: float = 0.0) -> Record:
    """One record of all cells of a grid, from the records of its runs, in their order. Nothing is judged.

    Returns:
      Metrics ``settings``, one row a setting (cells that differ in the seed alone are pooled, as more members) with
      estimate, interval and number of members of what claims are about and of every array whose only axis is one of
      members; and ``cells``, the metrics of each. An array that has one shape in all cells is stacked, (C, ...); others
      are kept as ``name[cell]``.
    """
    runs = grid.runs()
    pools: dict[str, tuple[dict, list[Record]]] = {}
    for run, record in zip(runs, cells, strict=True):
        setting = {name: flags.plain(value) for name, value in run.setting.items() if name != "seed"}
        pools.setdefault(digest(setting), (setting, []))[1].append(record)
    metrics = {
        "settings": [
            {"setting": setting, "claims": _of_claims(grid.experiment, pool), "outcomes": _of_arrays(pool, cells)}
            for setting, pool in pools.values()
        ],
        "cells": [{"cell": run.name, "metrics": dict(record.metrics)} for run, record in zip(runs, cells)],
    }
    origin = _origin([run.name for run in runs], cells, provenance(seconds, grid.config.seed))
    label = f"{grid.experiment.label(grid.preset, grid.config)}, grid {grid.text()}"
    arrays, axes = _stacked(cells)
    return Record(grid.experiment.name, label, grid.as_config(), metrics, arrays, origin, axes)


def _of_claims(experiment: Experiment, pool: Sequence[Record]) -> dict[str, dict]:
    """What every claim's statistic is over the members of these records: estimate, interval and members, by claim."""
    found, left_out = {}, experiment.left_out(pool[0].config)
    for claim in experiment.claims:
        # an exact value has no chance in it: it is the same whatever the seed
        sources = pool[:1] if claim.interval == "exact" else pool

        def over_all(_: Record, claim=claim, sources=sources) -> np.ndarray:
            return np.concatenate([np.atleast_1d(claim.statistic(record)) for record in sources])

        row = judge(dataclasses.replace(claim, statistic=over_all, control=None), pool[0], left_out)
        if row["members"]:
            found[claim.id] = {key: row[key] for key in ("estimate", "interval", "members")}
    return found


def _of_arrays(pool: Sequence[Record], everywhere: Sequence[Record]) -> dict[str, dict]:
    """Mean, interval and members of every array of these records that has one number a member, by name.

    An array that is identical in all cells (``everywhere``) of several is skipped: it is an axis, not a result.
    """
    found = {}
    for name in sorted(set.intersection(*(set(record.arrays) for record in pool))):
        first = pool[0].arrays[name]
        if first.dtype.kind != "f" or not all(of_members(record.axes[name]) for record in pool):
            continue
        there = [record.arrays.get(name, np.empty(0)) for record in everywhere]
        values = np.concatenate([record.arrays[name] for record in pool]).astype(float)
        values = values[np.isfinite(values)]
        fixed = len(there) > 1 and all(np.array_equal(other, first, equal_nan=True) for other in there)
        if values.size and not fixed:
            mean, interval = t_interval(values)
            bounds = [b if math.isfinite(b) else None for b in interval]
            found[name] = {"estimate": mean, "interval": bounds, "members": int(values.size)}
    return found


def _origin(names: Sequence[str], cells: Sequence[Record], parent: Mapping[str, Any]) -> dict[str, Any]:
    """That of the merging process, with ``OF_A_CELL`` of each cell; device and precision are those of the cells."""
    kept = [{key: record.provenance.get(key) for key in OF_A_CELL} for record in cells]
    differing = {key for key in OF_A_CELL if any(one[key] != kept[0][key] for one in kept)}
    if odd := [key for key in ALIKE if key in differing]:
        log.warning("the cells of this record differ in %s: its provenance.json has that of each", ", ".join(odd))
    of_cells = {key: None if key in differing else kept[0][key] for key in ("device", "precision")}
    return {**parent, **of_cells, "cells": [{"cell": name, **one} for name, one in zip(names, kept)]}


def _stacked(cells: Sequence[Record]) -> tuple[dict[str, np.ndarray], dict[str, Axes]]:
    """All arrays of the cells and their axes; a stacked array has the axis ``cell`` before its own."""
    arrays: dict[str, np.ndarray] = {}
    axes: dict[str, Axes] = {}
    for name in sorted({name for record in cells for name in record.arrays}):
        there = {i: record.arrays[name] for i, record in enumerate(cells) if name in record.arrays}
        if len(there) == len(cells) and len({(value.shape, value.dtype) for value in there.values()}) == 1:
            arrays[name] = np.stack(list(there.values()))
            axes[name] = ("cell", *cells[0].axes[name])
        else:
            arrays |= {f"{name}[{i}]": value for i, value in there.items()}
            axes |= {f"{name}[{i}]": cells[i].axes[name] for i in there}
    return arrays, axes
