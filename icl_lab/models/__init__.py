"""Networks as pure functions of (parameters, tokens), and their reading as in-context learners."""

from icl_lab.models.batched import batched_predictions
from icl_lab.models.gpt import GPT, prefix_predictions
from icl_lab.models.inspection import Intervention, Trace
from icl_lab.models.learner import learner, traced
from icl_lab.models.transformer import LinearSelfAttention, Transformer, folded_weights

__all__ = [
    "GPT",
    "Intervention",
    "LinearSelfAttention",
    "Trace",
    "Transformer",
    "batched_predictions",
    "folded_weights",
    "learner",
    "prefix_predictions",
    "traced",
]
