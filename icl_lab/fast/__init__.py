"""Networks of ``models`` in the form that training uses, for batches of small tasks; equal to the plain one."""

from icl_lab.fast.batched import batch_learner
from icl_lab.fast.induction import induction_logits

__all__ = ["batch_learner", "induction_logits"]
