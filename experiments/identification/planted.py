"""How often is identify wrong? Hundreds of learners whose algorithm is known, and 150 that are none.

Thirteen families with 24 draws of their parameters, and seven kinds of outsiders (experiments/identification/suite.py,
outsiders.py), each with one disturbance that changes its predictions by .02, .05 (what trained networks have) or .15.
Thresholds were calibrated on suite 0; suites 1 and 2 are judged. A name is right where it is that of the planted
family or of an equal one, or where the named algorithm differs from the planted one by less than the disturbed learner
does, on the same prompts (those are counted apart). A refusal is never right.

Beside it, at .05, the method that papers use: Gaussian prompts, no symmetrising, the nearest of all families, and no
refusal.
"""

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from experiments.identification.findings import FINDINGS
from experiments.identification.outsiders import KINDS, outsiders
from experiments.identification.suite import SAMPLER, D, N, Planted, disturbed, planted
from experiments.settings import Members
from icl_lab.compare.identify.asking import Ask, asked
from icl_lab.compare.identify.decision import Member
from icl_lab.compare.identify.families import FAMILIES
from icl_lab.compare.identify.fitting import predicted, relative
from icl_lab.compare.identify.one import Setting, all_fits, one_member
from icl_lab.compare.identify.probes import (
    CONTEXTS,
    JUDGE,
    QUERIES,
    Answers,
    Battery,
    battery,
    in_units,
    rotations,
    training_prompts,
)
from icl_lab.compare.identify.structure import structure
from icl_lab.lab import Claim, Experiment, FlagError, Record, Session, claims_of, from_json, main, setting, style
from icl_lab.lab.style import Figure
from icl_lab.prompts import linear_regression

OUTCOMES = ("right", "right: closer than the disturbance", "refused", "not separable", "wrong")
RIGHT, CLOSE, REFUSED, INSEPARABLE, WRONG = range(5)
COLUMNS = ("outcome", "named", "residual", "asymmetry", "difference", "papers")
NAMES = tuple(FAMILIES)
GROUPS = ("GD", "GD++", "heavy ball", "Nesterov", "Chebyshev", "Newton from covariance", "ridge", "gradient flow",
          "preconditioned GD", "centred GD", "adaptive", "similarity", "one pass")  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Config(Members):
    """How large the suite is."""

    seed: int = setting(0, "not used: suites are the seeds here", at_least=0, at_most=2**32 - 1)
    members: int = setting(24, "draws of each family's parameters", at_least=1)
    suites: tuple[int, ...] = setting((1, 2, 3, 4), "seeds of the suites; 0 is for calibration", at_least=0)
    changes: tuple[float, ...] = setting(
        (0.02, 0.05, 0.15), "shares by which a disturbance changes predictions", at_least=0
    )
    families: tuple[str, ...] = setting(GROUPS, "planted families", choices=GROUPS)
    kinds: tuple[str, ...] = setting(tuple(KINDS), "kinds of outsiders", choices=tuple(KINDS))
    outsiders: float = setting(1.0, "share of the 150 outsiders", above=0, at_most=1)
    papers: bool = setting(True, "also the method of the papers, at the change .05")


PRESETS = {
    "smoke": Config(
        members=1,
        suites=(0,),
        changes=(0.05,),
        families=("ridge", "one pass"),
        kinds=("nearest neighbour",),
        outsiders=0.01,
    ),
    "quick": Config(members=1, suites=(0,), changes=(0.05,), outsiders=0.1, papers=False),
    "lab": Config(suites=(1, 2)),
    "paper": Config(),
}


def check(config: Config) -> None:
    """Raises FlagError for a suite or a change that is given twice."""
    for name in ("suites", "changes"):
        if len(set(getattr(config, name))) != len(getattr(config, name)):
            raise FlagError(f"--{name}: allowed is each value once")


def run(config: Config, session: Session) -> tuple[dict[str, Any], dict[str, Any]]:
    """Identifies every learner of every suite at every change; what is done is saved as it comes."""
    checkpoint, learners = session.checkpoint("planted"), {s: _learners(config, s) for s in config.suites}
    count = len(learners[config.suites[0]])
    table = np.full((len(config.suites), len(config.changes), count, len(COLUMNS)), np.nan)
    table = (checkpoint.load(lambda: {"state": table, "metrics": {}}) or {"state": table})["state"].copy()
    with session.bar("learners", table[..., 0].size) as advance:
        for s, suite in enumerate(config.suites):
            judge = judged_by(suite)
            for index, (c, i) in enumerate(np.ndindex(len(config.changes), count)):
                if np.isnan(table[s, c, i, 0]):
                    change, (place, one) = config.changes[c], list(learners[suite].items())[i]
                    rng = np.random.default_rng([suite, 11, place])
                    table[s, c, i] = judge(one, change, rng, config.papers and change == 0.05)
                    checkpoint.save(lambda: {"state": table, "metrics": {}}, finished=False)
                advance(s * len(config.changes) * count + index + 1, table[..., 0].size)
    families = np.array([one.family for one in learners[config.suites[0]].values()])
    arrays = {name: table[..., k] for k, name in enumerate(COLUMNS)}
    inside = np.isin(families, GROUPS)
    return _metrics(config, arrays, families, inside), arrays | {
        "family": np.array([GROUPS.index(name) if name in GROUPS else -1 for name in families])
    }


