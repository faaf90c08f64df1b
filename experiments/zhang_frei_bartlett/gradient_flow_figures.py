"""Figures of ``gradient_flow``: the paths from one initialisation, and the drift of the balance."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.panels import ABOVE
from icl_lab.lab import Record
from icl_lab.lab.style import THEORY, Axes, Figure, band, panels, viridis
from icl_lab.theory.flows.fluctuations import resting_scale, scale_course

METHODS: dict[str, dict] = {
    "gd": {"color": "#D55E00", "linestyle": "--", "label": "population GD"},
    "sgd": {"color": "#0072B2", "linestyle": "-", "label": "SGD"},
    "mean_field": {"color": "#56B4E9", "linestyle": (0, (4, 1, 1, 1)), "label": "u of SGD, predicted"},
    "adam": {"color": "#009E73", "linestyle": "-.", "label": "Adam"},
    "exact_adam": {"color": "#CC79A7", "linestyle": (0, (6, 2)), "label": "population Adam"},
    "flow": THEORY | {"label": "gradient flow"},
}
FACTORS = ("o", "s", "^", "D", "v", "P", "X")


def figures(record: Record) -> dict[str, Figure]:
    """The paths from one initialisation; the drift of the balance."""
    return {"gradient_flow": _paths(record), "balance": _balance(record)}


def _paths(record: Record) -> Figure:
    """Excess loss, error of the product and u over learning rate times steps."""
    figure, ((loss, error, scale),) = panels(3, 1, width=3.4, height=3.0)
    end = record["sgd/time"][-1]
    for name, look in METHODS.items():
        times = record[f"{name}/time"]
        for axes, what in ((loss, "excess"), (error, "error"), (scale, "u")):
            if name == "mean_field" and what != "u":  # it has no fluctuations, of which loss and error consist
                continue
            shown = times <= end
            band(axes, times[shown], record[f"{name}/{what}"][:, shown], **look)
    scale.axhline(record.metrics["edge_scale"], color="0.6", linewidth=0.8, linestyle="-")
    scale.text(end, record.metrics["edge_scale"], "SGD is stable below", ha="right", va="bottom", fontsize=7)
    for axes, label in ((loss, r"excess loss $L / L^* - 1$"), (error, "relative error of $u U_{11}$")):
        axes.set_yscale("log")
        axes.set_ylim(bottom=1e-6)
        axes.set_ylabel(label)
    scale.set_ylabel("$u$")
    for axes in (loss, error, scale):
        axes.set_xlabel("learning rate × steps")
    handles, labels = scale.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=6)
    return figure


def _balance(record: Record) -> Figure:
    """The drift from the optimum over eta / B, over what is predicted, and the long drift to the quiet scale."""
    from matplotlib.ticker import NullFormatter

    figure, ((drift, ratio, quiet),) = panels(3, 1, width=3.4, height=3.0)
    batches, rates = (np.array(record.config[f"drift_{name}"]) for name in ("batches", "rates"))
    measured, predicted = record["drift"], record["drift_predicted"]
    shades = viridis(len(rates))
    for j, rate in enumerate(rates):
        look = {"color": shades[j], "marker": FACTORS[j % len(FACTORS)], "linestyle": ""}
        order = np.argsort(rate / batches)
        x = (rate / batches)[order]
        drift.plot(x, -np.median(measured, axis=0)[order, j], label=rf"$\eta$ = {rate:g}", **look)
        drift.plot(x, -predicted[order, j], **THEORY | {"label": "theory" if j == 0 else None})
        spread = (measured / predicted)[:, :, j]
        band(ratio, batches, spread, **look | {"linestyle": (0, (3, 1 + j))}, label=rf"$\eta$ = {rate:g}")
    drift.set_xscale("log")
    drift.set_yscale("log")
    drift.xaxis.set_minor_formatter(NullFormatter())
    drift.set_xlabel(r"learning rate / batch, $\eta / B$")
    drift.set_ylabel(f"$-b$ at flow time {record.config['drift_time']:g}")
    drift.legend(ncols=3, **ABOVE)
    ratio.axhline(1.0, **THEORY)
    ratio.set_xscale("log")
    ratio.set_xticks(batches, [str(b) for b in batches])
    ratio.minorticks_off()
    ratio.set_xlabel("batch $B$")
    ratio.set_ylabel("drift, measured / predicted")
    _long_drift(quiet, record)
    return figure


def predicted_courses(record: Record, *, limit: bool = False) -> np.ndarray:
    """(S, R) u of SGD along the optimal weights by the closed form at its rate; or in the limit of small rates."""
    config = record.config
    courses = [
        _course(u, _law(config), config["sgd_rate"], config["quiet_batch"], limit) for u in config["quiet_starts"]
    ]
    return np.stack([np.interp(record["quiet/time"], *course) for course in courses])


def _law(config: Mapping[str, Any]) -> tuple[tuple[float, ...], int, float]:
    """Spectrum, N and the flow time of the long drift."""
    return tuple(config["spectrum"]), config["context_length"], config["sgd_rate"] * config["quiet_steps"]


@functools.cache
def _course(
    u: float, law: tuple[tuple[float, ...], int, float], rate: float, batch: int, limit: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Times and u. A small rate at the same rate / batch and the same time has the course of the limit."""
    spectrum, n, end = law
    small = 1e-6
    factor, law_rate, size = (rate / batch / small, small, 1) if limit else (1.0, rate, batch)
    times = np.linspace(0.0, end, 101)
    return times, scale_course(times * factor, u, np.diag(spectrum), n, law_rate, size)


def _long_drift(axes: Axes, record: Record) -> None:
    times, config = record["quiet/time"], record.config
    looks = (METHODS["sgd"], METHODS["gd"] | {"linestyle": "-."}, METHODS["adam"] | {"linestyle": "--"})
    for i, u in enumerate(config["quiet_starts"]):
        band(axes, times, record["quiet/u"][:, i], **looks[i % 3] | {"label": f"from $u$ = {u:g}"})
        for limit, label, shade in ((False, "theory at this rate", {}), (True, "small rates", {"color": "0.6"})):
            course = predicted_courses(record, limit=limit)[i]
            axes.plot(times, course, **THEORY | shade | {"label": None if i else label})
    spectrum, n, _ = _law(config)
    rest = resting_scale(np.diag(spectrum), n, config["sgd_rate"], config["quiet_batch"])
    for level, about, where in ((rest, "SGD rests", "bottom"), (record.metrics["quiet_scale"], "least noise", "top")):
        axes.axhline(level, color="0.6", linewidth=0.8)
        axes.text(0.6 * times[-1], level, about, ha="right", va=where, fontsize=7)
    axes.set_xlabel(rf"learning rate × steps ($\eta$ = {config['sgd_rate']:g}, B = {config['quiet_batch']})")
    axes.set_ylabel("$u$ of the optimum with this $b$")
    axes.legend(ncols=2, **ABOVE)
