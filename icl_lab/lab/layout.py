"""Lays a figure out for print: panel letters, wrapped titles, one legend for what panels share, none on the data."""

import re
from collections.abc import Sequence
from string import ascii_lowercase
from typing import Any, TypeAlias

import numpy as np

Axes: TypeAlias = Any
Figure: TypeAlias = Any
"""Of matplotlib, which is imported by what draws; its stubs let every legend be None."""

WIDTHS = {1: 5.5, 2: 5.5, 3: 6.75}
"""Of a figure in inches, by its panels in a row: the text widths of two common formats of papers."""


def finish(figure: Figure) -> None:
    """Lays a figure out for the last time, at its final size; a figure that has been laid out stays as it is.

    Panels get letters, titles and labels are wrapped to the width that they have, the title of a legend becomes that of
    its panel if that has none, entries that look the same in several panels make one legend of the figure, and a
    legend that would cover data, or whose marks could be taken for data, stands between panel and title. The figure
    grows by what stands above its panels.
    """
    layout = figure.get_layout_engine()
    if layout is None:
        return
    panels = panels_of(figure)
    for axes in figure.axes:
        _without_logarithm_of_nothing(axes)
    for axes in panels:
        _tick_within_decades(axes)
        _take_title(axes)
    above = [_share_legends(figure, panels)]
    names = letters(figure)
    for axes in panels:  # widths before the layout are near enough those after it
        _wrap(axes.xaxis.label, axes.bbox.width)
        _wrap(axes.yaxis.label, axes.bbox.height, turned=True)
        _set_title(axes, names[axes])
    anchored = [axes for axes in panels if axes.get_legend() and not axes.get_legend().get_bbox_to_anchor().width]
    above += _raise_legends(anchored)
    above += [0.13 * n for n in _most_by_row({axes: axes.get_title(loc="left").count("\n") for axes in panels})]
    figure.set_figheight(figure.get_figheight() + sum(above))
    layout.execute(figure)
    wide = [axes for axes in panels if _wrap(axes.xaxis.label, 1.1 * axes.bbox.width)]
    inside = [axes for axes in panels if axes not in anchored and axes.get_legend()]
    rows = {_row(axes) for axes in inside if covers(axes) or _of_points(axes)}
    covering = [axes for axes in inside if _row(axes) in rows]  # legends of one row stand alike
    if wide or covering:
        figure.set_figheight(figure.get_figheight() + sum(_raise_legends(covering)))
        layout.execute(figure)
    figure.set_layout_engine(None)


def panels_of(figure: Figure) -> list[Axes]:
    """Axes that show something, row by row; neither colour bars nor the second axes of a panel."""
    seen, panels = set(), []
    for axes in figure.axes:
        place = axes.get_subplotspec()
        if axes.axison and axes.get_visible() and axes.get_label() != "<colorbar>" and place not in seen:
            seen.add(place)
            panels.append(axes)
    places = [axes.get_subplotspec() for axes in panels]
    if all(places):
        order = sorted(range(len(panels)), key=lambda i: (places[i].rowspan.start, places[i].colspan.start))
        panels = [panels[i] for i in order]
    return panels


def letters(figure: Figure) -> dict[Axes, str]:
    """The letter of every panel, and of second axes in its place; empty where there is one panel alone."""
    panels = panels_of(figure)
    names = dict(zip(panels, ascii_lowercase)) if len(panels) > 1 else dict.fromkeys(panels, "")
    places = {axes.get_subplotspec(): letter for axes, letter in names.items() if axes.get_subplotspec()}
    others = [axes for axes in figure.axes if axes not in names and axes.get_subplotspec() in places]
    return names | {axes: places[axes.get_subplotspec()] for axes in others}


def dashes(line: Any) -> str:
    """The pattern of a line, of which matplotlib has no getter, as it asks a renderer for it."""
    from matplotlib.backend_bases import RendererBase
    from matplotlib.lines import Line2D
    from matplotlib.transforms import IdentityTransform

    class Asked(RendererBase):
        pattern = "none"

        def draw_path(self, gc, path, transform, rgbFace=None):
            self.pattern = str(gc.get_dashes())

        def draw_markers(self, *_, **__):
            pass

    renderer, like = Asked(), Line2D([0, 1], [0, 1])
    like.update_from(line)
    like.set(clip_path=None, visible=True, transform=IdentityTransform())
    like.draw(renderer)
    return renderer.pattern


