"""Figures of ``risk``."""

import numpy as np

from experiments.panels import ABOVE
from icl_lab.lab import Record
from icl_lab.lab.style import THEORY, Axes, Figure, band, viridis
from icl_lab.lab.style import panels as axes_grid
from icl_lab.theory import error_floor_bound

COVARIANCES = ("identity", "spectrum")
DASHES = ("-", "--", "-.", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v")
THIN = THEORY | {"linewidth": 1.0}
LABELS = {"identity": r"$\Lambda$ = identity", "spectrum": r"$\Lambda$ = spectrum"}


def _points(axes: Axes, x: np.ndarray, members: np.ndarray, i: int, count: int, label: str) -> None:
    """Member (M, X) values as a band with the i-th colour, dash and marker of a family."""
    shade = viridis(count)[i]
    band(axes, x, members, color=shade, linestyle=DASHES[i % 5], marker=MARKERS[i % 5], label=label)


def risk_figure(record: Record) -> Figure:
    """Risk over test length for each training length, one panel a covariance."""
    config = record.config
    test, train = np.array(config["test_lengths"]), np.array(config["train_lengths"])
    figure, (row,) = axes_grid(2, 1, width=3.6, height=3.0)
    for axes, name in zip(row, COVARIANCES):
        for i, n in enumerate(train):
            _points(axes, test, record[f"{name}/risk"][:, i], i, len(train), f"N = {n}")
            axes.plot(test, record[f"{name}/closed"][i], **THIN, label="theory" if i == len(train) - 1 else None)
        _logarithmic(axes, test, "test length M (examples)", "risk (mean squared error)")
        axes.legend(ncols=3, title=LABELS[name], **ABOVE)
    return figure


def rates_figure(record: Record) -> Figure:
    """What is above the floor over M, the floor over N, and the training length that is best for each M."""
    config = record.config
    test, train = np.array(config["test_lengths"]), np.array(config["train_lengths"])
    figure, ((context, floor, fixed),) = axes_grid(3, 1, width=3.4, height=3.0)
    n = list(train).index(config["context_length"])
    excess = record["sampled/clean"] - record["spectrum/floor"][:, n, None]
    _points(context, test, np.where(excess > 0, excess, np.nan), 0, 2, f"trained at N = {train[n]}, sampled")
    context.plot(test, record["predicted/clean"] - record["spectrum/closed_floor"][n], **THIN, label="theory: c/M")
    _logarithmic(context, test, "test length M (examples)", "risk above its floor (MSE)")
    for i, name in enumerate(COVARIANCES):
        _points(floor, train, record[f"{name}/floor"], i, 2, f"trained, {LABELS[name]}")
        floor.plot(train, record[f"{name}/closed_floor"], **THIN, label=None if i else "theory")
    spectrum = np.diag(config["spectrum"])
    bound = [error_floor_bound(spectrum, int(n)) for n in train]
    floor.plot(train, bound, color="0.5", label=r"bound $\eta$, spectrum")
    _logarithmic(floor, train, "training length N (examples)", r"floor, $M\to\infty$ (MSE)")
    shared = [m for m in test if m in train]
    for i, m in enumerate(shared):
        at = list(test).index(m)
        best = record["identity/closed"][:, at].min()
        _points(fixed, train, record["identity/risk"][:, :, at] / best, i, len(shared), f"M = {m}")
        fixed.plot(train, record["identity/closed"][:, at] / best, **THIN, label=None if i else "theory")
    _logarithmic(fixed, train, "training length N (examples)", "risk / least over N", (1, 1.2, 1.5, 2, 3, 4, 6))
    context.legend(title=LABELS["spectrum"], **ABOVE)
    floor.legend(ncols=2, **ABOVE)
    fixed.legend(ncols=3, title=LABELS["identity"], **ABOVE)
    return figure


def labels_figure(record: Record) -> Figure:
    """Sampled risks on clean, noisy and nonlinear labels on the theorem's lines."""
    config = record.config
    test = np.array(config["test_lengths"])
    figure, ((linear, curve),) = axes_grid(2, 1, width=3.6, height=3.0)
    noisy = rf"noise $\sigma$ = {config['label_noise']:g}"
    for i, (name, label) in enumerate((("clean", "clean labels"), ("noisy", noisy))):
        _points(linear, test, record[f"sampled/{name}"], i, 2, label)
        linear.plot(test, record[f"predicted/{name}"], **THIN, label="theory" if i else None)
    _points(curve, test, record["sampled/nonlinear"], 0, 2, r"$y = x_1^2 + x_2/2 + \sin x_3$")
    curve.plot(test, record["predicted/nonlinear"], **THIN, label="theory")
    curve.axhline(record.metrics["best_linear_risk"], color="0.5", linestyle="--", label="best linear predictor")
    for axes in (linear, curve):
        _logarithmic(axes, test, "test length M (examples)", "risk (mean squared error)")
        axes.legend(ncols=2, title=f"trained at N = {config['context_length']}, clean linear labels", **ABOVE)
    return figure


def _logarithmic(axes: Axes, lengths: np.ndarray, label: str, quantity: str, marks: tuple = (1, 2, 5)) -> None:
    from matplotlib.ticker import LogLocator

    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(lengths, [str(v) for v in lengths])
    axes.yaxis.set_major_locator(LogLocator(subs=marks))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.minorticks_off()
    axes.set_xlabel(label)
    axes.set_ylabel(quantity)