def _learners(config: Config, suite: int) -> dict[int, Planted]:
    """The learners that are asked for, by their place in the whole suite, which is the seed of their disturbance."""
    every = planted(suite, config.members) + outsiders(suite, config.kinds, config.outsiders)
    return {i: one for i, one in enumerate(every) if one.family in (*config.families, *config.kinds)}


def judged_by(suite: int) -> Callable[[Planted, float, np.random.Generator, bool], np.ndarray]:
    """``(learner, change, rng, papers too) -> (6,)`` columns, on the prompts of a suite."""
    units, on, rng = battery(SAMPLER, N, D, suite)
    ours, trial = Setting(units, on, rotations(rng, D), FAMILIES), training_prompts(on, units)
    theirs = dataclasses.replace(ours, battery=gaussian_prompts(suite, on))

    def judge(one: Planted, change: float, rng: np.random.Generator, papers: bool) -> np.ndarray:
        ask = in_units(asked(disturbed(one, change, rng), one.family, trial), units)
        member = one_member(ask, structure(ask, on, suite), ours, ranges=False)
        plain = in_units(asked(disturbed(one, 0.0, rng), one.family, trial), units)
        name = NAMES.index(member.family) if member.family else -1
        difference, moved = _differences(member, plain, ask, on.take(JUDGE))
        outcome = _outcome(one, member, difference, moved)
        said = _papers(ask, theirs) if papers else np.nan
        return np.array([outcome, name, member.residual, member.asymmetry, difference, said])

    return judge


def gaussian_prompts(seed: int, like: Battery) -> Battery:
    """As many contexts of normal inputs of training size and linear labels, in units."""
    law = linear_regression(context_length=N, input_size=D, input_law="normal", task_scale=D**-0.5)
    prompts = law(jax.random.key(seed), 2 * CONTEXTS * QUERIES).prompt
    x, y, q = (np.asarray(part, np.float64) for part in (prompts.x, prompts.y, prompts.x_query))
    return Battery(
        x[: 2 * CONTEXTS], y[: 2 * CONTEXTS, :, 0], q.reshape(2 * CONTEXTS, QUERIES, D), None, like.covariance
    )


def _raw(ask: Ask, on: Battery) -> np.ndarray:
    x, y = (np.repeat(part, QUERIES, 0) for part in (on.x, on.y))
    return ask(x, y, on.q.reshape(len(x), -1)).reshape(on.q.shape[:2])


def _differences(member: Member, plain: Ask, ask: Ask, on: Battery) -> tuple[float, float]:
    """Median relative differences from the undisturbed learner: of the named algorithm (or NaN), of the disturbed."""
    f = _raw(plain, on)
    moved = float(np.median(relative(_raw(ask, on), f)))
    if member.fit is None:
        return np.nan, moved
    return float(np.median(relative(predicted(member.fit.model, member.fit.theta, on), f))), moved


def _outcome(one: Planted, member: Member, difference: float, moved: float) -> int:
    if member.verdict != "identified":
        return INSEPARABLE if member.verdict == "not separable" else REFUSED
    if set(member.equals) & set(one.truth):
        return RIGHT
    return CLOSE if one.truth and difference < moved else WRONG


def _papers(ask: Ask, theirs: Setting) -> float:
    """The family nearest to the learner itself on Gaussian prompts, as an index into ``NAMES``."""
    f = _raw(ask, theirs.battery)
    about = dict.fromkeys({part for family in FAMILIES.values() for part in family.needs}, 0.0)
    fits, *_ = all_fits(Answers(f, f, 0.0, np.zeros(len(f))), 0.0, about, theirs)
    return float(NAMES.index(min(fits, key=lambda fit: fit.residual).model.family))


def _metrics(config: Config, arrays: dict[str, np.ndarray], families: np.ndarray, inside: np.ndarray) -> dict[str, Any]:
    """Counts of outcomes by suite, change and family, and one-sided exact 95 % bounds."""
    found: dict[str, Any] = {}
    for (s, suite), (c, change) in ((a, b) for a in enumerate(config.suites) for b in enumerate(config.changes)):
        outcome, at = arrays["outcome"][s, c], f"suite {suite}, change {change:g}"
        counts = {
            str(name): [int((outcome[families == name] == k).sum()) for k in range(5)] for name in np.unique(families)
        }
        wrong, named = int((outcome[inside] == WRONG).sum()), int((outcome[~inside] == WRONG).sum())
        found[at] = {
            "counts": counts,
            "right": float((outcome[inside] <= CLOSE).mean()),
            "wrong": wrong,
            "wrong rate below": at_most(wrong, int(inside.sum())),
            "outsiders named": named,
            "outsiders named rate below": at_most(named, int((~inside).sum())),
        }
    return found


