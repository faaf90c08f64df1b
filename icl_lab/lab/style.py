"""One matplotlib style for every figure: palette readable in grey, bands over members, deterministic files."""

import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from icl_lab.lab.layout import WIDTHS, finish
from icl_lab.lab.meanings import explain, explanations, percentiles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:  # only annotations name them: matplotlib is imported by what draws, not by a binary's --help or training
    Axes = Figure = Any

# Okabe-Ito hues ordered so that their greys differ too; every learner also has its own dash and marker.
LEARNERS: dict[str, dict] = {
    "trained": {"color": "#0072B2", "linestyle": "-", "marker": "o", "label": "trained"},
    "gd": {"color": "#D55E00", "linestyle": "--", "marker": "s", "label": "GD"},
    "gd++": {"color": "#009E73", "linestyle": "-.", "marker": "^", "label": "GD++"},
    "interpolated": {"color": "#CC79A7", "linestyle": ":", "marker": "D", "label": "interpolated"},
    "without": {"color": "#777777", "linestyle": (0, (4, 1, 1, 1, 1, 1)), "marker": "v", "label": "without LayerNorm"},
    "ablated": {"color": "#333333", "linestyle": (0, (3, 2)), "marker": "x", "label": "no label couplings"},
    "theory": {"color": "#000000", "linestyle": (0, (1, 1)), "marker": "", "label": "theory"},
}

THEORY: dict[str, Any] = {key: LEARNERS["theory"][key] for key in ("color", "linestyle")}
"""A line of theory whose label says which."""

CHARACTERS = 18
"""Of a caption, in an inch."""
DPI = 200
"""Pixels of an inch: letters of 8 points are 22 pixels high."""

SPARSE: dict[str, Any] = {"markevery": 0.2}
"""Markers of a line with many points."""

_RC: dict[Any, Any] = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 8,
    "figure.dpi": DPI,
    "font.size": 8,
    "grid.alpha": 0.25,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.title_fontsize": 7,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "pdf.fonttype": 42,
    "savefig.dpi": DPI,
    "svg.hashsalt": "icl_lab",
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
}


