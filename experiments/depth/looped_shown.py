"""What ``looped`` claims and shows: functions of its record."""

from functools import partial
from typing import Any

import numpy as np

from experiments import panels, statistics
from experiments.depth.looped import END, ERROR, LEFT, LOOPS, WEIGHTS, Config, Optima, optima, root
from experiments.statistics import Statistic, of_record, place_of, ratio
from icl_lab.claims import FAILS, NOT_RESOLVED, Quick
from icl_lab.lab import Record, claims_of, from_json
from icl_lab.lab.style import THEORY, Axes, Figure
from icl_lab.lab.style import panels as axes_grid
from icl_lab.theory import depth_error, gram_spectrum, saddle_curvature


def config_of(record: Record) -> Config:
    """The configuration of a record."""
    return from_json(Config, record.config)


def best_of(record: Record, network: str) -> Optima:
    """The best rates of a network's depth."""
    return optima(config_of(record), int(network.split("_")[1]))


def whitened(record: Record, network: str) -> np.ndarray:
    """(M, L, D, D) C^(1/2) A C^(1/2) of every layer, C the covariance of the inputs."""
    weights, side = WEIGHTS(record, network=network), root(config_of(record), network)
    return side @ weights @ side


def rates(record: Record, network: str) -> np.ndarray:
    """(M, L) their mean diagonals, the largest first."""
    diagonals = np.diagonal(whitened(record, network), axis1=2, axis2=3).mean(axis=2)
    return -np.sort(-diagonals, axis=1)


def one_rate(depth: int, best: int) -> Statistic:
    """(M,) the rate of looped layers over the best one of a depth."""
    return lambda record: rates(record, f"looped_{depth}")[:, 0] / optima(config_of(record), best).rates["looped"][0]


def farthest(network: str, kind: str) -> Statistic:
    """(M,) largest relative distance of a rate from that of the optimum, in order of size."""
    return lambda record: np.abs(rates(record, network) / best_of(record, network).rates[kind] - 1).max(axis=1)


def over(network: str, learner: str) -> Statistic:
    """(M,) error over that of the best layers of a kind on the same prompts."""
    return ratio(partial(ERROR, network=network, learner="trained"), partial(ERROR, network=network, learner=learner))


@of_record
def off_identity(record: Record, network: str, white: bool = True) -> np.ndarray:
    """(M,) largest distance of a layer's whitened A (control: A) from a multiple of I, over the norm of that."""
    matrices = whitened(record, network) if white else WEIGHTS(record, network=network)
    return statistics.off_identity(matrices).max(axis=1)


@of_record
def loops(record: Record, count: int, over: int | None, learner: str = "trained") -> np.ndarray:
    """(M,) error of three looped layers at so many loops over that at others, of a learner.

    ``over`` None: both are of ``count`` loops, the latter of gradient descent.
    """

    def at(learner: str, count: int) -> np.ndarray:
        errors = LOOPS(record, network="looped_3", learner=learner)
        return errors[:, place_of(record, "loops", count, f"{count} loops")]

    return at("trained", count) / (at("looped", count) if over is None else at(learner, over))


@of_record
def slope(record: Record, depth: int, along: bool = False) -> np.ndarray:
    """(M,) steps to leave the saddle for each e-fold of the jitter, times the growth of a step (control: ``along``)."""
    left, config = LEFT(record, depth=depth), config_of(record)
    best = optima(config, depth)
    curvature = saddle_curvature(best.rates["looped"][0], depth, best.spectrum)
    growth = config.descent_rate * (-curvature if not along else (1 - 2 * depth) * curvature)
    return np.polyfit(-np.log(config.jitters), left.T, 1)[0] * np.log1p(growth)


def end(depth: int, start: str, kind: str) -> Statistic:
    """(M,) error at the end of the descent over that of an optimum."""
    return lambda record: END(record, depth=depth, start=start) / optima(config_of(record), depth).errors[kind]


