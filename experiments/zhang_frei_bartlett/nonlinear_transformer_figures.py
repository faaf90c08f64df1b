"""Figures of ``nonlinear_transformer``.

An error is that of the final query after M examples over that of predicting zero.
"""

from collections.abc import Sequence

import numpy as np

from experiments.zhang_frei_bartlett.prefixes import COVARIANCES, POSITIONS
from icl_lab.lab import Record
from icl_lab.lab.style import LEARNERS, Axes, Figure, band
from icl_lab.lab.style import panels as axes_grid
from icl_lab.theory import random_covariance_optimum, random_covariance_risk, variance_moments

LOOKS: dict[tuple[str, int], dict] = {  # of a training covariance and the rank of its N
    ("identity", 0): {"color": "#56B4E9", "linestyle": "-", "marker": "o"},
    ("identity", 1): {"color": "#0072B2", "linestyle": "--", "marker": "s"},
    ("identity", 2): {"color": "#003F66", "linestyle": "-.", "marker": "P"},
    ("random", 0): {"color": "#E69F00", "linestyle": (0, (5, 1)), "marker": "^"},
    ("random", 1): {"color": "#D55E00", "linestyle": (0, (3, 1, 1, 1)), "marker": "v"},
    ("random", 2): {"color": "#7A3600", "linestyle": (0, (1, 0.6)), "marker": "X"},
}

KINDS = {
    "with": "with position embeddings",
    "without": "without position embeddings",
    "reused": "with, trained rows reused",
    "offset": "with, trained at random offsets",
}
"""What becomes of position embeddings, in figures."""

_ERROR = "error / error of predicting 0"


TRAINED = {"identity": 0.0, "random": 1.0}
"""c of the covariance c diag(Exp(1)) in training; 0 for the identity."""


def tests_of(scales: Sequence[float]) -> dict[str, float]:
    """c of the covariance in every test, by its name; 0 for the identity."""
    return {"identity": 0.0} | {f"exp_{c:g}": c for c in scales}


def moments(scale: float, input_size: int) -> np.ndarray:
    """(3, D) moments of the variances at a c of ``TRAINED`` or ``tests_of``."""
    if not scale:
        return variance_moments("constant", input_size)
    return variance_moments("exponential", input_size, scale=scale)


def linear_attention_error(trained: float, length: float, test: float, test_length: float, input_size: int) -> float:
    """Exact error of linear attention at its optimum for a c of training and N, in a test of another c at M >= 1.

    Zhang, Frei & Bartlett 2023, Theorems 4.1 and 4.5 for the optimum; over the error of predicting zero.
    """
    best = random_covariance_optimum(moments(trained, input_size), length)
    test_moments = moments(test, input_size)
    return float(random_covariance_risk(best, test_moments, test_length) / test_moments[0].sum())


def _has(record: Record, name: str) -> bool:
    return f"{name}/steps" in record.arrays


def figures(record: Record) -> dict[str, Figure]:
    """The paper's figure; the error beyond N with and without position embeddings; the training."""
    return {
        "nonlinear_transformer": _published(record),
        "beyond_training": _beyond(record),
        "training": _training(record),
    }


def _title(scale: float) -> str:
    return rf"${scale:g}\,$diag(Exp(1))" if scale else "identity covariance"


