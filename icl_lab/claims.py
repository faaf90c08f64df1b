"""Published claims as numbers (``icl_lab.lab.claims``)."""

from icl_lab.lab.claims import (
    FAILS,
    HOLDS,
    NOT_REACHED,
    NOT_RESOLVED,
    Beside,
    Claim,
    Criterion,
    NotRun,
    Quick,
    claims_of,
)
from icl_lab.lab.judging import judge
from icl_lab.lab.manifest import digest, manifest

__all__ = ["FAILS", "HOLDS", "NOT_REACHED", "NOT_RESOLVED", "Beside", "Claim", "Criterion", "NotRun", "Quick"]
__all__ += ["claims_of", "digest", "judge", "manifest"]
