"""What ``layers`` claims: similarity rises with depth, more than its control does, and low layers are noisy."""

from typing import Any

import numpy as np

from experiments.dai.by_encoding import Values, array, claims_by_encoding, network_means
from icl_lab.lab import Claim, Record, claims_of

NOISE = "random_update"
SHOWN = (
    "sim_aou", "sim_aou_raw", "floor", "random", "sim_am_before", "sim_am_after", "sim_am_delta", "kendall",
    "kendall_random",
)  # fmt: skip


def layer_means(values: np.ndarray) -> np.ndarray:
    """(M, 6, I, L) -> (M, L) means over tasks and questions."""
    by_layer = np.moveaxis(values, -1, 1)
    members, layers = by_layer.shape[:2]
    return network_means(by_layer.reshape(members * layers, by_layer[:1, :1].size)).reshape(members, layers)


def _slope(name: str, first: int = 0) -> Values:
    of = array(name)
    return lambda record, positions: slope(layer_means(of(record, positions)[..., first:]))


def _noise_slope(name: str, first: int = 0) -> Values:
    """Of the standard deviation over the questions of a task, mean over tasks."""

    def of(record: Record, positions: str) -> np.ndarray:
        values = np.asarray(array(name)(record, positions), np.float64)[..., first:]
        center = values.mean(2, keepdims=True)
        return -slope(np.sqrt(((values - center) ** 2).mean(2)).mean(1))

    return of


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
    ), "fails",
) | dict.fromkeys(("sim_aou_rises_more_than_noise", "sim_am_after_noisy_below"))  # fmt: skip
"""Verdicts that are expected at lab where a claim is not expected to hold, written before the record of eight layers,
from networks of four: there no slope was above .05, and low layers were less noisy. Two are estimates without a
verdict: they are so near their bound that some four hundred networks would be needed."""
_judged = claims_of("dai.layers", at_lab=_AT_LAB, presets=("lab",), reason=_BELOW, relation=">=")


def _claim(
    name: str, where: str, statement: str, of: Values, over: Values | None = None, least: float = RISE, **more: Any
) -> list[Claim]:
    return claims_by_encoding(_judged, name, where, statement, of, over, least, minimum_members=SIX, **more)


_PAPER, _WITH = "Dai et al. 2022, first version, box plots", "Dai et al. 2022, first version, with a control"
_METRICS = {
    # the first layer: scores to the query are the same in context, and Kendall's correlation the same after fine-tuning
    "sim_aou": ("SimAOU", 0), "sim_am_after": ("SimAM", 1), "kendall": ("Kendall's correlation", 1),
}  # fmt: skip

CLAIMS = tuple(
    claim for claims in (
        *(
            _claim(f"{name}_rises", _PAPER,
                   f"{what} after fine-tuning rises with depth, by .1 or more (slope over layers).",
                   _slope(name, first))
            for name, (what, first) in _METRICS.items()
        ),
        _claim("sim_aou_rises_above_floor", _WITH,
               "SimAOU rises with depth by .1 more than its floor, what normalising gives to updates with nothing in "
               "common.",
               _slope("sim_aou"), _slope("floor")),
        _claim("sim_am_rises_more_than_before", _WITH,
               "SimAM after fine-tuning rises with depth by .1 more than before it.",
               _slope("sim_am_after", 1), _slope("sim_am_before", 1)),
        *(
            _claim(f"{name}_rises_more_than_noise", _WITH,
                   f"{what} rises with depth by .1 more than for noise of equal size in every layer.",
                   _slope(name, first), _slope(f"noise/{name}", first))
            for name, (what, first) in _METRICS.items()
        ),
        *(
            _claim(f"{name}_noisy_below", _PAPER,
                   f"{what} is noisier in low layers (slope of its spread over questions).", _noise_slope(name, first),
                   least=0.0, reason="an ordering, paired by network")
            for name, (what, first) in _METRICS.items() if name != "kendall"
        ),
    ) for claim in claims
)  # fmt: skip
