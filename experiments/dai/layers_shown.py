"""What ``layers`` claims and shows: similarity rises with depth, more than its control, and low layers are noisy.

Figures: box plots over the questions of one network, and below them all networks that learn in context.
"""

from functools import partial
from typing import Any

import numpy as np

from experiments.dai.analysis import present_mean
from experiments.dai.by_encoding import Values, claims_by_encoding, learned, of_encoding, of_networks
from experiments.dai.common import encodings
from experiments.dai.layers import NOISE, SIMILARITY
from experiments.panels import ABOVE
from icl_lab.claims import FAILS
from icl_lab.lab import Record, claims_of
from icl_lab.lab.meanings import explain
from icl_lab.lab.quantities import Quantity
from icl_lab.lab.style import Axes, Figure, band, panels


def layer_means(values: np.ndarray) -> np.ndarray:
    """(M, 6, I, L) -> (M, L) means over tasks and questions."""
    return present_mean(values, (1, 2))


def _slope(quantity: Quantity, first: int = 0) -> Values:
    return lambda record, encoding: slope(layer_means(of_networks(record, quantity, encoding)[..., first:]))


@of_encoding
def _noise_slope(record: Record, encoding: str, quantity: Quantity, first: int = 0) -> np.ndarray:
    """Of the standard deviation over the questions of a task, mean over tasks."""
    values = np.asarray(of_networks(record, quantity, encoding), np.float64)[..., first:]
    center = values.mean(2, keepdims=True)
    return -slope(np.sqrt(((values - center) ** 2).mean(2)).mean(1))


def slope(by_layer: np.ndarray) -> np.ndarray:
    """(M,) least-squares slope over depth, from 0 in the first of the layers to 1 in the last; NaN for a single one."""
    if by_layer.shape[1] < 2:
        return np.full(len(by_layer), np.nan)
    depth = np.linspace(-0.5, 0.5, by_layer.shape[1])
    return by_layer @ depth / np.square(depth).sum()


SIX = 6
"""Networks that learn in context, without which a claim has no verdict: four fewer than elsewhere, because one of eight
layers takes twice as long to train."""
RISE = 0.1
"""The least change from the first layer to the last that counts as a rise: twice ``ALIKE``, within which two
similarities are called the same."""
_BELOW = "a similarity, paired by network; less than twice .05, within which two are called the same, is no rise"

_AT_LAB = dict.fromkeys(
    (
        *(f"{name}_rises" for name in ("sim_aou", "sim_am_after", "kendall")), "sim_aou_rises_above_floor",
        *(f"{name}_rises_more_than_noise" for name in ("sim_am_after", "kendall")),
        "sim_am_rises_more_than_before", "sim_aou_noisy_below",
    ), FAILS,
) | dict.fromkeys(("sim_aou_rises_more_than_noise", "sim_am_after_noisy_below"))  # fmt: skip
"""Verdicts that are expected at lab where a claim is not expected to hold, written before the record of eight layers,
from networks of four: there no slope was above .05, and low layers were less noisy. Two are estimates without a
verdict: they are so near their bound that some four hundred networks would be needed."""
_judged = claims_of("dai.layers", at_lab=_AT_LAB, presets=("lab",), reason=_BELOW)
_claim = partial(claims_by_encoding, _judged, at_least=RISE, minimum_members=SIX)
_PAPER, _WITH = "Dai et al. 2022, first version, box plots", "Dai et al. 2022, first version, with a control"
_METRICS = {
    # the first layer: scores to the query are the same in context, and Kendall's correlation the same after fine-tuning
    "sim_aou": ("SimAOU", 0), "sim_am_after": ("SimAM", 1), "kendall": ("Kendall's correlation", 1),
}  # fmt: skip

