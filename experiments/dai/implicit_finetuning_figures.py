"""Figures of ``implicit_finetuning``: accuracies, metrics by task, controls, rates, what carries the answer."""

from typing import Any

import numpy as np

from experiments.dai import implicit_finetuning as binary
from experiments.dai.analysis import present_mean
from experiments.dai.by_encoding import gate_of, learned, network_means
from experiments.dai.common import ACCURACY, encodings
from experiments.dai.controls_figures import METRICS, all_controls, controls, in_words, legend, of_row
from experiments.panels import ABOVE, SERIES, with_ends
from icl_lab.lab import Record
from icl_lab.lab.style import SPARSE, THEORY, Axes, Figure, band, panels

SETTINGS: dict[str, dict[str, Any]] = {
    "zero_shot": {"color": "#BBBBBB", "linestyle": ":", "marker": "v", "label": "ZSL"},
    "finetuned": {"color": "#D55E00", "linestyle": "--", "marker": "s", "label": "FT"},
    "in_context": {"color": "#0072B2", "linestyle": "-", "marker": "o", "label": "ICL"},
}
LEVELS = (("chance", ":", "chance"), ("ceiling", "--", "Bayes answer"))
BARS = {"zero_shot": "zero_shot", "finetuned_free": "finetuned", "in_context": "in_context"}
BY_TASK = ("recall", "sim_aou", "sim_am_after", "kendall")
"""Tables 2 to 5."""
DEVIATION = "marks are means over networks that learn in context, bars one standard deviation to either side"
READINGS = {
    "in_context": ("in_context", "ICL"), "finetuned": ("finetuned", "FT"),
    "finetuned_sized": ("finetuned", "FT, as large as ICL"),
}  # fmt: skip
"""The setting whose colour each has, and its label."""


def figures(record: Record) -> dict[str, Figure]:
    """All figures, with a row or a marker for each position encoding that was run."""
    schemes = encodings(record)
    drawn = (_accuracy, _by_task, _demonstrations, controls, all_controls, _rates, _carried, _order)
    return {one.__name__.lstrip("_"): one(record, schemes) for one in drawn}


def _points(axes: Axes, x: np.ndarray, values: np.ndarray, passed: np.ndarray, **look: Any) -> None:
    """A small point for every network, (M, X); hollow where it fails the gate."""
    for mask, fill in ((passed, "full"), (~passed, "none")):
        if mask.any():
            grid = np.repeat(x[None], mask.sum(), 0)
            axes.plot(grid.T, values[mask].T, linestyle="", markersize=2.5, fillstyle=fill, markeredgewidth=0.6, **look)


def _tasks(axes: Axes, tasks: list[str]) -> None:
    axes.set_xticks(range(len(tasks)), [in_words(task) for task in tasks], rotation=30)


def _accuracy(record: Record, schemes: list[str]) -> Figure:
    """Bars are means over networks that learn in context and all sets; points are networks."""
    figure, axes = panels(1, len(schemes), shape=0.31)
    tasks = record.metrics["tasks"]
    for at, encoding in zip(axes[:, 0], schemes):
        passed = learned(record, encoding)
        for i, (name, setting) in enumerate(BARS.items()):
            look, values = SETTINGS[setting], ACCURACY(record, positions=encoding, learner=name)
            x = np.arange(len(tasks)) + 0.27 * (i - 1)
            _points(at, x, values, passed, marker=look["marker"], color=look["color"], alpha=0.3)
            at.plot(x, network_means(values[passed].T), "_", color="black", markersize=12, label=None if i else "mean")
            at.plot([], [], look["marker"], color=look["color"], label=look["label"])
        for name, dash, label in LEVELS:
            means = ACCURACY(record, positions=encoding, learner=name).mean(0)
            at.hlines(means, np.arange(len(tasks)) - 0.45, np.arange(len(tasks)) + 0.45, "0.3", dash, label=label)
        _tasks(at, tasks)
        at.set(title=f"{gate_of(record, encoding)} (hollow: the others)", ylabel="accuracy", ylim=(0, 1.03))
    axes[0, 0].legend()
    return figure


