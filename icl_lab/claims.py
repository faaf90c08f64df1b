"""Published claims as numbers (``icl_lab.lab.claims``)."""

from icl_lab.lab.claims import Claim, Criterion, NotRun, Quick, claims_of, judge

__all__ = ["Claim", "Criterion", "NotRun", "Quick", "claims_of", "judge"]
