"""How the drift of the balance, and where SGD takes weights that are optimal, are read off ``gradient_flow``."""

import functools

import numpy as np

from experiments.statistics import Statistic
from experiments.zhang_frei_bartlett.gradient_flow import DRIFT, PREDICTED, QUIET, QUIET_TIME
from icl_lab.lab import NotRun, Record
from icl_lab.theory.flows.fluctuations import scale_course


def predicted_courses(record: Record, *, limit: bool = False) -> np.ndarray:
    """(S, R) u of SGD along the optimal weights by the closed form at its rate; or in the limit of small rates."""
    config = record.config
    law = tuple(config["spectrum"]), config["context_length"]
    sgd = config["sgd_rate"], config["quiet_batch"], config["quiet_steps"]
    courses = [_course(u, *law, *sgd, limit) for u in config["quiet_starts"]]
    return np.stack([np.interp(QUIET_TIME(record), *course) for course in courses])


@functools.cache  # each takes seconds
def _course(
    u: float, spectrum: tuple[float, ...], n: int, rate: float, batch: int, steps: int, limit: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Times and u. A small rate at the same rate / batch and the same time has the course of the limit."""
    times, small, lam = np.linspace(0.0, rate * steps, 101), 1e-6, np.diag(spectrum)
    if limit:
        return times, scale_course(times * (rate / batch / small), u, lam, n, small, 1)
    return times, scale_course(times, u, lam, n, rate, batch)


def small_drifts(record: Record) -> np.ndarray:
    """(batches, rates) where the drift is predicted to move b by less than a tenth of u*^2."""
    return np.abs(PREDICTED(record)) < 0.1 * record.metrics["flow_scale"] ** 2


def drift_exponents(record: Record, *, exchanged: bool = False) -> np.ndarray:
    """(M, 2) exponents of the drift's size in the learning rate and in 1 / B: small drifts, far below the edge.

    Rates above a seventh of the edge are left out, where the noise of u21 exceeds that of small rates by 4 % or more.
    NaN where the cells that are left do not tell the two exponents apart, or where a drift has another sign than the
    predicted one. ``exchanged``: every drift is read under the next batch, the last one under the first.
    """
    config, drift = record.config, DRIFT(record)
    read_under = np.roll(config["drift_batches"], -1) if exchanged else config["drift_batches"]
    batches, rates = np.meshgrid(read_under, config["drift_rates"], indexing="ij")
    kept = small_drifts(record) & (rates < record.metrics["edge_rate"] / 7)
    design = np.stack([np.ones(kept.sum()), np.log(rates[kept]), -np.log(batches[kept])], axis=1)
    if np.linalg.matrix_rank(design) < 3:
        return np.full((len(drift), 2), np.nan)
    sizes = drift[:, kept] * np.sign(PREDICTED(record)[kept])[None]
    exponents = np.linalg.lstsq(design, np.log(np.where(sizes > 0, sizes, 1.0)).T, rcond=None)[0][1:].T
    return np.where((sizes > 0).all(axis=1, keepdims=True), exponents, np.nan)


def drift_exponent_near_the_edge(record: Record) -> np.ndarray:
    """(M,) exponent of the drift's size in the learning rate over all rates, at the smallest batch."""
    config = record.config
    if len(config["drift_rates"]) < 2:
        raise NotRun("second rate of the drift")
    sizes = np.abs(DRIFT(record)[:, int(np.argmin(config["drift_batches"]))])
    return np.polyfit(np.log(config["drift_rates"]), np.log(sizes).T, 1)[0]


def drift_ratio(record: Record, *, larger_batch: bool = False) -> np.ndarray:
    """(M,) measured over predicted drift, mean over the small ones; NaN where there are none.

    ``larger_batch``: over the drift that is predicted at the next larger batch.
    """
    drift, predicted, kept = DRIFT(record), PREDICTED(record), small_drifts(record)
    if larger_batch:
        drift, predicted, kept = drift[:, :-1], predicted[1:], kept[:-1]
    ratios = (drift / predicted)[:, kept]
    return ratios.mean(1) if kept.any() else np.full(len(drift), np.nan)


def gain(start: int) -> Statistic:
    """(M,) last u of SGD along the optimal weights from one of the starts, over its first u."""
    return lambda record: QUIET(record)[:, start, -1] / QUIET(record)[:, start, 0]


def course(start: int, *, limit: bool = False) -> Statistic:
    """(M,) last u of SGD along the optimal weights from one of the starts, over the predicted one."""
    return lambda record: QUIET(record)[:, start, -1] / predicted_courses(record, limit=limit)[start, -1]
