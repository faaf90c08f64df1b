"""Predictions of a whole batch of prompts at once."""

import jax
from jax import Array

from icl_lab.models.learner import learner
from icl_lab.models.transformer import Transformer
from icl_lab.prompts.prompt import Prompt


def batched_predictions(network: Transformer, params: dict, prompts: Prompt) -> Array:
    """``vmap(learner(network, params))`` for joint tokens: prompts with a leading batch axis -> (B, O)."""
    return jax.vmap(learner(network, params))(prompts)
