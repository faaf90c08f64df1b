"""The fingerprint of learners, drawn: their filter beside those of algorithms, and how far off every family is."""

import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np

from icl_lab import notebook
from icl_lab.identify.decision import NAMED

LEAST, MOST = 1e-5, 10.0
"""Ends of the axis of residuals; what is beyond them is drawn there."""

CURVES = (("#D55E00", "--"), ("#0072B2", "-."), ("#009E73", ":"))
"""Colours and dashes of the algorithms."""


def draw(words: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
    """A matplotlib ``Figure`` of what ``Identified.fingerprint`` returns.

    Above, the measured residual factor over eigenvalue: members as lines, their standard deviation over rotations as
    bands, the training range shaded; over it the named algorithm and the two best filters of other classes. Below, the
    residual of every family's best fitted model on training prompts and on inputs twice as large, with the noise of the
    symmetrised learner and its asymmetry as lines.
    """
    figure = notebook.figure(figsize=(5.5, 6.5), layout="constrained")
    top, bottom = figure.subplots(2, 1, height_ratios=(2, 3))
    grid, r, (low, high) = arrays["grid"], arrays["r"], arrays["training"]
    for line, width in zip(r, arrays["spread"]):
        spread = top.fill_between(grid, line - width, line + width, color="0.85", lw=0)
    top.plot(grid, r.T, color="0.6", lw=2.2)
    top.plot([], [], color="0.6", lw=2.2, label="measured, a line a member")
    spread.set_label("a member's standard deviation over rotations")
    for curve, label, (color, dash) in zip(arrays["curves"], words["curves"], CURVES):
        top.plot(arrays["dense"], curve, color=color, linestyle=dash, label=label)
    top.axvspan(low, high, alpha=0.08, label="eigenvalues of training")
    inside = r[:, (grid < 1.5 * high) & np.isfinite(r).all(0)]
    top.set(xscale="log", xlabel="eigenvalue of X$^T$X/N", ylabel="residual factor $1 - \\lambda h(\\lambda)$")
    top.set(ylim=(inside.min(initial=0) - 0.2, inside.max(initial=1) + 0.2))
    top.set_title(words["headline"], loc="left")
    top.legend(loc="best")
    names = words["families"][:16]
    place = np.arange(len(names))
    for shift, name, label, look in (
        (-0.15, "residual", "training prompts", {"color": "#0072B2", "marker": "o"}),
        (0.15, "doubled", "inputs twice as large", {"color": "#D55E00", "marker": "s"}),
    ):
        values = np.clip(arrays[name][:16], LEAST, MOST)
        bottom.plot(values, place + shift, linestyle="", label=label, **look, clip_on=False)
    for value, label, style in ((words["noise"], "noise", ":"), (words["asymmetry"], "asymmetry", "--")):
        bottom.axvline(max(value, LEAST), ls=style, color="k", lw=0.8, label=label)
    bottom.axvline(NAMED, color="0.6", lw=2.5, zorder=0, label="a name needs less")
    bottom.set_title("distance of every family", loc="left")
    short = "\n* larger models of this family were not fitted: a smaller algorithm suffices"
    xlabel = "residual (beyond the ends: at them)" + short * any("*" in name for name in names)
    bottom.set(xscale="log", xlim=(LEAST, MOST), xlabel=xlabel, yticks=place, yticklabels=names)
    bottom.invert_yaxis()
    bottom.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.4, 1.0))
    return figure


def draw_distances(headline: str, panels: Mapping[str, tuple[Mapping[str, float], float]]) -> Any:
    """A ``Figure`` with a panel below the other: by title, distances by name, and the largest that counts as none."""
    figure = notebook.figure(figsize=(5.5, 4.2), layout="constrained")
    rows = figure.subplots(len(panels), 1, sharex=True, height_ratios=[len(values) for values, _ in panels.values()])
    for axes, (title, (values, most)) in zip(rows, panels.items()):
        place = np.arange(len(values))
        axes.plot(np.clip(list(values.values()), LEAST, 1), place, "o", color="#0072B2", clip_on=False)
        axes.axvspan(LEAST, most, color="0.92", zorder=0)
        axes.set(xscale="log", xlim=(LEAST, 1), yticks=place, yticklabels=list(values))
        axes.set_title(title, loc="left")
        axes.invert_yaxis()
    rows[-1].set_xlabel("mean total variation (grey: counts as none)")
    figure.suptitle("\n".join(textwrap.wrap(headline, 72)), ha="left", x=0.01, fontsize="medium")
    return figure
