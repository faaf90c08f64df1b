"""What ``gradient_flow`` claims and shows: functions of its record."""

import numpy as np

from experiments.panels import described
from experiments.statistics import Statistic, largest, last, ratio
from experiments.zhang_frei_bartlett.drift_statistics import (
    course,
    drift_exponent_near_the_edge,
    drift_exponents,
    drift_ratio,
    gain,
    predicted_courses,
)
from experiments.zhang_frei_bartlett.gradient_flow import DRIFT, GAP, ORDER, PREDICTED, QUIET, QUIET_TIME, course_of
from icl_lab.claims import Quick
from icl_lab.lab import Record, claims_of
from icl_lab.lab.style import THEORY, Axes, Figure, band, panels, viridis
from icl_lab.theory.flows.fluctuations import resting_scale

METHODS: dict[str, dict] = {
    "gd": {"color": "#D55E00", "linestyle": "--", "label": "population GD"},
    "sgd": {"color": "#0072B2", "linestyle": "-", "label": "SGD"},
    "mean_field": {"color": "#56B4E9", "linestyle": (0, (4, 1, 1, 1)), "label": "u of SGD, predicted"},
    "adam": {"color": "#009E73", "linestyle": "-.", "label": "Adam"},
    "exact_adam": {"color": "#CC79A7", "linestyle": (0, (6, 2)), "label": "population Adam"},
    "flow": THEORY | {"label": "gradient flow"},
}
FACTORS = ("o", "s", "^", "D", "v", "P", "X")


def over(path: str, of: str) -> Statistic:
    """(M, R) what is measured over a path."""
    return lambda record: course_of(path)[1](record, of=of)


def error(name: str, at: int = -1) -> Statistic:
    """(M,) error of a path's product, the last one by default."""
    return lambda record: over(name, "error")(record)[:, at]


def end_scale(name: str) -> Statistic:
    """(M,) last u of a path over that of the flow's limit."""
    return lambda record: over(name, "u")(record)[:, -1] / record.metrics["flow_scale"]


def end_ratio(name: str, reference: str) -> Statistic:
    """(M,) last u of a path over the last u of another."""
    return ratio(last(over(name, "u")), last(over(reference, "u")))


def largest_scale(name: str) -> Statistic:
    """(M,) largest u of a path over the u at which SGD's rate is the edge of stability."""
    return lambda record: over(name, "u")(record).max(1) / record.metrics["edge_scale"]


claim = claims_of("zhang_frei_bartlett.gradient_flow", where="this lab")
_THEOREM = "Zhang, Frei & Bartlett 2023, Theorem 4.1"
_EDGE = "the edge of stability along u21, .98, over the flow's u, 1.51"

