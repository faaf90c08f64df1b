"""Pictures as data URIs that are small enough for one file, and claims as dots on the region in which they hold."""

import base64
import dataclasses
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, features

from experiments.page.words import powers

WIDTH, HEIGHT, RADIUS = 320.0, 42.0, 2.5  # of the drawing of one claim, in its own units
MOST = 72  # dots in a drawing; of more members as many order statistics are drawn


@dataclasses.dataclass(frozen=True)
class Picture:
    """A picture, ready for ``<img>``."""

    uri: str
    width: int  # at which it is shown, in CSS pixels
    height: int
    least: int  # hundreds of CSS pixels below which its labels cannot be read; it is scrolled instead


def picture(path: Path, width: int, quality: int) -> Picture:
    """A picture of at most this width (pixels); quality to 100. AVIF, or WebP where Pillow was built without it.

    A palette of few colours would be smaller yet, but takes the pale bands of the members for paper.

    Raises:
      OSError: if the file is not a picture.
    """
    with Image.open(path) as opened:
        image = opened.convert("RGB")
    natural, shape = image.width, image.height / image.width
    if natural > width:
        image = image.resize((width, round(width * shape)), Image.Resampling.LANCZOS)
    written = io.BytesIO()
    if features.check("avif"):  # one thread, so that the bytes do not depend on their number
        kind, options = "avif", {"quality": quality, "speed": 9, "subsampling": "4:4:4", "max_threads": 1}
    else:
        kind, options = "webp", {"quality": quality + 5, "method": 2}
    image.save(written, kind.upper(), **options)
    uri = f"data:image/{kind};base64,{base64.b64encode(written.getvalue()).decode()}"
    shown = round(natural / 1.7)  # letters of 8 points at 200 pixels an inch are then 13 pixels high
    return Picture(uri, shown, round(shown * shape), min(9, math.ceil(0.55 * shown / 100)))


def shrink(path: Path, largest: int) -> None:
    """Gives a PNG 256 colours, a third of the bytes, and fewer pixels until it is smaller than ``largest`` bytes."""
    with Image.open(path) as opened:
        picture = opened.convert("RGB")
    picture.quantize(256).save(path, optimize=True)
    while path.stat().st_size >= largest:
        picture = picture.resize((picture.width * 4 // 5, picture.height * 4 // 5), Image.Resampling.LANCZOS)
        picture.quantize(256).save(path, optimize=True)


@dataclasses.dataclass(frozen=True)
class Dots:
    """A drawing of one claim: places along x in units of the drawing, None where there is none."""

    label: str  # what it shows, in words
    region: tuple[float, float]  # in which the claim holds
    expected: float
    estimate: float | None
    interval: tuple[float, float] | None
    path: str  # of the members: a dot is a line of no length with round ends
    edges: list[tuple[float, str]]  # finite ends of the region, with their numbers


def region(row: Mapping[str, Any]) -> tuple[float, float]:
    """The region in which a ledger row's claim holds."""
    low = -math.inf if row["relation"] == "<=" else row["expected"] - row["tolerance"]
    high = math.inf if row["relation"] == ">=" else row["expected"] + row["tolerance"]
    return low, high


def dots(row: Mapping[str, Any], members: np.ndarray) -> Dots | None:
    """The drawing of a ledger row; None where nothing was measured.

    Args:
      row: of the ledger.
      members: (M,) values of the claim's statistic, without NaN; empty where they are not known.
    """
    low, high = region(row)
    members = np.sort(members[np.isfinite(members)])
    ends = [end for end in row["interval"] if end is not None]
    known = [*ends, *([] if row["estimate"] is None else [row["estimate"]])]
    if not known and not members.size:
        return None
    shown = [low, high, row["expected"], *known, *(np.quantile(members, [0.05, 0.95]) if members.size else [])]
    finite = [float(value) for value in shown if math.isfinite(value)]
    start, width = min(finite), (max(finite) - min(finite)) or abs(finite[0]) or 1.0

    def place(value: float) -> float:
        share = 0.04 + 0.92 * (value - start) / width
        return round(WIDTH * min(max(share, 0.012), 0.988), 1)

    edges = [(place(end), powers(f"{end:.3g}")) for end in (low, high) if math.isfinite(end)]
    if len(edges) == 2 and edges[1][0] - edges[0][0] < 56:  # their numbers would overlap
        edges = [((edges[0][0] + edges[1][0]) / 2, f"{edges[0][1]} … {edges[1][1]}")]
    drawn = members
    if members.size > MOST:
        drawn = np.quantile(members, (np.arange(MOST) + 0.5) / MOST, method="nearest")
    return Dots(
        _label(members, low, high, drawn.size),
        (0.0 if math.isinf(low) else place(low), WIDTH if math.isinf(high) else place(high)),
        place(row["expected"]),
        None if row["estimate"] is None else place(row["estimate"]),
        (place(ends[0]), place(ends[1])) if len(ends) == 2 else None,
        _stacked([place(value) for value in drawn]),
        edges,
    )


def _stacked(places: list[float]) -> str:
    """An SVG path with one dot at each place; dots at one place stand above and below each other."""
    taken: dict[int, int] = {}
    words = []
    for x in places:
        column = round(x / (2 * RADIUS))
        n = taken[column] = taken.get(column, -1) + 1
        row = (n % 7 + 1) // 2 * (1 if n % 2 else -1)
        words.append(f"M{x:g} {15 - 4 * row}h0")
    return "".join(words)


def _label(members: np.ndarray, low: float, high: float, drawn: int) -> str:
    if not members.size:
        return "interval of the estimate against the region in which the claim holds; members are not kept"
    if members.size == 1:
        return f"one value, {powers(f'{members[0]:.3g}')}"
    inside = int(((members >= low) & (members <= high)).sum())
    some = f", {drawn} order statistics drawn" if drawn < members.size else ""
    least, most = (powers(f"{value:.3g}") for value in (members[0], members[-1]))
    return f"{members.size} members from {least} to {most}{some}; {inside} of them in the region"


@dataclasses.dataclass(frozen=True)
class Place:
    """A claim on the axis that all claims share: its region is -1 to 1, or one side of it; places in pixels."""

    region: tuple[float, float]
    interval: tuple[float, float]
    estimate: float
    beyond: str  # "left" or "right" where the estimate lies off the axis


AXIS, UNIT = 132.0, 22.0  # width of the common axis, and of one on it, in pixels


def on_common_axis(row: Mapping[str, Any]) -> Place | None:
    """Where a ledger row lies on the common axis; None where nothing was measured.

    Of a claim with a value and a tolerance 0 is the value. A bound (with its tolerance) lies at 1 or -1; the unit is
    its tolerance, else the bound itself, else half of the farthest number.
    """
    if row["estimate"] is None:
        return None
    ends = [row["estimate"] if end is None else end for end in row["interval"]]
    low, high = region(row)
    if row["relation"] == "==":
        zero, unit = row["expected"], row["tolerance"] or 1.0
    else:
        bound = high if math.isinf(low) else low
        unit = row["tolerance"] or abs(bound) or max(map(abs, ends)) / 2 or 1.0
        zero = bound - unit if math.isinf(low) else bound + unit

    def place(value: float) -> float:
        return round(AXIS / 2 + UNIT * min(max((value - zero) / unit, -2.9), 2.9), 1)

    at = (row["estimate"] - zero) / unit
    return Place(
        (0.0 if math.isinf(low) else place(low), AXIS if math.isinf(high) else place(high)),
        (place(ends[0]), place(ends[1])),
        place(row["estimate"]),
        "left" if at < -2.9 else "right" if at > 2.9 else "",
    )
