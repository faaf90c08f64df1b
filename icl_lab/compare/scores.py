"""Scores of implicit fine-tuning: a score that is NaN has its reason, a mean has the number of its examples."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


class Score(NamedTuple):
    """A number, and the reason where it is NaN.

    Attributes:
      value: the score.
      reason: why the score is NaN: what it is a share or a mean of does not exist. Empty otherwise.
    """

    value: float
    reason: str = ""


class LayerScores(NamedTuple):
    """Means over examples, by layer, with intervals and numbers of examples.

    Attributes:
      means: (L,) over the examples where the metric is defined.
      low: (L,) lower end of the 95 % percentile bootstrap interval over examples.
      high: (L,) upper end.
      defined: (L,) number of such examples.
      score: the mean over layers, the paper's number.
      interval: its own interval, from the same resampled examples in all layers.
    """

    means: Floats
    low: Floats
    high: Floats
    defined: NDArray[np.int_]
    score: Score
    interval: tuple[float, float]


def recall_to_finetuning(zero_shot: ArrayLike, finetuned: ArrayLike, in_context: ArrayLike) -> dict[str, Score]:
    """Rec2FTP: of the examples that fine-tuning corrects, the share that demonstrations correct, and its controls.

    ``recall`` R = P(ICL right | zero-shot wrong, fine-tuned right), the paper's number (Dai et al. 2022, Table 2).
    Every accurate learner has a high one. So this lab adds ``base_rate`` B = P(ICL right | zero-shot wrong), ``lift``
    R - B, and ``contrast`` R - P(ICL right | zero-shot wrong, fine-tuned wrong), which does not shrink where
    fine-tuning corrects nearly all: with f the share that it corrects, the lift is (1 - f) times the contrast.

    Args:
      zero_shot: (I,) bool, whether the prediction was right.
      finetuned: (I,) bool.
      in_context: (I,) bool.

    Returns:
      Fractions by the four names; NaN with its reason where there is no example to count.

    Raises:
      ValueError: for what is not bool, or differs in length.
    """
    zero, tuned, context = _aligned("bool", zero_shot=zero_shot, finetuned=finetuned, in_context=in_context)
    recall = _fraction(context[~zero & tuned], "no example is wrong zero-shot and right after fine-tuning")
    base = _fraction(context[~zero], "no example is wrong zero-shot")
    rest = _fraction(context[~zero & ~tuned], "no example is wrong both zero-shot and after fine-tuning")
    return {"recall": recall, "base_rate": base, "lift": _minus(recall, base), "contrast": _minus(recall, rest)}


def agreement_where_wrong(
    target: ArrayLike, zero_shot: ArrayLike, finetuned: ArrayLike, in_context: ArrayLike
) -> dict[str, Score]:
    """How often fine-tuning and demonstrations give the same answer, right or wrong, where zero-shot is wrong.

    ``agreement`` is the share of equal answers over these examples, ``kappa`` the same corrected for the agreement that
    the two distributions of answers have by chance (Cohen 1960; this lab).

    Args:
      target: (I,) class ids.
      zero_shot: (I,) answers.
      finetuned: (I,) answers.
      in_context: (I,) answers.

    Returns:
      Scores by the two names; NaN with its reason where there is no example, or where both always give one answer.

    Raises:
      ValueError: for what is not integer, or differs in length.
    """
    truth, zero, tuned, context = _aligned(
        "integer", target=target, zero_shot=zero_shot, finetuned=finetuned, in_context=in_context
    )
    wrong = zero != truth
    a, b = tuned[wrong], context[wrong]
    agreement = _fraction(a == b, "no example is wrong zero-shot")
    if agreement.reason:
        return {"agreement": agreement, "kappa": agreement}
    chance = sum(float((a == c).mean() * (b == c).mean()) for c in np.unique(a))
    if chance == 1:
        return {"agreement": agreement, "kappa": Score(np.nan, "both always give one and the same answer")}
    return {"agreement": agreement, "kappa": Score((agreement.value - chance) / (1 - chance))}


def layer_scores(values: ArrayLike, empty: str, resamples: int = 999) -> LayerScores:
    """Mean over examples in every layer, then over layers, with bootstrap intervals over examples.

    Examples where the metric is NaN are left out of their layer, and counted. The generator is fixed: the same on every
    call. A resample that has no defined example in a layer is left out of that interval.

    Args:
      values: (I, L) a metric of ``icl_lab.compare.implicit_finetuning``, NaN where it is not defined.
      empty: what an example without a value lacks, the reason for a layer of NaNs ("fine-tuning changed nothing").
      resamples: of the bootstrap.

    Returns:
      Means, intervals and counts; the score is NaN with its reason where a layer has no example.

    Raises:
      ValueError: for another shape, no example, infinite values, or fewer than 1 resample.
    """
    table = np.asarray(values, np.float64)
    if table.ndim != 2 or not table.size or np.isinf(table).any():
        raise ValueError(f"values must be (I, L), with an example and no infinity, got shape {table.shape}")
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, got {resamples}")
    present = ~np.isnan(table)
    chosen = np.random.default_rng(0).integers(len(table), size=(resamples, len(table)))
    weights = np.stack([np.bincount(row, minlength=len(table)) for row in chosen]).astype(float)  # (resamples, I)
    everyone = np.ones((1, len(table)))
    means, resampled = (_weighted_means(w, np.where(present, table, 0), present) for w in (everyone, weights))
    missing = np.flatnonzero(~present.any(0))
    if missing.size:
        reason = f"{empty}: no example has a value in {'layer' if missing.size == 1 else 'layers'} "
        score = Score(np.nan, reason + ", ".join(map(str, missing)))
    else:
        score = Score(float(means[0].mean()))
    ends = np.stack([_ends(column) for column in resampled.T], axis=1)  # (2, L)
    overall = _ends(resampled.mean(1))
    return LayerScores(means[0], ends[0], ends[1], present.sum(0), score, (float(overall[0]), float(overall[1])))


def _weighted_means(weights: Floats, filled: Floats, present: NDArray[np.bool_]) -> Floats:
    """(R, L) NaN where nothing is present."""
    total = weights @ present
    return np.where(total > 0, weights @ filled / np.where(total > 0, total, 1), np.nan)


def _ends(resampled: Floats) -> Floats:
    """(2,) 2.5 and 97.5 percentiles of those that are numbers; NaN where none is."""
    numbers = resampled[~np.isnan(resampled)]
    return np.percentile(numbers, [2.5, 97.5]) if numbers.size else np.full(2, np.nan)


def _fraction(flags: NDArray[np.bool_], empty: str) -> Score:
    return Score(float(flags.mean())) if flags.size else Score(np.nan, empty)


def _minus(a: Score, b: Score) -> Score:
    return Score(a.value - b.value, a.reason or b.reason)


def _aligned(kind: str, **named: ArrayLike) -> list[NDArray]:
    arrays = [np.asarray(value) for value in named.values()]
    for name, array in zip(named, arrays):
        if array.ndim != 1 or array.dtype.kind not in {"bool": "b", "integer": "iu"}[kind]:
            raise ValueError(f"{name} must be (I,) of {kind}, got {array.shape} of {array.dtype}")
        if array.shape != arrays[0].shape:
            raise ValueError(f"{name} must have {len(arrays[0])} examples like the others, got {len(array)}")
    return arrays
