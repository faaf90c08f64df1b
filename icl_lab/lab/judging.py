"""The verdict of a claim on a record: estimate, interval, and what is said where the interval does not decide."""

import contextlib
import math
from collections.abc import Callable, Collection
from fnmatch import fnmatchcase

import numpy as np

from icl_lab.lab.claims import FAILS, HOLDS, MEMBER, NOT_JUDGED, NOT_REACHED, NOT_RESOLVED, Claim, NotRun
from icl_lab.lab.intervals import INTERVALS, LEVEL, MEDIAN_MEMBERS
from icl_lab.lab.records import Record


def judge(claim: Claim, record: Record, left_out: Collection[str] = ()) -> dict:
    """One line of the ledger: the claim's estimate and interval on a record, and its verdict.

    *holds*: the 95 % interval lies within the region; *fails*: it lies outside, or every member's value lies outside on
    the same side (an interval of diverging values can be wide enough to hide that); *not resolved*: anything else, and
    then ``note`` says how many members would resolve it, where their spread allows that to be said. *Not reached*: the
    run stopped
    before the claim's criterion of convergence. A preset without a committed verdict, or a part that was not run,
    leaves it *not judged*.

    Args:
      claim: what is judged.
      record: of one run.
      left_out: patterns of the names of arrays that the configuration leaves out (``Experiment.left_out``).

    Raises:
      ValueError: naming the claim, where a name is neither in the record nor left out, or where the statistic is not
        one value a member: one of several members, or more than members though the claim names no other ``unit``.
    """
    note, values, without = "", np.array([]), 0
    others = {"control": claim.control, "beside": claim.beside.statistic if claim.beside else None}
    centres: dict[str, float | None] = dict.fromkeys(others)
    expected_verdict = claim.expected_verdict.get(record.preset)
    try:
        values = _of(claim, claim.statistic, record, left_out)
        members = record.config.get("members", values.size)
        too_few, too_many = values.size == 1 < members, values.size > members and claim.unit == MEMBER
        if values.ndim > 1 or ((too_few or too_many) and claim.interval != "exact"):
            message = f"{claim.id}: the statistic is {values.shape}; it must be one value a member, of {members}"
            raise ValueError(f"{message}, or name its unit" if too_many else message)
        without = int(np.isnan(values).sum())
        values = values[~np.isnan(values)]
        for name, statistic in others.items():
            if statistic is not None:
                with contextlib.suppress(NotRun):  # the claim itself is judged
                    centres[name] = _centre(claim, _of(claim, statistic, record, left_out))
    except NotRun as error:
        note, expected_verdict = f"this record holds no {error}", None
    low, high = claim.region()
    half_step = claim.half_step(record) if claim.half_step is not None and values.size else 0.0
    converged = claim.criterion is None or expected_verdict is None or claim.criterion.reached(record)
    estimate, interval = math.nan, (math.nan, math.nan)
    if values.size:
        with np.errstate(invalid="ignore"):  # an infinite value leaves no interval, and the claim not resolved
            estimate, interval = INTERVALS[claim.interval](values)
        interval = (interval[0] - half_step, interval[1] + half_step)
    if expected_verdict is None:
        verdict = NOT_JUDGED
    elif not converged:
        verdict, note = NOT_REACHED, claim.criterion.text if claim.criterion else ""
    elif values.size < claim.fewest_members():
        verdict, note = NOT_RESOLVED, f"needs at least {claim.fewest_members()} {claim.unit}s with a value"
    elif interval[0] >= low and interval[1] <= high:
        verdict = HOLDS
    elif interval[1] < low or interval[0] > high:
        verdict = FAILS
    elif claim.interval != "wilson" and ((values < low).all() or (values > high).all()):
        verdict, note = FAILS, f"every {claim.unit} violates the bound, on the same side"
    else:
        verdict, note = NOT_RESOLVED, _members_needed(claim, values, estimate, interval)
    return claim.described() | {
        "preset": record.preset,
        "members": int(values.size),
        "without": without,
        "values": [_written(value) for value in values],
        "region": [_number(low), _number(high)],
        "half_step": half_step,
        "fewest_members": claim.fewest_members(),
        "converged": converged,
        "estimate": _number(estimate),
        "interval": [_number(interval[0]), _number(interval[1])],
        **centres,
        "verdict": verdict,
        "expected_verdict": expected_verdict,
        "note": note,
    }


def _of(
    claim: Claim, statistic: Callable[[Record], np.ndarray], record: Record, left_out: Collection[str]
) -> np.ndarray:
    """The statistic, or the control, of a claim."""
    try:
        return np.atleast_1d(np.asarray(statistic(record), np.float64))
    except KeyError as error:
        name = str(error.args[0])
        if any(fnmatchcase(name, pattern) for pattern in left_out):
            raise NotRun(name) from error
        message = f"{claim.id}: the record holds no {name!r}, which its configuration does not leave out"
        raise ValueError(message) from error


def _centre(claim: Claim, values: np.ndarray) -> float | None:
    """The centre of these values that the claim's interval is about; None where none has a value."""
    values = values[~np.isnan(values)]
    if not values.size:
        return None
    return _number(np.median(values) if claim.interval == "median" else values.mean())


def _members_needed(claim: Claim, values: np.ndarray, estimate: float, interval: tuple[float, float]) -> str:
    """How many members would resolve the claim if estimate and spread stay; intervals shrink as 1/sqrt(M) or faster.

    Nothing is said of members that fall in two groups or have a tail: there more members move the estimate.
    """
    low, high = claim.region()
    margin = min(abs(estimate - low), abs(high - estimate))
    half = max(estimate - interval[0], interval[1] - estimate)
    if not math.isfinite(half):
        return (
            f"needs at least 2 {claim.unit}s" if values.size < 2 else f"no interval: a {claim.unit}'s value is infinite"
        )
    if margin == 0:
        return "the estimate lies on the edge: no number of members resolves it"
    if claim.interval != "wilson" and not spread_evenly(values):
        return f"too few {claim.unit}s, in two groups, or with a tail: no number is said that would resolve it"
    if half > 1e5 * margin:
        return f"over a million {claim.unit}s would resolve it at this estimate"
    needed = math.ceil(values.size * (half / margin) ** 2)
    if claim.interval == "t":  # Student's quantile shrinks too: from three members on by more than half
        from scipy.special import stdtrit

        sizes = np.unique(np.geomspace(values.size, needed, 10_000).round())  # all up to some thousands, then some
        shrinks = stdtrit(sizes - 1, 0.5 + LEVEL / 2) / np.sqrt(sizes)
        needed = int(sizes[np.argmax(shrinks <= shrinks[0] * margin / half)])
    number = f"about {needed}" if needed < 1e6 else "over a million"
    return f"{number} {claim.unit}s would resolve it at this estimate"


def spread_evenly(values: np.ndarray) -> bool:
    """Whether no gap between neighbouring values is more than half of their range, of six values or more.

    Ten normal values have such a gap in one sample of 27, ten lognormal ones (sigma = 2) in two of three.
    """
    gaps = np.diff(np.sort(values))
    return values.size >= MEDIAN_MEMBERS and bool(gaps.max() <= gaps.sum() / 2)


def _number(value: float | np.floating) -> float | None:
    """JSON has no NaN or infinity: None stands for both."""
    return float(value) if math.isfinite(value) else None


def _written(value: float) -> float | str:
    """A member's value as JSON has it: infinite ones in words, since their sign decides verdicts."""
    return float(value) if math.isfinite(value) else str(float(value))
