"""What the claims of this paper read off a record: when a member learns, and whether it does."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from experiments.onsets import crossing
from icl_lab.claims import Criterion
from icl_lab.lab import Record
from icl_lab.prompts import copies_without_bursts


def guess(config: Mapping[str, Any], **changed: int) -> float:
    """In-context accuracy of answering with a random label of the context: B/N, with the B of the in-context tests.

    So where the labels of a context are different; where they may repeat, (1 - B/N)/L more on novel classes.
    ``changed`` are fields of the configuration that differ in a part of the run.
    """
    config = {**config, **changed}
    n = config["context_length"]
    return (config["burstiness"] or copies_without_bursts(n)) / n


def guesses(config: Mapping[str, Any], sweep: str) -> np.ndarray:
    """(points of the last axis,) mean accuracy of a random label of the context on novel classes and swapped labels.

    It is B/N where the labels of a context are different. In the third sweep of ``data_dependence`` they may repeat:
    then the label of another class of the context is right too with the probability that two draws of a class have the
    same label, 1/L for novel classes, more for trained ones under a steep distribution.
    """
    if sweep == "classes":
        return np.array([guess(config, burstiness=b) for b in config["burstiness_grid"]])
    alone = guess(config)
    if sweep != "exponent":
        return np.array([alone])
    same = [same_label(alpha, config["exponent_classes"], config["labels"]) for alpha in config["exponent_grid"]]
    return alone + (1 - alone) * (np.array(same) + 1 / config["labels"]) / 2


def same_label(exponent: float, classes: int, labels: int) -> float:
    """Probability that two draws from f(k) ~ k^-alpha, class k of K with label k mod L, have the same label."""
    weights = np.arange(1, classes + 1) ** -float(exponent)
    return float((weights.reshape(-1, labels).sum(0) ** 2).sum() / weights.sum() ** 2)


def solved(config: Mapping[str, Any], **changed: int) -> float:
    """In-context accuracy half way from guessing a label of the context to 1."""
    return 0.5 * (1 + guess(config, **changed))


def onset_times(curves: np.ndarray, steps: np.ndarray, config: Mapping[str, Any], **changed: int) -> np.ndarray:
    """(M,) onset of in-context accuracies (M, R), between measurements by interpolation; infinite if never."""
    return crossing(curves, steps, solved(config, **changed))


def control_learns(onsets: Callable[[Record, str], np.ndarray]) -> Criterion:
    """That every member of the control has an onset."""
    return Criterion(
        "every member of the control has learned in context",
        lambda record: bool(np.isfinite(onsets(record, "control")).all()),
    )


def or_last(times: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Times, the last step where they are infinite: a lower bound of what was not waited for."""
    return np.minimum(times, steps[-1])


def present(values: np.ndarray) -> np.ndarray:
    """Times, or other values: none where they are infinite."""
    return np.where(np.isfinite(values), values, np.nan)


def way_done(curves: np.ndarray) -> np.ndarray:
    """(M, R) share of the way from the first to the last measurement; no value where there is no way."""
    way = curves[:, -1:] - curves[:, :1]
    return (curves - curves[:, :1]) / np.where(way == 0, np.nan, way)


def values_at(times: np.ndarray, steps: np.ndarray, curves: np.ndarray) -> np.ndarray:
    """(M,) curves (M, R) at each member's own step, by interpolation; no value where it has none."""
    return np.array([np.interp(t, steps, curve) if np.isfinite(t) else np.nan for t, curve in zip(times, curves)])


def learned(curves: np.ndarray, level: float) -> np.ndarray:
    """(M,) 1 where the last measurement is at the level or above."""
    return (curves[:, -1] >= level).astype(float)
