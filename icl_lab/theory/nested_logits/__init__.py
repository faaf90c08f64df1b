"""The phenomenological loss of induction-head learning: three nested logits, their flow, and its times."""
