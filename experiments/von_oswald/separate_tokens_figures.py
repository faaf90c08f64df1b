"""Figures of ``separate_tokens``: losses, what is copied around the drop, where the first layer looks."""

import numpy as np

from experiments.panels import ABOVE
from experiments.von_oswald.separate_tokens_claims import drop_index
from icl_lab.lab import Record, style
from icl_lab.lab.style import Axes, Figure

TRAININGS = {
    "softmax": ("#0072B2", "softmax first layer"),
    "linear": ("#CC79A7", "linear first layer"),
    "one_hot": ("#009E73", "softmax, one-hot positions"),
}
"""Colour and label of each training."""


def figures(record: Record) -> dict[str, Figure]:
    """Fig. 5, and the first layer's attention beside the hand-built one; of the trainings that the run has."""
    softmax = "softmax" in trainings(record)
    figure, rows = style.panels(2 if softmax else 1, 2 if softmax else 1, width=3.6)
    _loss_panel(rows[0][0], record)
    if softmax:
        _copying_panels((rows[0][1], *rows[1]), record)
    return {"separate_tokens": figure, "attention": _attention_figure(record)}


def trainings(record: Record) -> list[str]:
    """The trainings that the run has (``--only``)."""
    return [name for name in TRAININGS if f"{name}/loss" in record.arrays]


def _copying_panels(panels: tuple[Axes, Axes, Axes], record: Record) -> None:
    """The softmax first layer around the drop of the loss."""
    copying, agreement, share = panels
    x, lines = _around_drop(record, ("own", "next", "other", "share_labels", "share_inputs"))
    own = lines["own"] - record.config["input_size"] ** 0.5
    for label, values, colour, dash in (
        ("next token", lines["next"], "#0072B2", "-"),
        (r"own token, less $\sqrt{D}$", own, "#D55E00", "--"),
        ("other tokens", lines["other"], "#555555", "-."),
    ):
        style.band(copying, x, values, label=label, color=colour, linestyle=dash)
    copying.set_ylabel("sensitivity of the first layer")
    for label, name, colour, dash in (
        (r"of $x_j$ to $y_j$", "labels", "#0072B2", "-"), (r"of $y_j$ to $x_{j+1}$", "inputs", "#E69F00", "--"),
    ):  # fmt: skip
        style.band(share, x, lines[f"share_{name}"], label=label, color=colour, linestyle=dash)
    share.axhline(1 / (2 * record.config["context_length"]), color="0.3", linestyle=":", label="chance")
    share.set_ylim(0, 1)
    share.set_ylabel("share of attention")
    x, lines = _around_drop(record, ("gd_sensitivity_cosine", "copying_sensitivity_cosine"))
    for name, label, colour, dash in (
        ("gd", "GD", "#D55E00", "--"), ("copying", "copy everything, then GD", "#009E73", "-"),
    ):  # fmt: skip
        style.band(agreement, x, lines[f"{name}_sensitivity_cosine"], label=label, color=colour, linestyle=dash)
    agreement.set_ylabel("sensitivity cosine")
    agreement.set_ylim(top=1.02)
    for axes in panels:
        axes.set_xlabel("training step, from the drop of the loss")
        axes.locator_params(axis="x", nbins=5)
    copying.legend(ncols=3, fontsize=7, **ABOVE)
    agreement.legend(ncols=2, fontsize=7, **ABOVE)
    share.legend(loc="upper left")


def _attention_figure(record: Record) -> Figure:
    """Where the first layer looks, mean over tasks: the best member of both softmax stacks, and by hand."""
    titles = {"softmax": record.config["positions"].replace("_", "-"), "one_hot": "one-hot"}
    shown = {
        f"trained, {titles[name]} positions": record[f"{name}/attention"][np.argmin(record[f"{name}/final/trained"])]
        for name in trainings(record)
        if name in titles
    } | {"by hand": record["hand_built_attention"]}
    figure, (row,) = style.panels(len(shown), 1, width=3.1, height=3.1)
    for axes, (title, pattern) in zip(row, shown.items()):
        image = axes.imshow(pattern, cmap="Blues", vmin=0, vmax=1)
        _token_names(axes, record.config["context_length"])
        axes.set_title(title)
    figure.colorbar(image, ax=list(row), shrink=0.8, label="attention of the first layer")
    return figure


def _loss_panel(axes: Axes, record: Record) -> None:
    """Every training as a line of its own: they drop at different times."""
    metrics = record.metrics
    for name in trainings(record):
        colour, label = TRAININGS[name]
        lines = axes.plot(record["steps"], record[f"{name}/loss"].T, color=colour, alpha=0.6, linewidth=0.8)
        lines[0].set_label(label)
    for name, label, colour, dash in (
        ("closed_form", "one GD step", "#D55E00", "--"),
        ("copy_everything", "copy everything, then GD", style.THEORY["color"], style.THEORY["linestyle"]),
        ("two_steps", "two GD steps", "#D55E00", "-."),
    ):
        axes.axhline(metrics[name], label=label, color=colour, linestyle=dash)
    axes.set_ylim(0.9 * metrics["two_steps"], 1.3 * metrics["predict_zero"])
    axes.set_xlabel("training step")
    axes.set_ylabel("loss")
    axes.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=7, columnspacing=1)


def _token_names(axes: Axes, n: int) -> None:
    names = [f"${letter}_{{{j}}}$" for j in range(1, n + 1) for letter in "xy"]
    axes.set_xticks(range(2 * n), names, fontsize=5)
    axes.set_yticks(range(2 * n + 1), [*names, "$x_q$"], fontsize=5)
    axes.set_xlabel("key")
    axes.set_ylabel("query")
    axes.grid(False)


def _around_drop(record: Record, names: tuple[str, ...]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Curves of the members that dropped, (M', X), over steps counted from the drop; of all from 0 where none did.

    Only steps at which all of them are measured, so that every median is one of the same members.
    """
    steps, index = record["steps"], drop_index(record)
    members = np.flatnonzero(index >= 0)
    if not members.size:
        return steps, {name: record[f"softmax/{name}"] for name in names}
    before, behind = index[members].min(), len(steps) - index[members].max()
    around = np.arange(-before, behind)
    at = index[members][:, None] + around
    shifted = {name: np.take_along_axis(record[f"softmax/{name}"][members], at, axis=1) for name in names}
    return around * (steps[1] - steps[0]), shifted
