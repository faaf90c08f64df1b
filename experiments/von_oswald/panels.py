"""Panels of GD++: what it does to eigenvalues, and the strength read off the weights."""

from collections.abc import Mapping, Sequence

import numpy as np

from icl_lab.lab.style import LEARNERS, Axes, band, viridis
from icl_lab.theory import condition_number, gd_plus_plus_eigenvalues, gd_plus_plus_peak


def network_label(name: str) -> str:
    """What figures call ``looped_K`` or ``free_K``."""
    kind, layers = name.split("_")
    if layers == "1":
        return "one layer"
    return f"one layer,\nweights shared over {layers} loops" if kind == "looped" else f"{layers} layers, own weights"


def strength_panel(axes: Axes, steps: np.ndarray, gamma: np.ndarray, best: float) -> None:
    """The GD++ strength gamma read off the weights, (M, R, S), against that of tuned GD++."""
    band(axes, steps, gamma[..., 0], "trained")
    axes.axhline(best, **{k: v for k, v in LEARNERS["gd++"].items() if k != "marker"})
    axes.set_xlabel("training step")
    axes.set_ylabel(r"$\gamma$")
    axes.legend()


def eigenvalue_panel(axes: Axes, gammas: Mapping[int, float], largest: Mapping[int, float]) -> None:
    """The GD++ map of eigenvalues at each N's gamma, up to the largest eigenvalue of its contexts."""
    dashes = ("-", "--", "-.", ":")
    shades = viridis(len(gammas))
    for (n, gamma), shade, dash in zip(gammas.items(), shades, dashes * len(gammas)):
        x = np.linspace(0, largest[n], 200)
        axes.plot(x, gd_plus_plus_eigenvalues(x, gamma), color=shade, linestyle=dash, label=f"N = {n}")
        axes.plot(*gd_plus_plus_peak(gamma), "o", color=shade)
    axes.set_xlabel(r"eigenvalue $\lambda$ of $X^T X$")
    axes.set_ylabel(r"$\lambda (1 - \gamma \lambda)^2$")
    axes.set_title(r"dots: $1 / (3\gamma)$")
    axes.legend()


def condition_panel(axes: Axes, eigenvalues: np.ndarray, gammas: Sequence[float]) -> None:
    """Distribution over contexts of the condition number after one GD++ transformation, for several gamma."""
    dashes = ("-", "--", "-.", ":", (0, (5, 1)))
    shades = viridis(len(gammas))
    for gamma, shade, dash in zip(gammas, shades, dashes * len(gammas)):
        numbers = np.log10(condition_number(gd_plus_plus_eigenvalues(eigenvalues, gamma)))
        axes.hist(numbers, bins=np.linspace(0, 4, 81).tolist(), histtype="step", color=shade, linestyle=dash,
                  label=rf"$\gamma$ = {gamma:g}")  # fmt: skip
    axes.set_xlabel(r"$\log_{10}$ condition number")
    axes.set_ylabel("contexts")
    axes.legend()
