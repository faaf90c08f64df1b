"""Figures of ``implicit_finetuning``: accuracies, demonstrations, metrics against controls, learning rates, order."""

from typing import Any

import numpy as np

from experiments.dai.common import encodings
from experiments.dai.implicit_finetuning_claims import learns_in_context, network_means, of_row
from experiments.panels import ABOVE, SERIES
from icl_lab.lab import Record
from icl_lab.lab.style import THEORY, Figure, band, panels

SETTINGS: dict[str, dict[str, Any]] = {
    "zero_shot": {"color": "#BBBBBB", "linestyle": ":", "marker": "v", "label": "ZSL"},
    "finetuned": {"color": "#D55E00", "linestyle": "--", "marker": "s", "label": "FT"},
    "in_context": {"color": "#0072B2", "linestyle": "-", "marker": "o", "label": "ICL"},
}
ROWS = {
    "finetuning": "fine-tuning (paper)",
    "untrained": "untrained network",
    "trained_embeddings": "trained embeddings alone",
    "local": "layer-causal GD, own rate",
    "local_same_rate": "layer-causal GD, same rate",
    "full_batch": "one full-batch step",
    "random_update": "noise of equal norm",
    "wrong_task": "FT on another task",
    "shuffled_labels": "FT on shuffled labels",
    "wrong_labels": "context: wrong labels",
    "wrong_demonstrations": "context: another task",
    "random_context": "context: random tokens",
}
METRICS = {
    "recall": ("Rec2FTP", "base_rate", "base rate"),
    "sim_aou": ("SimAOU", "floor", "floor of normalising"),
    "sim_aou_raw": ("SimAOU, raw", "random", "random vector"),
    "sim_am_after": ("SimAM after FT", "sim_am_before", "before FT"),
    "sim_am_delta": ("SimAM of differences", None, ""),
    "kendall": ("Kendall", "kendall_random", "random weights"),
}
"""Panels of the table: the metric, what it has to be above, and the name of that."""


def figures(record: Record) -> dict[str, Figure]:
    """All figures, with a row for each position encoding that was run."""
    there = encodings(record)
    return {
        "accuracy": _accuracy(record, there),
        "demonstrations": _demonstrations(record, there),
        "controls": _controls(record, there),
        "rates": _rates(record, there),
        "order": _order(record, there),
    }


def _accuracy(record: Record, there: list[str]) -> Figure:
    """Bars are means over networks, points are networks; ticks the mean over all sets, without selection."""
    figure, axes = panels(1, len(there), width=7.5, height=2.7)
    tasks = record.metrics["tasks"]
    for at, positions in zip(axes[:, 0], there):
        for i, (name, look) in enumerate(SETTINGS.items()):
            values, x = record[f"{positions}/{name}"], np.arange(len(tasks)) + 0.27 * (i - 1)
            at.bar(x, values.mean(0), 0.25, color=look["color"], alpha=0.55, label=look["label"])
            at.plot(np.repeat(x[None], len(values), 0), values, "o", color="black", markersize=2)
            if name != "zero_shot":
                every = record[f"{positions}/by_set/{name}"].mean((0, 2))
                label = "mean over all sets" if name == "finetuned" else None
                at.plot(x, every, linestyle="", marker="_", markersize=11, color="black", label=label)
        at.set_xticks(range(len(tasks)), [f"for {task}" for task in tasks])
        at.set_ylabel(f"accuracy ({positions})")
        at.set_ylim(0, 1.03)
    axes[0, 0].legend(ncols=4, **ABOVE)
    return figure


def _demonstrations(record: Record, there: list[str]) -> Figure:
    tasks, config = record.metrics["tasks"], record.config
    figure, axes = panels(len(tasks), len(there), width=2.2, height=2.2)
    counts = [0, *config["counts"], config["demonstrations"]]
    for row, positions in zip(axes, there):
        for t, (at, task) in enumerate(zip(row, tasks)):
            for name in ("finetuned", "in_context"):
                band(at, np.array(counts), record[f"{positions}/curve/{name}"][:, t], **SETTINGS[name])
            at.set_title(f"for {task} ({positions})")
            at.set_xlabel("demonstrations")
            at.set_ylim(0, 1.03)
        row[0].set_ylabel("accuracy")
    axes[0, 0].legend()
    return figure