def covers(axes: Axes) -> bool:
    """Whether any line, area, point, bar or text of a panel lies below its legend."""
    from matplotlib.transforms import Bbox

    box = axes.get_legend().get_window_extent().padded(-1)
    if not box.overlaps(axes.bbox):
        return False
    box = Bbox.intersection(box, axes.bbox) or box
    if axes.images:
        return True
    for line in axes.lines:
        path = line.get_transform().transform_path(line.get_path())
        if len(path.vertices) and path.intersects_bbox(box, filled=False):
            return True
    for patch in axes.patches:
        if patch.get_transform().transform_path(patch.get_path()).intersects_bbox(box, filled=patch.get_fill()):
            return True
    for drawn in axes.collections:
        offsets = drawn.get_offset_transform().transform(drawn.get_offsets())
        if len(offsets) > 1 and box.count_contains(offsets):
            return True
        if len(offsets) <= 1:
            paths = [drawn.get_transform().transform_path(path) for path in drawn.get_paths()]
            if any(path.intersects_bbox(box, filled=bool(len(drawn.get_facecolor()))) for path in paths):
                return True
    return any(text.get_window_extent().overlaps(box) for text in axes.texts if text.get_text())


def _without_logarithm_of_nothing(axes: Axes) -> None:
    """A log axis on which nothing is positive (a run of no steps) becomes linear: no tick fits there."""
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        if axis.get_scale() == "log" and not np.isfinite(axis.get_minpos()):
            axes.set(**{f"{name}scale": "linear"})


def _tick_within_decades(axes: Axes) -> None:
    """Ticks 1, 2, 5 in plain numbers on a log axis that shows fewer than two powers of ten."""
    from matplotlib import ticker

    for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        if axis.get_scale() != "log" or not isinstance(axis.get_major_locator(), ticker.LogLocator):
            continue
        low, high = sorted((low, high))
        if high / low < 100 and not any(10**k >= low and 10 ** (k + 1) <= high for k in range(-20, 20)):
            wide = high / low > 3
            axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)) if wide else ticker.MaxNLocator(4))
            axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(ticker.NullFormatter())


def _take_title(axes: Axes) -> None:
    """The title of a panel, of whatever place, to the left; that of its legend if it has none."""
    texts = [axes.get_title(loc=loc) for loc in ("center", "left", "right")]
    legend = axes.get_legend()
    if legend and not any(texts):
        texts = [legend.get_title().get_text()]
        legend.set_title(None)
    for loc in ("center", "right"):
        axes.set_title("", loc=loc)
    axes.set_title(next(filter(None, texts), ""), loc="left")


def _wrap(text: Any, width: float, turned: bool = False) -> bool:
    """Breaks a text that is too wide into lines of at most ``width`` pixels, formulas and words whole."""

    def fits() -> bool:
        box = text.get_window_extent()
        return (box.height if turned else box.width) <= width

    if not text.get_text() or fits():
        return False
    lines: list[str] = []
    for word in re.findall(r"(?:\$[^$]*\$|\S)+", text.get_text()):
        text.set_text(f"{lines[-1]} {word}" if lines else word)
        if lines and fits():
            lines[-1] = text.get_text()
        else:
            lines.append(word)
    text.set_text("\n".join(lines))
    return True


def _set_title(axes: Axes, letter: str) -> None:
    """``a  title``, its letter bold."""
    words = axes.get_title(loc="left")
    if words or letter:
        bold = rf"$\mathbf{{{letter}}}\;\;$" if letter else ""
        _wrap(axes.set_title(bold + words, loc="left"), axes.bbox.width)


def _entries(axes: Axes) -> dict[str, Any]:
    """Entries of a panel's legend: label -> what is drawn."""
    legend = axes.get_legend()
    if legend is None or not legend.get_visible():
        return {}
    drawn = dict(zip(*reversed(axes.get_legend_handles_labels())))
    labels = [text.get_text() for text in legend.get_texts()]
    return {label: drawn.get(label, handle) for label, handle in zip(labels, legend.legend_handles)}


