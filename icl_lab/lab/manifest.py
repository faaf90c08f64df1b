"""Claims as a manifest that is hashed before a run, so that a stranger can check that they stood before its record."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from icl_lab.lab.claims import Claim

SCHEMA = 1


def manifest(claims: Sequence[Claim], *, preset: str, members: int, commit: str | None = None) -> dict[str, Any]:
    """What is claimed, as plain JSON with its SHA-256: publish the digest before the run, the manifest with its record.

    Args:
      claims: of a run, in any order.
      preset: the run's; claims that are not judged there are left out.
      members: the run's.
      commit: that holds the sources of the claims; None where there is none.

    Returns:
      ``schema``, ``preset``, ``members``, ``commit``, ``claims`` (by id: sentence, bounds, kind of interval, fewest
      members, unit, expected verdict, criterion of convergence) and ``sha256``, the digest of all other entries in
      canonical JSON (``digest``). An open bound is null.

    Raises:
      ValueError: if two claims have one id.
    """
    judged = [claim for claim in claims if preset in claim.expected_verdict]
    if repeated := sorted({claim.id for claim in judged if [other.id for other in judged].count(claim.id) > 1}):
        raise ValueError(f"claims must have ids of their own; more than one is called {', '.join(repeated)}")
    content = {
        "schema": SCHEMA,
        "preset": preset,
        "members": members,
        "commit": commit,
        "claims": {claim.id: _entry(claim, preset) for claim in judged},
    }
    return content | {"sha256": digest(content)}


def _entry(claim: Claim, preset: str) -> dict[str, Any]:
    return {
        "statement": claim.statement,
        "bounds": [bound if math.isfinite(bound) else None for bound in claim.region()],
        "interval": claim.interval,
        "fewest_members": claim.fewest_members(),
        "unit": claim.unit,
        "expected_verdict": claim.expected_verdict[preset],
        "criterion": claim.criterion.text if claim.criterion else None,
    }


def digest(content: Mapping[str, Any]) -> str:
    """SHA-256 of canonical JSON: UTF-8, keys sorted, no spaces, numbers as Python's ``repr``; ``sha256`` left out."""
    rest = {name: value for name, value in content.items() if name != "sha256"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
