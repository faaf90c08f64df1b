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
from icl_lab.prompts.naming import sizes
from icl_lab.prompts.tracing import check_number, whole

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

    Raises:
      ValueError: for numbers of panels that are no whole ones, or sizes that are not above 0.
    """
    columns, rows = whole("columns", columns), whole("rows", rows)
    for name, size in {"width": width, "height": height, "shape": 1.0 if shape is None else shape}.items():
        check_number(name, size, above=0, scalar=True)
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
    """(count, 4) colours from dark to light, for a family of settings in order; ValueError for no whole number."""
    import matplotlib as mpl

    return mpl.colormaps["viridis"](np.linspace(0, 0.85, whole("count", count, 0)))


def _check_axes(axes: Any) -> None:
    """ValueError for what cannot be drawn on."""
    if not hasattr(axes, "fill_between"):
        raise ValueError(f"axes must be one of those that panels gives (axes[0, 0]), got {sizes(axes)}")


def _numbers(name: str, value: Any, dimensions: int) -> np.ndarray:
    """An array of real numbers; ValueError for one of another kind, or with another number of axes."""
    try:
        array = np.asarray(value)
    except ValueError:  # lists of several lengths
        array = np.zeros(0)
    if array.ndim != dimensions or array.dtype.kind not in "biuf":
        shape = "(M, X)" if name == "members" else "(X,)" if dimensions == 1 else "(rows, columns)"
        raise ValueError(f"{name} must be an array {shape} of real numbers, got {sizes(value)}")
    return array


def band(
    axes: Axes,
    x: np.ndarray,
    members: np.ndarray,
    learner: str | None = None,
    share: Any = 0.8,
    units: Any = "members",
    **line: Any,
) -> None:
    """Median over members with the band that holds the middle ``share`` of the finite values in (M, X), with its words.

    Args:
      axes: on which it is drawn.
      x: (X,) places of the values.
      members: (M, X) values.
      learner: a name in ``LEARNERS``, whose look the line has; None: that of ``line`` alone.
      share: above 0, at most 1.
      units: what the values are of, in the words of the picture.
      line: of ``axes.plot``.

    Raises:
      ValueError: for arrays that do not fit, another share, or a learner that has no look.
    """
    _check_axes(axes)
    x, members = _numbers("x", x, 1), _numbers("members", members, 2)
    check_number("share", share, above=0, at_most=1, scalar=True)
    if members.shape[1:] != x.shape:
        raise ValueError(f"members must be (M, X) with the X of x {x.shape}, got {members.shape}")
    if learner and learner not in LEARNERS:
        raise ValueError(
            f"learner must be one of {', '.join(LEARNERS)}, or None with color= and label=, got {learner!r}"
        )
    line = (dict(LEARNERS[learner], marker="") if learner else {}) | line
    members = np.where(np.isfinite(members), members, np.nan)
    keep = np.isfinite(members).any(0)
    at = [0.5 - share / 2, 0.5, 0.5 + share / 2]
    low, middle, high = np.nanquantile(members[:, keep], at, axis=0).reshape(3, keep.sum())
    (drawn,) = axes.plot(x[keep], middle, **line)
    area = axes.fill_between(x[keep], low, high, color=drawn.get_color(), alpha=0.2, linewidth=0)
    explain([area], percentiles("lines", "bands", share, units))


BARRED = "barred: below zero"
"""For the colour bar of a ``heat_map``, whose two signs are alike in grey."""


def heat_map(axes: Axes, matrix: np.ndarray, limit: float, title: str):
    """A matrix with a symmetric diverging colour scale [-limit, limit]; returns the image for a shared colour bar.

    Entries below -limit / 10 carry a bar.

    Raises:
      ValueError: for what is no matrix of real numbers, or a limit that is not above 0.
    """
    _check_axes(axes)
    matrix = _numbers("matrix", matrix, 2)
    check_number("limit", limit, above=0, scalar=True)
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

    Raises:
      ValueError: for what is no figure, or a caption of no words.
      OSError: where the folder is not there, or cannot be written.
    """
    if not hasattr(figure, "savefig"):
        raise ValueError(f"figure must be a Figure, as panels gives, got {sizes(figure)}")
    if not isinstance(caption, str):
        raise ValueError(f"caption must be words, got {caption!r}")
    path = Path(path)
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
    written = {suffix: path.with_name(path.name + suffix) for suffix in kinds}  # a name may have a dot
    for suffix, metadata in kinds.items():
        figure.savefig(written[suffix], metadata=metadata, bbox_inches=box)
    if svg:
        written[".svg"].write_bytes(slimmed(written[".svg"].read_bytes()))
    return list(written.values())


def slimmed(svg: bytes) -> bytes:
    """An SVG of matplotlib in fewer bytes: places to hundredths of a point, no indents, no style that is said twice."""
    styles = dict(re.findall(rb'<path id="(\w+)"[^>]* (style="[^"]*")', svg))
    svg = re.sub(rb' (?:d|x|y)="[^"]*"', lambda of: re.sub(rb"(\.\d\d)\d+", rb"\1", of[0]), svg)
    of_marks = rb'(<use xlink:href="#(\w+)"[^>]*) (style="[^"]*")/>'
    svg = re.sub(of_marks, lambda of: of[1] + b"/>" if styles.get(of[2]) == of[3] else of[0], svg)
    return re.sub(rb"\n +", b"\n", svg)
