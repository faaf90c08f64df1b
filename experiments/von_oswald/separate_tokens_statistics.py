"""What claims of ``separate_tokens`` read off its record: one value a member."""

from functools import partial

import numpy as np

from experiments.statistics import Statistic, among, last, of_record, ratio
from experiments.von_oswald.separate_tokens import ATTENTION, CURVE, FINAL, STEPS
from experiments.von_oswald.statistics import early, over
from icl_lab.lab import Record


def progress(record: Record, name: str = "softmax") -> np.ndarray:
    """(M, R) how much of the way from predicting zero to the best GD step the loss has gone, on the same tasks."""
    way = 1 - record.metrics["closed_form"] / record.metrics["predict_zero"]
    return (1 - CURVE[name](record, metric="loss") / CURVE[name](record, metric="zero_loss")) / way


def drop_index(record: Record, share: float = 0.5) -> np.ndarray:
    """(M,) index of the first measurement with this share of the way done; -1 for members that did not get there."""
    there = progress(record) >= share
    return np.where(there.any(axis=1), there.argmax(axis=1), -1)


def dropped_early(record: Record) -> np.ndarray:
    """(M,) 1 for members that have gone half of the way after a quarter of the training."""
    return (early(progress, 0.25)(record) >= 0.5).astype(float)


def dropped(record: Record, name: str = "softmax", left: float = 0.5) -> np.ndarray:
    """(M,) 1 for members whose final loss has at most the share ``left`` of the way to the best GD step still to go."""
    zero, best = record.metrics["predict_zero"], record.metrics["closed_form"]
    return (FINAL[name](record, learner="trained") <= left * zero + (1 - left) * best).astype(float)


def of_dropped(statistic: Statistic, name: str = "softmax") -> Statistic:
    """The statistic, NaN for members whose loss has not gone 9/10 of the way to the best GD step at the last step."""
    return among(partial(dropped, name=name, left=0.1), statistic)


def two_step_ratio(record: Record) -> np.ndarray:
    """(M,) final loss over that of two GD steps; both relative to one step, on the same tasks."""
    final, metrics = FINAL["softmax"](record), record.metrics
    return final["trained"] / final["gd"] * metrics["closed_form"] / metrics["two_steps"]


def copying_onset(record: Record) -> np.ndarray:
    """(M,) step at which ``next`` has half of its largest value, over the step at which the loss has half dropped."""
    following, steps, index = CURVE["softmax"](record, metric="next"), STEPS(record), drop_index(record)
    half = (following >= following.max(axis=1, keepdims=True) / 2).argmax(axis=1)
    return np.where(index > 0, steps[half] / np.maximum(steps[index], 1), np.nan)


def end_of_drop(record: Record) -> np.ndarray:
    """(M,) step at which nine tenths of the drop are done, over the step at which half of it is."""
    steps, half, end = STEPS(record), drop_index(record), drop_index(record, 0.9)
    return np.where((half > 0) & (end > 0), steps[end] / np.maximum(steps[half], 1), np.nan)


def next_over_rest(record: Record) -> np.ndarray:
    """(M, R) ``next`` over the larger of ``other`` and what ``own`` has above sqrt(D)."""
    own, following, other = (CURVE["softmax"](record, metric=name) for name in ("own", "next", "other"))
    return following / np.maximum(own - record.config["input_size"] ** 0.5, other)


def next_at_drop(record: Record) -> np.ndarray:
    """(M,) the same when the loss has half dropped."""
    index = drop_index(record)
    return np.where(index > 0, next_over_rest(record)[np.arange(len(index)), index], np.nan)


def share_ratio(name: str) -> Statistic:
    """(M,) what y_j gives to x_{j+1} over what x_j gives to y_j, at the last step."""
    return ratio(*(last(CURVE[name].at(metric=share)) for share in ("share_inputs", "share_labels")))


@of_record
def own_share(record: Record, token: str) -> np.ndarray:
    """(M,) attention that each x_j or y_j gives to itself, mean over j, over chance; one-hot positions."""
    attention = ATTENTION["one_hot"](record)
    chance = 1 / attention.shape[2]
    return np.diagonal(attention, axis1=1, axis2=2)[:, "xy".index(token) :: 2].mean(axis=1) / chance


def over_dropped(name: str, learner: str, reference: str) -> Statistic:
    """(M,) final loss of one learner over that of another, of the members of a training that have dropped."""
    return of_dropped(over(FINAL[name], learner, reference), name)