_ADAM = "the rate falls to zero, so that Adam leaves some 1 % of a weight"
_MEAN = f"{_ADAM}, less of the mean of five"
_PAIRED = f"{_ADAM}, of second order in the error, and both errors are of the same prompts"
_TAIL: dict[str, Any] = {"interval": "median"}
"""Errors at more loops than were trained: a high power of the rate, in which a few prompts with l > 2 count most."""
_TWO_GROUPS: dict[str, Any] = {"interval": "median"}
"""Members that have arrived and others that have not, or that ended at the second minimum of GD++."""
_SHORT = "1,000 training steps for 4,000"
_AT_LAB = dict.fromkeys(("inputs_2_error", "loops_1"), FAILS) | dict.fromkeys(
    ("free_3_rates", "free_3_error", "loops_2", "loops_4", "loops_5", "loops_ten"), NOT_RESOLVED
)
claim = claims_of("depth.looped", "Gatmiry et al. 2024, Ahn et al. 2023 (exact rates: this lab)", _AT_LAB)

CLAIMS = (
    *(
        claim(
            f"looped_{depth}_rate",
            f"{depth} looped layers learn the best one rate (ratio; control: over that of one layer).",
            one_rate(depth, depth), near=1.0, tolerance=0.01, reason=_MEAN, control=one_rate(depth, 1),
        )
        for depth in (2, 3)
    ),
    *(
        claim(
            f"looped_{depth}_error",
            f"{depth} looped layers have the error of as many steps at that rate (ratio; control: over free steps').",
            over(f"looped_{depth}", "looped"), near=1.0, tolerance=0.02, control=over(f"looped_{depth}", "free"),
            reason=f"{_PAIRED}; 2 % is what .6 % of the rate costs three layers", **more,
        )
        for depth, more in ((2, {"headline": 2, "quick": Quick(0.05, _SHORT)}), (3, {}))
    ),
    *(
        claim(
            f"{name}_rates",
            f"{subject} learn the best rates, in any order (largest relative distance; control: from looped ones).",
            farthest(name, "free"), at_most=0.03, control=farthest(name, "looped"), **more,
            reason=f"{_MEAN}; it is the worst of {name[-1]} rates, and the largest has the least pull",
        )
        for name, subject, more in (
            ("free_2", "Two free layers", {}), ("free_3", "Three free layers", _TWO_GROUPS),
            ("turned_2", "On inputs of another covariance two layers", {}),
        )
    ),
    *(
        claim(
            f"{name}_error", f"{sentence} (ratio; control: over looped ones').",
            over(name, "free"), near=1.0, tolerance=0.03, control=over(name, "looped"), reason=_PAIRED, **more,
        )
        for name, sentence, more in (
            ("free_2", "Two free layers have the error of two free steps",
             {"headline": 1, "quick": Quick(0.06, f"{_SHORT}: six members leave .07", NOT_RESOLVED)}),
            ("free_3", "Three free layers have the error of three free steps", _TWO_GROUPS),
            ("turned_2", "So have two layers on inputs of another covariance", {}),
            ("equal_2", "Two layers that start equal leave the saddle by the noise of the samples: free steps' error",
             {"headline": 3}),
        )
    ),
    claim(
        "inputs_2_error",
        "Two layers that may move the inputs have the error of the best GD++ (ratio; control: over free steps').",
        over("inputs_2", "gd++"), near=1.0, tolerance=0.03, control=over("inputs_2", "free"), reason=_PAIRED,
        **_TWO_GROUPS,
    ),
    claim(
        "turned_2_identity",
        "On inputs of covariance C every C^(1/2) A C^(1/2) is a multiple of I (relative distance; control: A itself).",
        off_identity("turned_2"), at_most=0.05, control=off_identity("turned_2", white=False),
        reason=f"{_ADAM}: 25 entries make .022; twice that",
    ),
    *(
        claim(
            f"loops_{count}",
            f"Trained at three loops, at {count} the error is that of {count} steps (ratio; control: of three).",
            loops(count, None), near=1.0, tolerance=tolerance, control=loops(3, count, "looped"), **more,
            reason=f"{_PAIRED}; the error is a power {power} of the rate here, which is known to 1 %",
        )
        for count, tolerance, power, more in (
            (1, 0.02, ".3", {}), (2, 0.02, ".4", {}), (4, 0.03, "1.9", _TAIL), (5, 0.06, "6", _TAIL)
        )
    ),
    claim(
        "loops_more", "Five loops do better than the three trained (ratio; control: ten over three).",
        loops(5, 3), at_most=0.6, control=loops(10, 3), reason="exactly .493; a fifth for the rate",
        **_TAIL,
    ),
    claim(
        "loops_ten",
        "Ten loops diverge: some prompts have a l > 2 (error over that at five; control: five over three).",
        loops(10, 5), at_least=5.0, control=loops(5, 3), **_TAIL,
        reason="exactly 61, of which rare prompts make the most; 10^6 of them leave 20 to 60, one member 5 to 200",
    ),
    *(
        one
        for depth in (2, 3)
        for one in (
            claim(
                f"descent_{depth}_equal",
                f"Descent on {depth} equal rates ends at the looped error (ratio; control: from rates apart).",
                end(depth, "equal", "looped"), near=1.0, tolerance=1e-6, control=end(depth, "apart", "looped"),
                kind="identity", reason="equal rates have equal derivatives; float64, converged",
            ),
            claim(
                f"descent_{depth}_time",
                f"The steps in which {depth} rates come apart grow as ln(1/jitter) over the saddle's curvature (slope "
                "times growth; control: with that along equal rates).",
                slope(depth), near=1.0, tolerance=0.02, control=slope(depth, along=True), kind="identity",
                reason="the law of a small jitter; .01 is small, and steps are whole numbers",
            ),
        )
    ),
)  # fmt: skip


