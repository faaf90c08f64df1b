"""Figures of ``implicit_finetuning`` that compare fine-tuning with its controls, and what its other figures share."""

from typing import Any

import numpy as np

from experiments.dai.by_encoding import gate_of, learned, network_means, of_networks
from experiments.dai.controls import NUMBERS, counted_layers
from experiments.dai.implicit_finetuning import NUMBER, SIMILARITY
from experiments.panels import SERIES, intervals
from icl_lab.lab import NotRun, Record
from icl_lab.lab.style import Axes, Figure, panels
from icl_lab.prompts.text_tasks import HELD_OUT

ROWS = {
    "finetuning": "fine-tuning (paper)",
    "untrained": "untrained network",
    "trained_embeddings": "trained embeddings alone",
    "text": "trained on text alone",
    "local": "layer-causal GD",
    "local_own_rate": "layer-causal GD, own rate*",
    "local_same_rate": "layer-causal GD, same rate*",
    "full_batch": "one full-batch step",
    "random_update": "noise",
    "wrong_task": "FT on another task",
    "shuffled_labels": "FT on shuffled labels",
    "wrong_labels": "context: wrong labels",
    "wrong_demonstrations": "context: another task",
    "random_context": "context: random tokens",
}
"""Controls change attention outputs as much as the paper's fine-tuning; * marks those whose size is what it is."""
METRICS: dict[str, tuple[str, str | None, str]] = {
    "recall": ("Rec2FTP", "base_rate", "base rate"),
    "sim_aou": ("SimAOU", "floor", "floor of normalising"),
    "sim_aou_raw": ("SimAOU, raw", "random", "random vector"),
    "sim_aou_inside": ("SimAOU along label directions", None, ""),
    "sim_am_after": ("SimAM after FT", "sim_am_before", "before FT"),
    "sim_am_delta": ("SimAM of differences", None, ""),
    "kendall": ("Kendall", "kendall_random", "random weights"),
    "finetuned_ratio": ("size of the change", "in_context_ratio", "of ICL"),
}
"""Panels: the metric, what it has to be above, and the name of that."""
ESSENTIAL = ("finetuning", "shuffled_labels", "wrong_task", "random_update", "wrong_labels", "untrained")
"""Rows of the figure that is shown first."""


def in_words(task: str) -> str:
    """A held-out task by its family, and the data set that it stands for."""
    return next((f"{one.family} ({task})" for one in HELD_OUT if one.stands_for == task), task)


def of_row(record: Record, metric: str, row: str, encoding: str) -> np.ndarray:
    """(M, 6) a number, or (M, 6, L) a similarity in the layers that count, in a row of the table.

    Raises:
      NotRun: for a row or an encoding that was not run.
    """
    rows = record.metrics["rows"]
    if row not in rows:
        raise NotRun(f"row {row}")
    quantity = NUMBER if metric in NUMBERS else SIMILARITY
    return counted_layers(of_networks(record, quantity.at(metric=metric), encoding)[:, :, rows.index(row)], metric)


def legend(axes: Axes, **options: Any) -> None:
    """A legend where something is drawn: of an encoding without a network that learns in context nothing may be."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(**options)


def controls(record: Record, there: list[str]) -> Figure:
    """What SimAOU is compared with: the paper's fine-tuning and five controls."""
    names = [name for name in ESSENTIAL if name in record.metrics["rows"]]
    shown = ("sim_aou" if record.config["normalise"] else "sim_aou_raw", "sim_aou_inside")
    figure, axes = panels(2, shape=0.75)
    for k, (at, metric) in enumerate(zip(axes[0], shown)):
        _draw_rows(at, record, there, metric, names, named=k == 0)
    return figure


def all_controls(record: Record, there: list[str]) -> Figure:
    """A panel for each metric, a line for each row of the table."""
    names = record.metrics["rows"]
    figure, axes = panels(3, 3, shape=0.3 + 0.065 * len(names))
    for k, (at, metric) in enumerate(zip(axes.flat, METRICS)):
        _draw_rows(at, record, there, metric, names, named=k % 3 == 0, faint=False)
        if title := METRICS[metric][2]:
            at.set_title(f"{METRICS[metric][0]} (dash: {title})")
    entries = dict(zip(*reversed(axes.flat[0].get_legend_handles_labels())))
    entries.pop(METRICS["recall"][2], None)
    for at in axes.flat[: len(METRICS)]:
        if at.get_legend():
            at.get_legend().remove()
    last = axes.flat[len(METRICS)]
    last.set_axis_off()
    if entries:
        labels = [label.replace(": ", ":\n") for label in entries]
        last.legend(list(entries.values()), labels, loc="center", labelspacing=1.0)
    return figure


def _draw_rows(
    axes: Axes, record: Record, schemes: list[str], metric: str, names: list[str], named: bool, faint: bool = True
) -> None:
    """Rows of the table by one metric: the mean of networks that learn in context, and where ``faint`` each of them."""
    title, floor, floor_name = METRICS[metric]
    for p, encoding in enumerate(schemes):
        passed, look = learned(record, encoding), SERIES[p]
        heights: list[float] = []
        networks: list[np.ndarray] = []
        for r, name in enumerate(names):
            y = len(names) - 1 - r + 0.36 * ((len(schemes) - 1) / 2 - p)
            values, floors = (
                network_means(of_row(record, one, name, encoding))[passed] if one else np.zeros(0)
                for one in (metric, floor)
            )
            values, floors = values[np.isfinite(values)], floors[np.isfinite(floors)]
            if not values.size:
                continue
            if faint:
                axes.plot(values, np.full(values.size, y), ".", color=look["color"], alpha=0.25, markersize=3)
            heights.append(y)
            networks.append(values)
            if floors.size:
                label = floor_name if not (r or p) else None
                axes.plot([floors.mean()] * 2, [y - 0.18, y + 0.18], color="0.35", linewidth=1.5, label=label)
        style = look | {"linestyle": "", "label": gate_of(record, encoding)}
        size = {"markersize": 4} if faint else {"markersize": 2.5, "capsize": 0, "elinewidth": 0.9}
        intervals(axes, heights, networks, units="networks", lying=True, **style | size)
    axes.set_title(title)
    axes.set_yticks(range(len(names)), [ROWS[name] for name in reversed(names)] if named else [""] * len(names))
    axes.set_ylim(-0.6, len(names) - 0.4)
    if metric == "finetuned_ratio":
        axes.set_xscale("log")
    elif metric not in ("recall", "sim_am_after"):
        axes.axvline(0, color="0.7", linewidth=0.8)
    legend(axes)