def at_most(count: int, total: int) -> float:
    """One-sided exact 95 % upper bound of a rate."""
    from scipy.special import betaincinv

    return float(betaincinv(count + 1, total - count, 0.95)) if count < total else 1.0


def figures(record: Record) -> dict[str, Figure]:
    """Outcomes by family, one panel a change, suites together."""
    config = from_json(Config, record.config)
    figure, axes = style.panels(len(config.changes), 1, width=4.2, height=4.6)
    outcome, family = record["outcome"], record["family"]
    labels, colours = (*GROUPS, "outsiders"), ("C2", "#a8d8a8", "0.9", "C1", "black")
    hatches = ("", "...", "///", "xxx", "")  # what is alike in grey
    for c, (axis, change) in enumerate(zip(axes[0], config.changes)):
        left = np.zeros(len(labels))
        for k, (name, colour, hatch) in enumerate(zip(OUTCOMES, colours, hatches)):
            seen = [outcome[:, c, family == g].ravel() for g in (*range(len(GROUPS)), -1)]
            share = np.array([(one == k).sum() / max(one.size, 1) for one in seen])
            axis.barh(np.arange(len(labels)), share, left=left, color=colour, hatch=hatch, label=name)
            left += share
        axis.set(yticks=np.arange(len(labels)), yticklabels=labels if c == 0 else [], xlim=(0, 1))
        axis.set(title=f"predictions changed by {change:g}", xlabel="share of learners")
        axis.invert_yaxis()
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return {"planted": figure}


def _of(
    suite: int, change: float, statistic: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> Callable[[Record], np.ndarray]:
    """A statistic of the outcomes of one suite at one change, and of whether each learner was planted."""

    def value(record: Record) -> np.ndarray:
        config = from_json(Config, record.config)
        if suite not in config.suites or change not in config.changes:
            return np.array([])
        outcome = record["outcome"][config.suites.index(suite), config.changes.index(change)]
        return np.atleast_1d(statistic(outcome, record["family"] >= 0)).astype(float)

    return value


claim = claims_of("identification.planted", "This lab, planted suite", presets=("lab",), interval="exact")
SHARE = {"interval": "wilson", "unit": "learner"}


def _claims() -> list[Claim]:
    found = []
    for suite in (1, 2):
        for change, right, wrong in ((0.02, 0.90, 0), (0.05, 0.85, 3), (0.15, None, 3)):
            at, tag = f"Suite {suite}, predictions changed by {change:g}", f"{suite}_{round(100 * change):02d}"
            if right is not None:
                each = _of(suite, change, lambda o, inside: o[inside] <= CLOSE)
                found.append(claim(f"right_{tag}", "", f"{at}: the right class is named.", each, right, relation=">=",
                                   reason="the bar set before the suite was run", **SHARE))  # fmt: skip
            count = _of(suite, change, lambda o, inside: (o[inside] == WRONG).sum())
            named = _of(suite, change, lambda o, inside: (o[~inside] == WRONG).sum())
            for name, statistic, bound, said in (
                ("wrong", count, wrong, "planted learners that get a wrong name"),
                ("outsiders", named, 0, "outsiders that get a name"),
            ):
                found.append(claim(f"{name}_{tag}", "", f"{at}: {said}.", statistic, bound, relation="<=",
                                   reason="the bar set before the suite was run"))  # fmt: skip
    return found


def _papers_right(record: Record) -> np.ndarray:
    """(learners,) whether the nearest family by the method of the papers is the planted one."""
    config = from_json(Config, record.config)
    if 0.05 not in config.changes:
        return np.array([])
    c = config.changes.index(0.05)
    said, inside = record["papers"][:, c], record["family"] >= 0
    asked_for = (one for one in planted(config.suites[0], config.members) if one.family in config.families)
    truths = [set(one.truth) for one in asked_for if one.truth]  # outsiders, which must be trained, have none
    right = [NAMES[int(k)] in truths[i] for row in said[:, inside] for i, k in enumerate(row) if not np.isnan(k)]
    return np.array(right, float)


CLAIMS = (
    *_claims(),
    claim("papers", "", "By Gaussian prompts, without symmetrising, the nearest family is the planted one (share).",
          _papers_right, 0.85, relation="<=", reason="the bar of the method with refusals, for comparison", **SHARE),
)  # fmt: skip

AXES = {"family": ("learner",), "*": ("suite", "change", "learner")}

QUICK = {"right_1_05": None, "outsiders_1_05": None}
"""Quick runs the pilot suite, of which nothing is claimed."""

EXPERIMENT = Experiment(
    "identification.planted", __doc__, PRESETS, run, figures, CLAIMS, check, axes=AXES, quick=QUICK,
    finding=FINDINGS["planted"], given=True,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