def _by_task(record: Record, schemes: list[str]) -> Figure:
    """Tables 2 to 5: mean over networks that learn in context, with the standard deviation between them."""
    figure, axes = panels(len(BY_TASK), len(schemes))
    tasks = record.metrics["tasks"]
    for row, encoding in zip(axes, schemes):
        passed = learned(record, encoding)
        for at, name in zip(row, BY_TASK):
            title, floor, floor_name = METRICS[name]
            for metric, label, look, shift in (
                (name, "FT", SERIES[0], -0.1),
                (floor or name, floor_name, SERIES[1], 0.1),
            ):
                values = of_row(record, metric, "finetuning", encoding)[passed]
                by_task = present_mean(values, tuple(range(2, values.ndim)))  # (M, 6)
                if passed.any():
                    means = present_mean(by_task, 0)
                    spread = np.sqrt(present_mean((by_task - means) ** 2, 0))
                    ends = np.stack([means - spread, means + spread])
                    style = look | {"linestyle": "", "markersize": 4, "label": label}
                    with_ends(at, np.arange(len(tasks)) + shift, means, ends, DEVIATION, **style)
            at.set_title(f"{title}, {encoding}")
            _tasks(at, tasks)
            at.axhline(0, color="0.7", linewidth=0.6)
            legend(at, ncols=2, **ABOVE)
    for column in axes.T:
        low, high = zip(*(at.get_ylim() for at in column))
        for at in column:
            at.set_ylim(min(low), max(high))
    return figure


def _demonstrations(record: Record, schemes: list[str]) -> Figure:
    tasks, config = record.metrics["tasks"], record.config
    figure, axes = panels(len(tasks), len(schemes), shape=0.8)
    counts = np.array([0, *config["counts"], config["demonstrations"]])
    for row, encoding in zip(axes, schemes):
        passed = learned(record, encoding)
        for t, (at, task) in enumerate(zip(row, tasks)):
            for name in ("finetuned", "in_context"):
                curves = binary.CURVE(record, positions=encoding, learner=name)[:, t]
                if passed.any():
                    band(at, counts, curves[passed], **SETTINGS[name])
                failing = at.plot(counts, curves[~passed].T, color=SETTINGS[name]["color"], linewidth=0.4)
                if failing and name == "in_context":
                    failing[0].set_label("fails the gate")
            for name, dash, label in LEVELS:
                mean = ACCURACY(record, positions=encoding, learner=name)[:, t].mean()
                at.axhline(mean, color="0.3", linestyle=dash, linewidth=0.8, label=label)
            at.set(title=f"{in_words(task)}, {encoding}", xlabel="demonstrations", xticks=counts, ylim=(0, 1.03))
        row[0].set_ylabel("accuracy")
    axes[0, -1].legend()
    return figure


def _rates(record: Record, schemes: list[str]) -> Figure:
    """Over the whole grid, on development questions; mean over tasks, sets and layers.

    A panel for each metric; encodings differ in colour and marker, what a metric is compared with in its dash. Only the
    first line of each has a band.
    """
    first = "SimAOU" if record.config["normalise"] else "SimAOU, raw"
    main = {"sim_aou": "FT", "floor": "floor", "random": "random vector"}
    columns = {
        "log-probability": {"log_probability": "FT"},
        first: main if record.config["normalise"] else {"sim_aou_raw": "FT"},
        "SimAM": {"sim_am_after": "after", "sim_am_before": "before", "sim_am_delta": "differences"},
        "Kendall": {"kendall": "FT", "kendall_random": "random weights"},
        "size of the change": {"finetuned_ratio": "FT", "in_context_ratio": "ICL"},
    }
    figure, axes = panels(3, 2, shape=0.85)
    for at, (title, lines) in zip(axes.flat, columns.items()):
        for encoding, look in zip(schemes, SERIES):
            _over_rates(at, record, encoding, list(lines), look)
        for (_, dash), label in zip(DASHES, lines.values()):
            at.plot([], [], color="0.4", linestyle=dash, label=label)
        at.set(xscale="log", title=title, xlabel="learning rate")
        if title == "size of the change" and any(line.get_ydata().size for line in at.lines):
            at.set_yscale("log")
        if title == "log-probability":
            at.set_ylim(bottom=max(-4.0, at.get_ylim()[0]))
        at.legend(**ABOVE)
    last = axes.flat[len(columns)]
    last.set_axis_off()
    for encoding, look in zip(schemes, SERIES):
        last.plot(
            [], [], color=look["color"], marker=look["marker"], label=gate_of(record, encoding).replace(":", ":\n")
        )
    last.plot([], [], "|", color="0.4", label="rates chosen")
    last.legend(loc="center", labelspacing=1.0)
    return figure