def figures(record: Record) -> dict[str, Figure]:
    """Error over depth, over the loops at test, and the time in which equal rates come apart."""
    figure, ((depths, again, apart),) = axes_grid(3, 1, width=3.2, height=2.9)
    _depths(depths, record)
    _loops(again, record)
    for look, depth in zip(panels.SERIES, record.config["depths"]):
        panels.bars(apart, record.config["jitters"], LEFT(record, depth=depth), f"{depth} rates", look)
    apart.set(xlabel="distance of the rates at the start", ylabel="steps to leave the saddle", xscale="log")
    panels.described(apart, 2, title="leaving equal rates")
    return {"looped": figure}


LABELS = {"looped": "looped", "free": "free", "equal": "free, equal start", "inputs": "GD++", "turned": "free, turned"}


def _depths(axes: Axes, record: Record) -> None:
    config = config_of(record)
    for look, (kind, label) in zip(panels.SERIES, LABELS.items()):
        names = [name for name in config.networks if name.startswith(kind)]
        for i, name in enumerate(names):
            errors = ERROR(record, network=name, learner="trained")[:, None]
            panels.bars(axes, [int(name.split("_")[1])], errors, label if not i else "", look)
    for kind in ("looped", "free"):
        axes.plot([1, 2, 3, 4], [optima(config, layers).errors[kind] for layers in (1, 2, 3, 4)], **THEORY)
    panels.described(axes, 2, xlabel="layers", ylabel="error", yscale="log", title="error by depth")


def _loops(axes: Axes, record: Record) -> None:
    config = config_of(record)
    spectrum = gram_spectrum(config.context_length, config.input_size, 2 * max(config.loops))
    looped = [name for name in config.networks if name.startswith("looped")]
    for look, name, shift in zip(panels.SERIES, looped, panels.beside(looped, 0.24)):
        errors, rate = LOOPS(record, network=name, learner="trained"), best_of(record, name).rates["looped"][0]
        at, label = np.array(config.loops) + shift, f"trained at {name.split('_')[1]} loops"
        panels.strip(axes, at, errors, label, look, width=0.12)
        fine = range(1, max(config.loops) + 1)
        axes.plot(fine, [depth_error(np.full(k, rate), spectrum) for k in fine], **THEORY | {"color": look["color"]})
        axes.legend(ncols=1, **panels.ABOVE)
    axes.set(xlabel="loops at test", ylabel="error", yscale="log", title="other numbers of loops", xticks=config.loops)