def _published(record: Record) -> Figure:
    """One panel a test: error over M, of networks with position embeddings.

    Bands are the members; thin outlines the paper's 90 % bootstrap over covariances, mean over members.
    """
    config, tests = record.config, tests_of(record.config["scales"])
    figure, (row,) = axes_grid(len(tests), 1, width=3.1, height=3.4)
    networks = [values for name, values in record.arrays.items() if "_with/error/" in name]
    lowest = min((values.min() for values in networks), default=0.1)
    lengths, d = np.arange(config["test_length"] + 1), config["input_size"]
    for axes, (test, scale) in zip(row, tests.items()):
        for covariance, n, rank, look in _looks(record, "with"):
            label, name = f"{covariance} covariance, N = {n}", f"{covariance}/{n}_with"
            _curve(axes, record, name, test, label=label, markevery=(3 * rank, 10), **look)
            interval = record[f"{name}/interval/{test}"].mean(axis=0)
            axes.fill_between(lengths, *interval, facecolor="none", edgecolor=look["color"], alpha=0.3, linewidth=0.5)
        band(axes, lengths[:d], record[f"least_squares/error/{test}"][:, :d], color="0.45", label="least squares")
        for trained, dash in (("identity", (0, (1, 1))), ("random", (0, (1, 3)))):
            n = max(config["lengths"])
            exact = [linear_attention_error(TRAINED[trained], n, scale, m, d) for m in lengths[1:]]
            axes.plot(lengths[1:], exact, color="black", linestyle=dash, label=f"linear attention, {trained}, N = {n}")
        limit = linear_attention_error(TRAINED["random"], np.inf, scale, np.inf, d)
        axes.axhline(
            limit, color="black", linestyle=(0, (6, 2, 1, 2)), linewidth=0.8, label="its limit M, N = ∞, random"
        )
        axes.axhline(1.0, color="0.6", linewidth=0.8, label="predicting 0")
        axes.set(yscale="log", ylim=(lowest / 1.5, None), title=_title(scale), xlabel="examples in context M")
    row[0].set_ylabel(_ERROR)
    _legend(figure, row, 4)
    return figure


def _looks(record: Record, positions: str) -> list[tuple[str, int, int, dict]]:
    """Covariance, N, rank of N, and look of every network that was trained."""
    found = [(covariance, n, rank) for covariance in COVARIANCES for rank, n in enumerate(record.config["lengths"])]
    return [
        (covariance, n, rank, LOOKS[covariance, rank])
        for covariance, n, rank in found
        if (covariance, rank) in LOOKS and _has(record, f"{covariance}/{n}_{positions}")
    ]


def _legend(figure: Figure, row: np.ndarray, columns: int) -> None:
    """One legend above all panels, of the panel with most curves."""
    most = max((axes.get_legend_handles_labels() for axes in row), key=lambda found: len(found[0]))
    figure.legend(*most, loc="outside upper center", ncols=columns)


def _curve(axes: Axes, record: Record, name: str, test: str, **line) -> None:
    values = record[f"{name}/error/{test}"]
    band(axes, np.arange(values.shape[1]), values, **line)


def _beyond(record: Record) -> Figure:
    """One panel a training: error over M on its own covariance, with and without position embeddings."""
    config = record.config
    shown = [
        (covariance, n) for covariance in COVARIANCES for n in config["lengths"]
        if any(_has(record, f"{covariance}/{n}_{positions}") for positions in POSITIONS)
    ]  # fmt: skip
    figure, (row,) = axes_grid(len(shown), 1, width=3.0, height=3.0)
    for axes, (covariance, n) in zip(row, shown):
        for (positions, label), learner in zip(KINDS.items(), ("trained", "gd", "gd++", "interpolated")):
            if f"{(name := f'{covariance}/{n}_{positions}')}/error/identity" in record.arrays:
                look = LEARNERS[learner] | {"label": label, "markevery": 10}
                _curve(axes, record, name, own_test(covariance), **look)
        axes.axvline(n, color="0.6", linewidth=0.8, label="M = N")
        axes.set(yscale="log", title=f"{covariance} covariance, N = {n}", xlabel="examples in context M")
        axes.set_ylabel(_ERROR)
    low, high = zip(*(axes.get_ylim() for axes in row))
    for axes in row:  # panels are compared
        axes.set_ylim(min(low), max(high))
    _legend(figure, row, 3)
    return figure


def own_test(covariance: str) -> str:
    """The test on the covariance of a training."""
    return "identity" if covariance == "identity" else "exp_1"


def _training(record: Record) -> Figure:
    """Error over training, mean over all prefixes."""
    kinds = [positions for positions in POSITIONS if _looks(record, positions)]
    figure, (row,) = axes_grid(len(kinds), 1, width=3.6)
    for axes, positions in zip(row, kinds):
        for covariance, n, _, look in _looks(record, positions):
            style = look | {"marker": "", "label": f"{covariance} covariance, N = {n}"}
            found = record[f"{covariance}/{n}_{positions}"]
            band(axes, found["steps"], found["loss"], **style)
        axes.set(yscale="log", title=KINDS[positions], xlabel="training step")
        axes.locator_params(axis="x", nbins=4)  # wide labels
        axes.set_ylabel("error, mean over prefixes")
    _legend(figure, row, 4)
    return figure
