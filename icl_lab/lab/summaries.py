"""What a grid found: one table, one figure. Pure functions of its merged record."""

import csv
import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from icl_lab.lab.plans import show
from icl_lab.lab.records import Record
from icl_lab.lab.style import LEARNERS, Axes, Figure, panels

LINES = [{"color": line["color"], "marker": mark} for line, mark in zip(LEARNERS.values(), "os^DvPX*")]
"""One a line of a panel; where there are more lines they go round, and there is no legend."""


def rows(record: Record) -> Iterator[tuple[str, Mapping, Mapping]]:
    """(claim without its binary, setting, estimate) of everything that was estimated."""
    settings = record.metrics["settings"]
    for name in dict.fromkeys(name for row in settings for name in row["claims"]):
        yield from ((name.split(".", 2)[-1], r["setting"], r["claims"][name]) for r in settings if name in r["claims"])


def as_csv(record: Record) -> str:
    """Every quantity at every setting as comma-separated values, a column for each setting that varies."""
    names = list(record.metrics["settings"][0]["setting"])
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["quantity", *names, "estimate", "low", "high", "members"])
    for name, setting, value in rows(record):
        shown = [show(setting[n]) for n in names]
        writer.writerow([name, *shown, value["estimate"], *value["interval"], value["members"]])
    return out.getvalue()


def figures(record: Record) -> dict[str, Figure]:
    """A panel for every quantity: its estimate with interval over the first setting, a line for each of the others."""
    by_name = itertools.groupby(rows(record), key=lambda row: row[0])
    found = [(name, [(setting, value) for _, setting, value in group]) for name, group in by_name]
    if not found:
        return {}
    columns = min(4, len(found))
    figure, grid = panels(columns, -(-len(found) // columns))
    for axes, (name, present) in zip(grid.flat, found):
        axes.set_title(name)
        _panel(axes, present)
    for axes in grid.flat[len(found) :]:
        axes.set_axis_off()
    return {"summary": figure}


def _panel(axes: Axes, present: Sequence[tuple[Mapping, Mapping]]) -> None:
    first = next(iter(present[0][0]), "")
    values = [setting.get(first, "") for setting, _ in present]
    ticks = list(dict.fromkeys(map(show, values)))
    lines: dict[str, list[tuple[float, float, float, float]]] = {}
    for (setting, found), value in zip(present, values):
        if (centre := found["estimate"]) is not None:
            low, high = (centre if end is None else end for end in found["interval"])
            others = _label({name: v for name, v in setting.items() if name != first})
            lines.setdefault(others, []).append((ticks.index(show(value)), centre, centre - low, high - centre))
    for i, (name, points) in enumerate(lines.items()):
        x, y, below, above = np.array(points).T
        axes.errorbar(x, y, [below, above], label=name, capsize=2.5, **LINES[i % len(LINES)])
    axes.set_xlabel(first)
    axes.set_ylabel("estimate, 95 % interval")
    axes.set_xticks(range(len(ticks)), ticks)
    if 1 < len(lines) <= len(LINES):
        axes.legend()


def _label(setting: Mapping[str, Any]) -> str:
    """``rate=0.1, noise=0.5``."""
    return ", ".join(f"{name}={show(value)}" for name, value in setting.items())
