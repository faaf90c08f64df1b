"""What would keep a figure from being printed as it is."""

from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from icl_lab.lab.layout import WIDTHS, covers, dashes, finish, panels_of
from icl_lab.lab.meanings import unexplained

LEAST_SIZE = 7.0
"""Of a letter, in points."""


def faults(figure: Figure) -> list[str]:
    """What would keep a figure from being printed as it is; empty if nothing."""
    finish(figure)
    found = []
    if round(figure.get_figwidth(), 2) not in WIDTHS.values():
        found.append(f"is {figure.get_figwidth():.2f} in wide")
    found += [f"has letters of {size:g} pt in {text!r}" for text, size in _texts(figure) if size < LEAST_SIZE]
    if any(axes.get_gridspec().ncols > max(WIDTHS) for axes in panels_of(figure) if axes.get_subplotspec()):
        found.append("has more than three panels in a row")
    found += [f"nothing says what the {silent} are" for silent in unexplained(figure)]
    panels = panels_of(figure)
    found += ["has a panel without a title"] * any(
        len(panels) > 1 and not axes.get_title(loc="left").partition(";$")[2] for axes in panels
    )
    for axes in figure.axes:
        name = axes.get_title(loc="left") or axes.get_ylabel() or "a panel"
        found += [f"{name!r}: {pair} differ in nothing but colour" for pair in _alike_in_grey(axes)]
        legend = axes.get_legend()
        if legend and legend.get_visible() and covers(axes):
            found.append(f"{name!r}: the legend covers data")
        if _run_together(axes):
            found.append(f"{name!r}: labels of ticks run into one another")
    box = figure.get_tightbbox()
    if box.x0 < -0.02 or box.x1 > figure.get_figwidth() + 0.02:
        found.append(f"does not fit its width: {box.x0:.2f} to {box.x1:.2f} in")
    return found


def _texts(figure: Figure) -> list[tuple[str, float]]:
    every = figure.findobj(Text)
    return sorted({(text.get_text(), text.get_fontsize()) for text in every if text.get_text() and text.get_visible()})


def _lines(axes: Axes) -> dict[str, Any]:
    """Lines with a label, those of error bars too; of several with one label the first."""
    found = {}
    for handle, label in zip(*axes.get_legend_handles_labels()):
        line = handle[0] if isinstance(handle, tuple) else handle
        if hasattr(line, "get_marker") and hasattr(line, "get_linestyle"):
            found.setdefault(label, line)
    return found


def _alike_in_grey(axes: Axes) -> list[str]:
    looks: dict[tuple, str] = {}
    pairs = []
    for label, line in _lines(axes).items():
        marker = line.get_marker() if line.get_marker() not in (None, "", " ", "None", "none") else ""
        fill = line.get_fillstyle() if marker else ""
        look = (dashes(line), str(marker), fill, round(line.get_linewidth() / 1.5))
        if look in looks:
            pairs.append(f"{looks[look]} and {label}")
        looks.setdefault(look, label)
    return pairs


def _run_together(axes: Axes) -> bool:
    """Whether labels of ticks below a panel overlap; of turned ones nobody knows."""
    if not (axes.axison and axes.xaxis.get_visible()):
        return False
    low, high = sorted(axes.get_xlim())
    labels = [tick.label1 for tick in axes.xaxis.get_major_ticks() if low <= tick.get_loc() <= high]
    shown = [label for label in labels if label.get_visible() and label.get_text()]
    boxes = sorted((label.get_window_extent() for label in shown), key=lambda box: box.x0)
    turned = any(label.get_rotation() for label in shown)
    return not turned and any(left.x1 > right.x0 for left, right in pairwise(boxes))
