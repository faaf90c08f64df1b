"""Is learner a the same as learner b? By predictions on the same tasks, weights modulo symmetry, states inside."""

from icl_lab.compare.distributions import jensen_shannon, order_sensitivity, top_overlap
from icl_lab.compare.implicit_finetuning import (
    attention_similarity,
    attention_update_similarity,
    finetuned_token_scores,
    kendall,
    label_directions,
    orthogonal_noise_floor,
    random_update_similarity,
    update_similarity,
    update_similarity_floor,
    within_span,
)
from icl_lab.compare.implied_priors import ImpliedPrior, implied_prior
from icl_lab.compare.matched_updates import matched_update, relative_sizes
from icl_lab.compare.network_states import NetworkStates, Patch, network_states, similarities
from icl_lab.compare.predictions import compare, compare_batches, mean_loss, task_losses
from icl_lab.compare.prefixes import from_every_prefix, prefix_losses
from icl_lab.compare.progress import progress_measures
from icl_lab.compare.scores import Score, agreement_where_wrong, recall_to_finetuning
from icl_lab.compare.weights import align_weights, interpolate

__all__ = [
    "ImpliedPrior",
    "NetworkStates",
    "Patch",
    "Score",
    "agreement_where_wrong",
    "align_weights",
    "attention_similarity",
    "attention_update_similarity",
    "compare",
    "compare_batches",
    "finetuned_token_scores",
    "from_every_prefix",
    "implied_prior",
    "interpolate",
    "jensen_shannon",
    "kendall",
    "label_directions",
    "matched_update",
    "mean_loss",
    "network_states",
    "order_sensitivity",
    "orthogonal_noise_floor",
    "prefix_losses",
    "progress_measures",
    "random_update_similarity",
    "recall_to_finetuning",
    "relative_sizes",
    "similarities",
    "task_losses",
    "top_overlap",
    "update_similarity",
    "update_similarity_floor",
    "within_span",
]
