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
    config, config_before = ({k: v for k, v in r.config.items() if k not in FREE} for r in (record, before))
    if differing := [name for name in {**config_before, **config} if config_before.get(name) != config.get(name)]:
        return [f"the committed record is of another configuration ({', '.join(differing)})"]
    fresh, committed = ({row["id"]: row for row in ledger} for ledger in (rows, rows_before))
    messages = [f"claim {name} is gone" for name in sorted(committed.keys() - fresh.keys())]
    messages += [f"claim {name} is not in the committed record" for name in sorted(fresh.keys() - committed.keys())]
    for name in sorted(fresh.keys() & committed.keys()):
        messages += _of_claim(fresh[name], committed[name])
    return messages


def _of_claim(row: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    messages = []
    if (row["estimate"] is None) != (before["estimate"] is None):
        messages.append(f"{row['id']} is {estimate(row)}, committed is {estimate(before)}")
    elif row["estimate"] is not None and not _agree(row, before):
        messages.append(f"{row['id']} is {estimate(row)}, which does not overlap with the committed {estimate(before)}")
    if (before["verdict"], row["verdict"]) == (HOLDS, FAILS):
        messages.append(f"{row['id']} fails, and held when it was committed")
    return messages


def _agree(row: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    if row["interval_kind"] == before["interval_kind"] == "exact":
        slack = max(row["tolerance"], ROUNDING * max(abs(row["estimate"]), abs(before["estimate"])))
        return row["relation"] != "==" or abs(row["estimate"] - before["estimate"]) <= slack
    (low, high), (low_before, high_before) = _bounds(row), _bounds(before)
    return low <= high_before and low_before <= high


def _bounds(row: Mapping[str, Any]) -> tuple[float, float]:
    """The interval, as much wider as rounding may be; a bound that is no number is infinite."""
    low, high = row["interval"]
    slack = ROUNDING * max(abs(v) for v in (low, high, row["estimate"]) if v is not None)
    return (-math.inf if low is None else low - slack), (math.inf if high is None else high + slack)