def _look(handle: Any) -> tuple:
    from matplotlib.colors import to_hex

    one = handle[0] if isinstance(handle, tuple) and len(handle) else handle
    color = one.get_color() if hasattr(one, "get_color") else one.get_facecolor()
    try:
        color = to_hex(color)
    except ValueError:  # of a collection: an array
        color = str(color)
    if not hasattr(one, "get_marker"):
        return (color,)
    return color, dashes(one), str(one.get_marker())


def _of_points(axes: Axes) -> bool:
    """Whether a legend has marks without a line."""
    ones = [handle[0] if isinstance(handle, tuple) and len(handle) else handle for handle in _entries(axes).values()]
    return any(str(one.get_linestyle()).strip().lower() in ("", "none") for one in ones if hasattr(one, "get_marker"))


def _row(axes: Axes) -> int:
    place = axes.get_subplotspec()
    return place.rowspan.start if place else 0


def _share_legends(figure: Figure, panels: Sequence[Axes]) -> float:
    """Makes one legend of entries that several panels have; returns its height in inches.

    A legend with a look that means something else in another panel stays whole; of equal ones in a row the first stays.
    """
    shared: dict[str, Any] = {}
    for legend in list(figure.legends):
        shared |= dict(zip((text.get_text() for text in legend.get_texts()), legend.legend_handles))
        legend.remove()
    entries = [_entries(axes) for axes in panels]
    labelled = [dict(zip(*reversed(axes.get_legend_handles_labels()))) | marks for axes, marks in zip(panels, entries)]
    looks = [{label: _look(handle) for label, handle in of.items()} for of in labelled]
    labels: dict[tuple, set[str]] = {}
    for of in looks:
        for label, look in of.items():
            labels.setdefault(look, set()).add(label)
    for marks, look_of in zip(entries, looks):
        clear = all(len(labels[look_of[label]]) == 1 for label in marks)
        for label, handle in marks.items() if clear else ():
            appearances = [of[label] for of in looks if label in of]
            if len(appearances) > 1 and len(set(appearances)) == 1:
                shared.setdefault(label, handle)
    first: dict[tuple, list] = {}
    for axes, marks, look_of in zip(panels, entries, looks):
        rest = {label: handle for label, handle in marks.items() if label not in shared}
        legend, place = axes.get_legend(), axes.get_subplotspec()
        row = first.setdefault((place.get_gridspec(), place.rowspan.start) if place else (None, 0), [])
        same = [(label, look_of[label]) for label in rest]
        if legend and (not rest or same in row):
            legend.remove()
        elif legend and len(rest) < len(marks):
            axes.legend(list(rest.values()), list(rest), title=legend.get_title().get_text() or None)
        row.append(same)
    if not shared:
        return 0.0
    shared_legend = _fitting(figure, shared, figure.bbox.width, loc="outside upper center")
    return shared_legend.get_window_extent().height / figure.dpi + 0.05


def _fitting(on: Any, entries: dict[str, Any], width: float, **options: Any) -> Any:
    """A legend of as many columns as have room in ``width`` pixels."""
    compact: dict[str, Any] = {"columnspacing": 1.2, "handlelength": 2.2, "handletextpad": 0.5, "borderaxespad": 0.3}
    legend = on.legend(list(entries.values()), list(entries), **options, **compact)
    columns = min(len(entries), max(1, int(width / legend.get_window_extent().width)))
    if columns > 1:
        legend.remove()
        rows = -(-len(entries) // columns)
        columns = -(-len(entries) // rows)
        legend = on.legend(list(entries.values()), list(entries), ncols=columns, **options, **compact)
    return legend


def _raise_legends(panels: Sequence[Axes]) -> list[float]:
    """Puts legends between panel and title; returns the height of the highest of each row in inches."""
    heights: dict[Axes, float] = {}
    for axes in panels:
        title = axes.get_legend().get_title().get_text() or None
        place: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "title": title}
        legend = _fitting(axes, _entries(axes), axes.bbox.width, **place)
        heights[axes] = legend.get_window_extent().height / axes.figure.dpi
        axes.set_title(axes.get_title(loc="left"), loc="left", pad=4 + 72 * heights[axes])
    return _most_by_row(heights)


def _most_by_row(values: dict[Axes, float]) -> list[float]:
    rows: dict[int, float] = {}
    for axes, value in values.items():
        rows[_row(axes)] = max(rows.get(_row(axes), 0.0), value)
    return list(rows.values())