CLAIMS = (
    claim(
        "flow_limit", "Population gradient flow ends at u U11 = Gam^-1 (largest entry of the gap).", GAP, near=0.0,
        tolerance=1e-8, where=_THEOREM, kind="identity", reason="tolerances of the solver", headline=1,
        quick=Quick(1e-8, "the flow is integrated as at lab, on fewer starts", identity=True),
    ),
    claim(
        "flow_scale", "Population gradient flow ends at u = |Gam^-1|_F^(1/2) (ratio).", end_scale("flow"), near=1.0,
        tolerance=1e-5, where=_THEOREM, kind="identity", reason="tolerances of the solver over the whole path",
        headline=2, quick=Quick(1e-5, "the flow is integrated as at lab, on fewer starts", identity=True),
    ),
    claim(
        "flow_balance", "Population gradient flow keeps u^2 - |U11|_F^2 = 0 (largest size over the path).",
        largest(over("flow", "balance")), near=0.0, tolerance=1e-5, where=_THEOREM, kind="identity",
        control=largest(over("sgd", "balance")), reason="tolerances of the solver over the whole path",
    ),
    claim(
        "gd_order", "Population GD is the flow to first order: its largest distance is linear in the rate (exponent).",
        ORDER, near=1.0, tolerance=0.15, kind="identity",
        reason="the second order, at a fifth of the largest stable rate",
    ),
    claim(
        "gd_scale",
        "Population GD keeps the balance to first order: u ends where the flow's does (ratio; control: SGD).",
        end_scale("gd"), near=1.0, tolerance=0.005, control=end_scale("sgd"),
        reason="one seed ends at a balance of -.009 at this rate",
    ),
    claim(
        "sgd_product", "Minibatch SGD ends near u U11 = Gam^-1 (relative error; control: at the start).", error("sgd"),
        at_most=0.08, control=error("sgd", at=0),
        reason="half of .165, the distance of Gam^-1 from the nearest multiple of Lam^-1: SGD tells the two apart",
    ),
    claim(
        "adam_product",
        "Adam ends nearer to u U11 = Gam^-1 than SGD (ratio of the relative errors; control: than population GD).",
        ratio(error("adam"), error("sgd")), at_most=1.0, control=ratio(error("adam"), error("gd")),
        reason="an ordering, paired by member",
    ),
    *(
        claim(
            f"{name}_scale", f"{about} ends far below the u of the flow (ratio).", end_scale(name), at_most=0.65,
            control=end_scale("gd"), reason=reason, headline=3 if name == "sgd" else 0,
        )
        for name, about, reason in (
            ("sgd", "SGD", f"{_EDGE}: SGD of this rate cannot stay above it"),
            ("adam", "Adam", f"as for SGD: {_EDGE}"),
            ("exact_adam", "Adam on exact gradients, which breaks the balance too,", "as for Adam on batches"),
        )
    ),
    claim(
        "mean_field", "SGD ends at the u of population GD with the mean drift of b by batch noise added (ratio).",
        end_ratio("sgd", "mean_field"), near=1.0, tolerance=0.05, control=end_ratio("gd", "mean_field"),
        reason="fluctuations of the product, a few per cent of it, are left out",
    ),
    claim(
        "edge", "SGD stays below the u at which its rate is the edge of stability along u21 (largest u, ratio).",
        largest_scale("sgd"), at_most=1.0, control=largest_scale("gd"),
        reason="a bound: beyond it u21 grows at every step",
    ),
    claim(
        "drift_rate",
        "From the optimum b drifts per flow time in proportion to the learning rate (exponent; control: up to the "
        "edge of stability, at the smallest batch).",
        lambda record: drift_exponents(record)[:, 0], near=1.0, tolerance=0.1, control=drift_exponent_near_the_edge,
        reason="the noise of u21 near the edge adds .05 to the exponent at these rates",
    ),
    claim(
        "drift_batch",
        "From the optimum b drifts in proportion to 1 / B (exponent; control: batches exchanged in a circle).",
        lambda record: drift_exponents(record)[:, 1], near=1.0, tolerance=0.1,
        control=lambda record: drift_exponents(record, exchanged=True)[:, 1],
        reason="corrections of second order in eta / B, a tenth or two at the smallest batch",
    ),
    claim(
        "drift",
        "The drift of the balance is the closed form (measured over predicted, mean over all small ones; control: over "
        "that of the next larger batch).",
        drift_ratio, near=1.0, tolerance=0.1, control=lambda record: drift_ratio(record, larger_batch=True),
        reason="corrections of the order of 1 / B",
    ),
    claim(
        "course",
        "From optimal weights below the u of least gradient noise SGD raises u as the closed form at its rate says "
        "(last u over predicted; control: over the limit of small rates).",
        course(0), near=1.0, tolerance=0.05, control=course(0, limit=True),
        reason="of the order of 1 / B: u itself fluctuates by a tenth at the start",
    ),
    *(
        claim(
            f"quiet_from_{name}",
            f"From optimal weights {name} the u of least gradient noise SGD {verb} u (ratio; control: from {other}).",
            gain(start), **bound, control=gain(1 - start), reason="5 % is more than the noise of its mean",
        )
        for start, (name, other, verb, bound) in enumerate(
            (("below", "above", "raises", {"at_least": 1.05}), ("above", "below", "lowers", {"at_most": 0.95}))
        )
    ),
    claim(
        "exact_adam_rate",
        "On exact gradients Adam ends there at a tenth of the rate too, so that it is no error of the step's size "
        "(ratio).",
        end_ratio("slow_exact_adam", "exact_adam"), near=1.0, tolerance=0.1, control=end_ratio("flow", "exact_adam"),
        reason="an error of first order would fall tenfold and bring u near the flow's, the control",
    ),
)  # fmt: skip


def figures(record: Record) -> dict[str, Figure]:
    """The paths from one initialisation; the drift of the balance."""
    return {"gradient_flow": _paths(record), "balance": _balance(record)}


