"""Panels of this paper: losses, agreement of sensitivities, when members drop, shifts."""

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.panels import described, shift_panel
from experiments.von_oswald.shifts import COLUMNS
from icl_lab.lab.style import LEARNERS, Axes

SHIFTED = ("trained", "without", "gd", "gd++", "interpolated", "ablated")
"""Learners whose losses under shifts are drawn, in this order."""
_WORDS = {2: "two", 3: "three", 5: "five", 10: "ten", 12: "twelve"}


def network_label(name: str) -> str:
    """What figures call ``looped_K`` or ``free_K``."""
    kind, layers = name.split("_")
    count = _WORDS.get(int(layers), layers)
    return "one layer" if layers == "1" else f"one layer, {count} loops" if kind == "looped" else f"{count} layers"


def member_lines(axes: Axes, x: np.ndarray, members: np.ndarray, learner: str | None = None, **line) -> None:
    """Every member of (M, X) as a thin line and their median as a thick one, where a band would hide two groups."""
    line = (dict(LEARNERS[learner], marker="") if learner else {}) | line
    axes.plot(x, members.T, **line | {"label": None, "linewidth": 0.6, "alpha": 0.5, "linestyle": "-"})
    axes.plot(x, np.median(members, axis=0), **line)


def loss_lines(
    axes: Axes, steps: np.ndarray, curves: Mapping[str, np.ndarray], title: str, level: float | None = None
) -> None:
    """Loss over training, (M, R) by learner, relative to GD's on the same tasks.

    That is drawn at ``level``, the exact loss of GD (None: its median).
    """
    level = float(np.median(curves["gd"])) if level is None else level
    for learner, values in curves.items():
        member_lines(axes, steps, values / curves["gd"] * level, learner)
    described(axes, xlabel="training step", ylabel="loss", title=title)


def cosine_panel(axes: Axes, steps: np.ndarray, curves: Mapping[str, np.ndarray], *references: str) -> None:
    """Cosine of the sensitivities with those of each reference over training, of every member."""
    several = len(references) > 1
    for reference in references:
        label = LEARNERS[reference]["label"] if several else None
        member_lines(axes, steps, curves[f"{reference}_sensitivity_cosine"], reference, label=label)
    names = ", ".join(str(LEARNERS[reference]["label"]) for reference in references)
    axes.set(
        title=f"cosine with {names}", xlabel="training step", ylabel="cosine of the sensitivities", ylim=(-0.05, 1.05)
    )
    if several:
        axes.legend()


def drops(axes: Axes, ensembles: Mapping[str, tuple[np.ndarray, str, str]], bins: Sequence[float]) -> None:
    """When members have done half of their drop: (M,) times, infinite if never, a colour and a hatch by ensemble."""
    for name, (times, color, hatch) in ensembles.items():
        finite_times = times[np.isfinite(times)]
        label = f"{name}: {finite_times.size} of {times.size}"
        axes.hist(finite_times, bins=bins, color=color, hatch=hatch, alpha=0.6, label=label)
    described(axes, xscale="log", xlabel="step at half of the drop", ylabel="members")


def shift_panels(
    row: Sequence[Axes], columns: Mapping[str, Sequence[float]], found: Mapping[str, Mapping[str, np.ndarray]]
) -> None:
    """The columns of ``shifts.losses``, a panel each; alpha = 1, the distribution of training, is the grey line."""
    for axes, (column, scales) in zip(row, columns.items()):
        shown = {learner: found[column][learner] for learner in SHIFTED if learner in found[column]}
        shift_panel(axes, np.asarray(scales), shown, r"scale $\alpha$ of the shift", training=1.0)
        described(axes, title=COLUMNS[column][0])
