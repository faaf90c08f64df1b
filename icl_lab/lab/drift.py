"""Whether a fresh record still says what the committed one says: the same claims, intervals that overlap, none lost.

Bits are not compared: another version of JAX may draw other random numbers or round otherwise. Where it draws others,
two 95 % intervals of the same truth miss each other in about 0.6 % of all claims.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from icl_lab.lab import records
from icl_lab.lab.claims import FAILS, HOLDS
from icl_lab.lab.record import Record
from icl_lab.lab.report import estimate

FREE = ("seed", "members", "first", "only")
"""Settings in which a committed run and a fresh one may differ."""
ROUNDING = 1e-5
"""Intervals are this much wider than they say (relative): what sums in float32 keep on another machine."""


def committed(folder: Path) -> tuple[Record, list[dict]]:
    """A committed record and the rows of its claims; without arrays where they were too large to be kept.

    Raises:
      RecordError: saying which file is wrong and how.
    """
    record = records.load(folder, arrays=(folder / "arrays.npz").exists())
    return record, json.loads((folder / "record.json").read_bytes())["claims"]


def drift(
    record: Record, rows: Sequence[Mapping[str, Any]], before: Record, rows_before: Sequence[Mapping[str, Any]]
) -> list[str]:
    """What a fresh record and its ledger rows say otherwise than the committed ones; a sentence each, none if nothing.

    Compared are the configuration (but ``FREE``), names of claims, and of each claim the 95 % interval and whether it
    went from holds to fails. Of claims without chance, values that must be equal may differ by the tolerance, others
    are not compared. Names, types and shapes of arrays are held by anchors (docs/dev/anchors.md).
    """
    here, there = ({k: v for k, v in r.config.items() if k not in FREE} for r in (record, before))
    if differing := [name for name in {**there, **here} if there.get(name) != here.get(name)]:
        return [f"the committed record is of another configuration ({', '.join(differing)})"]
    now, then = ({row["id"]: row for row in each} for each in (rows, rows_before))
    said = [f"claim {name} is gone" for name in sorted(then.keys() - now.keys())]
    said += [f"claim {name} is not in the committed record" for name in sorted(now.keys() - then.keys())]
    for name in sorted(now.keys() & then.keys()):
        said += _of_claim(now[name], then[name])
    return said


def _of_claim(now: Mapping[str, Any], then: Mapping[str, Any]) -> list[str]:
    said = []
    if (now["estimate"] is None) != (then["estimate"] is None):
        said.append(f"{now['id']} is {estimate(now)}, committed is {estimate(then)}")
    elif now["estimate"] is not None and not _agree(now, then):
        said.append(f"{now['id']} is {estimate(now)}, which does not overlap with the committed {estimate(then)}")
    if (then["verdict"], now["verdict"]) == (HOLDS, FAILS):
        said.append(f"{now['id']} fails, and held when it was committed")
    return said


def _agree(now: Mapping[str, Any], then: Mapping[str, Any]) -> bool:
    if now["interval_kind"] == then["interval_kind"] == "exact":
        slack = max(now["tolerance"], ROUNDING * max(abs(now["estimate"]), abs(then["estimate"])))
        return now["relation"] != "==" or abs(now["estimate"] - then["estimate"]) <= slack
    (low, high), (low_then, high_then) = _bounds(now), _bounds(then)
    return low <= high_then and low_then <= high


def _bounds(row: Mapping[str, Any]) -> tuple[float, float]:
    """The interval, as much wider as rounding may be; a bound that is no number is infinite."""
    low, high = row["interval"]
    slack = ROUNDING * max(abs(v) for v in (low, high, row["estimate"]) if v is not None)
    return (-math.inf if low is None else low - slack), (math.inf if high is None else high + slack)
