"""How figures draw mixers: their names, their looks, no two alike in grey, and what several figures draw of each."""

from collections.abc import Sequence

import numpy as np

from experiments.dai.mixers import eta_of, kind, window_of
from icl_lab.lab import Record
from icl_lab.lab.style import SPARSE, Axes, band

HUES: dict[str, dict] = {
    "vanilla": {"color": "#000000", "linestyle": "-"},
    "momentum": {"color": "#D55E00", "linestyle": "--"},
    "learned": {"color": "#CC79A7", "linestyle": (0, (5, 1))},
    "normalised": {"color": "#E69F00", "linestyle": (0, (3, 1, 1, 1))},
    "recent": {"color": "#0072B2", "linestyle": ":"},
}


def label(name: str) -> str:
    """The name of a mixer in figures."""
    if kind(name) == "recent":
        window = window_of(name)
        return "shift by one token" if window == 1 else f"mean of last {window}"
    labels = {"vanilla": "vanilla", "momentum": "momentum", "normalised": "normalised", "learned": "learned, from"}
    return labels[kind(name)] + ("" if name == "vanilla" else f" {eta_of(name):g}")


def looks(record: Record) -> dict[str, dict]:
    """Line, marker and label of every mixer: a kind has its hue and dash, its mixers shades, every mixer a marker."""
    names, styles = record.config["mixers"], {}
    for i, name in enumerate(names):
        earlier = sum(kind(one) == kind(name) for one in names[:i])
        shade = {"alpha": max(0.35, 1 - 0.3 * earlier), "marker": "osv^DPX*<>"[i % 10]}
        styles[name] = HUES[kind(name)] | shade | {"label": label(name)}
    return styles


def curves(axes: Axes, record: Record, x: np.ndarray, values: np.ndarray) -> None:
    """Values (V, M, X) of every mixer as a band with sparse markers."""
    for look, members in zip(looks(record).values(), values, strict=True):
        band(axes, x, members, **look | SPARSE)


def name_ticks(axes: Axes, names: Sequence[str]) -> None:
    """One mixer at each tick, 0, 1, .."""
    axes.set_xticks(range(len(names)), [label(name) for name in names], rotation=30, ha="right")
