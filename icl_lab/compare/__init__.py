"""Is learner a the same as learner b? By predictions on the same tasks, and by weights modulo symmetry."""

from icl_lab.compare.predictions import compare, compare_batches, mean_loss, task_losses
from icl_lab.compare.progress import progress_measures
from icl_lab.compare.weights import align_weights, interpolate

__all__ = [
    "align_weights",
    "compare",
    "compare_batches",
    "interpolate",
    "mean_loss",
    "progress_measures",
    "task_losses",
]
