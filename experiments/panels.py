"""Panels that figures of several papers share."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from icl_lab.lab import Record
from icl_lab.lab.intervals import t_interval, wilson_interval
from icl_lab.lab.meanings import MEMBERS, OF_MEAN, OF_SHARE, explain, percentiles
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
        medians = axes.plot(at, np.nanmedian(values, axis=1), markersize=5, label=style["label"], **look)
        explain(medians, "small marks are members, large ones their median")
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


def bars(axes: Axes, x: ArrayLike, members: np.ndarray, label: str, look: Mapping[str, Any]) -> None:
    """Median over members of (M, X) as markers, with bars from the 10th to the 90th percentile; NaN does not count."""
    empty = np.isnan(members).all(0)
    quantiles = np.nanquantile(np.where(empty, 0.0, members), [0.1, 0.5, 0.9], axis=0)
    low, middle, high = np.where(empty, np.nan, quantiles)
    shown = {"color": look["color"], "marker": look["marker"]}
    with_ends(axes, x, middle, np.stack([low, high]), percentiles("marks", "bars"), label=label, **shown)


Interval = Callable[[np.ndarray], tuple[float, tuple[float, float]]]


def intervals(
    axes: Axes,
    x: ArrayLike,
    members: Iterable[np.ndarray],
    interval: Interval = t_interval,
    units: str = "members",
    lying: bool = False,
    **look: Any,
) -> None:
    """Means, or shares with ``wilson_interval``, of members at every place, with bars that are 95 % intervals."""
    estimates = [interval(np.asarray(values)) for values in members]
    middle, ends = np.array([e for e, _ in estimates]), np.array([e for _, e in estimates]).reshape(-1, 2).T
    ends = np.where(np.isfinite(ends), ends, middle)  # of one member nothing is known
    sentence = (OF_SHARE if interval is wilson_interval else OF_MEAN).format(units=units)
    with_ends(axes, x, middle, ends, sentence, lying, **{"capsize": 2} | look)


def with_ends(
    axes: Axes, x: ArrayLike, middle: np.ndarray, ends: np.ndarray, sentence: str, lying: bool = False, **look: Any
) -> None:
    """Markers at ``middle`` with bars to ``ends``, (2, X), standing or ``lying``; the picture says what they are."""
    sizes = np.abs(ends - middle)
    if lying:
        drawn = axes.errorbar(middle, np.asarray(x), xerr=sizes, **{"linestyle": ""} | look)
    else:
        drawn = axes.errorbar(np.asarray(x), middle, yerr=sizes, **{"linestyle": ""} | look)
    explain(drawn[2], sentence)


def zero_below(axes: Axes, floor: float, ticks: Sequence[float]) -> None:
    """Gives a logarithmic axis ``ticks`` in plain numbers and, at ``floor``, its end, a tick for 0 below a cut."""
    from matplotlib import ticker

    axes.set_ylim(bottom=floor)
    axes.yaxis.set_major_locator(ticker.FixedLocator([floor, *ticks]))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}" if value > floor else "0"))
    axes.yaxis.set_minor_locator(ticker.NullLocator())
    cut: dict[str, Any] = {"transform": axes.transAxes, "clip_on": False, "zorder": 9}
    for height in (0.05, 0.08):
        axes.plot([-0.02, 0.02], [height - 0.015, height + 0.015], color="black", linewidth=0.8, **cut)


def courses(axes: Axes, x: ArrayLike, members: np.ndarray, label: str, look: Mapping[str, Any]) -> None:
    """Every member of (M, X) as a thin line, for members that fall in two groups."""
    shown = {"color": look["color"], "linestyle": look["linestyle"]}
    lines = axes.plot(np.asarray(x), np.asarray(members).T, linewidth=0.7, alpha=0.7, **shown)
    explain(lines, "thin lines are members")
    axes.plot([], [], label=label, **shown)


def beside(series: Collection, apart: float) -> np.ndarray:
    """(S,) shifts of so many series that stand beside one another around a place."""
    return apart * (np.arange(len(series)) - (len(series) - 1) / 2)


def strip(axes: Axes, x: ArrayLike, members: np.ndarray, label: str, look: Mapping[str, Any], width: float) -> None:
    """Every member of (M, X) as a faint marker, members side by side across ``width``, and their median as a dash.

    For members that fall in two groups, of which a bar would say that they lie between. On a logarithmic axis ``width``
    is a share of x.
    """
    members = np.asarray(members)
    beside = np.linspace(-0.5, 0.5, len(members))[:, None] if len(members) > 1 else np.zeros((1, 1))
    x = np.asarray(x, float)
    at = x * (1 + width * beside) if axes.get_xscale() == "log" else x + width * beside
    shown = {"linestyle": "", "marker": look["marker"], "color": look["color"]}
    axes.plot(at, members, markersize=4, alpha=0.45, markeredgewidth=0, **shown)
    axes.plot([], [], label=label, **shown)
    dashes = axes.plot(x, np.nanmedian(members, axis=0), linestyle="", marker="_", markersize=8, color="black")
    explain(dashes, MEMBERS)
