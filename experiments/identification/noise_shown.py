"""What ``noise`` claims and shows. Two claims count members on the plateau, no better than one step."""

from collections.abc import Callable

import numpy as np

from experiments import panels
from experiments.identification.noise import ERROR, FOLLOWED, RIDGE, STRENGTHS, named
from experiments.statistics import of_record
from icl_lab.claims import FAILS
from icl_lab.lab import NotRun, Record, claims_of
from icl_lab.lab.style import THEORY, Figure
from icl_lab.lab.style import panels as axes_grid

LEFT = 0.95
"""Of the error of one step: members with more loops and as much have not left the plateau."""


def noises(record: Record, depth: int) -> np.ndarray:
    """The noises above 0.

    Raises:
      NotRun: for a depth that is not in the record.
    """
    if depth not in record.config["depths"]:
        raise NotRun(f"{depth} loops")
    return np.array([noise for noise in record.config["noises"] if noise])


@of_record
def over(record: Record, depth: int, noise: float, reference: str) -> np.ndarray:
    """(M,) error over that of a reference on the same prompts; NaN on the plateau."""
    if noise not in (*noises(record, depth), 0.0):
        raise NotRun(f"noise {noise:.3g}")
    error, step, other = (ERROR(record, depth=depth, noise=named(noise), of=of) for of in ("error", "step", reference))
    return np.where((depth == 1) | (error < LEFT * step), error / other, np.nan)


@of_record
def learned(record: Record, depth: int) -> np.ndarray:
    """(noises x M,) 1 for trainings at a noise above 0 that have left the plateau: less than ``LEFT`` of one step."""
    errors, steps = (
        np.concatenate([ERROR(record, depth=depth, noise=named(one), of=of) for one in noises(record, depth)])
        for of in ("error", "step")
    )
    return (errors < LEFT * steps).astype(float)


def half_step(depth: int, noise: float) -> Callable[[Record], float]:
    """Half of the distance of neighbouring strengths that are tried, at the mean strength, over the noise."""
    apart = (STRENGTHS[1] / STRENGTHS[0]) ** 0.5 - 1
    return lambda record: float(np.nanmean(of_ridge(depth, noise, "strength")(record)) * apart)


@of_record
def off_step(record: Record, depth: int) -> np.ndarray:
    """(M,) largest relative distance of the error from that of the best step, over noises."""
    error, step = (
        np.stack([ERROR(record, depth=depth, noise=named(one), of=of) for one in noises(record, depth)])
        for of in ("error", "step")
    )
    return np.abs(error / step - 1).max(0)


@of_record
def of_ridge(record: Record, depth: int, noise: float, of: str) -> np.ndarray:
    """(M,) the strength of ridge over the noise, or the residual; NaN on the plateau."""
    off_plateau = np.isfinite(over(depth, noise, "bayes")(record))
    values = RIDGE(record, depth=depth, noise=named(noise), of=of) / (noise if of == "strength" else 1)
    return np.where(off_plateau, values, np.nan)


def trained_apart(record: Record, depth: int) -> np.ndarray:
    """(M, noises) the strengths of networks trained at each noise; NaN on the plateau."""
    return np.stack([one * of_ridge(depth, one, "strength")(record) for one in noises(record, depth)], 1)


def followed_by(record: Record, depth: int) -> np.ndarray:
    """(M, noises) the strengths of networks trained on all noises; NaN where ridge explains less than half.

    That is where a member is on the plateau: it uses one direction of the inputs.
    """
    count = len(noises(record, depth))
    strength, residual = (FOLLOWED(record, depth=depth, of=of)[:, -count:] for of in ("strength", "residual"))
    return np.where(residual.max(1, keepdims=True) < 0.5, strength, np.nan)


@of_record
def slope(record: Record, depth: int, strengths_of: Callable[[Record, int], np.ndarray]) -> np.ndarray:
    """(M,) slope of log strength against log noise; NaN where a strength is."""
    strengths = strengths_of(record, depth)
    slopes = np.polyfit(np.log(noises(record, depth)), np.nan_to_num(np.log(strengths)).T, 1)[0]
    return np.where(np.isfinite(strengths).all(1), slopes, np.nan)


_FAIL = ("strength_16th", "bayes_16th", "strength_4th", "ridge", "six_ridge")
_AT_LAB = dict.fromkeys(_FAIL, FAILS)
claim = claims_of(
    "identification.noise", "von Oswald et al. 2022; Vladymyrov et al. 2024", _AT_LAB, presets=("lab", "paper")
)
_SAID = ((1 / 16, "16th", "1/16"), (1 / 4, "4th", "1/4"), (4 / 9, "9th", "4/9"))
_DEPTHS = (
    (4, "", "four", "four grid points of the fit"), (6, "six_", "six", "two loops more should come nearer")
)  # fmt: skip

