"""What ``momentum_icl`` claims: when in-context learning is acquired, and how good it gets.

Figures: accuracy over training, times of acquisition, accuracy on harder sequences.
"""

import numpy as np

from experiments.dai.mixer_looks import curves, name_ticks
from experiments.dai.mixers import chosen
from experiments.dai.momentum_icl import CURVE, STEPS, TASKS
from experiments.onsets import crossing
from experiments.panels import described
from icl_lab.claims import NOT_REACHED, Beside, Criterion, Quick
from icl_lab.lab import Claim, Record, claims_of
from icl_lab.lab.style import Axes, Figure, panels

ACQUIRED = 0.8
"""Accuracy from which a task counts as acquired."""


def acquired_at(curves: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """(V, M) by mixer, share of the steps after which accuracy is ``ACQUIRED``, by interpolation; 1 if it never is.

    Args:
      curves: (V, M, R) accuracy.
      steps: (R,).
    """
    return np.minimum(crossing(curves, steps, ACQUIRED) / steps[-1], 1.0)


def times(record: Record, task: str) -> np.ndarray:
    """(V, M) when every member acquires a task."""
    return acquired_at(CURVE(record, task=task, metric="accuracy"), STEPS(record))


def sooner(record: Record, task: str, which: str = "momentum", than: str = "vanilla") -> np.ndarray:
    """(M,) time of the best mixer of a kind (chosen by the other members) over that of another kind."""
    table = times(record, task)
    return chosen(record, which, table) / chosen(record, than, table)


def better(record: Record, task: str, which: str = "momentum", than: str = "vanilla") -> np.ndarray:
    """(M,) last accuracy on harder sequences of the best mixer of a kind, less that of another kind."""
    wrong = 1 - CURVE(record, task=task, metric="harder")[..., -1]
    return chosen(record, than, wrong) - chosen(record, which, wrong)


PUBLISHED = 0.028
"""Gain of accuracy, mean of the six data sets of Table 7: 51.9 to 54.7 %."""


def _acquired(record: Record) -> bool:
    """Whether every member learns to label by pairs with one mixer at least."""
    return bool((times(record, "pairs").min(axis=0) < 1).all())


_ESTIMATES = ("beats_local_mixers_strings", "beats_local_mixers_pairs", "no_more_than_local_mixers_strings")
"""Without a verdict at lab: so near their bounds that hundreds or thousands of networks would be needed to tell."""
_claim = claims_of("dai.momentum_icl", "Dai et al. 2022, ", interval="median", at_lab=dict.fromkeys(_ESTIMATES))

_WHAT = {"strings": "to continue repeated strings", "pairs": "to label words by pairs of the context"}
_LOCAL = "the mean of the last values is no momentum, and whether it does as much is what other claims ask"
_HARDER = {"strings": "longer strings", "pairs": "twice as many words"}


def _of(task: str) -> tuple[Claim, ...]:
    summed_up = task == "pairs"
    return (
        _claim(
            f"sooner_{task}",
            f"With momentum a network learns {_WHAT[task]} in fewer steps (time to accuracy {ACQUIRED:g} over vanilla's"
            ", paired, coefficient chosen by the other members; who never does counts with all steps; median).",
            lambda record: sooner(record, task), at_most=1.0, where="Table 7 (implied)",
            reason="fewer is less than one", control=lambda record: sooner(record, task, "vanilla", "recent"),
            beside=Beside(lambda record: sooner(record, task, "recent"), _LOCAL),
            headline=1 * summed_up,
            quick=Quick(
                0.0, "60 steps of width 32 for 2,000 of width 64", NOT_REACHED,
                Criterion("every member labels words by pairs with accuracy .8, with one mixer", _acquired),
            ) if summed_up else None,
        ),
        _claim(
            f"better_{task}",
            f"With momentum a network is better at it in the end, on {_HARDER[task]} than in training (accuracy less "
            "vanilla's, paired, coefficient chosen by the other members; median).",
            lambda record: better(record, task), at_least=0.0, where="Table 7", headline=2 * summed_up,
            reason="the sign of a paired difference",
            control=lambda record: better(record, task, "vanilla", "recent"),
            beside=Beside(lambda record: better(record, task, "recent"), _LOCAL),
        ),
        _claim(
            f"beats_local_mixers_{task}",
            f"Momentum learns {_WHAT[task]} in fewer steps than the better of two local mixers of equal cost (time "
            "over theirs, both chosen by the other members; median). The paper's reading implies it.",
            lambda record: sooner(record, task, than="recent"), at_most=1.0, where="section 4 (implied)",
            reason="fewer is less than one",
        ),
        _claim(
            f"no_more_than_local_mixers_{task}",
            f"What momentum does for the last accuracy on {_HARDER[task]}, the better of two local mixers does too: "
            "they differ by no more than the mean gain that the paper reports (both chosen by the other members).",
            lambda record: better(record, task, than="recent"), near=0.0, tolerance=PUBLISHED, interval="t",
            minimum_members=5, where="Table 7 (this lab)", reason="2.8 points, the published gain",
            control=lambda record: better(record, task),
        ),
    )  # fmt: skip


CLAIMS = tuple(claim for task in TASKS for claim in _of(task))

TITLES = {"strings": "repeated strings", "pairs": "pairs of word and label"}


def figures(record: Record) -> dict[str, Figure]:
    """A row for every task."""
    figure, rows = panels(3, len(TASKS))
    for task, row in zip(TASKS, rows):
        curves(row[0], record, STEPS(record), CURVE(record, task=task, metric="accuracy"))
        row[0].axhline(ACQUIRED, color="0.6", linewidth=0.8)
        described(row[0], 2, xlabel="training step", ylabel="accuracy", title=TITLES[task], ylim=(0, 1.02))
        when = times(record, task) * STEPS(record)[-1]
        _members(row[1], record, when, f"steps to accuracy {ACQUIRED:g}", "when it is learned")
        harder = "longer strings" if task == "strings" else "twice the words"
        _members(row[2], record, CURVE(record, task=task, metric="harder")[..., -1], "last accuracy", harder)
    return {"icl": figure}


def _members(axes: Axes, record: Record, values: np.ndarray, ylabel: str, title: str) -> None:
    """(V, M) values by mixer: every member, lines join members of one number, and their median."""
    axes.plot(range(len(values)), values, color="0.75", linewidth=0.6, zorder=1)
    for i, members in enumerate(values):
        axes.plot(np.full(members.size, i), members, linestyle="", marker="o", color="#0072B2", alpha=0.5, markersize=3)
    axes.plot(range(len(values)), np.median(values, axis=1), linestyle="", marker="_", markersize=14, color="black")
    name_ticks(axes, record.config["mixers"])
    axes.set(ylabel=ylabel, title=title)
    axes.set_ylim(bottom=0)
