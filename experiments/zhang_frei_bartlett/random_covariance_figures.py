"""Figures of ``random_covariance``. Errors are over that of predicting 0."""

import numpy as np
from numpy.typing import ArrayLike

from experiments import panels
from icl_lab.lab import Record
from icl_lab.lab.style import THEORY, Axes, Figure
from icl_lab.lab.style import panels as axes_grid
from icl_lab.theory import expected_variance, random_covariance_risk

_LOOKS: tuple[dict, ...] = (
    {"color": "#0072B2", "linestyle": "-", "marker": "o"},
    {"color": "#D55E00", "linestyle": "--", "marker": "s"},
    {"color": "#009E73", "linestyle": "-.", "marker": "^"},
    {"color": "#CC79A7", "linestyle": (0, (5, 1)), "marker": "D"},
    {"color": "#777777", "linestyle": (0, (4, 1, 1, 1, 1, 1)), "marker": "v"},
)
_ERROR = "error / error of predicting 0"
NAMES = {
    "exponential": "Exp(1)", "gamma": "Gamma", "uniform": "U(0, 1)", "lognormal": "log-normal", "constant": "constant",
    "scaled": "Exp(1), scaled",
}  # fmt: skip


def figures(record: Record) -> dict[str, Figure]:
    """What is learned; risk over the test length; larger variances; the factor of a coordinate by its size."""
    figure, ((learned, lengths), (scales, factor)) = axes_grid(2, 2, width=3.6, height=2.9)
    _learned(learned, record)
    _lengths(lengths, record)
    _scales(scales, record)
    _factor(factor, record)
    return {"random_covariance": figure}


def _learned(axes: Axes, record: Record) -> None:
    for look, name in zip(_LOOKS, (*record.config["laws"], "scaled")):
        best = np.array(record.metrics[name]["optimum"])
        found = np.diagonal(record[f"{name}/product"], axis1=1, axis2=2)
        axes.plot(np.broadcast_to(best, found.shape).ravel(), found.ravel(), linestyle="", markersize=3.5, alpha=0.6,
                  marker=look["marker"], color=look["color"], label=NAMES[name])  # fmt: skip
    low, high = axes.get_xlim()
    axes.plot([low, high], [low, high], **THEORY, label="theory")
    axes.set(xlabel=r"$\mathrm{E}\lambda_i^2 / \gamma_i$", ylabel=r"learned $A_{ii}$")
    axes.legend(ncols=2, **panels.ABOVE)


def _lengths(axes: Axes, record: Record) -> None:
    config = record.config
    fine = np.geomspace(min(config["test_lengths"]), max(config["test_lengths"]), 60)
    for look, name in zip(_LOOKS, config["laws"]):
        points = record[f"{name}/risk"][:, :, 0]
        panels.bars(axes, config["test_lengths"], points, NAMES[name], look)
        axes.plot(fine, [best_risk(record, name, m) for m in fine], **THEORY)
        axes.axhline(
            record.metrics[name]["failure_law"], color=look["color"], linestyle=look["linestyle"], linewidth=0.8
        )
    axes.plot([], [], **THEORY, label="theory")
    axes.plot([], [], color="0.4", linewidth=0.8, label=r"$1 - m_2^2 / (m_1 m_3)$")
    least_squares = np.median(record.arrays["least_squares"], axis=0)
    axes.plot(config["test_lengths"], least_squares, "kx", clip_on=False, label="least squares, Exp(1)")
    axes.set(ylabel=_ERROR, ylim=(0, None))
    _length_axis(axes, config["test_lengths"])


def _scales(axes: Axes, record: Record) -> None:
    config = record.config
    lengths = np.array(config["test_lengths"])
    fine = np.geomspace(lengths.min(), lengths.max(), 60)
    for i, (look, c) in enumerate(zip(_LOOKS, config["scales"])):
        points = record["exponential/risk"][:, :, i] / c
        panels.bars(axes, lengths, points, f"trained, c = {c:g}", look)
        axes.plot(fine, [best_risk(record, "exponential", m, c) for m in fine], **THEORY)
    axes.axhline(1.0, color="0.4", linewidth=0.8, label="predicting 0")
    axes.plot([], [], **THEORY, label="theory")
    axes.set(ylabel=_ERROR, yscale="log")
    _length_axis(axes, lengths)


def _factor(axes: Axes, record: Record) -> None:
    edges = record.arrays["bins"]
    fine, found = np.linspace(0, edges[-1], 50), record["exponential/factor"] * to_the_limit(record)
    panels.bars(axes, (edges[1:] + edges[:-1]) / 2, found, "trained", _LOOKS[0])
    axes.plot(fine, expected_variance(fine) / 3, **THEORY, label=r"$(|x_{q,i}|/\sqrt{2} + 1/2)/3$")
    axes.axhline(1 / 3, color="0.4", linewidth=0.8, label="1/3 as in the paper")
    axes.set(xlabel=r"$|x_{q,i}|$", ylabel=r"factor of $w_i x_{q,i}$ in the prediction", ylim=(0, None))
    axes.legend(ncols=2, **panels.ABOVE)


def _length_axis(axes: Axes, lengths: ArrayLike) -> None:
    axes.set(xlabel="examples in the test prompt M", xscale="log")
    axes.set_xticks(np.asarray(lengths), [f"{m}" for m in np.asarray(lengths)])
    axes.minorticks_off()
    axes.legend(ncols=2, **panels.ABOVE)


def best_risk(record: Record, name: str, length: float, c: float = 1.0) -> float:
    """Normalised risk of the best A on prompts of this length with variances c times as large."""
    moments = np.array(record.metrics[name]["moments"]) * np.array([[c], [c**2], [c**3]])
    best = np.diag(record.metrics[name]["optimum"])
    return float(random_covariance_risk(best, moments, length)) / moments[0].sum()


def to_the_limit(record: Record) -> float:
    """1/3 over a* = N/(3N + D + 5): by how much the best A of Exp(1) prompts grows from N to infinity."""
    return 1 / 3 / record.metrics["exponential"]["optimum"][0]
