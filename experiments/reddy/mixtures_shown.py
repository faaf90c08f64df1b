"""What ``mixtures`` claims and shows: functions of its record."""

import numpy as np

from experiments.onsets import onset
from experiments.panels import ABOVE
from experiments.reddy.mixtures import CURVE, STEPS
from experiments.reddy.panels import SOLUTIONS, guess_line
from experiments.reddy.statistics import guess, present
from experiments.statistics import Statistic, of_record
from icl_lab.claims import NOT_RESOLVED, Quick
from icl_lab.lab import Record, claims_of
from icl_lab.lab.style import SPARSE, Figure, band, panels


def _everywhere(name: str, measurement: int = -1) -> Statistic:
    """(M,) least accuracy of a test at a measurement, the last or another, over all points of the grid."""
    return lambda record: CURVE(record, metric=name)[..., measurement].min((1, 2))


LEVELS = {"ic": 0.75, "iwl": 0.5}
"""Accuracy from which on a test counts as learned: far above guessing a label of the context, and above chance."""


@of_record
def _lost(record: Record, backwards: bool = False) -> np.ndarray:
    """(M,) most that an accuracy fell from an earlier level to the end, over the tests and points that were learned.

    Levels are means of three measurements, so that the sampling of one test set is no loss. No value for a member that
    has learned nothing.
    """
    falls = []
    for name, level in LEVELS.items():
        curves = CURVE(record, metric=name)[..., :: -1 if backwards else 1]
        smooth = np.mean([curves[..., i : curves.shape[-1] - 2 + i] for i in range(3)], axis=0)
        top = smooth.max(-1)
        falls.append(np.where(top >= level, top - smooth[..., -1], -np.inf).max((1, 2)))
    return present(np.max(falls, axis=0))


@of_record
def _larger_share(record: Record, name: str, later: bool) -> np.ndarray:
    """(M,) mean over p_B of log2 of the steps to learn a test, at the largest p_C over those at the smallest.

    ``later`` says whether more are expected at the largest. The end at which more are expected counts as one
    measurement after the last where the test is not learned, a bound; where it is not at the other, the value is
    infinite, against the claim, or none if it is at neither.
    """
    steps = STEPS(record)
    times = onset(CURVE(record, metric=name), steps, LEVELS[name])  # (M, p_B, p_C)
    slow, fast = (times[..., -1], times[..., 0]) if later else (times[..., 0], times[..., -1])
    never = np.isinf(slow)
    log_ratio = np.log2(np.where(never, 2 * steps[-1] - steps[-2], slow)) - np.log2(fast)
    log_ratio = np.where(never & np.isinf(fast), np.nan, log_ratio).mean(-1)
    return log_ratio if later else -log_ratio


claim = claims_of("reddy.mixtures", "Reddy 2023, Fig. A.1", minimum_members=6)

_BY_THE_END = "an ordering has no slack at lab either; what is not learned in 1,200 steps counts as at the end"

CLAIMS = (
    claim(
        "in_context",
        "At all four mixtures novel classes are learned in context (least accuracy over the grid; control: before "
        "training).",
        _everywhere("ic"), at_least=0.75, headline=3, reason="far above guessing a label of the context, 1/N",
        control=_everywhere("ic", 0),
    ),
    claim(
        "in_weights",
        "At all four mixtures trained classes are learned in weights (least accuracy over the grid; control: before "
        "training).",
        _everywhere("iwl"), at_least=0.5, reason="far above chance, 1/L", control=_everywhere("iwl", 0),
    ),
    claim(
        "kept",
        "What was learned is kept: neither accuracy falls again (largest fall from its highest level to the end, over "
        "the points of the grid where it was learned; control: training backwards).",
        _lost(), at_most=0.1, control=_lost(backwards=True),
        reason="a transience of in-context learning would end at guessing",
    ),
    claim(
        "novel_share",
        "A larger share of novel classes brings in-context learning forward (log2 of the steps to "
        "accuracy .75 on novel classes, p_C = .75 over .25, mean over p_B; control: in-weights learning).",
        _larger_share("ic", later=False), at_most=0.0, headline=1, reason="an ordering, paired by member",
        control=_larger_share("iwl", later=False),
        quick=Quick(0.0, _BY_THE_END, NOT_RESOLVED),  # one of six members learns at neither share and has no value
    ),
    claim(
        "trained_share",
        "A larger share of novel classes puts in-weights learning back (log2 of the steps to "
        "accuracy .5 on trained classes, p_C = .75 over .25, mean over p_B; control: in-context learning).",
        _larger_share("iwl", later=True), at_least=0.0, headline=2, reason="an ordering, paired by member",
        control=_larger_share("ic", later=True),
        quick=Quick(0.0, _BY_THE_END),
    ),
)  # fmt: skip


def figures(record: Record) -> dict[str, Figure]:
    """One panel a point: the three test accuracies over training."""
    bursty, novel = record.config["bursty_shares"], record.config["novel_shares"]
    figure, grid = panels(len(novel), len(bursty))
    for i, row in enumerate(grid):
        for j, axes in enumerate(row):
            for name, look in SOLUTIONS.items():
                band(axes, STEPS(record), CURVE(record, metric=name)[:, i, j], **look | SPARSE)
            guess_line(axes, guess(record.config), STEPS(record))
            title = f"$p_B$ = {bursty[i]:g}, $p_C$ = {novel[j]:g}"
            axes.set(title=title, xlabel="training step", ylabel="accuracy", ylim=(-0.03, 1.03))
    figure.legend(*grid[0, 0].get_legend_handles_labels(), ncols=2, **ABOVE)
    return {"mixtures": figure}