def _paths(record: Record) -> Figure:
    """Excess loss, error of the product and u over learning rate times steps."""
    figure, ((loss, error, scale),) = panels(3, 1)
    end = course_of("sgd")[0](record)[-1]
    for name, look in METHODS.items():
        time, course = course_of(name)
        times = time(record)
        for axes, measure in ((loss, "excess"), (error, "error"), (scale, "u")):
            if name == "mean_field" and measure != "u":  # it has no fluctuations, of which loss and error consist
                continue
            shown = times <= end
            band(axes, times[shown], course(record, of=measure)[:, shown], **look)
    scale.axhline(record.metrics["edge_scale"], color="0.6", linewidth=0.8, linestyle="-")
    scale.text(end, record.metrics["edge_scale"], "SGD is stable below", ha="right", va="bottom")
    labels = (r"excess loss $L / L^* - 1$", "relative error of $u U_{11}$")
    for axes, label, title in zip((loss, error), labels, ("loss", "product learned")):
        axes.set(yscale="log", ylabel=label, title=title)
        axes.set_ylim(bottom=1e-6)
    scale.set(ylabel="$u$", title="where $u$ ends")
    for axes in (loss, error, scale):
        axes.set_xlabel("learning rate × steps")
    figure.legend(*scale.get_legend_handles_labels(), loc="outside upper center", ncols=6)
    return figure


def _balance(record: Record) -> Figure:
    """The drift from the optimum over eta / B, over what is predicted, and the long drift to the quiet scale."""
    from matplotlib.ticker import NullFormatter

    figure, ((drift, against, quiet),) = panels(3, 1)
    batches, rates = (np.array(record.config[f"drift_{name}"]) for name in ("batches", "rates"))
    measured, predicted = DRIFT(record), PREDICTED(record)
    shades = viridis(len(rates))
    for j, rate in enumerate(rates):
        look = {"color": shades[j], "marker": FACTORS[j % len(FACTORS)], "linestyle": (0, (3, 1 + j))}
        look["label"] = rf"$\eta$ = {rate:g}"
        order = np.argsort(rate / batches)
        x = (rate / batches)[order]
        drift.plot(x, -np.median(measured, axis=0)[order, j], **look)
        drift.plot(x, -predicted[order, j], **THEORY, label=None if j else "theory")
        band(against, batches, (measured / predicted)[:, :, j], **look)
    drift.set(xlabel=r"learning rate / batch, $\eta / B$", ylabel=f"$-b$ at flow time {record.config['drift_time']:g}")
    described(drift, xscale="log", yscale="log", title="drift by noise")
    drift.xaxis.set_minor_formatter(NullFormatter())
    against.axhline(1.0, **THEORY)
    against.set(xscale="log", xlabel="batch $B$", ylabel="drift, measured / predicted", title="against theory")
    against.set_xticks(batches, [str(b) for b in batches])
    against.minorticks_off()
    _long_drift(quiet, record)
    return figure


def _long_drift(axes: Axes, record: Record) -> None:
    times, config = QUIET_TIME(record), record.config
    looks = (METHODS["sgd"], METHODS["gd"] | {"linestyle": "-."}, METHODS["adam"] | {"linestyle": "--"})
    for i, u in enumerate(config["quiet_starts"]):
        band(axes, times, QUIET(record)[:, i], **looks[i % 3] | {"label": f"from $u$ = {u:g}"})
        for limit, label, gap in ((False, "theory", 1), (True, "at small rates", 3)):
            course, look = predicted_courses(record, limit=limit)[i], THEORY | {"linestyle": (0, (1, gap))}
            axes.plot(times, course, **look, label=None if i else label)
    lam, n = np.diag(config["spectrum"]), config["context_length"]
    rest = resting_scale(lam, n, config["sgd_rate"], config["quiet_batch"])
    levels = sorted(((rest, "SGD rests"), (record.metrics["quiet_scale"], "least noise")))
    for (level, about), where in zip(levels, ("top", "bottom")):
        axes.axhline(level, color="0.6", linewidth=0.8)
        axes.text(0, level, about, va=where)
    axes.set_xlabel(rf"learning rate × steps ($\eta$ = {config['sgd_rate']:g}, B = {config['quiet_batch']})")
    described(axes, ylabel="$u$ of the optimum with this $b$", title="where it rests")
