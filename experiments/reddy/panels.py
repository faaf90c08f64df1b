"""Panels that figures of this paper share."""

from collections.abc import Sequence

import numpy as np

from icl_lab.lab.style import THEORY, Axes

SOLUTIONS = {
    "ic": {"label": "in context: novel classes", "color": "#0072B2", "linestyle": "-", "marker": "o"},
    "ic2": {"label": "in context: swapped labels", "color": "#56B4E9", "linestyle": "--", "marker": "s"},
    "iwl": {"label": "in weights", "color": "#D55E00", "linestyle": "-.", "marker": "^"},
}
"""How the three test accuracies are drawn."""

CONDITIONS = {
    "control": "nothing frozen",
    "ila1_held": "ILA1 frozen",
    "tila2_held": "TILA2 frozen",
    "tla2_held": "TLA2 frozen",
    "cla_held": "CLA frozen",
    "ila1_given": "ILA1 given",
    "attention_lost": "Q, K lost",
    "answer_lost": "V, classifier lost",
}
"""What figures and claims call the conditions of interventions."""


def guess_line(axes: Axes, levels: np.ndarray | float, x: Sequence[float] | np.ndarray) -> None:
    """The in-context accuracy of guessing one of the context's labels, at every x."""
    axes.plot(x, np.broadcast_to(levels, len(x)), **THEORY, linewidth=1.0, label="guess of a context label")
