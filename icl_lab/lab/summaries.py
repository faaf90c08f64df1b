"""What a grid found: one table, one figure form. Pure functions of its merged record."""

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.table import Table

from icl_lab.lab.experiment import Experiment
from icl_lab.lab.plans import show
from icl_lab.lab.records import Record
from icl_lab.lab.report import estimate
from icl_lab.lab.style import LEARNERS, panels

LINES = [
    {"color": line["color"], "linestyle": line["linestyle"], "marker": marker}
    for line, marker in zip(LEARNERS.values(), "os^DvP", strict=True)
]
"""One a line of a panel; where there are more lines they go round, and there is no legend."""


def rows(record: Record, kinds: Sequence[str] = ("claims", "outcomes")) -> Iterator[tuple[str, Mapping, Mapping]]:
    """(name, setting, estimate) of everything that was estimated, what claims are about first."""
    settings = record.metrics["settings"]
    for kind in kinds:
        for name in dict.fromkeys(name for row in settings for name in row[kind]):
            yield from ((name, row["setting"], row[kind][name]) for row in settings if name in row[kind])


def table(record: Record) -> Table:
    """Every quantity at every setting: estimate, 95 % interval, members."""
    columns = ("quantity", "setting", "estimate [95 %]", "members")
    found = Table(*columns, title=f"{record.experiment}, {record.preset}", box=SIMPLE_HEAD, title_justify="left")
    before = ""
    for name, setting, value in rows(record):
        shown = "" if name == before else _short(name)
        found.add_row(shown, _label(setting) or "all seeds", estimate(value), str(value["members"]))
        before = name
    return found


def as_csv(record: Record) -> str:
    """The table as comma-separated values, a column for each setting that varies."""
    names = list(record.metrics["settings"][0]["setting"])
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["quantity", *names, "estimate", "low", "high", "members"])
    for name, setting, value in rows(record):
        shown = [show(setting[n]) for n in names]
        writer.writerow([_short(name), *shown, value["estimate"], *value["interval"], value["members"]])
    return out.getvalue()


def figures(record: Record, experiment: Experiment) -> dict[str, Figure]:
    """A panel for every quantity: its estimate with interval over the first setting, a line for each of the others.

    ``claims``: what claims are about, where they hold shaded; ``outcomes``: arrays with one number a member.
    """
    regions = {claim.id: claim.region() for claim in experiment.claims}
    drawn = {}
    for kind in ("claims", "outcomes"):
        found: dict[str, list[tuple[Mapping, Mapping]]] = {}
        for name, setting, value in rows(record, [kind]):
            found.setdefault(name, []).append((setting, value))
        if not found:
            continue
        columns = min(4, len(found))
        figure, grid = panels(columns, -(-len(found) // columns))
        for axes, (name, present) in zip(grid.flat, found.items()):
            lines = _panel(axes, present, regions.get(name))
            axes.set_title(_short(name))
            if axes is grid.flat[0] and 1 < lines <= len(LINES):
                axes.legend()
        for axes in grid.flat[len(found) :]:
            axes.set_axis_off()
        drawn[kind] = figure
    return drawn


def _panel(axes: Axes, present: Sequence[tuple[Mapping, Mapping]], region: tuple[float, float] | None) -> int:
    """Draws one quantity; returns how many lines it has."""
    first = next(iter(present[0][0]), "")
    values = [setting.get(first, "") for setting, _ in present]
    ticks = list(dict.fromkeys(map(show, values)))
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    places = [float(value) if numbers else float(ticks.index(show(value))) for value in values]
    lines: dict[str, list[tuple[float, Mapping]]] = {}
    for (setting, value), x in zip(present, places):
        others = {name: v for name, v in setting.items() if name != first}
        lines.setdefault(_label(others), []).append((x, value))
    for i, (name, points) in enumerate(lines.items()):
        points = sorted(((x, v) for x, v in points if v["estimate"] is not None), key=lambda point: point[0])
        if not points:
            continue
        centre = np.array([v["estimate"] for _, v in points])
        ends = np.array([[v["estimate"] if end is None else end for end in v["interval"]] for _, v in points])
        spread = np.abs(ends.T - centre)
        axes.errorbar([x for x, _ in points], centre, spread, label=name, capsize=2.5, **LINES[i % len(LINES)])
    if region is not None:
        _shade(axes, region)
    axes.set_xlabel(first)
    axes.set_ylabel("estimate, 95 % interval")
    if not numbers:
        axes.set_xticks(range(len(ticks)), ticks)
    elif 0 < 5 * min(places) < max(places):
        axes.set_xscale("log")
    return len(lines)


def _shade(axes: Axes, region: tuple[float, float]) -> None:
    """The region in which the claim holds, as far as the panel shows it."""
    low, high = axes.get_ylim()
    bounds = [bound for bound in region if math.isfinite(bound)]
    low, high = min([low, *bounds]), max([high, *bounds])
    margin = 0.05 * (high - low)
    axes.set_ylim(low - margin, high + margin)
    axes.axhspan(max(region[0], low - margin), min(region[1], high + margin), color="0.85", zorder=0)
    for bound in set(bounds):
        axes.axhline(bound, color="0.3", linewidth=0.8, linestyle=(0, (1, 1)))


def _label(setting: Mapping[str, Any]) -> str:
    """``rate=0.1, noise=0.5``."""
    return ", ".join(f"{name}={show(value)}" for name, value in setting.items())


def _short(name: str) -> str:
    """A claim without its binary."""
    return name.split(".", 2)[-1]
