"""What ``layers`` claims and shows: similarity rises with depth, more than its control, and low layers are noisy.

Figures: box plots over the questions of one network, and below them a line for every network.
"""

from functools import partial

import numpy as np

from experiments.dai.analysis import present_mean
from experiments.dai.by_encoding import Values, claims_by_encoding, gate_of, learned, of_encoding, of_networks
from experiments.dai.common import encodings
from experiments.dai.layers import NOISE, SIMILARITY
from experiments.panels import described
from icl_lab.claims import FAILS
from icl_lab.lab import Record, claims_of
from icl_lab.lab.quantities import Quantity
from icl_lab.lab.style import Axes, Figure, panels


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
LOOKS = (("#0072B2", "-", "o"), ("#888888", ":", "v"), ("#D55E00", "--", "s"))


def figures(record: Record) -> dict[str, Figure]:
    """One for each position encoding."""
    return {f"layers_{encoding}": _layers(record, encoding) for encoding in encodings(record)}


def _layers(record: Record, encoding: str) -> Figure:
    passed = learned(record, encoding)
    one = int(np.argmax(passed))  # the first that learns in context
    figure, axes = panels(len(PANELS), 2, shape=0.58)
    for column, (title, (metric, floor, floor_name)) in zip(axes.T, PANELS.items()):
        series = {
            "fine-tuning": SIMILARITY.at(metric=metric),
            floor_name: SIMILARITY.at(metric=floor),
            "noise of equal size": NOISE.at(metric=metric),
        }
        for i, ((label, quantity), (color, dash, marker)) in enumerate(zip(series.items(), LOOKS)):
            values = quantity(record, positions=encoding)
            questions = np.moveaxis(values[one], -1, 0)  # (L, 6, I)
            _box(column[0], questions.reshape(len(questions), -1), 0.27 * (i - 1), color, label)
            if passed.any():
                lines, x = layer_means(values[passed]), np.arange(len(questions))
                column[1].plot(x, lines.T, color=color, linestyle=dash, linewidth=0.4, alpha=0.6)
                column[1].plot(x, lines.mean(0), color=color, linestyle=dash, marker=marker, label=label)
        for at in column:
            at.set_xticks(range(values.shape[-1]), [str(layer + 1) for layer in range(values.shape[-1])])
            at.axhline(0, color="0.7", linewidth=0.6)
            at.set_xlabel("layer")
        column[1].set_title(f"{title}, every network and the mean")
        described(column[0], 3, title=f"{title}, questions of one network", ylabel=title)
    figure.suptitle(gate_of(record, encoding), fontsize=9)
    return figure


def _box(axes: Axes, by_layer: np.ndarray, shift: float, color: str, label: str) -> None:
    """Boxes of the values that are defined, whiskers at the 5th and 95th percentile."""
    drawn = axes.boxplot(
        [values[~np.isnan(values)] for values in by_layer],
        positions=np.arange(len(by_layer)) + shift, widths=0.22, whis=(5, 95), showfliers=False, patch_artist=True,
        manage_ticks=False, medianprops={"color": "black"},
    )  # fmt: skip
    for box in drawn["boxes"]:
        box.set_facecolor(color)
        box.set_alpha(0.6)
    drawn["boxes"][0].set_label(label)
