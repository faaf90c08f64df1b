"""What ``scaling`` claims and shows: functions of its record."""

import functools
from math import comb
from typing import Any

import numpy as np

from experiments import panels
from experiments.depth.scaling import BEST, ERROR, LEFT, LOSS, SHIFTED, STEPS, TIED, Config, best, modes
from experiments.statistics import Statistic, of_record
from icl_lab import theory
from icl_lab.claims import FAILS, NOT_RESOLVED, NotRun, Quick
from icl_lab.lab import Record, claims_of, from_json
from icl_lab.lab.style import THEORY, Axes, Figure, band
from icl_lab.lab.style import panels as axes_grid


def slope(of: str, learner: str) -> Statistic:
    """Slope of the log of the least error over that of the depth, by a straight line."""
    return lambda record: np.polyfit(
        np.log(record.config[f"{of}_depths"]), np.log(BEST(record, of=of, learner=learner)), 1
    )[0]


@of_record
def off_limit(record: Record, learner: str) -> np.ndarray:
    """Largest relative distance of isotropic errors in the limit from binom(2L, L) / 4^L; free: from 1 / (L + 1)."""
    depths, errors = record.config["limit_depths"], BEST(record, of="limit", learner=learner)
    exact = [comb(2 * depth, depth) / 4**depth if learner == "tied" else 1 / (depth + 1) for depth in depths]
    return np.abs(errors / np.array(exact) - 1).max()


@functools.cache
def exact(size: int, depth: int) -> float:
    """The least error of tied layers on N = D isotropic examples; that of no layer is 1."""
    if not depth:
        return 1.0
    spectrum = theory.gram_spectrum(size, size, 2 * depth)
    return float(theory.depth_error(best(spectrum, depth)["tied"], spectrum))


def error(record: Record, size: int, depth: int) -> np.ndarray:
    """(M,) error of trained tied layers: its ratio to that of exact rates on the same prompts, times the exact one."""
    if depth not in record.config["tied"]:
        raise NotRun(f"{depth} tied layers")
    trained, tied = (TIED(record, size=size, depth=depth, learner=learner) for learner in ("trained", "tied"))
    return trained / tied * exact(size, depth)


@of_record
def extrapolated(record: Record, depth: int, by: bool = True) -> np.ndarray:
    """(M,) error at N = D to infinity, by a line in 1/D (control: of the smallest D), over binom(2L, L) / 4^L."""
    sizes, limit = record.config["sizes"], comb(2 * depth, depth) / 4**depth
    errors = np.stack([error(record, size, depth) for size in sizes])
    return (np.polyfit(1 / np.array(sizes), errors, 1)[1] if by else errors[0]) / limit


def off_exact(record: Record) -> np.ndarray:
    """(M,) largest relative distance of an error of trained tied layers from the exact one of its size and depth."""
    sizes, depths = record.config["sizes"], record.config["tied"]
    ratios = [error(record, size, depth) / exact(size, depth) for size in sizes for depth in depths]
    return np.abs(np.stack(ratios) - 1).max(axis=0)


