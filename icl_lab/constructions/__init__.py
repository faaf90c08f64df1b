"""Weights written by hand, in the same pytree as ``network.init``."""

from icl_lab.constructions.copying import copy_then_gradient_descent_weights
from icl_lab.constructions.gradient_descent import (
    functional_gradient_descent_weights,
    gd_plus_plus_weights,
    gradient_descent_weights,
)
from icl_lab.constructions.induction_head import induction_head_weights
from icl_lab.constructions.linear_attention import linear_attention_blocks, linear_attention_weights

__all__ = [
    "copy_then_gradient_descent_weights",
    "functional_gradient_descent_weights",
    "gd_plus_plus_weights",
    "gradient_descent_weights",
    "induction_head_weights",
    "linear_attention_blocks",
    "linear_attention_weights",
]
