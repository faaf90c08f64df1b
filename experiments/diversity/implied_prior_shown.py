"""What ``implied_prior`` claims and shows: functions of its record."""

from functools import partial

import numpy as np

from experiments import panels
from experiments.diversity.implied_prior import FITTED, LINEAR, MOMENT, SETS, SHARES
from experiments.diversity.regression import Floats
from experiments.statistics import Statistic, of_record
from icl_lab.claims import Quick
from icl_lab.lab import Record, claims_of
from icl_lab.lab.style import THEORY, Figure
from icl_lab.lab.style import panels as axes_grid


@of_record
def variance(record: Record, learner: str, prior: float | None = None) -> Floats:
    """(M,) mean variance of a coordinate of fitted tasks, over 1 + s^2 / (n - D - 1), or over another prior's."""
    d, n, noise = sizes(record)
    return FITTED(record, learner=learner, of="variance") / (prior or 1 + noise / (n - d - 1))


@of_record
def noise(record: Record, learner: str) -> Floats:
    """(M,) variance of outputs about the fitted task, over s^2."""
    return FITTED(record, learner=learner, of="noise") / record.config["noise_variance"]


def true_moment(record: Record) -> Floats:
    """(n,) E |sum y x|^2 after 1, .., n examples of the true prior."""
    d, n, noise = sizes(record)
    t = np.arange(1.0, n + 1)
    return t * d * (t + d + 1 + noise)


def constant_moment(record: Record) -> Floats:
    """(n,) the same of roll-outs of the best linear attention whose variance is the same for all inputs."""
    (d, n, noise), moments = sizes(record), [0.0]
    for t in range(n):
        c = 1 / (t + d + 1 + noise)
        moments.append(moments[-1] * (1 + 2 * c + c**2 * (d + 2)) + d * (d + noise - t * d * c))
    return np.array(moments[1:])


def sizes(record: Record) -> tuple[int, int, float]:
    """D, n and s^2."""
    return tuple(record.config[name] for name in ("input_size", "examples", "noise_variance"))


@of_record
def moment(record: Record, learner: str, over: Statistic) -> Floats:
    """(M,) of all n examples, over that of these roll-outs."""
    return MOMENT(record, learner=learner)[:, -1] / over(record)[-1]


@of_record
def unequal(record: Record, learner: str) -> Floats:
    """(M,) mean square of k times a share less 1, over the k tasks, less what so many draws of equal shares leave."""
    k, drawn = record.config["tasks"], record.config["rollouts"]
    return np.mean((SHARES(record, learner=learner) * k - 1) ** 2, axis=1) - (k - 1) / drawn


