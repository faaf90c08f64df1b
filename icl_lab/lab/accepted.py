"""What decides the numbers of a record beside its configuration, and which former sources give those of today.

Records carry digests of sources that are no more. Where smoke runs of later sources repeat the anchor of a record
(docs/dev/anchors.md), the digest of the record is accepted as that of the later sources: ``TABLE`` lists, for every
binary, which digests are accepted as which one. Any other edit of what decides its numbers voids the list of a binary,
until ``python -m experiments.gallery --accept`` makes it again.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from icl_lab.lab.provenance import USUAL, of_others
from icl_lab.lab.record import Record

TABLE = Path(__file__).with_name("accepted.json")


def table() -> dict[str, dict[str, Any]]:
    """By binary: ``sources``, the digest of those whose smoke runs were compared, and the digests ``accepted`` as it.

    Raises:
      ValueError: naming the file, where it is no such table.
    """
    try:
        rows = json.loads(TABLE.read_bytes())
        return {name: {"sources": one["sources"], "accepted": list(one["accepted"])} for name, one in rows.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{TABLE} is not a table of accepted sources ({type(error).__name__}: {error})") from error


def made_by(record: Record) -> dict[str, Any]:
    """``sources``, ``versions`` and ``precision`` that made a record; equal ones give equal numbers.

    Former sources that are accepted count as the later ones. Sources or versions that a record does not name are None,
    and a setting of JAX that it does not name is the usual one.
    """
    origin: Mapping[str, Any] = record.provenance
    sources, listed = origin.get("sources"), table().get(record.experiment, {"accepted": ()})
    return {
        "sources": listed["sources"] if sources in listed["accepted"] else sources,
        "versions": of_others(origin.get("versions") or {}) or None,
        "precision": USUAL | dict(origin.get("precision") or {}),
    }


def differing_origins(found: Sequence[Record]) -> list[str]:
    """In what the origins of these records differ that decides their numbers: names of ``made_by``."""
    first, *others = map(made_by, found)
    return [name for name in first if any(one[name] != first[name] for one in others)]