@contextmanager
def styled() -> Iterator[None]:
    """The style of the laboratory, on matplotlib's defaults whatever the user's files say, inside this block only."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()  # all but the backend
        mpl.rcParams.update(_RC)
        yield


def panels(
    columns: int, rows: int = 1, width: float = 4.0, height: float = 2.6, shape: float | None = None
) -> tuple[Figure, np.ndarray]:
    """A figure with a (rows, columns) array of axes, at the width of print, on the Agg canvas whatever the backend.

    At most three stand in a row: a longer row goes on below, or rows and columns change places, so that what differs in
    a column of the array stands side by side.

    Args:
      columns: of the array.
      rows: of the array.
      width: of a panel with its labels; only its proportion to ``height`` counts.
      height: of a panel.
      shape: ``height / width``, in place of both.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    most, cells = max(WIDTHS), [(row, column) for row in range(rows) for column in range(columns)]
    across, turned = columns, columns > most >= rows > 1 and columns % most > 0
    if turned:
        across = rows
    elif columns > most:
        across = 2 if columns % most == 1 else most
        split = -(-columns // across)
        cells = [(row * split + column // across, column % across) for row, column in cells]
    down = columns if turned else 1 + cells[-1][0]
    panel_width = WIDTHS[across] / across
    tallest = 5.0 if shape else 2.9  # who says a shape may want many rows of names
    panel_height = min(max((shape or height / width) * panel_width, 1.6), tallest)
    figure = Figure(figsize=(WIDTHS[across], down * panel_height), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(down, across)
    subplots = [figure.add_subplot(grid[cell[::-1] if turned else cell]) for cell in cells]
    axes = np.empty(rows * columns, object)
    axes[:] = subplots
    return figure, axes.reshape(rows, columns)


def viridis(count: int) -> np.ndarray:
    """(count, 4) colours from dark to light, for a family of settings in order."""
    import matplotlib as mpl

    return mpl.colormaps["viridis"](np.linspace(0, 0.85, count))


def band(
    axes: Axes,
    x: np.ndarray,
    members: np.ndarray,
    learner: str | None = None,
    share: Any = 0.8,
    units: Any = "members",
    **line: Any,
) -> None:
    """Median over members with the band that holds the middle ``share`` of the finite values in (M, X).

    The picture says so below, of ``units`` in place of members where these are others.
    """
    line = (dict(LEARNERS[learner], marker="") if learner else {}) | line
    members = np.where(np.isfinite(members), members, np.nan)
    keep = np.isfinite(members).any(0)
    at = [0.5 - share / 2, 0.5, 0.5 + share / 2]
    low, middle, high = np.nanquantile(members[:, keep], at, axis=0).reshape(3, keep.sum())
    (drawn,) = axes.plot(np.asarray(x)[keep], middle, **line)
    area = axes.fill_between(np.asarray(x)[keep], low, high, color=drawn.get_color(), alpha=0.2, linewidth=0)
    explain([area], percentiles("lines", "bands", share, units))


BARRED = "barred: below zero"
"""For the colour bar of a ``heat_map``, whose two signs are alike in grey."""


def heat_map(axes: Axes, matrix: np.ndarray, limit: float, title: str):
    """A matrix with a symmetric diverging colour scale [-limit, limit]; returns the image for a shared colour bar.

    Entries below -limit / 10 carry a bar.
    """
    image = axes.imshow(matrix, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
    rows, columns = np.nonzero(matrix < -limit / 10)
    colors = np.where(matrix[rows, columns] < -limit / 2, "white", "black")
    axes.scatter(columns, rows, marker="_", s=14, linewidths=0.8, c=colors)
    axes.set_title(title)
    axes.grid(False)
    axes.set_xticks([])
    axes.set_yticks([])
    return image


def save(figure: Figure, path: Path, caption: str, pdf: bool = True, svg: bool = False) -> list[Path]:
    """Writes ``path``.png (and .pdf, .svg) with small print below; same figure, same bytes.

    It says what bars and bands stand for (``icl_lab.lab.meanings``), then the caption: preset, members, seed.
    """
    finish(figure)
    box = figure.get_tightbbox()
    place: dict[str, Any] = {"va": "top", "fontsize": 7, "linespacing": 1.1}
    said: dict[str, Any] = {"x": 0.005, "ha": "left", "color": "0.1"}
    named: dict[str, Any] = {"x": 0.995, "ha": "right", "color": "0.35"}
    for text, look in ((" ".join(explanations(figure)), said), (caption, named)):
        if text:
            wide = round(CHARACTERS * figure.get_figwidth())  # longer lines would widen the picture
            lines = textwrap.fill(text, wide)
            drawn = figure.text(y=(box.y0 - 0.05) / figure.get_figheight(), s=lines, **place, **look)
            below = drawn.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
            box = box.union([box, below])  # a tight box of all, without asking every text again
    box = box.padded(0.03)
    box.x0, box.x1 = min(box.x0, 0.0), max(box.x1, figure.get_figwidth())
    kinds = {".png": {"Software": None}} | ({".pdf": {"CreationDate": None}} if pdf else {})
    kinds |= {".svg": {"Date": None}} if svg else {}
    for suffix, metadata in kinds.items():
        figure.savefig(path.with_suffix(suffix), metadata=metadata, bbox_inches=box)
    if svg:
        path.with_suffix(".svg").write_bytes(slimmed(path.with_suffix(".svg").read_bytes()))
    return [path.with_suffix(suffix) for suffix in kinds]


def slimmed(svg: bytes) -> bytes:
    """An SVG of matplotlib in fewer bytes: places to hundredths of a point, no indents, no style that is said twice."""
    styles = dict(re.findall(rb'<path id="(\w+)"[^>]* (style="[^"]*")', svg))
    svg = re.sub(rb' (?:d|x|y)="[^"]*"', lambda of: re.sub(rb"(\.\d\d)\d+", rb"\1", of[0]), svg)
    of_marks = rb'(<use xlink:href="#(\w+)"[^>]*) (style="[^"]*")/>'
    svg = re.sub(of_marks, lambda of: of[1] + b"/>" if styles.get(of[2]) == of[3] else of[0], svg)
    return re.sub(rb"\n +", b"\n", svg)
