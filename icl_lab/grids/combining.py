"""One record of all cells of a grid: what is estimated at each setting, and all arrays."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from icl_lab import flags
from icl_lab.axes import MEMBER, Axes, of_members, resolved
from icl_lab.claims import judge, t_interval
from icl_lab.experiment import Experiment
from icl_lab.grids import cells as of_grid
from icl_lab.grids.cells import POOLED, Cell, Grid, with_grid
from icl_lab.grids.origins import of_cells
from icl_lab.provenance import provenance
from icl_lab.records import Record, digest


def combined(
    experiment: Experiment, cells: Sequence[Cell], records: Sequence[Record]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The metrics and arrays of one record of all cells.

    Args:
      experiment: the binary.
      cells: of the grid.
      records: one a cell, in this order.

    Returns:
      Metrics ``settings``, one row a setting (cells that differ in the seed alone are pooled) with estimate, interval
      and number of members of what claims are about and of every array with one value a member; and ``cells``, the
      metrics of each. An array that has one shape in all cells is stacked, (C, ...); others are kept as ``name[cell]``.
    """
    pools: dict[str, tuple[dict, list[Record]]] = {}
    for cell, record in zip(cells, records, strict=True):
        setting = {name: flags.plain(value) for name, value in cell.setting.items() if name != POOLED}
        pools.setdefault(digest(setting), (setting, []))[1].append(record)
    metrics = {
        "settings": [
            {"setting": setting, "claims": of_claims(experiment, pool), "outcomes": of_arrays(pool, records)}
            for setting, pool in pools.values()
        ],
        "cells": [{"cell": c.label, "metrics": dict(r.metrics)} for c, r in zip(cells, records)],
    }
    return metrics, _stacked(records)


def merged(
    experiment: Experiment, preset: str, config: Any, grid: Grid, records: Sequence[Record], seconds: float = 0.0
) -> Record:
    """One record of all cells of a grid, from the records of the cells in the order of ``cells``.

    Args:
      experiment: the binary.
      preset: which preset ``config`` started from.
      config: the configuration that the cells change.
      grid: what varies.
      records: of the cells.
      seconds: that it took.

    Returns:
      The record; its provenance says of every cell where it comes from (``origins.of_cells``).
    """
    chosen, whole = of_grid.cells(grid, config, experiment), with_grid(config, grid)
    metrics, arrays = combined(experiment, chosen, records)
    label = f"{experiment.label(preset, config)}, grid {whole.grid}"
    origin = of_cells([cell.label for cell in chosen], records, provenance(seconds, config.seed))
    axes = resolved(axes_of_cells(experiment.axes, grid), arrays, config.members)
    return Record(experiment.name, label, flags.to_json(whole), metrics, arrays, origin, axes)


def axes_of_cells(axes: Mapping[str, Axes], grid: Grid) -> dict[str, Axes]:
    """The axes of the arrays of one record of all cells, by pattern, from those of the arrays of each.

    Stacked arrays have the axis ``cell`` before their own. What is kept as ``name[3]`` has axes ``cell_3_...``, since
    their lengths may differ between cells.
    """
    member = "cell_member" if "members" in grid else MEMBER  # the configuration of the whole has another number
    apart = {f"{key}[*]": tuple(f"cell_{{{key.count('*')}}}_{name}" for name in names) for key, names in axes.items()}
    stacked = {key: ("cell", *(member if name == MEMBER else name for name in names)) for key, names in axes.items()}
    return apart | stacked


def of_claims(experiment: Experiment, pool: Sequence[Record]) -> dict[str, dict]:
    """What every claim's statistic is over the members of these records: estimate, interval and members, by claim."""
    found, left_out = {}, experiment.left_out(pool[0].config)
    for claim in experiment.claims:

        def over_all(_: Record, claim=claim) -> np.ndarray:
            return np.concatenate([np.atleast_1d(claim.statistic(record)) for record in pool])

        one_value = claim.interval == "exact" and len(pool) > 1  # no chance in it: the same whatever the seed
        statistic = claim.statistic if one_value else over_all
        row = judge(dataclasses.replace(claim, statistic=statistic, control=None), pool[0], left_out)
        if row["members"]:
            found[claim.id] = {key: row[key] for key in ("estimate", "interval", "members")}
    return found


def of_arrays(pool: Sequence[Record], everywhere: Sequence[Record]) -> dict[str, dict]:
    """Mean, interval and members of every array of these records that has one number a member, by name.

    An array that is the same in all cells (``everywhere``) of several is left out: no setting changes it.
    """
    found = {}
    for name in sorted(set.intersection(*(set(record.arrays) for record in pool))):
        arrays = [record.arrays[name] for record in pool]
        fixed = len(everywhere) > 1 and all(
            name in r.arrays and np.array_equal(r.arrays[name], arrays[0], equal_nan=arrays[0].dtype.kind == "f")
            for r in everywhere
        )
        if not fixed and all(of_members(r.axes.get(name, ())) and a.dtype.kind == "f" for a, r in zip(arrays, pool)):
            values = np.concatenate(arrays).astype(float)
            values = values[np.isfinite(values)]
            if values.size:
                mean, interval = t_interval(values)
                bounds = [b if math.isfinite(b) else None for b in interval]
                found[name] = {"estimate": mean, "interval": bounds, "members": int(values.size)}
    return found


def _stacked(records: Sequence[Record]) -> dict[str, np.ndarray]:
    names = sorted({name for record in records for name in record.arrays})
    arrays: dict[str, np.ndarray] = {}
    for name in names:
        there = {i: record.arrays[name] for i, record in enumerate(records) if name in record.arrays}
        if len(there) == len(records) and len({(value.shape, value.dtype) for value in there.values()}) == 1:
            arrays[name] = np.stack(list(there.values()))
        else:
            arrays |= {f"{name}[{i}]": value for i, value in there.items()}
    return arrays
