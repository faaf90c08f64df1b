"""What ``theorems`` claims and shows: functions of its record."""

import numpy as np

from experiments.panels import SERIES, described
from experiments.zhang_frei_bartlett import theorems as binary
from icl_lab.claims import Quick
from icl_lab.lab import Record, claims_of
from icl_lab.lab.style import THEORY, Figure, band, panels


def rate(record: Record) -> np.ndarray:
    """(M,) exponent of the excess loss between 1e-7 and 1e-10 of L*, from the smallest scale, over 2 h."""
    times, exponents = binary.TIMES(record), []
    for curve in binary.EXCESS(record)[:, 0]:
        late = (curve < 1e-7) & (curve > 1e-10)
        exponents.append(-np.polyfit(times[late], np.log(curve[late]), 1)[0] if late.sum() > 1 else np.nan)
    return np.array(exponents) / (2 * binary.SLOWEST(record)[0])


def steepness(record: Record) -> np.ndarray:
    """(M,) the smallest |grad L|^2 / (L - L*) along the flow, over mu."""
    return np.nanmin(binary.STEEPNESS(record), 1) / binary.CONSTANT(record)


def steepness_over_curvature(record: Record) -> np.ndarray:
    """(M,) the same over 2 h, the rate at which the excess loss falls in the end."""
    return np.nanmin(binary.STEEPNESS(record), 1) / (2 * binary.SLOWEST(record)[0])


claim = claims_of("zhang_frei_bartlett.theorems", "Zhang, Frei & Bartlett 2023, ", kind="identity")
"""All but one are proven, or follow from the merged loss, whose only critical points are the optimum and 0."""

CLAIMS = (
    claim(
        "beyond_bound",
        "The bound on the initial scale is not needed: from its largest multiple (ten times at lab) the flow ends at "
        "u U11 = Gam^-1 (largest entry of the gap).",
        lambda record: binary.GAP(record)[:, -1], at_most=0.0, tolerance=1e-7, where="Theorem 4.1",
        reason="tolerances of the solver", headline=1,
        quick=Quick(1e-7, "the flow is integrated as at lab, from fewer starts", identity=True),
    ),
    claim(
        "steepness", "|grad L|^2 is at least mu (L - L*) all along the flow (smallest ratio over mu).", steepness,
        at_least=1.0, where="Lemma 5.4", reason="a bound that is proven: it fails where a closed form here is wrong",
    ),
    claim(
        "loose",
        "mu is smaller than the smallest such ratio by two orders or more (the same ratio; control: 2 h for mu).",
        steepness, at_least=100.0, where="Lemma 5.4 (this lab)", kind="claim", control=steepness_over_curvature,
        reason="two orders: no time that mu predicts is one that is seen", headline=3,
    ),
    claim(
        "rate",
        "The excess loss ends falling as exp(-2 h t), h the smallest curvature at the limit that is not zero "
        "(exponent over 2 h).",
        rate, near=1.0, tolerance=0.01, where="Theorem 4.1 (this lab)",
        reason="the next exponent still adds some parts in a thousand at 1e-7 of L*", headline=2,
        quick=Quick(0.01, "as at lab, from fewer starts", identity=True),
    ),
    claim(
        "form", "A prediction of dense weights is vec(U)^T H vec(U) (relative error).", binary.FORM_ERROR, at_most=0.0,
        tolerance=1e-9, where="Lemma 5.1", reason="rounding of float64, over a prediction near 0",
    ),
    claim(
        "indefinite", "H has D + 1 negative eigenvalues (their number less D + 1).",
        lambda record: (binary.SPECTRUM(record) < -1e-9).sum(1) - len(record.config["spectrum"]) - 1.0, near=0.0,
        where="Lemma 5.1",
        reason="a count: D + 1 at least by the lemma, no more since H has rank 2 (D + 1) and a symmetric spectrum",
    ),
    claim(
        "random_limit", "Under random covariances the flow ends at A* (largest entry of the gap).",
        lambda record: binary.RANDOM_GAP(record)[:, -1], at_most=0.0, tolerance=1e-7, where="Theorem 4.5",
        reason="tolerances of the solver",
    ),
    claim(
        "random_scale", "Under random covariances u ends at |A*|_F^(1/2) (ratio; control: at what (C.15) prints).",
        binary.RANDOM_U.at(over="u"), near=1.0, tolerance=1e-6, where="Theorem 4.5, (4.12)",
        published=("u ends at (sum of ξ/γ)^(1/4)", "(C.15)"),
        control=binary.RANDOM_U.at(over="printed"), reason="tolerances of the solver",
    ),
)  # fmt: skip


def figures(record: Record) -> dict[str, Figure]:
    """Excess loss from every scale; its steepness; the spectrum of H; the flow under random covariances."""
    figure, ((excess, steep, form, random),) = panels(4, 1, shape=0.78)
    times, constants = binary.TIMES(record), binary.CONSTANT(record)
    for i, factor in enumerate(record.config["factors"]):
        look = SERIES[i % len(SERIES)] | {"marker": "", "label": f"{factor:g}"}
        band(excess, times, binary.EXCESS(record)[:, i], **look)
    excess.plot(times, np.exp(-2 * binary.SLOWEST(record)[0] * times), **THEORY, label=r"$e^{-2ht}$")
    excess.plot(
        times, np.exp(-constants.max() * times), color="0.6", linestyle=(0, (6, 2, 1, 2)), label=r"$e^{-\mu t}$"
    )
    excess.set(yscale="log", ylim=(1e-12, 1e3), xlim=(0, 0.4 * times[-1]), xlabel="flow time", ylabel="$L / L^* - 1$")
    described(excess, title="Theorem 4.1: by start / bound")
    band(steep, times, binary.STEEPNESS(record), color="#0072B2", linestyle="-", label=r"$|\nabla L|^2 / (L - L^*)$")
    band(steep, times, np.repeat(constants[:, None], len(times), 1), color="0.6", linestyle="--", label=r"$\mu$")
    steep.set(yscale="log", xlabel="flow time", xlim=(0, times[np.isfinite(binary.STEEPNESS(record)).any(0)][-1]))
    steep.set_title("Lemma 5.4: steepness")
    steep.legend(loc="center right")
    for spectrum in binary.SPECTRUM(record):
        form.plot(np.arange(1, len(spectrum) + 1), spectrum, ".", color="#0072B2", markersize=3, alpha=0.5)
    form.axhline(0.0, color="0.6", linewidth=0.8)
    form.set(xlabel="rank", ylabel="eigenvalue of $H$", yscale="symlog", title="Lemma 5.1: spectrum")
    above = (binary.RANDOM_GAP(record) > 1e-12).all(0)  # below, it is rounding
    band(
        random, binary.RANDOM_TIMES(record)[above], binary.RANDOM_GAP(record)[:, above], color="#D55E00", linestyle="-"
    )
    random.set(xscale="log", yscale="log", xlabel="flow time", ylabel=r"largest entry of $u U_{11} - A^*$")
    random.set_title(r"Theorem 4.5: gap to $A^*$")
    return {"theorems": figure}
