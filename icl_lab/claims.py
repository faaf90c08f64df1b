"""Published claims as numbers (``icl_lab.lab.claims``)."""

from icl_lab.lab.claims import Claim, NotRun, claims_of, judge

__all__ = ["Claim", "NotRun", "claims_of", "judge"]
