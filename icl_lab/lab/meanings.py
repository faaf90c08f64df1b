"""What bars and bands of a figure stand for: said where they are drawn, and written below every picture."""

from collections.abc import Iterable
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from icl_lab.lab.layout import letters

Artist: TypeAlias = Any
Axes: TypeAlias = Any
Figure: TypeAlias = Any
"""Of matplotlib, which is imported by what draws."""

PERCENTILES = "{marks} are the median over {units}, {spread} run from the {low:g}th to the {high:g}th percentile"
OF_MEAN = "bars are 95\u00a0% intervals of the mean over {units} (Student's t)"
OF_SHARE = "bars are 95\u00a0% intervals of the share of {units} (Wilson)"
MEMBERS = "small marks are members, dashes their median"

_SAID: WeakKeyDictionary[Artist, str] = WeakKeyDictionary()


def percentiles(marks: str, spread: str, share: float = 0.8, units: str = "members") -> str:
    """The sentence about a median and the range that holds the middle ``share`` of the units around it."""
    low, high = 50 - 50 * share, 50 + 50 * share
    return PERCENTILES.format(marks=marks, spread=spread, units=units, low=low, high=high)


def explain(drawn: Iterable[Artist], sentence: str) -> None:
    """Says what is drawn stands for, in a sentence without capital and full stop, such as ``OF_MEAN``."""
    for artist in drawn:
        _SAID[artist] = sentence


def explanations(figure: Figure) -> list[str]:
    """Sentences about a figure, each once; where there are several, with the letters of the panels they speak of."""
    panels: dict[str, list[str]] = {}
    for axes, letter in letters(figure).items():
        for artist in axes.get_children():
            if artist in _SAID:
                where = panels.setdefault(_SAID[artist], [])
                where.extend([letter] * (letter not in where))
    sentences = []
    for sentence, where in panels.items():
        about = f"({', '.join(where)}) " if len(panels) > 1 and any(where) else ""
        sentences.append(f"{about}{sentence[0].upper()}{sentence[1:]}.")
    return sentences


def unexplained(figure: Figure) -> list[str]:
    """Error bars, bands and boxes of a figure of which nothing is said, by the title of their panel; empty if none.

    Of a band that has a label of its own, and of others of its panel in its colour, the legend says it.
    """
    from matplotlib.collections import PolyCollection
    from matplotlib.container import ErrorbarContainer
    from matplotlib.patches import PathPatch

    silent = []
    for axes in figure.axes:
        if axes.get_label() == "<colorbar>":
            continue
        bars = [artist for one in axes.containers if isinstance(one, ErrorbarContainer) for artist in one[2]]
        bands = [artist for artist in axes.collections if isinstance(artist, PolyCollection)]
        boxes = [artist for artist in axes.patches if isinstance(artist, PathPatch)]
        for kind, artists in (("bars", bars), ("bands", bands), ("boxes", boxes)):
            labelled = {str(artist.get_facecolor()) for artist in artists if _labelled(artist)}
            if any(artist not in _SAID and str(artist.get_facecolor()) not in labelled for artist in artists):
                silent.append(f"{kind} of {axes.get_title(loc='left') or axes.get_title() or axes.get_ylabel()!r}")
    return silent


def _labelled(artist: Artist) -> bool:
    return bool(artist.get_label()) and not artist.get_label().startswith("_")
