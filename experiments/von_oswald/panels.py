"""Panels of this paper: losses, the strength read off the weights, what GD++ does to eigenvalues, shifts."""

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.panels import described, family, shift_panel
from experiments.von_oswald.shifts import COLUMNS
from icl_lab.lab.style import LEARNERS, Axes
from icl_lab.theory import gd_plus_plus_eigenvalues, gd_plus_plus_peak

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
    several = {} if len(references) > 1 else {"label": None}
    for reference in references:
        member_lines(axes, steps, curves[f"{reference}_sensitivity_cosine"], reference, **several)
    names = ", ".join(str(LEARNERS[reference]["label"]) for reference in references)
    axes.set(
        title=f"cosine with {names}", xlabel="training step", ylabel="cosine of the sensitivities", ylim=(-0.05, 1.05)
    )
    if several == {}:
        axes.legend()


def drops(axes: Axes, ensembles: Mapping[str, tuple[np.ndarray, str, str]], bins: Sequence[float]) -> None:
    """When members have done half of their drop: (M,) times, infinite if never, a colour and a hatch by ensemble."""
    for name, (times, color, hatch) in ensembles.items():
        finite_times = times[np.isfinite(times)]
        label = f"{name}: {finite_times.size} of {times.size}"
        axes.hist(finite_times, bins=bins, color=color, hatch=hatch, alpha=0.6, label=label)
    described(axes, xscale="log", xlabel="step at half of the drop", ylabel="members")


def mark_above(axes: Axes, x: Sequence[float], members: np.ndarray) -> None:
    """Says at the upper edge how many of (X, M) values lie above it."""
    top = axes.get_ylim()[1]
    for at, count in zip(x, (members > top).sum(axis=1)):
        if count:
            axes.text(at, top, f"{count}\N{UPWARDS ARROW}", ha="center", va="top")


def strength_panel(axes: Axes, steps: np.ndarray, gamma: np.ndarray, best: float) -> None:
    """The GD++ strength gamma read off the weights, (M, R, S), against that of tuned GD++."""
    member_lines(axes, steps, gamma[..., 0], "trained")
    axes.set_title("strength of GD++")
    axes.axhline(best, **LEARNERS["gd++"] | {"marker": ""})
    axes.set(xlabel="training step", ylabel=r"$\gamma$" if gamma.shape[2] == 1 else r"$\gamma$ of the first layer")
    axes.legend()


def eigenvalue_panel(axes: Axes, gammas: Mapping[int, float], largest: Mapping[int, float]) -> None:
    """The GD++ map of eigenvalues at each N's gamma, up to the largest eigenvalue of its contexts."""
    for (n, gamma), look in zip(gammas.items(), family(len(gammas))):
        x = np.linspace(0, largest[n], 200)
        axes.plot(x, gd_plus_plus_eigenvalues(x, gamma), **look, label=f"N = {n}")
        axes.plot(*gd_plus_plus_peak(gamma), "o", color=look["color"])
    axes.set_xlabel(r"eigenvalue $\lambda$ of $X^T X$")
    axes.set_ylabel(r"$\lambda (1 - \gamma \lambda)^2$")
    described(axes, title=r"GD++ on eigenvalues, largest at $1 / (3\gamma)$")


def shift_panels(
    row: Sequence[Axes], columns: Mapping[str, Sequence[float]], found: Mapping[str, Mapping[str, np.ndarray]]
) -> None:
    """The columns of ``shifts.losses``, a panel each; alpha = 1, the distribution of training, is the grey line."""
    for axes, (column, scales) in zip(row, columns.items()):
        shown = {learner: found[column][learner] for learner in SHIFTED if learner in found[column]}
        shift_panel(axes, np.asarray(scales), shown, r"scale $\alpha$ of the shift", training=1.0)
        described(axes, title=COLUMNS[column][0])