_DRAWN = "40,000 roll-outs"
_TRIAL = "one trial of the best network by hand, with another seed, said"
claim = claims_of("diversity.implied_prior", "Aswadi et al. 2026 (closed forms: this lab)")
theorem = partial(claim, kind="identity")
CLAIMS = (
    theorem(
        "ridge", "Tasks fitted to roll-outs of the Bayes predictor have the variance 1 + s^2 / (n - D - 1) (ratio; "
        "control: over 1, that of the prior).", variance("ridge"), near=1.0, tolerance=0.01,
        control=variance("ridge", prior=1.0), headline=1, quick=Quick(0.02, "an eighth of the roll-outs"),
        reason=f"{_DRAWN} of five coordinates leave .4 % of a member; the control is off by 5 %",
    ),
    theorem(
        "ridge_noise", "What they leave of outputs is the noise (variance over s^2; control: linear attention).",
        noise("ridge"), near=1.0, tolerance=0.01, control=noise("by_size"),
        reason=f"{_DRAWN} with eleven degrees of freedom leave .2 % of a member",
    ),
    theorem(
        "noise_only", "With the variance of the noise alone the same mean has tasks of less than a quarter of that "
        "variance (ratio; control: its own variance).", variance("ridge_noise_only"), at_most=0.25,
        control=variance("ridge"), reason="the exact covariance given inputs, averaged over 100,000 of them: .217",
    ),
    theorem(
        "dmmse", "Each of the k tasks of dMMSE takes a k-th of the fits (mean square of k times a share less 1, beyond "
        "that of chance; control: the noise alone).", unequal("dmmse"), at_most=0.005,
        control=unequal("dmmse_noise_only"), headline=2, quick=Quick(0.0, "an eighth of the roll-outs leaves .001"),
        reason="shares that are off by 7 %, where tasks that are near mix; chance leaves .0001 of a member",
    ),
    claim(
        "constant", "Where the head's variance is one number, E |sum y x|^2 of trained linear attention is that of the "
        "recursion (ratio; control: over that of the true prior).", moment("constant", constant_moment), near=1.0,
        tolerance=0.03, control=moment("constant", true_moment),
        reason=f"{_DRAWN} leave .9 % of a member, its own errors 1 %; the true prior is off by a quarter",
    ),
    claim(
        "by_size", "Where it grows with |x|^2, that moment is the one of the true prior (ratio; control: one number).",
        moment("by_size", true_moment), near=1.0, tolerance=0.03, control=moment("constant", true_moment),
        reason="as constant",
    ),
    claim(
        "narrow", "Even so its tasks are narrower than those of training (variance over 1 + s^2 / (n - D - 1); "
        "control: Bayes).", variance("by_size"), at_most=0.75, control=variance("ridge"), headline=3,
        reason=f"{_TRIAL} .61", quick=Quick(0.0, "far enough from .61 for an eighth of the roll-outs"),
    ),
    claim(
        "noisy", "What its tasks leave of outputs is more than three times the noise (variance over s^2; control: "
        "Bayes).", noise("by_size"), at_least=3.0, control=noise("ridge"), reason=f"{_TRIAL} 4.2",
    ),
)  # fmt: skip


WORDS = {
    "ridge": "ridge", "ridge_noise_only": "ridge, noise alone", "constant": "layer, one variance",
    "by_size": r"layer, $\propto |x|^2$", "dmmse": "dMMSE", "dmmse_noise_only": "dMMSE, noise alone",
}  # fmt: skip


def figures(record: Record) -> dict[str, Figure]:
    """Variances of fitted tasks and of the rest, shares of given tasks, moments over examples."""
    figure, ((fits, shares, moments),) = axes_grid(3, 1, width=2.25, height=2.6)
    (d, n, noise_variance), truth = sizes(record), true_moment(record)
    t, names = np.arange(1, n + 1), [WORDS[name] for name in LINEAR]
    for look, of in zip(panels.SERIES, ("variance", "noise")):
        values = np.stack([FITTED(record, learner=learner, of=of) for learner in LINEAR], axis=1)
        panels.bars(fits, np.arange(len(LINEAR)), values, "tasks" if of == "variance" else "rest", look)
    for level in (1 + noise_variance / (n - d - 1), noise_variance):
        fits.axhline(level, **THEORY)
    fits.set(ylabel="variance", title="variance of fitted tasks", ylim=(0, None))
    fits.set_xticks(range(len(LINEAR)), names, rotation=30, ha="right", rotation_mode="anchor")
    for look, name, learner in zip(panels.SERIES, names, LINEAR):
        panels.bars(moments, t, MOMENT(record, learner=learner) / truth, name, look)
    for look, learner in zip(panels.SERIES, SETS):
        values = np.sort(SHARES(record, learner=learner), axis=1) * record.config["tasks"]
        panels.bars(shares, np.arange(1, values.shape[1] + 1), values, WORDS[learner], look)
    shares.axhline(1.0, **THEORY)
    shares.set(xlabel="task, by its share", ylabel="share, times k", title=f"shares of {record.config['tasks']} tasks")
    for line in (truth, constant_moment(record)):
        moments.plot(t, line / truth, **THEORY)
    moments.set(xlabel="examples", ylabel="second moment over the prior's", title="moments", ylim=(0, None))
    for axes in (fits, shares, moments):
        axes.legend(ncols=2, **panels.ABOVE)
    return {"implied_prior": figure}
