"""What a grid found: one table, one figure form. Pure functions of its record."""

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.table import Table

from icl_lab.experiment import Experiment
from icl_lab.records import Record, write_atomically
from icl_lab.report import estimate
from icl_lab.style import panels

COLUMNS = ("quantity", "setting", "estimate [95 %]", "members")
LINES = (
    {"color": "#0072B2", "marker": "o", "linestyle": "-"},
    {"color": "#D55E00", "marker": "s", "linestyle": "--"},
    {"color": "#009E73", "marker": "^", "linestyle": "-."},
    {"color": "#CC79A7", "marker": "D", "linestyle": ":"},
    {"color": "#000000", "marker": "v", "linestyle": (0, (4, 1, 1, 1))},
    {"color": "#56B4E9", "marker": "P", "linestyle": (0, (1, 1))},
)
"""One a line of a panel; where there are more lines they go round, and there is no legend."""


def rows(record: Record) -> Iterator[tuple[str, str, Mapping]]:
    """(quantity, setting, estimate) of everything that was estimated, what claims are about first."""
    settings = record.metrics["settings"]
    for kind in ("claims", "outcomes"):
        for name in dict.fromkeys(name for row in settings for name in row[kind]):
            for row in settings:
                if name in row[kind]:
                    yield _short(name), label(row["setting"]), row[kind][name]


def table(record: Record) -> Table:
    """Every quantity at every setting: estimate, 95 % interval, members."""
    found = Table(*COLUMNS, title=f"{record.experiment}, {record.preset}", box=SIMPLE_HEAD, title_justify="left")
    before = ""
    for quantity, setting, value in rows(record):
        found.add_row("" if quantity == before else quantity, setting, estimate(value), str(value["members"]))
        before = quantity
    return found


def as_csv(record: Record) -> str:
    """The table as comma-separated values, a column for each setting that varies."""
    names = list(record.metrics["settings"][0]["setting"])
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["quantity", *names, "estimate", "low", "high", "members"])
    for kind in ("claims", "outcomes"):
        for row in record.metrics["settings"]:
            for name, value in row[kind].items():
                setting = [_value(row["setting"][n]) for n in names]
                writer.writerow([_short(name), *setting, value["estimate"], *value["interval"], value["members"]])
    return out.getvalue()


def figures(record: Record, experiment: Experiment) -> dict[str, Figure]:
    """A panel for every quantity: its estimate with interval over the first setting, a line for each of the others.

    ``claims``: what claims are about, where they hold shaded; ``outcomes``: arrays with one value a member.
    """
    settings = record.metrics["settings"]
    regions = {claim.id: claim.region() for claim in experiment.claims}
    drawn = {}
    for kind in ("claims", "outcomes"):
        names = list(dict.fromkeys(name for row in settings for name in row[kind]))
        if not names:
            continue
        columns = min(4, len(names))
        figure, grid = panels(columns, -(-len(names) // columns))
        for axes, name in zip(grid.flat, names):
            present = [(row["setting"], row[kind][name]) for row in settings if name in row[kind]]
            lines = _panel(axes, present, regions.get(name))
            axes.set_title(_short(name))
            if axes is grid.flat[0] and 1 < lines <= len(LINES):
                axes.legend()
        for axes in grid.flat[len(names) :]:
            axes.set_axis_off()
        drawn[kind] = figure
    return drawn


def write(record: Record, folder: Path) -> Path:
    """Writes the table to ``folder/summary.csv``; returns its path."""
    path = folder / "summary.csv"
    write_atomically(path, as_csv(record).encode())
    return path


def label(setting: Mapping[str, Any]) -> str:
    """``rate=0.1, noise=0.5``."""
    return ", ".join(f"{name}={_value(value)}" for name, value in setting.items()) or "all seeds"


def _panel(axes: Axes, present: Sequence[tuple[Mapping, Mapping]], region: tuple[float, float] | None) -> int:
    """Draws one quantity; returns how many lines it has."""
    first = next(iter(present[0][0]), "")
    ticks = list(dict.fromkeys(_value(setting.get(first, "")) for setting, _ in present))
    places, is_number = _places([setting.get(first, "") for setting, _ in present], ticks)
    lines: dict[str, list[tuple[float, Mapping]]] = {}
    for (setting, value), x in zip(present, places):
        others = {name: v for name, v in setting.items() if name != first}
        lines.setdefault(label(others) if others else "", []).append((x, value))
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
    if is_number:
        if _geometric(sorted(set(places))):
            axes.set_xscale("log")
    else:
        axes.set_xticks(range(len(ticks)), ticks)
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


def _places(values: Sequence, ticks: Sequence[str]) -> tuple[list[float], bool]:
    """Where values stand on the axis: at themselves if they are numbers, else side by side."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return [float(value) for value in values], True
    return [float(ticks.index(_value(value))) for value in values], False


def _geometric(values: Sequence[float]) -> bool:
    """Whether positive values are spread over more than a factor of five."""
    return values[0] > 0 and values[-1] / values[0] > 5


def _short(name: str) -> str:
    """A claim without its binary."""
    return name.split(".", 2)[-1]


def _value(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