CLAIMS = tuple(
    claim for claims in (
        *(
            _claim(f"{name}_rises", f"{what} after fine-tuning rises with depth, by .1 or more (slope over layers).",
                   _slope(SIMILARITY.at(metric=name), first), where=_PAPER, headline=1 * (name == "sim_aou"),
                   published=(f"{what} rises with depth", "first version"))
            for name, (what, first) in _METRICS.items()
        ),
        _claim("sim_aou_rises_above_floor",
               "SimAOU rises with depth by .1 more than its floor, what normalising gives to updates with nothing in "
               "common.",
               _slope(SIMILARITY.at(metric="sim_aou")), _slope(SIMILARITY.at(metric="floor")), where=_WITH, headline=2,
               control=_slope(SIMILARITY.at(metric="floor"))),
        _claim("sim_am_rises_more_than_before",
               "SimAM after fine-tuning rises with depth by .1 more than before it.",
               _slope(SIMILARITY.at(metric="sim_am_after"), 1), _slope(SIMILARITY.at(metric="sim_am_before"), 1),
               where=_WITH, control=_slope(SIMILARITY.at(metric="sim_am_before"), 1)),
        *(
            _claim(f"{name}_rises_more_than_noise",
                   f"{what} rises with depth by .1 more than for noise of equal size in every layer.",
                   _slope(SIMILARITY.at(metric=name), first), _slope(NOISE.at(metric=name), first), where=_WITH,
                   # Kendall's correlation rises for noise too
                   control=None if name == "kendall" else _slope(NOISE.at(metric=name), first))
            for name, (what, first) in _METRICS.items()
        ),
        *(
            _claim(f"{name}_noisy_below", f"{what} is noisier in low layers (slope of its spread over questions).",
                   _noise_slope(SIMILARITY.at(metric=name), first), at_least=0.0, where=_PAPER,
                   published=(f"{what} noisier below", "first version"), reason="an ordering, paired by network")
            for name, (what, first) in _METRICS.items() if name != "kendall"
        ),
    ) for claim in claims
)  # fmt: skip

PANELS = {
    "SimAOU": ("sim_aou", "floor", "floor"),
    "SimAM": ("sim_am_after", "sim_am_before", "before fine-tuning"),
    "Kendall": ("kendall", "kendall_random", "random weights"),
}
"""By title the metric, and its floor by what it is called."""
LOOKS = (
    {"color": "#0072B2", "linestyle": "-", "marker": "o"},
    {"color": "#D55E00", "linestyle": "--", "marker": "s"},
    {"color": "#777777", "linestyle": ":", "marker": "v"},
)
QUARTILES = "boxes are quartiles over the questions of all tasks, whiskers run from the 5th to the 95th percentile"


def figures(record: Record) -> dict[str, Figure]:
    """One for each position encoding."""
    return {f"layers_{encoding}": _layers(record, encoding) for encoding in encodings(record)}


def _layers(record: Record, encoding: str) -> Figure:
    passed = learned(record, encoding)
    first = int(np.argmax(passed))  # that learns in context
    figure, (above, below) = panels(len(PANELS), 2, shape=0.8)
    for top, bottom, (title, (metric, floor, floor_name)) in zip(above, below, PANELS.items()):
        series = {
            "fine-tuning": SIMILARITY.at(metric=metric),
            "noise of equal size": NOISE.at(metric=metric),
            floor_name: SIMILARITY.at(metric=floor),
        }
        for i, ((label, quantity), look) in enumerate(zip(series.items(), LOOKS)):
            values = quantity(record, positions=encoding)
            layers = np.arange(1, values.shape[-1] + 1)
            questions = np.moveaxis(values[first], -1, 0).reshape(len(layers), -1)  # (L, 6 I)
            _boxes(top, layers + 0.27 * (i - 1), questions, look["color"])
            if passed.any():
                band(bottom, layers, layer_means(values[passed]), label=label, **look)
        for axes in (top, bottom):
            axes.set(xlabel="layer", xticks=layers)
        if title != "SimAM":  # far from zero
            top.axhline(0, color="0.7", linewidth=0.6)
            bottom.axhline(0, color="0.7", linewidth=0.6)
        top.set(title=f"{title}, one network", ylabel=title)
        bottom.set(title=f"{title}, {passed.sum()} networks", ylabel=title)
        if passed.any():
            bottom.legend(ncols=1, **ABOVE)
    return figure


def _boxes(axes: Axes, at: np.ndarray, by_layer: np.ndarray, color: str) -> None:
    """Boxes of the values that are defined, whiskers at the 5th and 95th percentile."""
    looks: dict[str, Any] = {
        "medianprops": {"color": "black", "linewidth": 0.8},
        "whiskerprops": {"color": color, "linewidth": 0.8},
        "boxprops": {"facecolor": color, "edgecolor": color, "alpha": 0.6},
    }
    defined = [values[~np.isnan(values)] for values in by_layer]
    options: dict[str, Any] = {"patch_artist": True, "manage_ticks": False, "showfliers": False, "showcaps": False}
    drawn = axes.boxplot(defined, positions=at, widths=0.2, whis=(5, 95), **looks, **options)
    explain(drawn["boxes"], QUARTILES)
