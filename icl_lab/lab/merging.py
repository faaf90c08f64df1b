"""What a grid found: one record of all cells, and a table and a figure, which are pure functions of that record."""

import contextlib
import csv
import dataclasses
import io
import logging
from collections.abc import Mapping, Sequence

import numpy as np

from icl_lab.lab import flags, records
from icl_lab.lab.combining import combine, differing_origins
from icl_lab.lab.execution import draw
from icl_lab.lab.experiment import Experiment
from icl_lab.lab.judging import judge
from icl_lab.lab.meanings import explain
from icl_lab.lab.plans import Grid
from icl_lab.lab.provenance import digest, provenance
from icl_lab.lab.record import Record, RecordError
from icl_lab.lab.style import LEARNERS, Axes, Figure, panels

OVER = "over"  # an empty file: this grid is done over again
OF_A_CELL = ("sources", "versions", "precision", "commit", "device", "seconds")
"""What the provenance of a merged record keeps of every cell."""
LINES = [{"color": line["color"], "marker": mark} for line, mark in zip(LEARNERS.values(), "os^DvPX*")]
"""One a line of a panel; where there are more lines they go round, and there is no legend."""
log = logging.getLogger("icl_lab")


def merge(grid: Grid, cells: Sequence[Record], seconds: float) -> None:
    """Writes the merged record, its table and its figure; another record in the folder is set aside."""
    record, folder = merged(grid, cells, seconds), grid.folder
    with records.locked(folder, wait=True):
        with contextlib.suppress(RecordError):
            if dict(records.load(folder, arrays=False).config) != dict(record.config):
                moved = records.set_record_aside(folder)
                log.warning("%s held another grid; it is kept as %s", folder, ", ".join(path.name for path in moved))
        records.save(record, folder, claims=[])
        records.write_atomically(folder / "summary.csv", as_csv(record).encode())
        draw(dataclasses.replace(grid.experiment, figures=figures), record, folder)


def check_place(grid: Grid) -> None:
    """Raises RecordError where the folder holds files and no grid, a single run, or another binary's grid."""
    folder, of_a_grid = grid.folder, ("cells", "submitit", OVER, "record.json")
    if not folder.is_dir():
        return
    if any(folder.iterdir()) and not any((folder / name).exists() for name in of_a_grid):
        raise RecordError(f"{folder} is not empty and holds no grid; choose another --outdir")
    try:
        record = records.load(folder, arrays=False)
    except RecordError:  # there is none yet, or it will be set aside
        return
    if record.experiment != grid.experiment.name or "grid" not in record.config:
        raise RecordError(f"{folder} holds a run of {record.experiment}; choose another --outdir")


def merged(grid: Grid, cells: Sequence[Record], seconds: float = 0.0) -> Record:
    """One record of all cells of a grid, from the records of its runs, in their order. Nothing is judged.

    Returns:
      Metrics ``settings``, one row a setting (cells that differ in the seed alone are pooled, as more members, unless
      these are ``given``) with estimate, interval and number of members of what claims are about; ``cells``, metrics of
      each; and ``varied``, the setting of each. Arrays are those of the cells, as ``<cell>/<name>``.
    """
    runs = grid.runs()
    named = {run.folder.name: record for run, record in zip(runs, cells, strict=True)}
    varied = {run.folder.name: {name: flags.plain(value) for name, value in run.setting.items()} for run in runs}
    pools: dict[str, tuple[dict, list[Record]]] = {}
    for cell, record in named.items():
        setting = {name: value for name, value in varied[cell].items() if grid.experiment.given or name != "seed"}
        pools.setdefault(digest(setting), (setting, []))[1].append(record)
    metrics = {
        "settings": [{"setting": of, "claims": _of_claims(grid.experiment, pool)} for of, pool in pools.values()],
        "cells": {name: dict(record.metrics) for name, record in named.items()},
        "varied": varied,
    }
    made_by = {name: {key: record.provenance.get(key) for key in OF_A_CELL} for name, record in named.items()}
    if odd := differing_origins(cells):
        log.warning("the cells of this record differ in %s: its provenance.json has that of each", ", ".join(odd))
    origin = provenance(seconds, grid.config.seed) | {"device": None, "precision": None, "cells": made_by}
    whole = combine([_inside(cell, record) for cell, record in named.items()], along="cell")
    label = f"{grid.experiment.label(grid.preset, grid.config)}, grid {grid.text()}"
    return Record(grid.experiment.name, label, grid.as_config(), metrics, whole.arrays, origin, whole.axes)


