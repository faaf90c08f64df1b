"""Closed forms in float64, and minima of them."""

from icl_lab.theory.finite_sets import overfitting_coefficient
from icl_lab.theory.gd_plus_plus import (
    condition_number,
    eigenvalue_density,
    gd_plus_plus_condition_number,
    gd_plus_plus_eigenvalues,
    gd_plus_plus_peak,
    residual_factor,
)
from icl_lab.theory.linear_regression import (
    centred_step_optimum,
    input_kurtosis,
    one_step_loss,
    one_step_loss_out_of_distribution,
    one_step_optimum,
)

__all__ = [
    "centred_step_optimum",
    "condition_number",
    "eigenvalue_density",
    "gd_plus_plus_condition_number",
    "gd_plus_plus_eigenvalues",
    "gd_plus_plus_peak",
    "input_kurtosis",
    "one_step_loss",
    "one_step_loss_out_of_distribution",
    "one_step_optimum",
    "overfitting_coefficient",
    "residual_factor",
]
