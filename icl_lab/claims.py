"""Published claims as numbers (``icl_lab.lab.claims``)."""

from icl_lab.lab.claims import (
    FAILS,
    HOLDS,
    NOT_REACHED,
    NOT_RESOLVED,
    Claim,
    Criterion,
    NotRun,
    Quick,
    claims_of,
    judge,
)

__all__ = ["FAILS", "HOLDS", "NOT_REACHED", "NOT_RESOLVED", "Claim", "Criterion", "NotRun", "Quick"]
__all__ += ["claims_of", "judge"]