DASHES = ((SPARSE, "-"), ({"marker": ""}, "--"), ({"marker": ""}, ":"))
"""Markers and dash of what a panel of rates shows first, and of what that is compared with."""


def _over_rates(axes: Axes, record: Record, encoding: str, metrics: list[str], look: dict) -> None:
    """Metrics of one encoding over the rates, the first with its band, and the rates chosen as ticks below."""
    rates, passed = np.asarray(record.config["rates"]), learned(record, encoding)
    for name, (marks, dash) in zip(metrics, DASHES):
        path = binary.PATH if name == "log_probability" else binary.PATH_BY_LAYER
        values = path(record, positions=encoding, metric=name)[passed]  # (M, 6, R, ..)
        values = present_mean(values, (1, *range(3, values.ndim)))
        shown = {"color": look["color"], "linestyle": dash, "marker": look["marker"]} | marks
        if np.isfinite(values).any() and name == metrics[0]:
            band(axes, rates, values, **shown)
        elif np.isfinite(values).any():
            axes.plot(rates, np.nanmedian(values, axis=0), **shown | {"linewidth": 0.9})
    chosen = binary.RATE(record, positions=encoding)[passed].ravel()
    low = {"transform": axes.get_xaxis_transform(), "color": look["color"], "alpha": 0.3}
    axes.plot(chosen, np.full(len(chosen), 0.02 + 0.04 * (look is SERIES[1])), "|", markersize=4, **low)


def _carried(record: Record, schemes: list[str]) -> Figure:
    """Gain of accuracy by attention outputs put into the zero-shot run: one layer, all of them, the answer."""
    figure, axes = panels(len(schemes), shape=0.58)
    for at, encoding in zip(axes[0], schemes):
        passed = learned(record, encoding)
        for (name, (setting, label)), look in zip(READINGS.items(), SERIES):
            selection = {"positions": encoding, "reading": name, "measure": "accuracy"}
            by_layer, of = binary.CARRIED_BY_LAYER(record, **selection), binary.CARRIED(record, **selection)
            ends = [of[place][:, :, None] for place in ("all", "answer") if place in of]
            values = np.concatenate([by_layer, *ends], axis=2)[passed].mean(1).T  # (L + 1 or 2, M)
            layers, color = by_layer.shape[2], SETTINGS[setting]["color"]
            for those in np.split(np.arange(len(values)), range(layers, len(values))) if passed.any() else ():
                at.plot(1 + those, values[those], ".", color=color, markersize=2, alpha=0.3)
                style = look | {"color": color, "label": None if those[0] else label}
                at.plot(1 + those, values[those].mean(1), **style)
        at.set_xticks(range(1, layers + 3), [*map(str, range(1, layers + 1)), "all", "answer"])
        at.axhline(0, **THEORY)
        at.set(xlabel="layer whose output is put in", ylabel="gain of accuracy", title=gate_of(record, encoding))
        legend(at)
    return figure


def _order(record: Record, schemes: list[str]) -> Figure:
    learners = {"in_context": "ICL", "sequential": "FT, one step an example", "full_batch": "FT, one step"}
    measures = {"log_probability": "std of log-probability (nats)", "accuracy": "std of accuracy"}
    figure, axes = panels(2, shape=0.57)
    for at, (measure, label) in zip(axes[0], measures.items()):
        for p, encoding in enumerate(schemes):
            passed = learned(record, encoding)
            of = binary.ORDER.at(positions=encoding, measure=measure)
            values = [network_means(of(record, learner=name)[passed]) for name in learners]
            x = np.arange(len(learners)) + 0.12 * (len(schemes) - 1) * (2 * p - 1)
            look = SERIES[p] | {"linestyle": ""}
            if passed.any():
                at.plot(np.repeat(x[:, None], passed.sum(), 1), np.stack(values), alpha=0.4, markersize=2, **look)
                at.plot(x, np.mean(values, 1), markersize=6, **look, label=gate_of(record, encoding))
        at.axhline(0, **THEORY)
        at.set_xticks(range(len(learners)), [name.replace(", ", ",\n") for name in learners.values()])
        at.set(ylabel=label, title="spread over orders of demonstrations")
        if measure == "log_probability":
            legend(at, **ABOVE)
    return figure
