"""One matplotlib style for every figure: palette readable in grey, bands over members, deterministic files."""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

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

CHARACTERS = 20
"""Of a caption, in an inch."""

_RC: dict[Any, Any] = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.dpi": 150,
    "font.size": 9,
    "grid.alpha": 0.25,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 3.5,
    "pdf.fonttype": 42,
    "savefig.dpi": 150,
    "svg.hashsalt": "icl_lab",
}


@contextmanager
def styled() -> Iterator[None]:
    """The style of the laboratory, on matplotlib's defaults whatever the user's files say, inside this block only."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()  # all but the backend
        mpl.rcParams.update(_RC)
        yield


def panels(columns: int, rows: int = 1, width: float = 3.2, height: float = 2.6) -> tuple[Figure, np.ndarray]:
    """A figure with a (rows, columns) array of axes, on the Agg canvas whatever the backend."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False)


def viridis(count: int) -> np.ndarray:
    """(count, 4) colours from dark to light, for a family of settings in order."""
    import matplotlib as mpl

    return mpl.colormaps["viridis"](np.linspace(0, 0.85, count))


def band(axes: Axes, x: np.ndarray, members: np.ndarray, learner: str | None = None, share: Any = 0.8, **line) -> None:
    """Median over members with the band that holds the middle ``share`` of the finite values in (M, X)."""
    line = (dict(LEARNERS[learner], marker="") if learner else {}) | line
    members = np.where(np.isfinite(members), members, np.nan)
    keep = np.isfinite(members).any(0)
    at = [0.5 - share / 2, 0.5, 0.5 + share / 2]
    low, middle, high = np.nanquantile(members[:, keep], at, axis=0).reshape(3, keep.sum())
    (drawn,) = axes.plot(np.asarray(x)[keep], middle, **line)
    axes.fill_between(np.asarray(x)[keep], low, high, color=drawn.get_color(), alpha=0.2, linewidth=0)


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


def save(figure: Figure, path: Path, caption: str, pdf: bool = True) -> list[Path]:
    """Writes ``path``.png (and .pdf) with the caption (preset, members, seed) in small; same figure, same bytes."""
    lines = textwrap.fill(caption, round(CHARACTERS * figure.get_figwidth()))  # longer ones would widen the picture
    figure.text(1.0, -0.02, lines, ha="right", va="top", fontsize=6, color="0.35")
    if layout := figure.get_layout_engine():
        layout.execute(figure)
        figure.set_layout_engine(None)  # laid out and measured once for both, which costs as much as drawing
    box = figure.get_tightbbox().padded(0.1)
    kinds = {".png": {"Software": None}} | ({".pdf": {"CreationDate": None}} if pdf else {})
    for suffix, metadata in kinds.items():
        figure.savefig(path.with_suffix(suffix), metadata=metadata, bbox_inches=box)
    return [path.with_suffix(suffix) for suffix in kinds]
