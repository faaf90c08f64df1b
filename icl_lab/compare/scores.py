"""Scores of implicit fine-tuning: a score that is NaN has its reason."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Score(NamedTuple):
    """A number, and the reason where it is NaN.

    Attributes:
      value: the score.
      reason: why the score is NaN: what it is a share or a mean of does not exist. Empty otherwise.
    """

    value: float
    reason: str = ""


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
