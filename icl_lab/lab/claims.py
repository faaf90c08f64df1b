"""A published claim as a number: statistic, expectation, tolerance, members, interval, verdict."""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple

import numpy as np

from icl_lab.lab.intervals import INTERVALS, LEVEL, MEDIAN_MEMBERS
from icl_lab.lab.records import Record

HOLDS, FAILS, NOT_RESOLVED, NOT_JUDGED = "holds", "fails", "not resolved", "not judged"
NOT_REACHED = "not reached"
"""The run stopped before the claim's criterion of convergence, so it says nothing about the claim."""
QUICK_MEMBERS, QUICK_TOLERANCE = 6, 3
"""At quick a claim has at least so many members, or is an identity, and at most so many times its tolerance."""
MEMBER = "member"
IDENTITY = "identity"


class NotRun(Exception):  # noqa: N818
    """Raised by a statistic where the configuration leaves out a part that it needs; the message names the part."""


class Criterion(NamedTuple):
    """When a training has gone far enough for a claim to say something about the paper."""

    text: str  # what must have happened, a clause
    reached: Callable[[Record], bool]


class Quick(NamedTuple):
    """How the preset quick judges a headline claim."""

    tolerance: float  # in place of the claim's own, at most ``QUICK_TOLERANCE`` times as large
    reason: str  # where it comes from, or why the run cannot reach the criterion
    verdict: str = HOLDS  # expected
    criterion: Criterion | None = None
    identity: bool = False  # it has no chance in it: the member farthest from it is judged, as an exact value


@dataclasses.dataclass(frozen=True)
class Claim:
    """One claim of one paper.

    ``interval`` is ``t`` (mean over members), ``median`` (over members, for skewed statistics), ``wilson`` (fraction of
    members; the statistic is 0 or 1) or ``exact`` (one value that no random draw is in: an interval of no width).
    """

    id: str  # unique, paper.figure.name
    paper: str  # and figure or section
    statement: str  # a sentence
    statistic: Callable[[Record], np.ndarray]  # (M,) one value per member, NaN: this member has none
    expected: float  # the value; with relation "<=" or ">=" the bound
    tolerance: float  # half-width of the region around ``expected`` in which the claim holds (slack of a bound)
    reason: str  # where the tolerance comes from
    relation: str = "=="
    interval: str = "t"
    control: Callable[[Record], np.ndarray] | None = None  # what the claim must be told apart from, shown beside it
    expected_verdict: Mapping[str, str] = dataclasses.field(default_factory=dict)  # by preset; others are not judged
    minimum_members: int = 2  # fewer leave the claim not resolved; so do fewer than have an interval
    criterion: Criterion | None = None  # a run that stops before it leaves the claim not reached
    unit: str = MEMBER  # what each value belongs to; any other is an independent draw too, and may be more than members
    kind: Literal["claim", "identity"] = "claim"  # an identity could not have failed: it tests code and is not counted
    quick: Quick | None = None  # how the preset quick judges it, if it sums the experiment up; None: not at quick
    headline: int = 0  # its place among the one to three claims that sum the experiment up, 1 is the first; 0: none
    published: tuple[float | str, str] | None = None  # the value that the paper prints, and where
    falsified_by: str = ""  # what would have shown it wrong, a noun and its clause

    def __post_init__(self):
        if self.relation not in ("==", "<=", ">=") or self.interval not in INTERVALS or self.tolerance < 0:
            raise ValueError(f"{self.id}: unknown relation or interval, or a negative tolerance")
        if self.kind not in ("claim", IDENTITY):
            raise ValueError(f"{self.id}: kind={self.kind!r} is neither 'claim' nor 'identity'")
        if self.quick is not None and self.quick.tolerance > QUICK_TOLERANCE * self.tolerance * (1 + 1e-12):
            raise ValueError(f"{self.id}: the tolerance at quick is more than {QUICK_TOLERANCE} times that at lab")

    def region(self) -> tuple[float, float]:
        """The region in which the claim holds."""
        low = -math.inf if self.relation == "<=" else self.expected - self.tolerance
        high = math.inf if self.relation == ">=" else self.expected + self.tolerance
        return low, high

    def fewest_members(self) -> int:
        """With fewer members that have a value the claim is not resolved."""
        if self.interval == "exact":
            return 1
        return max(self.minimum_members, MEDIAN_MEMBERS if self.interval == "median" else 2)

    def at_quick(self) -> "Claim":
        """The claim as runs of the preset quick are judged by it; not judged without ``quick``."""
        quick = self.quick
        if quick is None:
            return dataclasses.replace(self, expected_verdict={})
        changed = dataclasses.replace(
            self, tolerance=quick.tolerance, criterion=quick.criterion or self.criterion,
            expected_verdict={"quick": quick.verdict}, minimum_members=max(self.minimum_members, QUICK_MEMBERS),
            reason=f"{quick.reason} (at lab {self.tolerance:g}: {self.reason})",
        )  # fmt: skip
        return dataclasses.replace(changed, statistic=self.farthest, interval="exact") if quick.identity else changed

    def farthest(self, record: Record) -> np.ndarray:
        """(1,) the statistic of the member that speaks most against the claim; (0,) where none has a value."""
        values = np.atleast_1d(np.asarray(self.statistic(record), np.float64))
        values = values[~np.isnan(values)]
        against = {"<=": values, ">=": -values, "==": abs(values - self.expected)}[self.relation]
        return values[np.argmax(against)][None] if values.size else values

    def described(self) -> dict:
        """What a line of the ledger says of the claim itself, whatever the record."""
        names = ("id", "paper", "statement", "expected", "relation", "tolerance", "reason")
        usual = {"unit": MEMBER, "kind": "claim"}  # what records have always meant where they do not say it
        unusual = {name: getattr(self, name) for name, value in usual.items() if getattr(self, name) != value}
        return {name: getattr(self, name) for name in names} | {"interval_kind": self.interval} | unusual

    def about(self) -> dict:
        """What says something of the paper and decides no verdict: no record keeps it, its readers ask the claim."""
        return {name: value for name in ("published", "falsified_by") if (value := getattr(self, name))}