def _controls(record: Record, there: list[str]) -> Figure:
    """A panel for each metric, a line for each row of the table, a point for each network.

    A hollow point is a network that does not learn in context.
    """
    names = record.metrics["rows"]
    figure, axes = panels(3, 2, width=3.6, height=0.8 + 0.23 * len(names))
    for i, (at, (metric, (title, floor, floor_name))) in enumerate(zip(axes.ravel(), METRICS.items())):
        for p, positions in enumerate(there):
            passed = learns_in_context(record, positions)
            for r, name in enumerate(names):
                y = len(names) - 1 - r + 0.16 * (len(there) - 1) * (1 - 2 * p)
                values = network_means(of_row(record, metric, name, positions))
                look = {"color": SERIES[p]["color"], "marker": SERIES[p]["marker"], "linestyle": "", "markersize": 4}
                label = f"{positions} positions" if r == 0 else None
                at.plot(values[passed], np.full(passed.sum(), y), **look, label=label)
                at.plot(values[~passed], np.full((~passed).sum(), y), **look, fillstyle="none")
                if floor:
                    under = network_means(of_row(record, floor, name, positions))
                    low = float(np.nanmean(under)) if np.isfinite(under).any() else np.nan
                    first = r == 0 and p == 0
                    at.plot([low, low], [y - 0.3, y + 0.3], color="0.45", label=floor_name if first else None)
        at.set_title(title)
        at.set_yticks(range(len(names)), [ROWS[name] for name in reversed(names)] if i % 3 == 0 else [])
        at.set_ylim(-0.6, len(names) - 0.4)
        if metric not in ("recall", "sim_am_after"):
            at.axvline(0, color="0.7", linewidth=0.8)
        at.legend(ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.07), fontsize=7)
    return figure


def _rates(record: Record, there: list[str]) -> Figure:
    """Over the whole grid, not at the chosen rate alone; mean over tasks and layers."""
    normalised = record.config["normalise"]
    columns = {
        "accuracy": {"development": "FT"},
        "SimAOU" if normalised else "SimAOU, raw": (
            {"by_rate/sim_aou": "FT", "by_rate/floor": "floor", "by_rate/random": "random vector"}
            if normalised
            else {"by_rate/sim_aou_raw": "FT"}
        ),
        "SimAM": {
            "by_rate/sim_am_after": "after",
            "by_rate/sim_am_before": "before",
            "by_rate/sim_am_delta": "differences",
        },
        "Kendall": {"by_rate/kendall": "FT", "by_rate/kendall_random": "random weights"},
        "size of the update": {"by_rate/finetuned_ratio": "FT", "by_rate/in_context_ratio": "ICL"},
    }
    figure, axes = panels(len(columns), len(there), width=2.7, height=2.4)
    rates = np.asarray(record.config["rates"])
    order = np.argsort(rates)
    for row, positions in zip(axes, there):
        for at, (title, lines) in zip(row, columns.items()):
            for (name, label), look in zip(lines.items(), SERIES):
                values = _over_tasks(record[f"{positions}/{name}"])[:, order]
                if np.isfinite(values).any():
                    look = {key: look[key] for key in ("color", "linestyle")}
                    band(at, rates[order], values, label=label, **look)
            chosen = record[f"{positions}/rate"].ravel()
            at.plot(chosen, np.full(len(chosen), 0.01), "|", color="0.4", transform=at.get_xaxis_transform())
            at.set_xscale("log")
            at.set_title(f"{title} ({positions})")
            at.set_xlabel("learning rate (ticks: chosen)")
            if title == "size of the update":
                at.set_yscale("log")
            at.legend(fontsize=7)
    return figure


def _over_tasks(values: np.ndarray) -> np.ndarray:
    """(M, 6, R) or (M, 6, R, L) -> (M, R)."""
    by_rate = np.moveaxis(values, 2, 1)
    return network_means(by_rate.reshape(-1, *by_rate.shape[2:])).reshape(by_rate.shape[:2])


def _order(record: Record, there: list[str]) -> Figure:
    learners = {"in_context": "ICL", "sequential": "FT, one step an example", "full_batch": "FT, one step"}
    measures = {"log_probability": "std of log-probability (nats)", "accuracy": "std of accuracy"}
    figure, axes = panels(2, width=3.4, height=2.4)
    for at, (measure, label) in zip(axes[0], measures.items()):
        for p, positions in enumerate(there):
            values = [network_means(record[f"{positions}/order/{name}/{measure}"]) for name in learners]
            x = np.arange(len(learners)) + 0.12 * (len(there) - 1) * (2 * p - 1)
            look = {"color": SERIES[p]["color"], "marker": SERIES[p]["marker"], "linestyle": ""}
            at.plot(np.repeat(x[:, None], len(values[0]), 1), np.stack(values), alpha=0.5, markersize=3, **look)
            at.plot(x, [np.nanmean(v) if np.isfinite(v).any() else np.nan for v in values], markersize=6, **look,
                    label=f"{positions} positions")  # fmt: skip
        at.axhline(0, **THEORY)
        at.set_xticks(range(len(learners)), [name.replace(", ", ",\n") for name in learners.values()])
        at.set_ylabel(label)
        at.legend()
    return figure
