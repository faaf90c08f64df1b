"""What ``momentum_language_model`` claims: whether momentum helps, by how much, and more than a local mixer does."""

from collections.abc import Callable

import numpy as np

from experiments.dai.mixed_language import falls_from
from experiments.dai.mixers import chosen, momenta, of
from icl_lab.claims import NOT_REACHED, Criterion
from icl_lab.lab import Record, claims_of

LENGTHS = ("T/4", "T/2", "T")
PUBLISHED = (0.0067, 0.0083, 0.0079)
"""Relative gains of perplexity at 256, 512, 1024 tokens (Table 6): 19.50 to 19.37, 16.87 to 16.73, 15.14 to 15.02."""


def gain(record: Record, length: int, which: str = "momentum") -> np.ndarray:
    """(M,) relative gain of validation perplexity over vanilla, paired on start and data."""
    losses = record["final"][..., length].astype(float)
    return 1 - np.exp(chosen(record, which, losses) - of(record, "final", "vanilla")[:, length])


def against_control(record: Record, length: int = 2) -> np.ndarray:
    """(M,) nats a byte by which the best momentum beats the best local mixer."""
    losses = record["final"][..., length]
    return chosen(record, "recent", losses) - chosen(record, "momentum", losses)


def gap(record: Record) -> np.ndarray:
    """(M, R) nats a byte by which the momentum that is best in the end is ahead of vanilla, over training."""
    ahead = chosen(record, "momentum", record["loss"], by=record["final"][..., 2])
    return of(record, "loss", "vanilla") - ahead


def judged_steps(record: Record) -> np.ndarray:
    """(R,) whether a measurement is of the second half of the steps before the learning rate falls.

    Where the rate falls everything comes to a stop, so a gap that stands still there says nothing.
    """
    end = falls_from(record.config)
    return (record["steps"] >= end / 2) & (record["steps"] <= end)


def drift_of_gap(record: Record) -> tuple[float, float]:
    """Change of the mean gap over the judged steps by a straight line, and its mean there, in nats a byte.

    The change is infinite where fewer than three measurements are judged.
    """
    those = judged_steps(record)
    steps, mean = record["steps"][those], gap(record)[:, those].mean(0)
    if steps.size < 3:
        return np.inf, np.nan
    return float(np.polyfit(steps, mean, 1)[0] * (steps[-1] - steps[0])), float(mean.mean())


def limit_of_gap(record: Record) -> np.ndarray:
    """(M,) the gap after endless training at the constant rate: where its line against 1 / steps meets zero.

    NaN where fewer than three measurements are judged.
    """
    those = judged_steps(record)
    values = gap(record)[:, those]
    return np.polyfit(1 / record["steps"][those], values.T, 1)[1] if those.sum() > 2 else np.full(len(values), np.nan)


def mean_lag(record: Record, mixer: str) -> np.ndarray:
    """(M, L) how many tokens back attention looks on average (softmax alone)."""
    lags = of(record, "lags", mixer)
    return lags @ np.arange(lags.shape[-1])


def recent_mass(record: Record, mixer: str, tokens: int = 4) -> np.ndarray:
    """(M, L) attention to the token itself and the last few before it."""
    return of(record, "lags", mixer)[..., : tokens + 1].sum(-1)


def _mean_over(statistic: Callable[[Record, str], np.ndarray]) -> Callable[[Record], np.ndarray]:
    """(M,) mean over coefficients."""
    return lambda record: np.mean([statistic(record, name) for name in momenta(record)], axis=0)


def _farther(record: Record, mixer: str) -> np.ndarray:
    """(M,) mean lag over that of vanilla, both averaged over layers."""
    return mean_lag(record, mixer).mean(1) / mean_lag(record, "vanilla").mean(1)


def _less_recent(record: Record, mixer: str) -> np.ndarray:
    """(M,) attention to the last tokens, mean over layers, less that of vanilla."""
    return (recent_mass(record, mixer) - recent_mass(record, "vanilla")).mean(1)


SHARE = 0.1
"""The gap is stable if it changes by less than so much of itself, or than the gain that the paper reports."""


def _is_stable(record: Record) -> bool:
    change, mean = drift_of_gap(record)
    return abs(change) <= max(SHARE * abs(mean), PUBLISHED[2])


_STABLE = Criterion(
    "over the second half of the steps at constant learning rate the gap between momentum and vanilla changes by less "
    f"than {SHARE:.0%} of itself, or than the published gain of {PUBLISHED[2]} nats",
    _is_stable,
)
_AT_LAB = dict.fromkeys(
    ("gain_quarter", "gain_half", "gain_whole", "beats_local_mixers", "no_more_than_local_mixers"), NOT_REACHED
) | {"gap_remains": "fails"}
"""Expected after a pilot of one member with another seed: .09 nats after 1,600 of 3,000 steps, .02 in the end."""

_claim = claims_of("dai.momentum_language_model", "Dai et al. 2022, ", _AT_LAB, minimum_members=5)


CLAIMS = (
    *(
        _claim(
            f"gain_{('quarter', 'half', 'whole')[i]}", "Table 6",
            f"Momentum attention lowers validation perplexity at a context of {LENGTHS[i]} (relative gain, paired on "
            f"start and data, coefficient chosen by the other members; published: {100 * PUBLISHED[i]:.1f} %).",
            lambda record, i=i: gain(record, i), 0.0, relation=">=", reason="the sign of a paired difference",
            control=lambda record, i=i: gain(record, i, "recent"), criterion=_STABLE,
        )
        for i in range(3)
    ),
    _claim(
        "gap_remains", "Table 6 (limit, this lab)",
        "Some of the gain remains however long both train: the gap in nats a byte, extrapolated by a line against "
        "1 / steps over the second half of the steps at constant learning rate, is positive.",
        limit_of_gap, 0.0, relation=">=", reason="the sign of a paired difference",
    ),
    _claim(
        "beats_local_mixers", "section 4 (implied)",
        "Momentum attention beats the best of the local mixers of equal cost, a shift by one token and means of the "
        "last values: its gain is momentum's (nats a byte at T; both chosen by the other members). The paper's "
        "reading implies it; it has no such control.",
        against_control, 0.0, relation=">=", reason="the sign of a paired difference", criterion=_STABLE,
    ),
    _claim(
        "no_more_than_local_mixers", "section 4 (this lab)",
        "What momentum does, the best local mixer does too: the two differ by no more than the whole gain that the "
        f"paper reports (nats a byte at T; {PUBLISHED[2]:.2%} of perplexity).",
        against_control, 0.0, PUBLISHED[2], reason="the published gain at 1,024 tokens", criterion=_STABLE,
    ),
    _claim(
        "looks_farther", "section 4 (this lab)",
        "Where momentum brings the recent values, attention looks farther back (mean lag over vanilla's, mean over "
        "layers and coefficients).",
        _mean_over(_farther), 1.0, relation=">=", reason="the sign of a paired difference",
        control=lambda record: _farther(record, "recent_1"),
    ),
    _claim(
        "less_recent", "section 4 (this lab)",
        "Where momentum brings the recent values, attention leaves them (attention to the token itself and the last "
        "four, less vanilla's, mean over layers and coefficients).",
        _mean_over(_less_recent), 0.0, relation="<=", reason="the sign of a paired difference",
        control=lambda record: _less_recent(record, "recent_1"),
    ),
)  # fmt: skip
