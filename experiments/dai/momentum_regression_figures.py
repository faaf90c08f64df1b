"""Figures of ``momentum_regression``: one layer on joint tokens, two on alternating ones; and who left the plateau."""

from typing import Any

import numpy as np

from experiments.dai.mixer_looks import looks, name_ticks
from experiments.dai.mixers import eta_of, kind, momenta, of
from experiments.dai.momentum_regression import COMPARED, ETA, FINAL, LOSS, PENALTY, STEPS
from experiments.panels import bars, described
from icl_lab.lab import Record
from icl_lab.lab.style import SPARSE, THEORY, Axes, Figure, band, panels

REFERENCES: dict[str, dict[str, Any]] = {
    "gd": {"color": "#000000", "marker": "o", "label": "one step of GD"},
    "analogy": {"color": "#D55E00", "marker": "s", "label": "a pass with momentum"},
    "heavy_ball": {"color": "#0072B2", "marker": "^", "label": "heavy ball"},
}


def added(record: Record) -> tuple[np.ndarray, np.ndarray]:
    """(V', M) what the mixer adds to the loss of the same weights, measured and by ``mixer_penalty``; of all mixers."""
    present = [i for i, name in enumerate(record.config["mixers"]) if kind(name) != "vanilla"]
    trained, without = (FINAL(record, part="joint", learner=name)[present] for name in ("trained", "without"))
    return trained - without, PENALTY(record, part="joint")[present]


def left(record: Record, part: str, mixer: str) -> np.ndarray:
    """(M,) whether a member left the plateau of its start.

    Its final loss is more than half of the way from that of predicting zero to the least that theory allows: the best
    step, on alternating tokens after copying by hand with this mixer.
    """
    trained = of(record, FINAL.at(part=part, learner="trained"), mixer)  # first: a run without this part is told by it
    zero, best = (record.metrics[f"{part}_{name}"] for name in ("zero", "best_step"))
    if part == "alternating":
        best = record.metrics["alternating_by_hand"].get(mixer, best)
    return trained < (zero + best) / 2


def figures(record: Record) -> dict[str, Figure]:
    """One figure for every part that was run."""
    by_part = {}
    if "joint" in record.config["only"]:
        learned = any(kind(name) == "learned" for name in record.config["mixers"])
        figure, (row,) = panels(3 + learned, 1, shape=0.8)
        _loss(row[0], record, "joint", "one layer on joint tokens")
        _penalty(row[1], record)
        _distances(row[2], record)
        if learned:
            _coefficient(row[3], record)
        by_part["joint"] = figure
    if "alternating" in record.config["only"]:
        figure, (row,) = panels(2, 1)
        _loss(row[0], record, "alternating", "two layers on alternating tokens")
        _copying(row[1], record)
        by_part["alternating"] = figure
    return by_part


def _loss(axes: Axes, record: Record, part: str, title: str) -> None:
    for (name, look), curves in zip(looks(record).items(), LOSS(record, part=part)):
        line, gone = look | SPARSE, left(record, part, name)  # members stay on plateaus, or leave them
        axes.plot(
            STEPS(record, part=part), curves.T, **line | {"linewidth": 0.4, "alpha": 0.5, "label": None, "marker": ""}
        )
        text = f"{look['label']}: {gone.sum()} of {gone.size}"
        axes.plot(STEPS(record, part=part), curves[gone if gone.any() else ~gone].mean(0), **line | {"label": text})
    axes.axhline(record.metrics[f"{part}_best_step"], **THEORY, label="best step of GD")
    axes.axhline(record.metrics[f"{part}_zero"], color="0.6", linewidth=0.8, label="predicting 0")
    axes.set(xlabel="training step", ylabel="loss", title=f"{title}: mean of those that left the plateau")
    axes.figure.legend(*axes.get_legend_handles_labels())


def _penalty(axes: Axes, record: Record) -> None:
    """What a mixer adds to the loss, measured against the closed form, every member."""
    measured, theory = added(record)
    styles = [look for name, look in looks(record).items() if kind(name) != "vanilla"]
    for look, observed, predicted in zip(styles, measured, theory):
        axes.plot(predicted, observed, **look | {"linestyle": "", "label": None})
    top = 1.1 * max(float(theory.max()), float(measured.max()))
    axes.plot([0, top], [0, top], **THEORY, label="theory")
    described(axes, title="what a mixer adds to the loss",
              xlabel="added to the loss, closed form", ylabel="added to the loss, measured")  # fmt: skip


