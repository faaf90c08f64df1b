"""One record of all cells of a grid: what is estimated at each setting, all arrays, and where each cell comes from."""

import collections
import contextlib
import dataclasses
import json
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

POOLED = "seed"
"""Cells that differ in the seed alone are more members of one setting."""
OF_A_CELL = ("commit", "versions", "device", "precision", "seconds")
"""What the provenance of a merged record keeps of every cell."""
ALIKE = ("commit", "versions", "precision")
"""What decides the numbers: cells that differ in it are named, the first ``SHOWN`` of them."""
SHOWN = 8

log = logging.getLogger("icl_lab")


def merge(grid: Grid, cells: Sequence[Record], seconds: float) -> Record:
    """Writes the merged record, its table and its figures; a record of another grid in the folder is set aside.

    Raises:
      LockedError: where another process has been at work in the folder for a minute.
    """
    record, folder = merged(grid, cells, seconds), grid.folder()
    with records.locked(folder, patience=60.0):
        with contextlib.suppress(RecordError):
            if dict(records.load(folder, arrays=False).config) != dict(record.config):
                aside = records.set_record_aside(folder)
                log.warning("the record of another grid is kept as %s", ", ".join(path.name for path in aside))
        records.save(record, folder, claims=[])
        records.write_atomically(folder / "summary.csv", summaries.as_csv(record).encode())
        figures = lambda whole: summaries.figures(whole, grid.experiment)  # noqa: E731
        draw(dataclasses.replace(grid.experiment, figures=figures), record, folder)
    return record


def merged(grid: Grid, cells: Sequence[Record], seconds: float = 0.0) -> Record:
    """One record of all cells of a grid, from the records of its runs, in their order. Nothing is judged.

    Returns:
      Metrics ``settings``, one row a setting (cells that differ in the seed alone are pooled) with estimate, interval
      and number of members of what claims are about and of every array whose only axis is one of members; and
      ``cells``, the metrics of each. An array that has one shape in all cells is stacked, (C, ...); others are kept as
      ``name[cell]``.
    """
    runs = grid.runs()
    pools: dict[str, tuple[dict, list[Record]]] = {}
    for run, record in zip(runs, cells, strict=True):
        setting = {name: flags.plain(value) for name, value in run.setting.items() if name != POOLED}
        pools.setdefault(digest(setting), (setting, []))[1].append(record)
    metrics = {
        "settings": [
            {"setting": setting, "claims": of_claims(grid.experiment, pool), "outcomes": of_arrays(pool, cells)}
            for setting, pool in pools.values()
        ],
        "cells": [{"cell": run.name, "metrics": dict(record.metrics)} for run, record in zip(runs, cells)],
    }
    label = f"{grid.experiment.label(grid.preset, grid.config)}, grid {grid.text()}"
    origin = of_cells([run.name for run in runs], cells, provenance(seconds, grid.config.seed))
    arrays, axes = _stacked(cells)
    return Record(grid.experiment.name, label, grid.as_config(), metrics, arrays, origin, axes)


def of_claims(experiment: Experiment, pool: Sequence[Record]) -> dict[str, dict]:
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


def of_arrays(pool: Sequence[Record], everywhere: Sequence[Record]) -> dict[str, dict]:
    """Mean, interval and members of every array of these records that has one number a member, by name.

    An array that is identical in all cells (``everywhere``) of several is skipped: it is an axis, not a result.
    """
    found = {}
    for name in sorted(set.intersection(*(set(record.arrays) for record in pool))):
        arrays = [record.arrays[name] for record in pool]
        fixed = len(everywhere) > 1 and all(
            name in r.arrays and np.array_equal(r.arrays[name], arrays[0], equal_nan=arrays[0].dtype.kind == "f")
            for r in everywhere
        )
        if not fixed and arrays[0].dtype.kind == "f" and all(of_members(r.axes[name]) for r in pool):
            values = np.concatenate(arrays).astype(float)
            values = values[np.isfinite(values)]
            if values.size:
                mean, interval = t_interval(values)
                bounds = [b if math.isfinite(b) else None for b in interval]
                found[name] = {"estimate": mean, "interval": bounds, "members": int(values.size)}
    return found


def of_cells(names: Sequence[str], cells: Sequence[Record], parent: Mapping[str, Any]) -> dict[str, Any]:
    """The provenance of one record of all cells; a warning names the cells that another code made.

    Returns:
      That of the merging process (``parent``), but for device and precision, with which no cell ran: these are those of
      the cells, where all agree. ``cells`` has ``OF_A_CELL`` of each.
    """
    whole = {key: value for key, value in parent.items() if key not in ("device", "precision")}
    for key in OF_A_CELL:
        values = [json.dumps(record.provenance.get(key), sort_keys=True) for record in cells]
        ((usual, count),) = collections.Counter(values).most_common(1)
        if key in ("device", "precision") and count == len(cells) and usual != "null":
            whole[key] = cells[0].provenance[key]
        odd = [name for name, value in zip(names, values) if value != usual]
        if odd and key in ALIKE:
            more = [f"and {len(odd) - SHOWN} more"] if len(odd) > SHOWN else []
            log.warning("most cells of this record agree in %s, but not %s", key, ", ".join(odd[:SHOWN] + more))
    whole["cells"] = [
        {"cell": name} | {key: record.provenance[key] for key in OF_A_CELL if key in record.provenance}
        for name, record in zip(names, cells)
    ]
    return whole


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
