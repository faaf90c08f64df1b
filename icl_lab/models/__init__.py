"""Networks as pure functions of (parameters, tokens), and their reading as in-context learners."""

from icl_lab.models.garg import load_garg
from icl_lab.models.gpt import GPT, prefix_predictions
from icl_lab.models.gpt2 import load_gpt2, load_tokenizer
from icl_lab.models.induction import InductionNetwork
from icl_lab.models.inspection import Intervention, Trace
from icl_lab.models.language import LanguageModel, language_logits
from icl_lab.models.language_capture import Capture, captured, local_logits
from icl_lab.models.layers import folded_weights
from icl_lab.models.learner import learner, traced
from icl_lab.models.recurrences import delta_rule, linear_attention, mesa_layer
from icl_lab.models.reduced_induction import ReducedInduction, reduced_logits
from icl_lab.models.self_attention import SelfAttention
from icl_lab.models.transformer import LinearSelfAttention, Transformer

__all__ = [
    "GPT",
    "Capture",
    "InductionNetwork",
    "Intervention",
    "LanguageModel",
    "LinearSelfAttention",
    "ReducedInduction",
    "SelfAttention",
    "Trace",
    "Transformer",
    "captured",
    "delta_rule",
    "folded_weights",
    "language_logits",
    "learner",
    "linear_attention",
    "load_garg",
    "load_gpt2",
    "load_tokenizer",
    "local_logits",
    "mesa_layer",
    "prefix_predictions",
    "reduced_logits",
    "traced",
]
