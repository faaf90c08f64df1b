"""One record of all cells of a grid: what is estimated at each setting, all arrays, and where each cell comes from."""

import contextlib
import dataclasses
import logging
from collections.abc import Sequence

import numpy as np

from icl_lab.lab import flags, records, summaries
from icl_lab.lab.claims import judge
from icl_lab.lab.experiment import Experiment, draw
from icl_lab.lab.plans import Grid
from icl_lab.lab.provenance import provenance
from icl_lab.lab.records import Record, RecordError, digest

OF_A_CELL = ("commit", "versions", "precision", "device", "seconds")
"""What the provenance of a merged record keeps of every cell; the first three decide the numbers."""
log = logging.getLogger("icl_lab")


def merge(grid: Grid, cells: Sequence[Record], seconds: float) -> None:
    """Writes the merged record, its table and its figure; another record in the folder is set aside."""
    record, folder = merged(grid, cells, seconds), grid.folder
    with records.locked(folder, wait=True):
        with contextlib.suppress(RecordError):
            if dict(records.load(folder, arrays=False).config) != dict(record.config):
                records.set_record_aside(folder)
        records.save(record, folder, claims=[])
        records.write_atomically(folder / "summary.csv", summaries.as_csv(record).encode())
        draw(dataclasses.replace(grid.experiment, figures=summaries.figures), record, folder)


def merged(grid: Grid, cells: Sequence[Record], seconds: float = 0.0) -> Record:
    """One record of all cells of a grid, from the records of its runs, in their order. Nothing is judged.

    Returns:
      Metrics ``settings``, one row a setting (cells that differ in the seed alone are pooled, as more members) with
      estimate, interval and number of members of what claims are about; and ``cells``, the metrics of each. Arrays are
      those of the cells, as ``<cell>/<name>``.
    """
    named = {run.folder.name: record for run, record in zip(grid.runs(), cells, strict=True)}
    pools: dict[str, tuple[dict, list[Record]]] = {}
    for run, record in zip(grid.runs(), cells):
        setting = {name: flags.plain(value) for name, value in run.setting.items() if name != "seed"}
        pools.setdefault(digest(setting), (setting, []))[1].append(record)
    metrics = {
        "settings": [{"setting": of, "claims": _of_claims(grid.experiment, pool)} for of, pool in pools.values()],
        "cells": {name: dict(record.metrics) for name, record in named.items()},
    }
    made_by = {name: {key: record.provenance.get(key) for key in OF_A_CELL} for name, record in named.items()}
    if odd := [key for key in OF_A_CELL[:3] if len({digest(one[key]) for one in made_by.values()}) > 1]:
        log.warning("the cells of this record differ in %s: its provenance.json has that of each", ", ".join(odd))
    origin = provenance(seconds, grid.config.seed) | {"device": None, "precision": None, "cells": made_by}
    arrays = {f"{cell}/{name}": array for cell, record in named.items() for name, array in record.arrays.items()}
    axes = {f"{cell}/{name}": those for cell, record in named.items() for name, those in record.axes.items()}
    label = f"{grid.experiment.label(grid.preset, grid.config)}, grid {grid.text()}"
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
