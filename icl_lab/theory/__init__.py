"""Closed forms in float64, and minima of them."""

from icl_lab.theory.attention_blocks import block_loss, spurious_curvature, spurious_point
from icl_lab.theory.finite_sets import overfitting_coefficient
from icl_lab.theory.gd_plus_plus import (
    condition_number,
    eigenvalue_density,
    gd_plus_plus_condition_number,
    gd_plus_plus_eigenvalues,
    gd_plus_plus_peak,
    residual_factor,
)
from icl_lab.theory.linear_attention import (
    gamma,
    isotropic_risk,
    optimal_loss,
    optimum,
    population_loss,
    principal_components_loss,
    risk,
    spurious_loss,
)
from icl_lab.theory.linear_regression import (
    centred_step_optimum,
    input_kurtosis,
    one_step_loss,
    one_step_loss_out_of_distribution,
    one_step_optimum,
)

__all__ = [
    "block_loss",
    "centred_step_optimum",
    "condition_number",
    "eigenvalue_density",
    "gamma",
    "gd_plus_plus_condition_number",
    "gd_plus_plus_eigenvalues",
    "gd_plus_plus_peak",
    "input_kurtosis",
    "isotropic_risk",
    "one_step_loss",
    "one_step_loss_out_of_distribution",
    "one_step_optimum",
    "optimal_loss",
    "optimum",
    "overfitting_coefficient",
    "population_loss",
    "principal_components_loss",
    "residual_factor",
    "risk",
    "spurious_curvature",
    "spurious_loss",
    "spurious_point",
]
