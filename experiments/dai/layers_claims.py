"""What ``layers`` claims: similarity rises with depth, more than its control does, and low layers are noisy."""

import numpy as np

from experiments.dai.implicit_finetuning_claims import Values, learns_in_context, network_means, of_networks
from icl_lab.lab import Claim, Record, claims_of

NOISE = "random_update"
SHOWN = (
    "sim_aou", "sim_aou_raw", "floor", "random", "sim_am_before", "sim_am_after", "sim_am_delta", "kendall",
    "kendall_random",
)  # fmt: skip


def _layer_means(name: str, first: int = 0) -> Values:
    """(M, L) mean over tasks and questions, from a layer on."""

    def means(record: Record) -> np.ndarray:
        values = np.moveaxis(of_networks(record, name)[..., first:], -1, 1)
        members, layers = values.shape[:2]
        return network_means(values.reshape(members * layers, values[:1, :1].size)).reshape(members, layers)

    return means


def _spreads(name: str, first: int = 0) -> Values:
    """(M, L) standard deviation over the questions of a task, mean over tasks."""

    def spreads(record: Record) -> np.ndarray:
        values = np.asarray(of_networks(record, name), np.float64)[..., first:]
        center = values.mean(2, keepdims=True)
        return np.sqrt(((values - center) ** 2).mean(2)).mean(1)

    return spreads


def slope(by_layer: np.ndarray) -> np.ndarray:
    """(M,) least-squares slope over depth, from 0 in the first of the layers to 1 in the last; NaN for a single one."""
    if by_layer.shape[1] < 2:
        return np.full(len(by_layer), np.nan)
    depth = np.linspace(-0.5, 0.5, by_layer.shape[1])
    return by_layer @ depth / np.square(depth).sum()


_slope_claim = claims_of(
    "dai.layers", reason="an ordering, paired by network", relation=">=", minimum_members=3,
    expected_verdict={"lab": "not resolved"},  # four networks that learn in context are too few
)  # fmt: skip


def _claim(name: str, where: str, statement: str, of: Values, over: Values | None, sign: int = 1) -> Claim:
    """A slope, or by how much it is larger than another."""

    def statistic(record: Record) -> np.ndarray:
        values = sign * (slope(of(record)) - (slope(over(record)) if over else 0))
        return np.where(learns_in_context(record), values, np.nan)

    control = (lambda record: slope(over(record))) if over else None
    return _slope_claim(name, where, statement, statistic, 0.0, control=control)


_PAPER, _WITH = "Dai et al. 2022, first version, box plots", "Dai et al. 2022, first version, with a control"
_METRICS = {
    # the first layer's scores to the query are the same in context, with rotary positions
    "sim_aou": ("SimAOU", 0), "sim_am_after": ("SimAM", 1), "kendall": ("Kendall's correlation", 0),
}  # fmt: skip

CLAIMS = (
    *(
        _claim(f"{name}_rises", _PAPER, f"{what} after fine-tuning rises with depth (slope over layers).",
               _layer_means(name, first), None)
        for name, (what, first) in _METRICS.items()
    ),
    _claim("sim_aou_rises_above_floor", _WITH,
           "SimAOU rises with depth more than its floor, what normalising gives to updates with nothing in common.",
           _layer_means("sim_aou"), _layer_means("floor")),
    _claim("sim_am_rises_more_than_before", _WITH,
           "SimAM after fine-tuning rises with depth more than before it.",
           _layer_means("sim_am_after", 1), _layer_means("sim_am_before", 1)),
    *(
        _claim(f"{name}_rises_more_than_noise", _WITH,
               f"{what} rises with depth more than for noise of equal norm in place of the update.",
               _layer_means(name, first), _layer_means(f"noise/{name}", first))
        for name, (what, first) in _METRICS.items()
    ),
    *(
        _claim(f"{name}_noisy_below", _PAPER, f"{what} is noisier in low layers (slope of its spread over questions).",
               _spreads(name, first), None, sign=-1)
        for name, (what, first) in _METRICS.items() if name != "kendall"
    ),
)  # fmt: skip