def _distances(axes: Axes, record: Record) -> None:
    """Differences of sensitivities from the learners, of layers without and with momentum that left the plateau."""
    mixers = list(record.config["mixers"])
    gone = np.stack([left(record, "joint", name) for name in mixers])
    shown = [name for name in ("vanilla", *momenta(record)) if gone[mixers.index(name)].any()]
    learners = {"gd": REFERENCES["gd"], "analogy": REFERENCES["analogy"]}
    for i, steps in enumerate(record.config["descents"]):
        look = REFERENCES["heavy_ball"] | {"label": f"heavy ball, {steps} steps", "marker": "^v<>"[i % 4]}
        learners[f"heavy_ball_{steps}"] = look
    for i, (name, look) in enumerate(learners.items()):
        distances = np.where(
            gone, COMPARED(record, part="joint", learner=name, metric="sensitivity_difference"), np.nan
        )
        at = np.arange(len(shown)) + 0.12 * (i - (len(learners) - 1) / 2)
        bars(axes, at, distances[[mixers.index(mixer) for mixer in shown]].T, look["label"], look)
    axes.set_xticks(range(len(shown)), ["0" if name == "vanilla" else f"{eta_of(name):g}" for name in shown])
    axes.set_ylim(bottom=0)
    described(axes, 2, title="distance from algorithms",
              xlabel=r"momentum $\eta$ of the layer", ylabel="difference of sensitivities")  # fmt: skip


def _coefficient(axes: Axes, record: Record) -> None:
    """Learned coefficients over training, of both parts."""
    lines = {"joint": ("#000000", "-"), "alternating": ("#D55E00", "--", "-.")}
    for part, (colour, *dashes) in lines.items():
        if part not in record.config["only"]:
            continue
        for name, curves in zip(record.config["mixers"], ETA(record, part=part)):
            for layer in range(curves.shape[-1] if kind(name) == "learned" else 0):
                where = f"{part} tokens" + (f", layer {layer + 1}" if curves.shape[-1] > 1 else "")
                look = {"color": colour, "linestyle": dashes[layer % len(dashes)], "label": where}
                gone = left(record, part, name)
                band(axes, STEPS(record, part=part), curves[gone if gone.any() else ~gone, :, layer], None, **look)
    described(axes, 1, title="learned coefficients", ylim=(0, 1),
              xlabel="training step", ylabel=r"learned coefficient $\eta$")  # fmt: skip


def _copying(axes: Axes, record: Record) -> None:
    """Final losses on alternating tokens beside what a mixer that copies by hand leaves."""
    names, by_hand = list(record.config["mixers"]), record.metrics["alternating_by_hand"]
    final = FINAL.at(part="alternating", learner="trained")
    labelled: set[str] = set()

    def once(text: str) -> str | None:
        new = text not in labelled
        labelled.add(text)
        return text if new else None

    for i, name in enumerate(names):
        losses, gone = of(record, final, name), left(record, "alternating", name)
        parts = {"left the plateau": (gone, "full"), "stayed": (~gone, "none")}
        for text, (those, fill) in parts.items():
            if those.any():
                look: dict[str, Any] = {"linestyle": "", "marker": "o", "markersize": 3, "fillstyle": fill}
                axes.plot(np.full(those.sum(), i), losses[those], color="#0072B2", alpha=0.6, label=once(text), **look)
        place: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        axes.annotate(f"{gone.sum()}/{gone.size}", (i, 1), (0, -2), **place, ha="center", va="top", fontsize=7)
        if name in by_hand:
            line: dict[str, Any] = {"linestyle": "", "marker": "_", "markersize": 16, "color": "black"}
            axes.plot(i, by_hand[name], label=once("by hand: copy, one step"), **line)
    axes.axhline(record.metrics["alternating_best_step"], **THEORY, label="best step of GD")
    axes.axhline(record.metrics["alternating_zero"], color="0.6", linewidth=0.8, label="predicting 0")
    name_ticks(axes, names)
    axes.set(xlim=(-0.7, len(names) - 0.3), title="final losses, and how many left the plateau")
    described(axes, 2, ylabel="final loss", ylim=(0, 1.2 * record.metrics["alternating_zero"]))