def off_exact_shallower(record: Record) -> np.ndarray:
    """(M,) the distance of the error of the deepest tied layers from the exact one of half as many."""
    size, depth = record.config["sizes"][-1], record.config["tied"][-1]
    return np.abs(error(record, size, depth) / exact(size, depth // 2) - 1)


@of_record
def over(record: Record, network: str, learner: str) -> np.ndarray:
    """(M,) error of a network over that of layers at the best rates of a kind, on the same prompts.

    Infinite where a training diverged.
    """
    if network not in record.config["networks"]:
        raise NotRun(network)
    trained = ERROR(record, network=network, learner="trained")
    return np.where(np.isnan(trained), np.inf, trained) / ERROR(record, network=network, learner=learner)


@of_record
def time(record: Record, depth: int, along: bool = False) -> np.ndarray:
    """(M,) steps to leave the saddle for each e-fold of the jitter, times the growth of a step (control: ``along``)."""
    config, steps = from_json(Config, record.config), LEFT(record, depth=depth)
    spectrum = modes(config, config.few)
    curvature = -theory.saddle_curvature(best(spectrum, depth)["tied"][0], depth, spectrum)
    growth = config.descent_rate * curvature * ((2 * depth - 1) if along else 1)
    return np.polyfit(-np.log(config.jitters), steps.T, 1)[0] * np.log1p(growth)


@of_record
def shifted(record: Record, moved: bool = True) -> np.ndarray:
    """Least ratio, over depths above one, of free layers' error to tied ones' at 1.5 l (control: at l)."""
    of = {name: SHIFTED(record, learner=name) if moved else BEST(record, of="few", learner=name) for name in _BOTH}
    return (of["free"] / of["tied"])[np.array(record.config["few_depths"]) > 1].min()


_BOTH = ("tied", "free")
_EXACT = {"interval": "exact", "presets": ("lab", "paper")}
_TRAINED = "the rate falls to zero, so that Adam leaves 1 to 2 % of a weight, of second order in the error"
_UNBOUNDED: dict[str, Any] = {"interval": "median"}
"""Errors of trainings that may diverge: of layers applied many times, and by gradient descent at a large rate."""
_AT_LAB = dict.fromkeys(("extrapolated_8", "apart_4"), NOT_RESOLVED) | dict.fromkeys(("finite_tied", "inputs_2"), FAILS)
claim = claims_of("depth.scaling", "Bordelon, Letey & Pehlevan 2025", _AT_LAB)

CLAIMS = (
    claim(
        "few_tied", "With 45 modes the slope of tied layers is not the exponent (slope; control: with many).",
        slope("few", "tied"), at_most=-0.6, control=slope("many", "tied"), kind="identity", **_EXACT,
        reason="-beta is -.5, which many modes have within .05; twice that: no modes are left at small l",
    ),
    claim(
        "few_free", "With 45 modes the slope of free layers is not the exponent (slope; control: with many).",
        slope("few", "free"), at_most=-2.2, control=slope("many", "free"), kind="identity", **_EXACT,
        reason="-beta (2 + alpha) is -1.875, which many modes have within .15; twice that",
    ),
    claim(
        "limit_tied",
        "On isotropic prompts of N = D to infinity tied layers leave binom(2L, L) / 4^L (largest relative distance).",
        off_limit("tied"), at_most=1e-8, kind="identity", reason="an identity in float64", **_EXACT,
    ),
    claim(
        "limit_free", "There free layers leave 1 / (L + 1): on a continuous law the exponent doubles (distance).",
        off_limit("free"), at_most=1e-8, kind="identity", reason="an identity in float64", **_EXACT,
    ),
    claim(
        "finite_tied",
        "Trained tied layers have the exact error of N = D examples (largest relative distance of all sizes and "
        "depths; control: from that of half as many layers).",
        off_exact, at_most=0.03, control=off_exact_shallower, reason=_TRAINED, **_UNBOUNDED,
    ),
    *(
        claim(
            f"extrapolated_{depth}",
            f"Errors of {layers}, extrapolated in 1/D, are binom(2L, L) / 4^L (ratio; control: at D = 16).",
            extrapolated(depth), near=1.0, tolerance=0.03, control=extrapolated(depth, by=False),
            reason=f"{_TRAINED}; the line in 1/D alone leaves {left}", **_UNBOUNDED, **more,
        )
        for depth, layers, left, more in (
            (1, "one trained layer", ".05 %", {}), (2, "two tied trained layers", ".02 %", {}),
            (4, "four tied trained layers", ".4 %", {"headline": 2}),
            (8, "eight tied trained layers", "1.2 %", {}),
        )
    ),
    *(
        claim(
            f"time_{depth}",
            f"The steps to leave {depth} equal rates grow as ln(1/jitter) over the saddle's curvature (slope "
            "times growth; control: with that along equal rates).",
            time(depth), near=1.0, tolerance=0.02, control=time(depth, along=True), kind="identity",
            reason="the law of a small jitter; .01 is small, and steps are whole numbers",
        )
        for depth in (2, 4)
    ),
    claim(
        "zeros_4",
        "Four free layers that start at zero stay on the saddle: the tied error (ratio; control: from rates apart).",
        over("zeros_4", "tied"), near=1.0, tolerance=0.03, control=over("apart_4", "tied"), headline=1, **_UNBOUNDED,
        reason="curvature lets a jitter grow some thirtyfold; samples move the mean rates of layers apart in second "
        "order only, and 1 % of the rate is .01 % of the error",
    ),
    claim(
        "apart_4", "Four that start at rates of their own leave it (over the tied error; control: from zeros).",
        over("apart_4", "tied"), at_most=0.8, control=over("zeros_4", "tied"), **_UNBOUNDED,
        reason="free layers could reach .18; four fifths is far from the saddle",
    ),
    claim(
        "zeros_2", "Two free layers that start at zero leave it in as many steps (ratio; control: four layers).",
        over("zeros_2", "tied"), at_most=0.97, control=over("zeros_4", "tied"), **_UNBOUNDED,
        reason="the tolerance of zeros_4; the saddle is five times as steep",
    ),
    claim(
        "shifted",
        "Under l -> 1.5 l the free optimum is worse than the tied one (least ratio of all depths above one; control: "
        "at l).",
        shifted(), at_least=1.0, control=shifted(False), kind="identity", headline=3, **_EXACT,
        reason="zeros of the free polynomial lie on the largest l; no noise is in it",
        quick=Quick(0.0, "a bound without slack, of the modes and depths of lab"),
    ),
    claim(
        "inputs_2",
        "Two layers that may move the inputs have less error than the best free ones (ratio; control: free ones from "
        "zeros).",
        over("inputs_2", "free"), at_most=0.95, control=over("zeros_2", "free"), **_UNBOUNDED,
        reason="the best GD++ has .38 of it; a twentieth is beyond what samples and Adam leave",
    ),
)  # fmt: skip


def figures(record: Record) -> dict[str, Figure]:
    """Least errors over depth, tied layers on isotropic prompts, and training beside the saddle."""
    figure, ((exponents, tied, saddle),) = axes_grid(3, 1, width=3.2, height=2.9)
    config = from_json(Config, record.config)
    for look, learner in zip(panels.SERIES, _BOTH):
        for of, dash in (("many", "-"), ("few", ":")):
            depths, line = record.config[f"{of}_depths"], look | {"linestyle": dash}
            exponents.plot(depths, BEST(record, of=of, learner=learner), label=f"{learner}, {of} modes", **line)
    exponents.set(xscale="log", yscale="log", ylim=(1e-4, None))
    panels.described(exponents, 2, title="least errors", xlabel="layers", ylabel="least error")
    for look, size, shift in zip(panels.SERIES, config.sizes, panels.beside(config.sizes, 0.4)):
        members = np.stack([TIED(record, size=size, depth=depth, learner="trained") for depth in config.tied], 1)
        panels.strip(tied, np.array(config.tied) + shift, members, f"N = D = {size}", look, width=0.2)
    tied.plot(config.limit_depths, BEST(record, of="limit", learner="tied"), **THEORY)
    panels.described(tied, 2, title="isotropic prompts, trained", xlabel="tied layers", ylabel="error", yscale="log")
    _training(saddle, record, [name for name in config.networks if not name.startswith("inputs")])
    return {"scaling": figure}


def _training(axes: Axes, record: Record, networks: list[str]) -> None:
    """Errors over training over the best tied ones."""
    config = from_json(Config, record.config)
    spectrum = modes(config, config.input_size)
    for look, network in zip(panels.SERIES, networks):
        least = theory.depth_error(best(spectrum, int(network.split("_")[1]))["tied"], spectrum)
        errors = 2 * LOSS(record, network=network) / least
        band(axes, STEPS(record), errors, label=network.replace("_", ", L = "), **look)
    axes.axhline(1, **THEORY)
    axes.set(title="beside the saddle", xlabel="training step", ylabel="error / best tied error", ylim=(0, 3))
    if networks:
        axes.legend(ncols=1, **panels.ABOVE)