def is_identity(row: Mapping[str, Any]) -> bool:
    """Whether a line of the ledger is of an identity; lines of older records are of claims."""
    return row.get("kind") == IDENTITY


def claims_of(
    figure: str, source: str = "", at_lab: Mapping[str, str | None] | None = None,
    presets: Collection[str] = ("lab", "paper"), **common: Any,
) -> Callable[..., Claim]:  # fmt: skip
    """``claim(name, statement, statistic, at_most=..., reason=...)`` for one figure: what recurs is said once.

    A claim names its bound by one of ``at_most``, ``at_least`` and ``near`` (the value, with a ``tolerance``). It is
    expected to hold in ``presets``; ``at_lab`` and ``at_paper`` name the verdict of one that does not hold there (None:
    an estimate, which is given no verdict). ``where`` ends ``Claim.paper``. Other keywords are fields of ``Claim``.

    Args:
      figure: ``paper.figure``, begins the ids.
      source: begins ``Claim.paper``.
      at_lab: verdicts at lab by the claim's name, for claims that do not name their own.
      presets: in which every claim is expected to hold.
      common: keywords of claims that do not name their own.
    """

    def claim(name: str, statement: str, statistic: Callable[[Record], np.ndarray], **keywords: Any) -> Claim:
        given: dict[str, Any] = common | keywords
        verdicts: dict[str, Any] = dict.fromkeys(given.pop("presets", presets), HOLDS)
        if at_lab and name in at_lab:
            verdicts["lab"] = at_lab[name]
        verdicts |= {preset: given.pop(f"at_{preset}") for preset in ("lab", "paper") if f"at_{preset}" in given}
        bounds = [key for key in _RELATIONS if key in given]
        if len(bounds) != 1:
            names = ", ".join(bounds) or "none"
            raise ValueError(f"{figure}.{name}: needs one of at_most, at_least and near, got {names}")
        for key in bounds:
            given |= {"expected": given.pop(key), "relation": _RELATIONS[key]}
        named = {preset: verdict for preset, verdict in verdicts.items() if verdict}
        given = {"tolerance": 0.0, "expected_verdict": named, **given}
        return Claim(f"{figure}.{name}", f"{source}{given.pop('where', '')}", statement, statistic, **given)

    return claim


