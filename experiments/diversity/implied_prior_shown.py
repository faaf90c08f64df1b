"""What ``implied_prior`` claims and shows: functions of its record."""

import numpy as np

from experiments import panels
from experiments.diversity.implied_prior import COVARIANCE, LINEAR, MOMENT, SETS, SHARES
from experiments.diversity.regression import Floats
from experiments.statistics import Statistic
from icl_lab.claims import Quick
from icl_lab.lab import Record, claims_of
from icl_lab.lab.style import THEORY, Figure
from icl_lab.lab.style import panels as axes_grid


def variance(learner: str, prior: float | None = None) -> Statistic:
    """(M,) mean variance of a coordinate of fitted tasks, over 1 + s^2 / (n - D - 1), or over another prior's."""
    return lambda record: np.trace(over_prior(record, learner, prior), axis1=1, axis2=2) / record.config["input_size"]


def over_prior(record: Record, learner: str, prior: float | None = None) -> Floats:
    """(M, D, D) covariance of fitted tasks over that number."""
    d, n, noise = sizes(record)
    return COVARIANCE(record, learner=learner) / (prior or 1 + noise / (n - d - 1))


def anisotropy(learner: str) -> Statistic:
    """(M,) largest entry of that less I."""
    return lambda record: np.abs(over_prior(record, learner) - np.eye(sizes(record)[0])).max(axis=(1, 2))


def true_moment(record: Record) -> Floats:
    """(n,) E |sum y x|^2 behind 1, .., n examples of the true prior."""
    d, n, noise = sizes(record)
    t = np.arange(1.0, n + 1)
    return t * d * (t + d + 1 + noise)


def constant_moment(record: Record) -> Floats:
    """(n,) the same of roll-outs of the best linear attention whose variance is the same for all inputs."""
    (d, n, noise), found = sizes(record), [0.0]
    for t in range(n):
        c = 1 / (t + d + 1 + noise)
        found.append(found[-1] * (1 + 2 * c + c**2 * (d + 2)) + d * (d + noise - t * d * c))
    return np.array(found[1:])


def sizes(record: Record) -> tuple[int, int, float]:
    """D, n and s^2."""
    return tuple(record.config[name] for name in ("input_size", "examples", "noise_variance"))  # type: ignore


def moment(learner: str, over: Statistic) -> Statistic:
    """(M,) of all n examples."""
    return lambda record: MOMENT(record, learner=learner)[:, -1] / over(record)[-1]


def unequal(learner: str) -> Statistic:
    """(M,) largest distance of the share of a task from 1/k, times k."""
    return lambda record: np.abs(SHARES(record, learner=learner) * record.config["tasks"] - 1).max(axis=1)


_DRAWN = "20,000 roll-outs"
claim = claims_of("diversity.implied_prior", "Aswadi et al. 2026 (closed forms: this lab)")
CLAIMS = (
    claim(
        "ridge", "Tasks fitted to roll-outs of the Bayes predictor have the variance 1 + s^2 / (n - D - 1) (ratio; "
        "control: over 1, that of the prior).", variance("ridge"), near=1.0, tolerance=0.01,
        control=variance("ridge", prior=1.0), headline=1, quick=Quick(0.02, "a quarter of the roll-outs"),
        reason=f"{_DRAWN} of five coordinates leave .5 % of a member; the control is off by 5 %",
        falsified_by="a predictor that is not Bayes: noise alone, or one variance for all inputs",
    ),
    claim(
        "isotropic", "Their covariance is that multiple of I (largest entry of the difference; control: noise alone).",
        anisotropy("ridge"), at_most=0.05, control=anisotropy("noise_only"),
        reason=f"{_DRAWN} leave .01 of an entry, about .025 of the largest of 15; twice that",
    ),
    claim(
        "noise_only", "With the variance of the noise alone, tasks of the same predictor have less than half that "
        "variance (ratio; control: its own variance).", variance("noise_only"), at_most=0.5, control=variance("ridge"),
        reason="an average of the exact covariance over inputs says .2 to .3",
    ),
    claim(
        "dmmse", "Each of the k tasks of dMMSE takes a k-th of the fits (largest distance, times k; control: a normal "
        "distribution for the mixture).", unequal("dmmse"), at_most=0.1, control=unequal("normal"), headline=2,
        reason=f"{_DRAWN} leave .02 of a share, about .03 of the largest of eight, and tasks that are near mix",
        quick=Quick(0.1, "a quarter of the roll-outs doubles it"),
    ),
    claim(
        "constant", "Where the head's variance is one number, E |sum y x|^2 of trained linear attention is that of the "
        "recursion (ratio; control: over that of the true prior).", moment("constant", constant_moment), near=1.0,
        tolerance=0.03, control=moment("constant", true_moment), headline=3,
        reason=f"{_DRAWN} leave .6 %, the networks' own errors 1 %; the true prior is off by a quarter",
        quick=Quick(0.06, "a quarter of the roll-outs, of the steps, a tenth of the prompts for the variance"),
    ),
    claim(
        "by_size", "Where it grows with |x|^2, that moment is the one of the true prior (ratio; control: one number).",
        moment("by_size", true_moment), near=1.0, tolerance=0.03, control=moment("constant", true_moment),
        reason="as constant",
    ),
)  # fmt: skip


def figures(record: Record) -> dict[str, Figure]:
    """Variance of fitted tasks, shares of given ones, moments over examples."""
    figure, ((spread, shares, moments),) = axes_grid(3, 1, width=2.25, height=2.6)
    truth = true_moment(record)
    t = np.arange(1, len(truth) + 1)
    for place, (look, learner) in enumerate(zip(panels.SERIES, LINEAR)):
        panels.bars(spread, [place], variance(learner, prior=1.0)(record)[:, None], learner.replace("_", " "), look)
        if learner != "noise_only":
            panels.bars(moments, t, MOMENT(record, learner=learner) / truth, learner.replace("_", " "), look)
    spread.axhline(variance("ridge", 1.0)(record).mean() / variance("ridge")(record).mean(), **THEORY)
    spread.set(ylabel="variance a coordinate", title="fitted tasks", xticks=[], ylim=(0, None))
    for look, learner in zip(panels.SERIES, SETS):
        each = np.sort(SHARES(record, learner=learner), axis=1) * record.config["tasks"]
        panels.bars(shares, np.arange(1, each.shape[1] + 1), each, learner, look)
    shares.axhline(1.0, **THEORY)
    shares.set(xlabel="task, by its share", ylabel="share, times k", title="dMMSE")
    for line in (truth, constant_moment(record)):
        moments.plot(t, line / truth, **THEORY)
    moments.set(xlabel="examples", ylabel="second moment over that of the prior", title="moments")
    for axes in (spread, shares, moments):
        axes.legend(ncols=2, **panels.ABOVE)
    return {"implied_prior": figure}
