"""Panels that figures of several papers share."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from icl_lab.lab import Record
from icl_lab.lab.style import LEARNERS, THEORY, Axes, Figure, band, panels, viridis

ABOVE: dict = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "columnspacing": 1.0, "handlelength": 1.5}
"""Where a legend does not cover its curves."""


def described(axes: Axes, columns: int = 0, about: str | None = None, **properties: Any) -> None:
    """Sets properties of a panel, as ``Axes.set``, and its legend, whose title is ``about``.

    It stands above the panel in so many columns; 0: where there is room.
    """
    axes.set(**properties)
    axes.legend(title=about, **({"ncols": columns} | ABOVE if columns else {}))


SERIES: tuple[dict, ...] = (
    {"color": "#000000", "linestyle": "-", "marker": "o"},
    {"color": "#D55E00", "linestyle": "--", "marker": "s"},
    {"color": "#009E73", "linestyle": "-.", "marker": "^"},
    {"color": "#0072B2", "linestyle": ":", "marker": "D"},
    {"color": "#CC79A7", "linestyle": (0, (5, 1)), "marker": "v"},
)
"""Looks of the values of a grid, which are no learners of ``icl_lab.lab.style``."""


def side_by_side(record: Record, *draw: Callable[[Axes, Record], None], columns: int = 0, **size: Any) -> Figure:
    """A figure with a panel for each ``draw(axes, record)``, so many beside each other (0: all)."""
    columns = columns or len(draw)
    figure, grid = panels(columns, -(-len(draw) // columns), **size)
    for axes, one in zip(grid.flat, draw):
        one(axes, record)
    return figure


def shift_panel(
    axes: Axes, x: np.ndarray, curves: Mapping[str, np.ndarray], label: str, *, training: float | None = None
) -> None:
    """Loss (log) against the size of a shift: (M, X) by learner as bands with sparse markers."""
    for learner, values in curves.items():
        band(axes, x, values, learner, marker=LEARNERS[learner]["marker"], markevery=max(1, len(x) // 6))
    if training is not None:
        axes.axvline(training, color="0.6", linewidth=0.8)
    described(axes, yscale="log", xlabel=label, ylabel="loss")


def points_panel(
    axes: Axes,
    x: Sequence[float],
    members: Mapping[str, np.ndarray],
    label: str,
    theory: tuple[np.ndarray, np.ndarray] | None = None,
) -> None:
    """Final values (X, M) by learner: every member as a small marker, their median as a large one, theory as a line."""
    width = 0.2 * min(np.diff(x)) if len(x) > 1 else 0.1
    for i, (learner, values) in enumerate(members.items()):
        style, values = LEARNERS[learner], np.asarray(values, float)
        at = np.asarray(x, float) + width * (i - (len(members) - 1) / 2)
        look = {"linestyle": "", "marker": style["marker"], "color": style["color"]}
        axes.plot(np.repeat(at[:, None], values.shape[1], axis=1), values, markersize=2, alpha=0.4, **look)
        axes.plot(at, np.nanmedian(values, axis=1), markersize=5, label=style["label"], **look)
    if theory is not None:
        axes.plot(*theory, **THEORY, label="theory")
    described(axes, xlabel=label, ylabel="loss")


def theory_line(axes: Axes, x: ArrayLike, y: ArrayLike) -> None:
    """A closed form as the black dotted line, named in the legend."""
    axes.plot(np.asarray(x), np.asarray(y), **THEORY, label="theory")
    axes.legend()


def family(count: int) -> list[dict[str, Any]]:
    """Looks of the lines of a family of settings, from dark to light, that differ in dash too."""
    dashes = ("-", "--", "-.", ":", (0, (5, 1)), (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)), (0, (8, 3)))
    return [{"color": shade, "linestyle": dashes[i % len(dashes)]} for i, shade in enumerate(viridis(count))]


def family_panel(axes: Axes, steps: np.ndarray, curves: np.ndarray, labels: Sequence[str]) -> None:
    """Loss over training of a family of settings, (S, M, R), as bands from dark to light."""
    for members, label, look in zip(curves, labels, family(len(labels))):
        band(axes, steps, members, **look, label=label)
    described(axes, len(labels) if len(labels) <= 3 else -(-len(labels) // 2), xlabel="training step", ylabel="loss")


def bars(axes: Axes, x: ArrayLike, members: np.ndarray, label: str, look: Mapping[str, str]) -> None:
    """Median over members of (M, X) as markers, with bars from the 10th to the 90th percentile; NaN does not count."""
    empty = np.isnan(members).all(0)
    quantiles = np.nanquantile(np.where(empty, 0.0, members), [0.1, 0.5, 0.9], axis=0)
    low, middle, high = np.where(empty, np.nan, quantiles)
    ends = np.stack([middle - low, high - middle])
    axes.errorbar(np.asarray(x), middle, ends, linestyle="", label=label, color=look["color"], marker=look["marker"])