def _inside(cell: str, record: Record) -> Record:
    """The record with the name of its cell before those of its arrays, and without parameters."""
    arrays = {f"{cell}/{name}": array for name, array in record.arrays.items()}
    axes = {f"{cell}/{name}": those for name, those in record.axes.items()}
    return dataclasses.replace(record, arrays=arrays, axes=axes, params={})


def _of_claims(experiment: Experiment, pool: Sequence[Record]) -> dict[str, dict]:
    """What every claim's statistic is over the members of these records: estimate, interval and members, by claim."""
    by_claim, left_out = {}, experiment.left_out(pool[0].config)
    for claim in experiment.claims:
        # an exact value has no chance in it: it is the same whatever the seed
        sources = pool[:1] if claim.interval == "exact" else pool

        def over_all(_: Record, claim=claim, sources=sources) -> np.ndarray:
            return np.concatenate([np.atleast_1d(claim.statistic(record)) for record in sources])

        pooled = dataclasses.replace(claim, statistic=over_all, control=None, unit="pooled member")
        row = judge(pooled, pool[0], left_out)
        if row["members"]:
            by_claim[claim.id] = {key: row[key] for key in ("estimate", "interval", "members")}
    return by_claim


def estimates(record: Record) -> dict[str, list[tuple[Mapping, Mapping]]]:
    """Every setting and what was estimated there, by claim without its binary."""
    by_claim: dict[str, list[tuple[Mapping, Mapping]]] = {}
    for row in record.metrics["settings"]:
        for name, value in row["claims"].items():
            by_claim.setdefault(name.split(".", 2)[-1], []).append((row["setting"], value))
    return by_claim


def as_csv(record: Record) -> str:
    """Every quantity at every setting as comma-separated values, a column for each setting that varies."""
    names = list(record.metrics["settings"][0]["setting"])
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["quantity", *names, "estimate", "low", "high", "members"])
    for name, present in estimates(record).items():
        for setting, value in present:
            shown = [flags.text(setting[n]) for n in names]
            writer.writerow([name, *shown, value["estimate"], *value["interval"], value["members"]])
    return out.getvalue()


def figures(record: Record) -> dict[str, Figure]:
    """A panel for every quantity: its estimate with interval over the first setting, a line for each of the others."""
    by_claim = estimates(record)
    if not by_claim:
        return {}
    columns = min(4, len(by_claim))
    figure, grid = panels(columns, -(-len(by_claim) // columns))
    for axes, (name, cells) in zip(grid.flat, by_claim.items()):
        axes.set_title(name)
        _panel(axes, cells)
    for axes in grid.flat[len(by_claim) :]:
        axes.set_axis_off()
    return {"summary": figure}


def _panel(axes: Axes, cells: Sequence[tuple[Mapping, Mapping]]) -> None:
    first = next(iter(cells[0][0]), "")
    values = [setting.get(first, "") for setting, _ in cells]
    ticks = list(dict.fromkeys(map(flags.text, values)))
    lines: dict[str, list[tuple[float, float, float, float]]] = {}
    for (setting, estimate), value in zip(cells, values):
        if (centre := estimate["estimate"]) is not None:
            low, high = (centre if end is None else end for end in estimate["interval"])
            others = ", ".join(f"{name}={flags.text(v)}" for name, v in setting.items() if name != first)
            lines.setdefault(others, []).append((ticks.index(flags.text(value)), centre, centre - low, high - centre))
    for i, (name, points) in enumerate(lines.items()):
        x, y, below, above = np.array(points).T
        drawn = axes.errorbar(x, y, [below, above], label=name, capsize=2.5, **LINES[i % len(LINES)])
        explain(drawn[2], "bars are 95\u00a0% intervals of the estimate over members")
    axes.set_xlabel(first)
    axes.set_ylabel("estimate, 95 % interval")
    axes.set_xticks(range(len(ticks)), ticks)
    if 1 < len(lines) <= len(LINES):
        axes.legend()