CLAIMS = (
    *(
        claim(
            f"{before}learned",
            f"{loops.capitalize()} loops trained at a noise leave the plateau: they have less than {LEFT:g} of the "
            "error of one step (share of trainings; what else is claimed is of these; control: one loop).",
            learned(depth), at_least=0.5, interval="wilson", unit="training", control=learned(1),
            reason="most of them; one step is the best that one loop can be",
        )
        for depth, before, loops, _ in _DEPTHS
    ),
    claim(
        "follows",
        "The strength of ridge in four loops rises with the noise of training (slope of its log against that of the "
        "noise; control: one network trained on all noises).",
        slope(4, trained_apart), at_least=0.5, control=slope(4, followed_by), headline=1,
        reason="1 for the Bayes predictor; ridge of one strength has 0, one rate of GD less than 0.1",
    ),
    claim(
        "fixed",
        "A network of four loops that is trained on all noises hardly adapts to that of the prompt (the same slope; "
        "control: trained at each).",
        slope(4, followed_by), at_most=0.25, control=slope(4, trained_apart), headline=2,
        reason="half of the slope of the Bayes predictor that is not told the noise, 0.54; linear filters have up to "
        "0.08",
    ),
    claim(
        "one_loop",
        "One loop is the best step of gradient descent at every noise above 0 (largest distance of errors; control: "
        "two loops).",
        off_step(1), at_most=0.02, control=off_step(2),
        reason="the falling rate leaves about 1 % of a weight; 100,000 prompts a pair leave less than 1 % of a ratio",
    ),
    *(
        claim(
            f"{before}strength_{name}",
            f"At noise {text} {loops} loops take the strength of the Bayes predictor (over the noise; control: one "
            "loop).",
            of_ridge(depth, noise, "strength"), near=1.0, tolerance=0.1, control=of_ridge(1, noise, "strength"),
            half_step=half_step(depth, noise),
            reason=f"a tenth, as the question was put; {why}",
        )
        for depth, before, loops, why in _DEPTHS
        for noise, name, text in _SAID
    ),
    *(
        claim(
            f"bayes_{name}",
            f"At noise {text} four loops leave little more than the Bayes predictor (ratio of errors; control: one "
            "loop).",
            over(4, noise, "bayes"), at_most=1.05, control=over(1, noise, "bayes"),
            reason="a twentieth is what Adam and four loops may leave",
        )
        for noise, name, text in _SAID
    ),
    claim(
        "six_bayes_16th",
        "At noise 1/16 six loops leave little more than the Bayes predictor (ratio of errors; control: one loop).",
        over(6, 1 / 16, "bayes"), at_most=1.05, control=over(1, 1 / 16, "bayes"),
        reason="a twentieth, as for four loops, where this noise was the hardest",
    ),
    *(
        claim(
            f"{before}ridge", f"At noise 4/9 {loops} loops are ridge (residual of its predictions; control: one loop).",
            of_ridge(depth, 4 / 9, "residual"), at_most=0.05, control=of_ridge(1, 4 / 9, "residual"),
            reason="the bar of identify",
        )
        for depth, before, loops, _ in _DEPTHS
    ),
)  # fmt: skip


def figures(record: Record) -> dict[str, Figure]:
    """Errors over the Bayes predictor's, strengths of members trained at each noise, and of those trained on all."""
    figure, ((errors, strengths, followed),) = axes_grid(3, 1, width=3.2, height=2.9)
    for look, depth in zip(panels.SERIES, record.config["depths"]):
        levels, label = noises(record, depth), f"{depth} loop" + "s" * (depth > 1)
        panels.bars(errors, levels, np.stack([over(depth, one, "bayes")(record) for one in levels], 1), label, look)
        panels.bars(strengths, levels, trained_apart(record, depth), label, look)
        panels.bars(followed, levels, followed_by(record, depth), label, look)
    for axes in (strengths, followed):
        axes.plot(levels, levels, **THEORY)
        axes.set(xlabel="noise of the prompt", ylabel="strength of ridge", xscale="log", yscale="log")
    errors.axhline(1, **THEORY)
    errors.set(title="beside Bayes", xlabel="noise", ylabel="error over that of Bayes", xscale="log")
    strengths.set(title="trained at each noise", xlabel="noise")
    followed.set(title="trained on all noises", ylim=strengths.get_ylim())
    for axes in (errors, strengths, followed):
        axes.legend(ncols=1, **panels.ABOVE)
    return {"noise": figure}
