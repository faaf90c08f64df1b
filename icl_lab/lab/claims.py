"""A published claim as a number: statistic, expectation, tolerance, members, interval, verdict."""

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from icl_lab.lab.intervals import INTERVALS, MEDIAN_MEMBERS
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


class Beside(NamedTuple):
    """A value that is shown beside a claim and is no control: the claim need not fail in it."""

    statistic: Callable[[Record], np.ndarray]
    reason: str  # why it is no control by its nature, a clause


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

    ``interval`` is ``t`` (mean over members), ``median`` (over members: for values that are unbounded, skewed or in two
    groups), ``wilson`` (fraction of members; the statistic is 0 or 1) or ``exact`` (one value that no random draw is
    in: an interval of no width).

    A claim has a way to fail: a ``control``, which must violate its bound, or ``fails_in``, a committed record in which
    the claim itself fails. The tests judge both.
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
    control: Callable[[Record], np.ndarray] | None = None  # a changed run, or quantity, in which the claim must fail
    beside: Beside | None = None  # shown for comparison, counts for nothing
    fails_in: str = ""  # a committed record in which the claim fails, "von_oswald/multi_step/lab" below figures/
    half_step: Callable[[Record], float] | None = None  # half the spacing of a grid from which the values were chosen
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
        said = {name: value for name in ("published", "falsified_by", "fails_in") if (value := getattr(self, name))}
        return said | ({"beside_reason": self.beside.reason} if self.beside else {})


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
