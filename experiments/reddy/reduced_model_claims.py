"""Claims of ``reduced_model``."""

import functools
from typing import Any

import numpy as np

from experiments.onsets import crossing
from experiments.reddy.reduced_model_figures import NAMES, equal_onset
from experiments.reddy.statistics import learned, onsets, present, solved
from experiments.statistics import Statistic
from icl_lab.lab import NotRun, Record, claims_of
from icl_lab.theory import nested_logit_flow


def solves(part: str) -> Statistic:
    """(M,) whether the member solves novel classes in context at the end."""
    return lambda record: learned(record.arrays[f"{part}/ic"], solved(record.config))


def sharpness(part: str) -> Statistic:
    """(M,) steps from the last measurement of IC <= .2 to the first >= .9, of the step of the latter."""

    def statistic(record: Record) -> np.ndarray:
        curves, steps, found = record.arrays[f"{part}/ic"], record.arrays["steps"], []
        for curve in curves:
            high = int(np.argmax(curve >= 0.9))
            low = np.flatnonzero(curve[:high] <= 0.2)
            found.append((steps[high] - steps[low[-1]]) / steps[high] if low.size else np.nan)
        return np.array(found)

    return statistic


def ahead(part: str, first: str) -> Statistic:
    """(M,) share of its way that a measure has made at the last measurement before ILA1 has made a tenth of its own.

    The way is from the first measurement to the last; only members that solve the task have a value. CLA's ends at 1.
    """

    def statistic(record: Record) -> np.ndarray:
        solved_at_end = solves(part)(record) == 1

        def way(name: str) -> np.ndarray:
            curves = record.arrays[f"{part}/{name}"]
            length = (1.0 if name == "cla" else curves[:, -1]) - curves[:, 0]
            return (curves - curves[:, :1]) / np.where(solved_at_end, length, 1.0)[:, None]

        before = np.maximum(np.argmax(way("ila1") >= 0.1, axis=1) - 1, 0)
        found = np.take_along_axis(way(first), before[:, None], axis=1)[:, 0]
        return np.where(solved_at_end, found, np.nan)

    return statistic


