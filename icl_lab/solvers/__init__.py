"""Learners that are algorithms: each constructor returns a function ``Prompt -> (O,) prediction``.

Fine-tuning returns another network.
"""

from icl_lab.solvers.finetuning import (
    Finetuned,
    finetune,
    random_update,
    trained_embeddings,
    untrained,
    update_norms,
)
from icl_lab.solvers.gradient import gd_plus_plus, gradient_descent
from icl_lab.solvers.kernel import feature_kernel, functional_gradient_descent, kernel_smoothing
from icl_lab.solvers.least_squares import least_squares, ridge
from icl_lab.solvers.logistic import logistic_bayes, logistic_gradient_descent, logistic_map

__all__ = [
    "Finetuned",
    "feature_kernel",
    "finetune",
    "functional_gradient_descent",
    "gd_plus_plus",
    "gradient_descent",
    "kernel_smoothing",
    "least_squares",
    "logistic_bayes",
    "logistic_gradient_descent",
    "logistic_map",
    "random_update",
    "ridge",
    "trained_embeddings",
    "untrained",
    "update_norms",
]
