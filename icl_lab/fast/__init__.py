"""Networks of ``models`` in the form that training uses, for batches of small tasks; equal to the plain one."""

from icl_lab.fast.batched import batched_predictions
from icl_lab.fast.induction import induction_logits

__all__ = ["batched_predictions", "induction_logits"]