@functools.cache
def _flow(context_length: int, labels: int, form: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(400,) times, (400, 3) path and (400,) loss of the nested-logit flow from the origin."""
    times = np.geomspace(1.0, 3000.0, 400)
    flow = nested_logit_flow(np.zeros(3), times, context_length=context_length, labels=labels, form=form)
    return times, flow.path[0], flow.loss[0]


def flow(record: Record, form: str = "mean_field") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The flow at the setting of the parts three and two."""
    return _flow(record.config["context_length"], record.config["labels"], form)


def path_error(part: str, form: str = "mean_field") -> Statistic:
    """(M,) largest deviation of alpha from the flow's at the same beta_1, of the latter, where beta_1 is above .1."""

    def statistic(record: Record) -> np.ndarray:
        (beta_1, alpha), (_, path, _) = (record[f"{part}/{name}"] for name in ("beta_1", "alpha")), flow(record, form)
        predicted = np.interp(beta_1, path[:, 0], path[:, 1])
        off = np.where(beta_1 > 0.1, np.abs(alpha / np.maximum(predicted, 1e-3) - 1), -np.inf).max(axis=1)
        return np.where(np.isfinite(off), off, np.nan)

    return statistic


def jump_time(part: str) -> Statistic:
    """(M,) flow time, rate times steps, at which the loss is half of log L, over the flow's; NaN where it never is."""

    def statistic(record: Record) -> np.ndarray:
        level, (times, _, loss) = -np.log(record.config["labels"]) / 2, flow(record)
        steps = present(crossing(-record[f"{part}/ic_loss"], record["steps"], level))
        return steps * record.config["learning_rate"] / np.interp(level, -loss, times)

    return statistic


def loss_left(part: str) -> Statistic:
    """(M,) loss on novel classes where beta_1 passes one, over the flow's there; NaN where it never does."""

    def statistic(record: Record) -> np.ndarray:
        steps, (_, path, loss) = record["steps"], flow(record)
        when = present(crossing(record[f"{part}/beta_1"], steps, 1.0))
        found = [np.interp(t, steps, curve) for t, curve in zip(when, record[f"{part}/ic_loss"])]
        return np.array(found) / np.interp(1.0, path[:, 0], loss)

    return statistic


def later(record: Record) -> np.ndarray:
    """(M,) whether a member jumps later without beta_2 than with it (same classifier and data)."""
    two, three = onsets(record, "two"), onsets(record, "three")
    return np.where(np.isfinite(three), (two > three).astype(float), np.nan)


def equal_solves(start: float) -> Statistic:
    """(M,) whether a member solves L = N from this value of the scalars."""

    def statistic(record: Record) -> np.ndarray:
        starts = list(record.config["starts"])
        if start not in starts:
            raise NotRun(f"start {start:g}")
        curves = record.arrays["equal/ic"][starts.index(start)]
        return learned(curves, _equal_level(record))

    return statistic


def equal_sooner(record: Record) -> np.ndarray:
    """(M,) whether L = N is solved in less than half the time from the largest start as from the smallest."""
    times = equal_onset(record)
    return np.where(np.isfinite(times[-1]), (times[-1] < 0.5 * times[0]).astype(float), 0.0)


def equal_later(record: Record) -> np.ndarray:
    """(M,) whether L = N from the smallest start takes more than twice the time of L > N, which the member learns."""
    equal, more = equal_onset(record)[0], equal_onset(record, "more")[0]
    return np.where(np.isfinite(more), (equal > 2 * more).astype(float), np.nan)


def more_solves(record: Record) -> np.ndarray:
    """(M,) whether a member solves L > N from scalars zero."""
    return learned(record.arrays["more/ic"][0], _equal_level(record))


def _equal_level(record: Record) -> float:
    return solved(record.config, context_length=record.config["equal_length"])


_AT_LAB = {f"{name}_{part}": "fails" for name in ("clock",) for part in ("three", "two")}
"""The flow has one read-out logit and its rate; the model's classifier has to be learned first."""

_claim = claims_of("reddy.reduced_model", "Reddy 2023, ", _AT_LAB, presets=["lab"])


_MOST: dict[str, Any] = {"expected": 0.6, "tolerance": 0.0, "relation": ">=", "interval": "wilson"}
_ALL = "all members are expected to; the interval needs all of six, 14 of 16"

CLAIMS = (
    *(
        claim
        for part, figure in (("three", "Fig. A.2"), ("two", "Fig. 6"))
        for claim in (
            _claim(
                f"solves_{part}", figure, f"The reduced model ({NAMES[part]}) learns novel classes in context.",
                solves(part), reason=_ALL, **_MOST,
            ),
            _claim(
                f"sharp_{part}", figure,
                "The jump is sudden: from IC accuracy .2 to .9 in at most 15 % of the steps up to there "
                f"({NAMES[part]}).",
                sharpness(part), 0.15, 0.0, relation="<=",
                reason="a wait six times as long as the rise is a plateau and a jump; measured every 100 steps",
            ),
            _claim(
                f"path_{part}", "Figs. 5-7 (this lab)",
                "alpha follows beta_1 as on the flow of the mean-field nested-logit loss, with nothing fitted "
                f"({NAMES[part]}; largest deviation, of the theory's alpha). The two are tied by a conserved quantity, "
                "so that this tests the attention, not the read-out or the clock (control: the simplified form).",
                path_error(part), 0.15, 0.0, relation="<=", control=path_error(part, "simplified"),
                reason="contents are orthogonal to 1/sqrt(63) = .13 only, and a deep classifier stands for a read-out",
            ),
            _claim(
                f"clock_{part}", "Figs. 5-7 (this lab)",
                "The model jumps when the mean-field flow does (rate times steps at half of log L, over "
                f"the flow's time; {NAMES[part]}; median).",
                jump_time(part), 1.0, 0.25, interval="median", reason="a quarter: starts differ by that much",
            ),
            _claim(
                f"loss_{part}", "Figs. 5-7 (this lab)",
                f"When beta_1 passes one, the loss is the flow's there (ratio; {NAMES[part]}; median).",
                loss_left(part), 1.0, 0.25, interval="median",
                reason="a quarter of the loss: beta_1 = 1 is on the cliff, where measurements are 100 steps apart",
            ),
        )
    ),
    _claim(
        "cla_first", "Figs. 4, 5", "Context-label accuracy goes before attention to the previous token: when ILA1 has "
        "made a tenth of its way, CLA has made a fifth at least (control: beta_2 = 0).",
        ahead("three", "cla"), 0.2, 0.0, relation=">=", control=ahead("two", "cla"),
        reason="twice as far as ILA1; the measures' own noise is .02",
    ),
    _claim(
        "tla2_first", "Figs. 4, 5",
        "Attention to labels goes ahead, too: when ILA1 has made a tenth of its way, TLA2 has made "
        "half (control: beta_2 = 0).",
        ahead("three", "tla2"), 0.5, 0.0, relation=">=", control=ahead("two", "tla2"),
        reason="most of its way before ILA1 has begun",
    ),
    _claim(
        "tla2_not_needed", "Fig. 6", "Without beta_2 attention to labels does not go before: when ILA1 has made a "
        "tenth of its way, TLA2 has made at most a tenth.",
        ahead("two", "tla2"), 0.1, 0.0, relation="<=", control=ahead("three", "tla2"), reason="no further than ILA1",
    ),
    _claim(
        "two_later", "Fig. 6", "Without beta_2 the jump comes later (same start of the classifier, same data).",
        later, 0.5, 0.0, relation=">=", interval="wilson", reason="most members; chance is one half",
    ),
    _claim(
        "equal_later", "Fig. 6",
        "Scalars zero: L = N takes more than twice the time of L > N, or is not learned (N = 4, L = 4 against 16).",
        equal_later, reason="most members; chance is one half, of one time being longer at all", **_MOST,
    ),
    _claim(
        "equal_from_one", "Fig. 6",
        "L = N = 4, scalars one: members learn within 4,000 steps (control: scalars zero).",
        equal_solves(1.0), control=equal_solves(0.0), reason=_ALL, **_MOST,
    ),
    _claim(
        "equal_start", "Fig. 6", "L = N: the largest start takes less than half the time of the smallest.",
        equal_sooner, reason="most members; a saddle is left after a logarithm of the start over a small rate", **_MOST,
    ),
    _claim(
        "more_from_zero", "Figs. 6, A.5", "L > N, scalars zero, all else alike: members learn (control: L = N).",
        more_solves, control=equal_solves(0.0), reason=_ALL, **_MOST,
    ),
)  # fmt: skip