_RELATIONS = {"at_most": "<=", "at_least": ">=", "near": "=="}


def judge(claim: Claim, record: Record, left_out: Collection[str] = ()) -> dict:
    """One line of the ledger: the claim's estimate and interval on a record, and its verdict.

    *holds*: the 95 % interval lies within the region; *fails*: it lies outside; *not resolved*: anything else, and
    then ``note`` says how many members would resolve it at this estimate and spread. *Not reached*: the run stopped
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
    note, values, controls = "", np.array([]), np.array([])
    expected_verdict = claim.expected_verdict.get(record.preset)
    try:
        values = _of(claim, claim.statistic, record, left_out)
        members = record.config.get("members", values.size)
        too_few, too_many = values.size == 1 < members, values.size > members and claim.unit == MEMBER
        if values.ndim > 1 or ((too_few or too_many) and claim.interval != "exact"):
            message = f"{claim.id}: the statistic is {values.shape}; it must be one value a member, of {members}"
            raise ValueError(f"{message}, or name its unit" if too_many else message)
        values = values[~np.isnan(values)]
        if claim.control is not None:
            with contextlib.suppress(NotRun):  # the claim itself is judged
                controls = _of(claim, claim.control, record, left_out)
    except NotRun as error:
        note, expected_verdict = f"this record holds no {error}", None
    low, high = claim.region()
    estimate, interval = math.nan, (math.nan, math.nan)
    if values.size:
        with np.errstate(invalid="ignore"):  # an infinite value leaves no interval, and the claim not resolved
            estimate, interval = INTERVALS[claim.interval](values)
    if expected_verdict is None:
        verdict = NOT_JUDGED
    elif claim.criterion is not None and not claim.criterion.reached(record):
        verdict, note = NOT_REACHED, claim.criterion.text
    elif values.size < claim.fewest_members():
        verdict, note = NOT_RESOLVED, f"needs at least {claim.fewest_members()} {claim.unit}s with a value"
    elif interval[0] >= low and interval[1] <= high:
        verdict = HOLDS
    elif interval[1] < low or interval[0] > high:
        verdict = FAILS
    else:
        verdict, note = NOT_RESOLVED, _members_needed(claim, values.size, estimate, interval, low, high)
    controls = controls[~np.isnan(controls)]
    return claim.described() | {
        "preset": record.preset,
        "members": int(values.size),
        "estimate": _number(estimate),
        "interval": [_number(interval[0]), _number(interval[1])],
        "control": _number(_centre(claim, controls)) if controls.size else None,
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


def _centre(claim: Claim, values: np.ndarray) -> float:
    """The centre of these values that the claim's interval is about."""
    return float(np.median(values) if claim.interval == "median" else values.mean())


def _members_needed(
    claim: Claim, members: int, estimate: float, interval: tuple[float, float], low: float, high: float
) -> str:
    """How many members would resolve the claim if estimate and spread stay; intervals shrink as 1/sqrt(M) or faster."""
    margin = min(abs(estimate - low), abs(high - estimate))
    half = max(estimate - interval[0], interval[1] - estimate)
    if not math.isfinite(half):
        return f"needs at least 2 {claim.unit}s" if members < 2 else f"no interval: a {claim.unit}'s value is infinite"
    if margin == 0:
        return "the estimate lies on the edge: no number of members resolves it"
    if half > 1e5 * margin:
        return f"over a million {claim.unit}s would resolve it at this estimate"
    needed = math.ceil(members * (half / margin) ** 2)
    if claim.interval == "t":  # Student's quantile shrinks too: from three members on by more than half
        from scipy.special import stdtrit

        sizes = np.unique(np.geomspace(members, needed, 10_000).round())  # all up to some thousands, then some of them
        shrinks = stdtrit(sizes - 1, 0.5 + LEVEL / 2) / np.sqrt(sizes)
        needed = int(sizes[np.argmax(shrinks <= shrinks[0] * margin / half)])
    number = f"about {needed}" if needed < 1e6 else "over a million"
    return f"{number} {claim.unit}s would resolve it at this estimate"


def _number(value: float) -> float | None:
    """JSON has no NaN or infinity: None stands for both."""
    return float(value) if math.isfinite(value) else None
