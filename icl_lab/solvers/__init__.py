"""Learners that are algorithms: each constructor returns a function ``Prompt -> (O,) prediction``.

Fine-tuning returns another network.
"""

from icl_lab.solvers.adaptive import (
    centred,
    dmmse,
    dmmse_or_ridge,
    gaussian_smoothing,
    noise_adaptive_ridge,
    softmax_regression,
    with_intercept,
)
from icl_lab.solvers.finetuning import Finetuned, finetune, random_update, trained_embeddings, untrained, update_norms
from icl_lab.solvers.gradient import averaging, gd_plus_plus, gradient_descent, trace_normalised_gradient_descent
from icl_lab.solvers.heavy_ball import heavy_ball
from icl_lab.solvers.in_order import leaky_lms, lms, recursive_least_squares
from icl_lab.solvers.iterative import (
    chebyshev,
    conjugate_gradients,
    gradient_flow,
    nesterov,
    newton,
    preconditioned_gradient_descent,
)
from icl_lab.solvers.kernel import feature_kernel, functional_gradient_descent, kernel_smoothing, nearest_neighbours
from icl_lab.solvers.least_squares import least_squares, ridge, weighted_ridge
from icl_lab.solvers.logistic import effective_draws, logistic_bayes, logistic_gradient_descent, logistic_map
from icl_lab.solvers.robust import huber_regression, median_regression
from icl_lab.solvers.sparse import lasso

__all__ = [
    "Finetuned",
    "averaging",
    "centred",
    "chebyshev",
    "conjugate_gradients",
    "dmmse",
    "dmmse_or_ridge",
    "effective_draws",
    "feature_kernel",
    "finetune",
    "functional_gradient_descent",
    "gaussian_smoothing",
    "gd_plus_plus",
    "gradient_descent",
    "gradient_flow",
    "heavy_ball",
    "huber_regression",
    "kernel_smoothing",
    "lasso",
    "leaky_lms",
    "least_squares",
    "lms",
    "logistic_bayes",
    "logistic_gradient_descent",
    "logistic_map",
    "median_regression",
    "nearest_neighbours",
    "nesterov",
    "newton",
    "noise_adaptive_ridge",
    "preconditioned_gradient_descent",
    "random_update",
    "recursive_least_squares",
    "ridge",
    "softmax_regression",
    "trace_normalised_gradient_descent",
    "trained_embeddings",
    "untrained",
    "update_norms",
    "weighted_ridge",
    "with_intercept",
]
